"""Quick experiments on the digits, and listeners, that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotransport.experiments.recipe import Recipe, load_recipe
from cotransport.experiments.results import Result
from cotransport.experiments.run import run
from cotransport.loggers import loggers_for
from cotransport.training.listener import Listener, NullListener
from cotransport.training.progress import TrainingProgress

QUICK = ("schedule.epochs=1", "seeds=[1]", "device.accelerator=cpu")
THREE_TASKS = "stream={step: 2, subset: 5}"
"""Five digits, in tasks of 2, 2 and 1."""
REPLAY = ("methods=[replay]", THREE_TASKS, "schedule.batch_size=128")


def quick_recipe(*overrides: str) -> Recipe:
    """The digits with one epoch a task and one seed."""
    return load_recipe("digits", [*QUICK, *overrides])


def run_digits(
    *overrides: str, out: Path, listener: Listener | None = None, resume: bool = False, overwrite: bool = False
) -> list[Result]:
    """Run a quick recipe, with its loggers."""
    recipe = quick_recipe(*overrides)
    callbacks = loggers_for(recipe.logging)
    listener = listener or NullListener()
    return run(recipe, out, resume=resume, overwrite=overwrite, listener=listener, callbacks=callbacks)


def comparable(values: dict[str, Any]) -> dict[str, Any]:
    """A result as in its file, without what differs between two runs of the same program."""
    kept = {key: value for key, value in values.items() if key != "environment"}
    kept["steps"] = [
        {key: value for key, value in step.items() if key not in {"train_seconds", "images_per_second"}}
        for step in values["steps"]
    ]
    return kept


class Recorder(NullListener):
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.jobs: int | None = None
        self.kept: list[str] = []
        self.titles: list[str] = []
        self.work: list[Sequence[float]] = []
        self.tasks_done: list[int] = []
        self.progress: list[TrainingProgress] = []
        self.summaries: list[str] = []

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        self.jobs, self.kept = jobs, list(kept)

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        self.titles.append(title)
        self.work.append(work)
        self.tasks_done.append(tasks_done)

    def training(self, progress: TrainingProgress) -> None:
        self.progress.append(progress)

    def task_done(self, summary: str, details: str) -> None:
        self.summaries.append(f"{summary} ({details})")


class StopsAfterTask(Recorder):
    """Ends the program as soon as the first task is learned."""

    def task_done(self, summary: str, details: str) -> None:
        raise KeyboardInterrupt


class StopsBeforeFirstStep(Recorder):
    """Ends the program when the first training is about to start."""

    def training(self, progress: TrainingProgress) -> None:
        raise KeyboardInterrupt
