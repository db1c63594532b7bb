"""`follow`: every task is trained for the epochs that an earlier experiment has recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cotransport.errors import RunError
from cotransport.experiments.results import Result
from tests.experiments.helpers import REPLAY, StopsAfterTask, run_digits

RESULT = Path("replay-seed1", "result.json")


def epochs(result: Result) -> list[int | None]:
    return [step.epochs for step in result.steps]


def copy_with_epochs(earlier: Path, folder: Path, numbers: list[object]) -> Path:
    """A copy of an experiment in which other epochs are recorded."""
    values = json.loads((earlier / RESULT).read_text(encoding="utf-8"))
    for step, number in zip(values["steps"], numbers, strict=True):
        step["epochs"] = number
    (folder / RESULT).parent.mkdir(parents=True)
    (folder / RESULT).write_text(json.dumps(values), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment."""
    out = tmp_path_factory.mktemp("earlier")
    run_digits(*REPLAY, out=out)
    return out


@pytest.mark.filterwarnings("ignore:schedule.seconds_per_task")  # on a very busy machine, the time buys no epoch
def test_a_run_with_a_time_budget_can_be_followed(tmp_path: Path) -> None:
    budget = (*REPLAY, "stream={step: 2, subset: 4}", "schedule.seconds_per_task=0.4")
    [first] = run_digits(*budget, out=tmp_path / "first")
    [again] = run_digits(*budget, f"follow={tmp_path / 'first'}", out=tmp_path / "again")
    assert epochs(again) == epochs(first)
    assert again.curve == first.curve
    assert again.confusion == first.confusion


def test_recorded_epochs_overrule_the_schedule(earlier: Path, tmp_path: Path) -> None:
    followed = copy_with_epochs(earlier, tmp_path / "followed", [2, 1, 3])
    [result] = run_digits(*REPLAY, f"follow={followed}", out=tmp_path / "out")
    assert epochs(result) == [2, 1, 3]


def test_trainings_that_end_early_cannot_be_followed(earlier: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"schedule\.enough"):
        run_digits(*REPLAY, "schedule.enough=0.9", f"follow={earlier}", out=tmp_path / "out")


def test_a_resumed_run_follows_what_it_has_recorded_itself(earlier: Path, tmp_path: Path) -> None:
    """The run that it follows may be gone by then."""
    followed = copy_with_epochs(earlier, tmp_path / "followed", [1, 2, 2])
    with pytest.raises(KeyboardInterrupt):
        run_digits(*REPLAY, f"follow={followed}", out=tmp_path / "out", listener=StopsAfterTask())
    (followed / RESULT).unlink()
    [result] = run_digits(*REPLAY, f"follow={followed}", out=tmp_path / "out", resume=True)
    assert epochs(result) == [1, 2, 2]


def test_a_run_may_follow_itself(earlier: Path, tmp_path: Path) -> None:
    """It is overwritten, but keeps its epochs. Nothing is removed before they are read."""
    out = copy_with_epochs(earlier, tmp_path / "out", [2, 1, 2])
    [result] = run_digits(*REPLAY, f"follow={out}", out=out, overwrite=True)
    assert epochs(result) == [2, 1, 2]
    (out / RESULT).write_text("broken", encoding="utf-8")
    with pytest.raises(RunError, match=r"result\.json: not a result"):
        run_digits(*REPLAY, f"follow={out}", out=out, overwrite=True)
    assert (out / RESULT).read_text(encoding="utf-8") == "broken"


def test_a_missing_run_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no/replay-seed1/result\.json: not there\. .*same methods and seeds"):
        run_digits(*REPLAY, f"follow={tmp_path / 'no'}", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unfinished_run_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_digits(*REPLAY, out=tmp_path / "stopped", listener=StopsAfterTask())
    with pytest.raises(RunError, match=r"replay-seed1/result\.json: not there\. .* finished"):
        run_digits(*REPLAY, f"follow={tmp_path / 'stopped'}", out=tmp_path / "out")


@pytest.mark.parametrize("text", ["", "{}", '{"steps": [{"epochs": 1}]}', "[1, 2"])
def test_a_damaged_result_cannot_be_followed(text: str, tmp_path: Path) -> None:
    (tmp_path / "before" / "replay-seed1").mkdir(parents=True)
    (tmp_path / "before" / RESULT).write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"before/replay-seed1/result\.json: not a result of a run"):
        run_digits(*REPLAY, f"follow={tmp_path / 'before'}", out=tmp_path / "out")


@pytest.mark.parametrize("number", [0, -1, 1.5, "many"])
def test_epochs_that_cannot_be_trained_are_refused(number: object, earlier: Path, tmp_path: Path) -> None:
    followed = copy_with_epochs(earlier, tmp_path / "followed", [1, number, 1])
    with pytest.raises(RunError, match=r"followed/replay-seed1/result\.json: not a result of a run"):
        run_digits(*REPLAY, f"follow={followed}", out=tmp_path / "out")


def test_a_run_of_fewer_tasks_cannot_be_followed(earlier: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"result\.json: it has 3 tasks, but this experiment has 5"):
        run_digits(*REPLAY, "stream={tasks: 5}", f"follow={earlier}", out=tmp_path)
