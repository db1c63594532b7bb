"""Results on disk: written, read, found, and handed on in memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from cotransport.errors import RunError
from cotransport.experiments.results import Archive, Result, find_results, with_other_results
from tests.report.results import make_result, transported_results


def save(out: Path, *results: Result) -> None:
    for result in results:
        (out / result.folder).mkdir(parents=True)
        result.save(out / result.folder)


def folders(results: list[Result]) -> list[str]:
    return [result.folder for result in results]


def test_a_saved_result_is_read_back(tmp_path: Path) -> None:
    result = make_result("coil", classes=["zero", "ün", "two", "three"])
    path = result.save(tmp_path)
    assert path == tmp_path / "result.json"
    assert Result.load(path) == result
    assert "ün" in path.read_text(encoding="utf-8")


def test_an_undefined_accuracy_is_null_on_disk_and_nan_in_memory(tmp_path: Path) -> None:
    result = make_result(per_task=[[90.0], [60.0, None]])
    last = result.steps[-1].model_copy(update={"top1": None})
    path = result.model_copy(update={"steps": [result.steps[0], last]}).save(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8"))["steps"][1]["top1"] is None
    found = Result.load(path)
    assert found.curve[0] == 90.0
    assert math.isnan(found.curve[1])
    assert found.accuracy_matrix[1, 0] == 60.0
    assert math.isnan(found.accuracy_matrix[1, 1])


def test_the_curve_is_that_of_the_metric() -> None:
    assert make_result().curve == [90.0, 70.0]
    assert make_result(metric="top5").curve == [100.0, 100.0]


def test_fields_of_a_later_release_are_kept(tmp_path: Path) -> None:
    values = make_result().model_dump(mode="json") | {"a later field": 3}
    (tmp_path / "result.json").write_text(json.dumps(values), encoding="utf-8")
    assert Result.load(tmp_path / "result.json").model_dump()["a later field"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"label": 3}', r"result\.json: not a result of a run \(.+: .+\).*--overwrite"),
        (b"[", r"result\.json: not a result of a run"),
        (b"\xff\xfe", r"result\.json: not a result of a run"),
    ],
)
def test_a_damaged_result_is_named(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(text)
    with pytest.raises(RunError, match=message):
        find_results(tmp_path)


def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    with pytest.raises(RunError, match=r"result\.json: cannot be read"):
        Result.load(tmp_path / "result.json")


def test_results_are_found_in_an_experiment_or_in_one_run(tmp_path: Path) -> None:
    save(tmp_path, make_result("wa"), make_result("coil", 2), make_result("coil", 1))
    assert folders(find_results(tmp_path)) == ["coil-seed1", "coil-seed2", "wa-seed1"]
    assert folders(find_results(tmp_path / "coil-seed2")) == ["coil-seed2"]
    assert len(find_results(tmp_path, tmp_path / "wa-seed1")) == 3  # none is found twice


def test_an_archive_has_everything_but_what_is_large(tmp_path: Path) -> None:
    results = [make_result("wa"), *transported_results()]
    path = tmp_path / "new" / "all.json"
    Archive.of([*results, *results]).save(path)  # each is kept once
    found = find_results(path)
    large = {"confusion": True, "steps": {"__all__": {"transport"}}}
    assert [one.model_dump(exclude=large) for one in found] == [one.model_dump(exclude=large) for one in results]
    assert all(not one.confusion and step.transport is None for one in found for step in one.steps)
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2 + len(results)  # a line a run


def test_archives_and_folders_are_found_together(tmp_path: Path) -> None:
    save(tmp_path / "runs", make_result("coil"))
    Archive.of([make_result("wa")]).save(tmp_path / "all.json")
    assert folders(find_results(tmp_path / "runs", tmp_path / "all.json")) == ["wa-seed1", "coil-seed1"]


def test_archives_in_a_folder_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    for label in ("wa", "coil"):
        Archive.of([make_result(label)]).save(tmp_path / f"{label}.json")
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    (tmp_path / "folder.json").mkdir()
    assert folders(find_results(tmp_path)) == ["coil-seed1", "wa-seed1"]


@pytest.mark.parametrize("text", ['{"runs": [{}]}', "{}", "no JSON"])
def test_a_file_that_is_no_archive_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"all\.json: not an archive of results .*report --archive"):
        find_results(tmp_path / "all.json")


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run"):
        find_results(tmp_path)
    with pytest.raises(RunError, match="no such file or folder"):
        find_results(tmp_path / "nowhere")


def test_results_at_hand_are_not_read_again(tmp_path: Path) -> None:
    save(tmp_path, make_result("wa"), make_result("coil"), make_result("bic"))
    (tmp_path / "coil-seed1" / "result.json").write_text("not read", encoding="utf-8")
    own = [make_result("coil"), make_result("replay")]
    found = with_other_results(own, tmp_path)
    assert folders(found) == ["bic-seed1", "coil-seed1", "replay-seed1", "wa-seed1"]
    assert found[1] is own[0]
    assert found[2] is own[1]
