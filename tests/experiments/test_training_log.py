"""Logs as CSV and for TensorBoard, in the run's folder."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from cotransport.errors import RunError
from cotransport.experiments.results import TaskResult
from cotransport.experiments.training_log import TrainingLog
from cotransport.settings.sections import Logging
from tests.experiments.helpers import REPLAY, StopsAfterTask, run_digits


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_epochs_and_tasks_are_logged_for_every_program(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    [result] = run_digits(*REPLAY, "schedule.epochs=2", "logging={csv: true, tensorboard: true}", out=tmp_path)
    folder = tmp_path / "replay-seed1"
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "result.json"]
    logged = rows(folder / "logs" / "csv" / "metrics.csv")
    epochs = [row for row in logged if row["train/loss"]]
    assert [float(row["train/epoch"]) for row in epochs] == [1, 2] * 3
    assert [float(row["train/task"]) for row in epochs] == [0, 0, 1, 1, 2, 2]
    tasks = [row for row in logged if row["test/top1"]]
    assert [float(row["test/top1"]) for row in tasks] == pytest.approx(result.curve)
    assert [float(row["test/classes_seen"]) for row in tasks] == [2, 4, 5]
    assert [int(row["step"]) for row in logged] == sorted(int(row["step"]) for row in logged)
    assert list((folder / "logs" / "tensorboard").glob("events*"))


def test_the_log_says_how_diffuse_the_plan_is(tmp_path: Path) -> None:
    [result] = run_digits(*REPLAY, "methods=[coil]", "logging.csv=true", out=tmp_path)
    logged = [row["test/effective_sources"] for row in rows(tmp_path / "coil-seed1" / "logs" / "csv" / "metrics.csv")]
    expected = [
        sum(origin.effective_sources for origin in step.transport.origins) / len(step.transport.origins)
        for step in result.steps
        if step.transport is not None
    ]
    assert [float(value) for value in logged if value] == pytest.approx(expected)
    assert len(expected) == 2


def test_a_resumed_run_keeps_its_log(tmp_path: Path) -> None:
    settings = (*REPLAY, "logging.csv=true")
    with pytest.raises(KeyboardInterrupt):
        run_digits(*settings, out=tmp_path, listener=StopsAfterTask())
    run_digits(*settings, out=tmp_path, resume=True)
    run_digits(*settings, out=tmp_path / "whole")
    logs = sorted((tmp_path / "replay-seed1" / "logs").glob("*/metrics.csv"))
    assert [path.parent.name for path in logs] == ["csv", "csv-1"]
    whole = rows(tmp_path / "whole" / "replay-seed1" / "logs" / "csv" / "metrics.csv")
    assert [row["step"] for path in logs for row in rows(path)] == [row["step"] for row in whole]


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path) -> None:
    log = TrainingLog(Logging(), tmp_path)
    log.task_done(
        TaskResult(
            classes_seen=2,
            top1=90.0,
            top5=None,
            head_top1=90.0,
            ncm_top1=None,
            per_task=[90.0],
            train_seconds=1.0,
            images_per_second=1.0,
        )
    )
    log.close()
    assert not list(tmp_path.iterdir())


def test_a_missing_tensorboard_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch.utils.tensorboard", "tensorboardX", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    with pytest.raises(RunError, match=r"TensorBoard is not installed\. pip install 'cotransport\[tensorboard\]'"):
        TrainingLog(Logging(tensorboard=True), tmp_path)
