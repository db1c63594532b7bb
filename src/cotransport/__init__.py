"""Class-incremental image classification by co-transport."""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cotransport.estimator import IncrementalClassifier

__all__ = ["IncrementalClassifier", "__version__"]


def __getattr__(name: str) -> object:
    """The estimator, imported when it is first asked for: it takes torch along."""
    if name == "IncrementalClassifier":
        from cotransport.estimator import IncrementalClassifier

        return IncrementalClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
