"""Class-incremental image classification by co-transport."""

import os
from typing import TYPE_CHECKING

from cotransport.version import __version__

# GNU's OpenMP, which torch uses on Linux, makes waiting threads spin for milliseconds. Beside other busy processes,
# such as our own image decoders, that slows training down a lot. A shorter spin costs little on an idle machine. The
# variable is read when torch is loaded. A policy that the user has set is left alone.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from cotransport.learner.estimator import IncrementalClassifier

__all__ = ["IncrementalClassifier", "__version__"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """The estimator, imported on first use, because it imports torch."""
    if name == "IncrementalClassifier":
        from cotransport.learner.estimator import IncrementalClassifier

        return IncrementalClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
