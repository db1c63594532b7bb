"""Every random draw comes from a seed and a place (task, epoch, step), so nothing depends on what was drawn before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(seed: int, *place: int) -> int:
    """A seed for one place of a run; neighbouring places get unrelated ones.

    >>> derived_seed(1, 0, 2) == derived_seed(1, 0, 2), derived_seed(1, 0, 2) == derived_seed(1, 2, 0)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *place]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *place: int) -> torch.Generator:
    """A generator of one's own for one place of a run."""
    return torch.Generator().manual_seed(derived_seed(seed, *place))


@contextmanager
def seeded(seed: int, *place: int) -> Iterator[None]:
    """Torch's global generators seeded for one place, for code that draws from them; restored afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(derived_seed(seed, *place))
        yield
