"""The time left for planned work, from the speed so far."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cotransport.training.progress import TrainingProgress


class PassTimeLeft:
    """Estimates the time left for a pass over images."""

    def __init__(self) -> None:
        self._started, self._first, self._last = 0.0, 0, math.inf

    def update(self, done: int, images: int) -> float:
        """`done` of `images` images are done. Returns the seconds left; NaN if they are unknown."""
        now = time.perf_counter()
        if done <= self._last:  # a new pass
            self._started, self._first = now, done
        self._last = done
        return (now - self._started) / (done - self._first) * (images - done) if done > self._first else math.nan


class TimeLeft:
    """Estimates the time left for all planned jobs. It hears what a `Listener` hears."""

    def __init__(self) -> None:
        self.task = 0
        """Tasks of the current job that are learned."""
        self._jobs, self._job = 1, 0
        self._started = time.perf_counter()
        self._work: list[float] = []
        self._done = 0.0  # work done by this process, before the current task
        self._now = 0.0  # work done on the current task
        self._earlier: float | None = None  # work of an earlier process on the current task

    @property
    def tasks(self) -> int:
        """Tasks of the current job."""
        return len(self._work)

    @property
    def completed(self) -> float:
        """Work done on the current job, by any process."""
        return sum(self._work[: self.task]) + self._now

    @property
    def seconds(self) -> float:
        """The time left: every later job is assumed to have as much work as this one. NaN if it is unknown."""
        left = sum(self._work[self.task :]) - self._now + (self._jobs - self._job) * sum(self._work)
        own = self._done + self._now - (self._earlier or 0.0)
        return (time.perf_counter() - self._started) / own * left if own else math.nan

    def planned(self, jobs: int) -> None:
        """`jobs` jobs will run."""
        self._jobs = jobs

    def job_started(self, work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks. `work` is the cost of each task, in any unit."""
        self._work, self.task, self._now, self._earlier = list(work), tasks_done, 0.0, None
        self._job += 1
        if self._job == 1:
            self._started = time.perf_counter()  # images are read once, so this does not count

    def training(self, progress: TrainingProgress) -> bool:
        """The training of a task has made progress. Returns whether this is the first news of it."""
        self._now = self._work[self.task] * progress.step / progress.steps
        is_first = self._earlier is None
        if is_first:
            self._earlier = self._now
        return is_first

    def task_done(self) -> None:
        """A task is learned."""
        self._done += self._work[self.task] - (self._earlier or 0.0)
        self.task, self._now, self._earlier = self.task + 1, 0.0, None
