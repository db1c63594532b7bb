"""Callbacks: your own Python code, called when something happens in the runs of an experiment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cotransport.experiments.recipe import Recipe
from cotransport.experiments.results import Result, TaskResult
from cotransport.training.progress import TrainingProgress


@dataclass(frozen=True)
class StartedRun:
    """One method with one seed, as its run starts or resumes."""

    folder: Path
    """The folder of the run, which will hold its `result.json`."""
    recipe: Recipe
    label: str
    """The method's name in results."""
    seed: int
    classes: tuple[str, ...]
    """All classes in order of arrival."""
    tasks_done: int
    """Number of tasks that were finished before; above 0 if the run resumes."""
    steps_done: int
    """Training steps of these tasks."""


class Callback:
    """Base class of callbacks. Override the methods you need; the others do nothing.

    Only the first of several processes calls it. An exception in a callback stops the run, which can be resumed.
    After an interruption, an epoch or a task may be reported a second time, with the same step.
    """

    def run_started(self, run: StartedRun) -> None:
        """A run starts or resumes."""

    def epoch_done(self, progress: TrainingProgress, step: int) -> None:
        """An epoch has ended. `step` counts the training steps of all tasks so far."""

    def task_done(self, result: TaskResult, step: int) -> None:
        """A task is learned and evaluated."""

    def run_done(self, result: Result) -> None:
        """All tasks are done, and the result is on disk."""

    def run_ended(self) -> None:
        """The run has ended: it is done, or failed, or was interrupted. This is the last call for a run."""


class RunEvents:
    """Passes the events of one run to callbacks, and counts its training steps."""

    def __init__(self, callbacks: Sequence[Callback], steps_done: int) -> None:
        self._callbacks = callbacks
        self._steps_before = self.steps_done = steps_done

    def training(self, progress: TrainingProgress) -> None:
        """Count the steps, and report the end of an epoch."""
        self.steps_done = self._steps_before + progress.step
        if progress.epoch_done:
            for callback in self._callbacks:
                callback.epoch_done(progress, self.steps_done)

    def task_done(self, result: TaskResult) -> None:
        """Report a task's result."""
        for callback in self._callbacks:
            callback.task_done(result, self.steps_done)
        self._steps_before = self.steps_done

    def run_done(self, result: Result) -> None:
        """Report the result of the run."""
        for callback in self._callbacks:
            callback.run_done(result)


@contextmanager
def reported(run: StartedRun, callbacks: Sequence[Callback]) -> Iterator[RunEvents]:
    """Report the start of a run, what happens in it, and its end."""
    with ExitStack() as ends:
        for callback in callbacks:
            ends.callback(callback.run_ended)
            callback.run_started(run)
        yield RunEvents(callbacks, run.steps_done)
