import io
import math

import pytest
from rich.console import Console

from cotransport.cli import progress
from cotransport.cli.progress import ConsoleWatcher
from cotransport.experiments.results import TaskResult
from cotransport.experiments.run import Run
from cotransport.methods import make_method
from cotransport.training.loop import TrainingProgress


def figures(step: int, **changes: object) -> TrainingProgress:
    values: dict[str, object] = {
        "task": 0,
        "epoch": 1,
        "epochs": 2,
        "step": step,
        "steps": 10,
        "images": 100 * step,
        "loss": 0.5 if step else math.nan,
        "accuracy": 50.0 if step else math.nan,
        "learning_rate": 0.1,
        "images_per_second": 100.0 if step else math.nan,
        "seconds_left": 1.0,
        "epoch_done": step == 5,
        "compile_seconds": None,
    }
    return TrainingProgress(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a watcher prints in the middle of the second of two tasks, of the first of two runs."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    file = io.StringIO()
    with ConsoleWatcher(Console(file=file, width=200)) as watcher:
        watcher.planned(2, [])
        now[0] = 100.0  # images are read
        watcher.run_begun(Run(make_method("replay"), 1), [1000.0, 3000.0])
        watcher.figures(figures(0))
        now[0] = 110.0
        watcher.figures(figures(5, compile_seconds=75.0))
        step = {"classes_seen": 2, "top1": 90.0, "top5": 99.0, "head_top1": 90.0, "ncm_top1": None, "per_task": [90.0]}
        watcher.task_done(TaskResult(**step, train_seconds=20.0, images_per_second=100.0))  # type: ignore[arg-type]
        watcher.figures(figures(0, task=1))
        now[0] = 150.0
        watcher.figures(figures(5, task=1))
    return file.getvalue().splitlines()


def test_the_time_left_counts_tasks_and_runs_to_come(told: list[str]) -> None:
    # 2,500 of 8,000 pieces of work took 50 seconds, so the other 5,500 will take 110
    assert "1 min 50 s left" in told[-1]
    assert "task 2/2 epoch 1/2" in told[-1]


def test_nothing_is_told_of_a_training_without_a_step(told: list[str]) -> None:
    assert not any("nan" in line for line in told)


def test_the_time_to_compile_is_shown(told: list[str]) -> None:
    assert any("compiled in 1 min 15 s" in line for line in told)


def test_a_finished_task_is_told(told: list[str]) -> None:
    assert any("task 1/2: 90.0 % on 2 classes" in line and "nearest mean –" in line for line in told)


def test_where_the_mean_counts_the_head_is_told_beside_it() -> None:
    file = io.StringIO()
    with ConsoleWatcher(Console(file=file, width=200)) as watcher:
        watcher.run_begun(Run(make_method("icarl"), 1), [1000.0])
        step = {"classes_seen": 2, "top1": 90.0, "top5": 99.0, "head_top1": 80.0, "ncm_top1": 90.0, "per_task": [90.0]}
        watcher.task_done(TaskResult(**step, train_seconds=20.0, images_per_second=100.0))  # type: ignore[arg-type]
    assert "90.0 % on 2 classes (head 80.0 %;" in file.getvalue()
