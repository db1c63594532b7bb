"""Training logs: what is logged, in which file, and that a resumed run goes on with the same log."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from cotransport.errors import ConfigError, RunError
from cotransport.loggers import loggers_for
from tests.experiments.helpers import REPLAY, Recorder, StopsAfterTask, quick_recipe, run_digits


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "logs" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_epochs_tasks_and_the_run_are_logged(tmp_path: Path) -> None:
    [result] = run_digits(*REPLAY, "schedule.epochs=2", "logging=csv", out=tmp_path)
    folder = tmp_path / "replay-seed1"
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "result.json"]
    logged = rows(folder)
    epochs = [row for row in logged if row["train/loss"]]
    assert [float(row["train/epoch"]) for row in epochs] == [1, 2] * 3
    assert [float(row["train/task"]) for row in epochs] == [0, 0, 1, 1, 2, 2]
    tasks = [row for row in logged if row["test/top1"]]
    assert [float(row["test/top1"]) for row in tasks] == pytest.approx(result.curve)
    assert [float(row["test/classes_seen"]) for row in tasks] == [2, 4, 5]
    on_each_task = [[row[f"test/task_{task}"] for task in (1, 2, 3)] for row in tasks]
    assert [[float(value) for value in row if value] for row in on_each_task] == [s.per_task for s in result.steps]
    assert [int(row["step"]) for row in logged] == sorted(int(row["step"]) for row in logged)
    assert float(logged[-1]["run/forgetting"]) == result.forgetting


def test_the_log_says_how_diffuse_the_plan_is(tmp_path: Path) -> None:
    [result] = run_digits(*REPLAY, "methods=[coil]", "logging=[csv]", out=tmp_path)
    logged = [row["test/effective_sources"] for row in rows(tmp_path / "coil-seed1")]
    expected = [
        sum(origin.effective_sources for origin in step.transport.origins) / len(step.transport.origins)
        for step in result.steps
        if step.transport is not None
    ]
    assert [float(value) for value in logged if value] == pytest.approx(expected)
    assert len(expected) == 2


def without_times(row: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if "second" not in name}


class StopsInSecondTask(Recorder):
    """Ends the program when an epoch of the second task is done."""

    def training(self, progress: object) -> None:
        super().training(progress)  # type: ignore[arg-type]
        if self.progress[-1].task == 1 and self.progress[-1].epoch_done:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [StopsAfterTask, StopsInSecondTask])
def test_a_resumed_run_ends_with_the_log_of_an_uninterrupted_one(tmp_path: Path, stop: type[Recorder]) -> None:
    settings = (*REPLAY, "schedule.epochs=2", "logging=csv")
    with pytest.raises(KeyboardInterrupt):
        run_digits(*settings, out=tmp_path, listener=stop())
    run_digits(*settings, out=tmp_path, resume=True)
    run_digits(*settings, out=tmp_path / "whole")
    whole = rows(tmp_path / "whole" / "replay-seed1")
    assert list(map(without_times, rows(tmp_path / "replay-seed1"))) == list(map(without_times, whole))


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert loggers_for(()) == []
    run_digits(*REPLAY, out=tmp_path)
    assert [path.name for path in (tmp_path / "replay-seed1").iterdir()] == ["result.json"]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_named_before_anything_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RunError, match=rf"{name} is not installed\. pip install 'cotransport\[{name}\]'"):
        loggers_for([name])  # type: ignore[list-item]


def test_an_unknown_logger_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"logging\.0: 'wanbd' .* 'wandb'\? Allowed: csv, tensorboard, wandb, mlflow$"
    ):
        quick_recipe("logging=wanbd")
