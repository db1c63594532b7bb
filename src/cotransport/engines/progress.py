"""The progress of a job, in a small file that its process writes and the command reads."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cotransport.errors import StorageError
from cotransport.system.files import read_json, write_json
from cotransport.training.listener import Listener
from cotransport.training.progress import TrainingProgress
from cotransport.training.time_left import TimeLeft

SECONDS_BETWEEN_WRITES = 1.0


class JobProgress(BaseModel):
    """The progress of a job."""

    model_config = ConfigDict(frozen=True)

    phase: str = "starting"
    """What it is doing, in one or two words."""
    task: int = 0
    """Tasks started."""
    tasks: int = 0
    epoch: int = 0
    """Epochs of the task started."""
    epochs: int = 0
    result: str = ""
    """Accuracy after the last finished task, as text."""
    learned: int = 0
    """Tasks finished."""
    seconds_left: float | None = None

    def write(self, path: Path) -> None:
        """Write the file. If that fails, the job continues, because only the display needs it."""
        with suppress(StorageError):
            write_json(path, self.model_dump(mode="json"), sync=False)

    @classmethod
    def read(cls, path: Path) -> JobProgress | None:
        """The progress in a file; None if there is none, or if it cannot be read."""
        try:
            return cls.model_validate(read_json(path))
        except (OSError, ValueError, ValidationError):
            return None


class ProgressFile:
    """Passes events to a listener, and writes the progress to a file: at most once a second, and after every task."""

    def __init__(self, listener: Listener, path: Path) -> None:
        self._listener, self._path = listener, path
        self._time_left = TimeLeft()
        self._progress, self._written = JobProgress(), -math.inf

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """`jobs` jobs will run. Those named in `kept` were finished earlier and are kept."""
        self._time_left.planned(jobs)
        self._update(phase="reading images", at_once=True)
        self._listener.planned(jobs, kept)

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks."""
        self._time_left.job_started(work, tasks_done)
        task = min(tasks_done + 1, len(work))
        self._update(phase="starting", task=task, tasks=len(work), learned=tasks_done, at_once=True)
        self._listener.job_started(title, notes, work, tasks_done)

    def training(self, progress: TrainingProgress) -> None:
        """The training of a task has made progress."""
        self._time_left.training(progress)
        seconds = self._time_left.seconds
        self._update(
            phase="training",
            task=progress.task + 1,
            epoch=progress.epoch,
            epochs=progress.epochs,
            seconds_left=None if math.isnan(seconds) else seconds,
        )
        self._listener.training(progress)

    def testing(self) -> None:
        """A lesson is learned, and the held-out images are predicted."""
        self._listener.testing()

    def task_done(self, summary: str, details: str) -> None:
        """A task is learned and evaluated."""
        self._time_left.task_done()
        self._update(result=summary, learned=self._time_left.task, at_once=True)
        self._listener.task_done(summary, details)

    def note(self, text: str, hint: str = "") -> None:
        """Something that the user should know. `hint` is what to do about it on the command line."""
        self._listener.note(text, hint)

    def details(self, text: str) -> None:
        """Something for a user who wants to know more."""
        self._listener.details(text)

    def trial(self, progress: TrainingProgress) -> None:
        """A training that only helps to choose a network has made progress."""
        self._listener.trial(progress)

    def reading(self, done: int, files: int) -> None:
        """The first pass over a folder of images has seen `done` of `files` files."""
        self._listener.reading(done, files)

    def features(self, done: int, images: int) -> None:
        """A frozen backbone has seen `done` of `images` images."""
        self._update(phase="features")
        self._listener.features(done, images)

    def _update(self, *, at_once: bool = False, **values: object) -> None:
        self._progress = self._progress.model_copy(update=values)
        now = time.monotonic()
        if at_once or now - self._written >= SECONDS_BETWEEN_WRITES:
            self._written = now
            self._progress.write(self._path)
