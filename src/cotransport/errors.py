"""The errors that this package raises on purpose. Every message names the wrong file or field, and a remedy."""

from __future__ import annotations


class CotransportError(Exception):
    """Base class of these errors. `exit_code` is the exit code of the command."""

    exit_code = 2

    def __init__(self, problem: str = "", *, hint: str = "") -> None:
        """`hint` is a remedy on the command line. A server leaves it out, so `problem` must be clear without it."""
        super().__init__(f"{problem}. {hint}" if hint else problem)
        self.problem, self.hint = problem, hint


class CotransportWarning(UserWarning):
    """Something was done, but it may not be what the user wanted."""


class ConfigError(CotransportError, ValueError):
    """A recipe or a setting is wrong."""


class DataError(CotransportError, ValueError):
    """Images, labels or folders of images cannot be used."""


class TooManyPixelsError(DataError):
    """An image is too large to be decoded."""


class RunError(CotransportError):
    """The folder of a run cannot be used."""


class ModelError(CotransportError):
    """A model folder cannot be used."""


class StorageError(CotransportError, OSError):
    """A file could not be written. Everything saved before is unchanged."""

    exit_code = 1


class TrainingError(CotransportError, RuntimeError):
    """A training could not continue. Everything learned in earlier tasks is unchanged."""

    exit_code = 1


class JobError(CotransportError):
    """Some of several jobs have failed. The others are finished."""

    exit_code = 1
