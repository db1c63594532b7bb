"""Class-incremental image classification by co-transport."""

import os
from typing import TYPE_CHECKING

from cotransport.version import __version__

# GNU's OpenMP, which torch uses on Linux, lets threads spin for milliseconds while they wait for each other. Beside any
# other busy process, our own image decoders included, a training then crawls. A shorter spin costs little when the
# machine is free. It is read when torch is loaded, and left alone where the user has said something.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")

if TYPE_CHECKING:
    from cotransport.learner.estimator import IncrementalClassifier

__all__ = ["IncrementalClassifier", "__version__"]


def __getattr__(name: str) -> object:
    """The estimator, imported when it is first asked for: it takes torch along."""
    if name == "IncrementalClassifier":
        from cotransport.learner.estimator import IncrementalClassifier

        return IncrementalClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
