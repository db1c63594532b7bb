"""The whole report: its files, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from cotransport.errors import RunError
from cotransport.experiments.results import find_results
from cotransport.report import write_report
from tests.report.results import HOSTILE, make_result, transported_results


def contents(folder: Path) -> dict[Path, bytes]:
    """All files but PNG images, which hold no promise of identity."""
    files = [path for path in folder.rglob("*.*") if path.is_file() and path.suffix != ".png"]
    return {path.relative_to(folder): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on hostile names with several seeds, and on a single task of one class."""
    folder = tmp_path_factory.mktemp("runs") / "out"
    names = HOSTILE[:4]
    results = [
        make_result(HOSTILE[-1], seed=1, classes=names),
        make_result(HOSTILE[-1], seed=2, classes=names, per_task=[[90.0], [None, 80.0]]),
        make_result(r"_$\frac$", classes=names),
        make_result(tasks=[1], per_task=[[100.0]]),
    ]
    assert write_report(results, folder).page == folder / "report.html"
    return folder


def test_a_report_has_all_its_files_and_no_others(out: Path) -> None:
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["report.html", "summary.csv", "summary.md", "summary.tex", "curves.csv", "figures"]
    )
    drawn = ["accuracy", "forgetting", "matrix-escape", "confusion-escape", "matrix-frac", "confusion-frac"]
    names = [f"stream1-{name}" for name in drawn] + [f"stream2-{name}-replay" for name in ("matrix", "confusion")]
    expected = {f"{name}.{kind}" for name in [*names, "stream2-accuracy"] for kind in ("png", "svg")}
    assert {path.name for path in (out / "figures").iterdir()} == expected
    assert [path.name for path in out.parent.iterdir()] == ["out"], "nothing is written beside the folder"


def test_figures_have_the_resolution_of_a_paper(out: Path) -> None:
    for path in (out / "figures").glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 400
            assert len(image.convert("L").getcolors() or []) > 10, f"{path.name} is not blank"
    for path in (out / "figures").glob("*.svg"):
        assert "<svg" in path.read_text(encoding="utf-8")


def test_the_same_results_give_the_same_files(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    in_no_font = "\ue000"
    result = make_result(tasks=[2], per_task=[[75.0]], classes=[in_no_font, "b"])
    write_report([result], tmp_path)
    first = contents(tmp_path)
    write_report([result], tmp_path)
    assert contents(tmp_path) == first
    assert not recwarn.list


def test_results_from_files_give_the_same_report_as_results_in_memory(tmp_path: Path) -> None:
    results = transported_results()
    for result in results:
        (tmp_path / "runs" / str(result.seed)).mkdir(parents=True)
        result.save(tmp_path / "runs" / str(result.seed))
    write_report(results, tmp_path / "memory")
    write_report(find_results(tmp_path / "runs"), tmp_path / "files")
    assert contents(tmp_path / "memory") == contents(tmp_path / "files")


def test_files_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    write_report(transported_results(), tmp_path)
    (tmp_path / "figures" / "mine.png").touch()
    assert {"initial.csv", "transport.csv"} < {path.name for path in tmp_path.iterdir()}
    assert {"transport-coil.svg", "initial-coil.svg"} < {path.name for path in (tmp_path / "figures").iterdir()}
    write_report([make_result()], tmp_path)
    assert not {"initial.csv", "transport.csv"} & {path.name for path in tmp_path.iterdir()}
    names = {"accuracy", "forgetting", "matrix-replay", "confusion-replay", "mine"}
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == names


def test_a_report_has_its_summaries_in_memory(tmp_path: Path) -> None:
    report = write_report([make_result("coil"), make_result("replay", seed=1), make_result("replay", seed=2)], tmp_path)
    (stream,) = report.streams
    assert sorted((method.name, method.seeds) for method in stream.methods) == [("COIL", 1), ("Replay", 2)]


def test_errors_name_the_path_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"file: the report cannot be written .*--out"):
        write_report([make_result()], tmp_path / "file")
    with pytest.raises(RunError, match="no results"):
        write_report([], tmp_path)


def test_importing_the_report_imports_no_heavy_library() -> None:
    code = "import sys, cotransport.report; print([m for m in ('matplotlib', 'pandas', 'plotly') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
