"""What a worker needs to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.soak.journal import Journal
from tests.soak.preparation import Prepared

T = TypeVar("T")


@dataclass
class Shift:
    """The work of one of several workers. Each takes every n-th case."""

    worker: int
    workers: int
    prepared: Prepared
    folder: Path
    """The worker's own folder."""
    journal: Journal
    end: float
    """When the work ends, on the monotonic clock."""
    only: str | None = None
    """A single case to repeat, as the results name it."""

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.end

    def own(self, cases: Sequence[T]) -> Sequence[T]:
        """The cases of this worker."""
        return cases[self.worker :: self.workers]

    def wants(self, case: str) -> bool:
        """Whether a case is to be tried."""
        return self.only in (None, case)
