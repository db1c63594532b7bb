"""The log file of a command: what happens, line by line, with the time."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

from cotransport.errors import ConfigError
from cotransport.system.text import visible

if TYPE_CHECKING:
    from cotransport.training.listener import Listener
    from cotransport.training.progress import TrainingProgress


class LogFile:
    """A text file that lines are added to. If it cannot be opened, that is an error; if it fails later, a note."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            if path.exists() and not path.is_file():  # the other end of a pipe might never read
                raise ConfigError(f"--log {path}: not a file. Choose another name")
            self._file: TextIO | None = path.open("a", buffering=1, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"--log {path}: cannot be written ({error.strerror}). Choose another file") from None

    def write(self, text: str) -> None:
        """Add a text, each of its lines with the time."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = (line.rstrip() for line in text.splitlines())
        try:
            if self._file is not None:
                self._file.writelines(f"{now} {visible(line)}\n" for line in lines if line)
        except OSError as error:
            self.close()
            message = f"note: the log file can no longer be written ({error.strerror}). The command continues"
            Console(stderr=True).print(message, soft_wrap=True, markup=False)

    def write_error(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Add an unexpected error with its stack trace."""
        self.write("".join(traceback.format_exception(kind, error, trace)))

    def close(self) -> None:
        """Add nothing more."""
        if self._file is not None:
            file, self._file = self._file, None
            with suppress(OSError):
                file.close()


class LoggingListener:
    """Writes what another listener hears to a log file: every note, and progress once for each epoch."""

    def __init__(self, listener: Listener, log: LogFile) -> None:
        self._listener, self._log = listener, log

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """`jobs` jobs will run. Those named in `kept` were finished earlier and are kept."""
        self._log.write(f"jobs to run: {jobs}" + (f"; finished before and kept: {', '.join(kept)}" if kept else ""))
        self._listener.planned(jobs, kept)

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks."""
        done = [f"tasks already learned: {tasks_done}"] if tasks_done else []
        self._log.write("\n".join([title, *notes, *done]))
        self._listener.job_started(title, notes, work, tasks_done)

    def training(self, progress: TrainingProgress) -> None:
        """The training of a task has made progress."""
        if progress.epoch_done:
            self._log.write(f"task {progress.task + 1} {_in_words(progress)}")
        self._listener.training(progress)

    def note(self, text: str, hint: str = "") -> None:
        """Something that the user should know. `hint` is what to do about it on the command line."""
        self._log.write(f"{text}; {hint}" if hint else text)
        self._listener.note(text, hint)

    def details(self, text: str) -> None:
        """Something for a user who wants to know more."""
        self._log.write(text)
        self._listener.details(text)

    def trial(self, progress: TrainingProgress) -> None:
        """A training that only helps to choose a network has made progress."""
        if progress.epoch_done:
            self._log.write(f"trying another network: {_in_words(progress)}")
        self._listener.trial(progress)

    def reading(self, done: int, files: int) -> None:
        """The first pass over a folder of images has seen `done` of `files` files."""
        if done == files:
            self._log.write(f"read {files:,} files")
        self._listener.reading(done, files)

    def features(self, done: int, images: int) -> None:
        """A frozen backbone has seen `done` of `images` images."""
        if done == images:
            self._log.write(f"computed the features of {images:,} images")
        self._listener.features(done, images)

    def testing(self) -> None:
        """A lesson is learned, and the held-out images are predicted."""
        self._listener.testing()

    def task_done(self, summary: str, details: str) -> None:
        """A task is learned and evaluated."""
        self._log.write(f"task learned: {summary} ({details})")
        self._listener.task_done(summary, details)


def _in_words(progress: TrainingProgress) -> str:
    """The numbers of an epoch."""
    speed = f"{progress.images_per_second:,.0f} images/s"
    where = f"epoch {progress.epoch}/{progress.epochs}"
    return f"{where}  loss {progress.cross_entropy:.3f}  train {progress.accuracy:.1f} %  {speed}"
