"""Callbacks hear what happens in a run, from its start to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotransport.experiments.callback import Callback, StartedRun
from cotransport.experiments.results import Result, TaskResult
from cotransport.experiments.run import run
from cotransport.training.progress import TrainingProgress
from tests.experiments.helpers import REPLAY, quick_recipe


class Diary(Callback):
    """Writes down what it hears."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.heard: list[str] = []
        self.steps: list[int] = []
        self._stop_at = stop_at

    def _write(self, event: str) -> None:
        self.heard.append(event)
        if event == self._stop_at:
            raise RuntimeError("no more")

    def run_started(self, run: StartedRun) -> None:
        self._write(f"{run.folder.name} starts after {run.tasks_done}")
        assert len(run.classes) == 5

    def epoch_done(self, progress: TrainingProgress, step: int) -> None:
        self._write(f"epoch {progress.epoch}")
        self.steps.append(step)

    def task_done(self, result: TaskResult, step: int) -> None:
        self._write(f"{result.classes_seen} classes")

    def run_done(self, result: Result) -> None:
        self._write("done")

    def run_ended(self) -> None:
        self.heard.append("ended")


def test_the_events_of_an_interrupted_and_resumed_run(tmp_path: Path) -> None:
    recipe = quick_recipe(*REPLAY)
    first, other, second, whole = Diary(stop_at="4 classes"), Diary(), Diary(), Diary()
    with pytest.raises(RuntimeError, match="no more"):
        run(recipe, tmp_path, callbacks=[first, other])
    start = ["replay-seed1 starts after 0", "epoch 1", "2 classes", "epoch 1"]
    assert first.heard == [*start, "4 classes", "ended"]
    assert other.heard == [*start, "ended"]
    run(recipe, tmp_path, resume=True, callbacks=[second])
    assert second.heard[0] == "replay-seed1 starts after 1"
    assert second.heard[-5:] == ["4 classes", "epoch 1", "5 classes", "done", "ended"]
    run(recipe, tmp_path / "whole", callbacks=[whole, Callback()])
    assert second.steps[-1] == whole.steps[-1]


def test_a_callback_that_cannot_start_is_ended_too(tmp_path: Path) -> None:
    diary = Diary(stop_at="replay-seed1 starts after 0")
    with pytest.raises(RuntimeError):
        run(quick_recipe(*REPLAY), tmp_path, callbacks=[diary])
    assert diary.heard == ["replay-seed1 starts after 0", "ended"]
