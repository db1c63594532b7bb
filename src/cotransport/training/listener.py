"""Who hears of the progress of learning: whatever shows it, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cotransport.training.progress import TrainingProgress


class Listener(Protocol):
    """Receives the progress of learning: one run after another, or a single lesson."""

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """`jobs` jobs will run. Those named in `kept` were finished earlier and are kept."""

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks. `work` is the cost of each task, in any unit."""

    def training(self, progress: TrainingProgress) -> None:
        """The training of a task has made progress."""

    def note(self, text: str, hint: str = "") -> None:
        """Something that the user should know. `hint` is what to do about it on the command line."""

    def details(self, text: str) -> None:
        """Something for a user who wants to know more, in one or more lines."""

    def trial(self, progress: TrainingProgress) -> None:
        """A training that only helps to choose a network has made progress."""

    def reading(self, done: int, files: int) -> None:
        """The first pass over a folder of images has seen `done` of `files` files."""

    def features(self, done: int, images: int) -> None:
        """A frozen backbone has seen `done` of `images` images."""

    def testing(self) -> None:
        """A lesson is learned, and the held-out images are predicted."""

    def task_done(self, summary: str, details: str) -> None:
        """A task is learned and evaluated."""


class NullListener:
    """Ignores everything. All processes except the first one use it."""

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """Do nothing."""

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """Do nothing."""

    def training(self, progress: TrainingProgress) -> None:
        """Do nothing."""

    def reading(self, done: int, files: int) -> None:
        """Do nothing."""

    def features(self, done: int, images: int) -> None:
        """Do nothing."""

    def note(self, text: str, hint: str = "") -> None:
        """Do nothing."""

    def details(self, text: str) -> None:
        """Do nothing."""

    def trial(self, progress: TrainingProgress) -> None:
        """Do nothing."""

    def testing(self) -> None:
        """Do nothing."""

    def task_done(self, summary: str, details: str) -> None:
        """Do nothing."""
