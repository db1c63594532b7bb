"""What happens in a command as lines of JSON, for the program that started it."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cotransport.training.time_left import PassTimeLeft

if TYPE_CHECKING:
    from cotransport.training.progress import TrainingProgress


def write_event(kind: str, **values: Any) -> None:  # noqa: ANN401 (any JSON)
    """Write one line to standard error: an object whose key `event` is the kind. Numbers that are not finite are null.

    >>> import contextlib
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     write_event("reading", done=1, files=2, seconds=math.nan)
    {"event": "reading", "done": 1, "files": 2, "seconds": null}
    """
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }
    print(json.dumps({"event": kind, **finite}), file=sys.stderr, flush=True)


class EventListener:
    """Writes everything it hears as events."""

    def __init__(self) -> None:
        self._reading, self._features = PassTimeLeft(), PassTimeLeft()

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """`jobs` jobs will run. Those named in `kept` were finished earlier and are kept."""
        write_event("planned", jobs=jobs, kept=list(kept))

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks."""
        write_event("job_started", title=title, notes=list(notes), work=list(work), tasks_done=tasks_done)

    def training(self, progress: TrainingProgress) -> None:
        """The training of a task has made progress."""
        write_event("training", **asdict(progress))

    def note(self, text: str, hint: str = "") -> None:
        """Something that the user should know. `hint` is what to do about it on the command line."""
        write_event("note", text=text, hint=hint)

    def details(self, text: str) -> None:
        """Something for a user who wants to know more."""
        write_event("details", text=text)

    def trial(self, progress: TrainingProgress) -> None:
        """A training that only helps to choose a network has made progress."""
        write_event("trial", **asdict(progress))

    def reading(self, done: int, files: int) -> None:
        """The first pass over a folder of images has seen `done` of `files` files."""
        write_event("reading", done=done, files=files, seconds_left=self._reading.update(done, files))

    def features(self, done: int, images: int) -> None:
        """A frozen backbone has seen `done` of `images` images."""
        write_event("features", done=done, images=images, seconds_left=self._features.update(done, images))

    def testing(self) -> None:
        """A lesson is learned, and the held-out images are predicted."""
        write_event("testing")

    def task_done(self, summary: str, details: str) -> None:
        """A task is learned and evaluated."""
        write_event("task_done", summary=summary, details=details)
