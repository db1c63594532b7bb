"""The errors this package raises on purpose. Each says what was wrong with which file or field, and the remedy."""


class CotransportError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command returns for it."""

    exit_code = 2


class CotransportWarning(UserWarning):
    """Something that the user may not have meant, though it can be done."""


class ConfigError(CotransportError, ValueError):
    """A recipe or a setting that cannot be used as it is."""


class DataError(CotransportError, ValueError):
    """Images, labels or folders that cannot be used as they are."""


class RunError(CotransportError):
    """A run's folder that cannot be used as it is."""


class ModelError(CotransportError):
    """A model folder that cannot be used as it is."""


class StorageError(CotransportError, OSError):
    """A file that could not be written. What was saved before is untouched."""

    exit_code = 1


class TrainingError(CotransportError, RuntimeError):
    """Training that could not go on. What was learned before the task is untouched."""

    exit_code = 1
