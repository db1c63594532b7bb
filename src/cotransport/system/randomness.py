"""Random numbers that depend only on a seed and a place in the run, such as task, epoch and step.

No draw depends on earlier draws, so a run can be resumed at any place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, *place: int) -> int:
    """The seed for one place in a run. Neighbouring places get unrelated seeds.

    Compare places of the same length only: NumPy may ignore zeros at the end.

    >>> derived_seed(1, 0, 2) == derived_seed(1, 0, 2), derived_seed(1, 0, 2) == derived_seed(1, 2, 0)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *place]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *place: int) -> torch.Generator:
    """A new generator, seeded for one place in a run."""
    return torch.Generator().manual_seed(derived_seed(seed, *place))


@contextmanager
def seeded(seed: int, *place: int) -> Iterator[None]:
    """Seed torch's global generators for one place in a run, and restore them afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(derived_seed(seed, *place))
        yield
