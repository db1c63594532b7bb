"""What a logger is: a place where one run's numbers, images and files go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from cotransport.errors import RunError
from cotransport.experiments.callback import StartedRun
from cotransport.system.files import storage_errors, write_text

LOGS = "logs"
"""Folder, in the folder of a run, for its logs."""


class Logger:
    """Base class of loggers. What a logger cannot keep, it ignores."""

    keeps_images = True
    keeps_files = True

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers that belong together. `step` counts the training steps of the run."""
        raise NotImplementedError

    def image(self, name: str, path: Path, step: int) -> None:
        """Log a PNG file."""

    def file(self, path: Path) -> None:
        """Log a file that belongs to the whole run."""

    def close(self, *, is_done: bool) -> None:
        """Write what is still buffered. `is_done` says whether the run is done, or will be resumed."""


def log_folder(run: StartedRun) -> Path:
    """The folder for the logs of a run. It is created if needed."""
    folder = run.folder / LOGS
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def remembered_id(run: StartedRun, name: str, make: Callable[[], str]) -> str:
    """The id of a run in another program. A resumed run has the same one, so that its log continues there."""
    path = log_folder(run) / f"{name}-id.txt"
    if path.exists():
        return path.read_text(encoding="utf-8").strip()
    made = make()
    write_text(path, made)
    return made


def not_started(name: str, error: Exception, remedy: str) -> RunError:
    """The error for a logger that cannot start."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return RunError(f"logging: {name} cannot be started ({reason}). {remedy}")
