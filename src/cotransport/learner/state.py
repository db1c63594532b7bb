"""Everything that learning changes, as one immutable value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from cotransport.data import Label
from cotransport.data.memory import Memory
from cotransport.transport import sources

if TYPE_CHECKING:
    from cotransport.networks.network import Network
    from cotransport.training.feature_cache import FeatureCache


@dataclass(frozen=True)
class State:
    """A classifier between two tasks."""

    classes: tuple[Label, ...]
    """Names in order of arrival."""
    task_sizes: tuple[int, ...]
    """The number of new classes in each task."""
    image_size: int
    network: Network
    memory: Memory
    plan: Tensor | None = None
    """Transport plan (old classes, new classes) behind the newest classes' first weights; None if those were random."""
    features: FeatureCache | None = None
    """Features of images that were computed before; None if the backbone was trained in the last task."""
    held_out: Memory = Memory()
    """Images of each class that are never trained on, to measure what is learned and to calibrate probabilities."""

    def built_from(self) -> dict[Label, dict[Label, float]]:
        """For each of the newest classes, the old classes' shares in its first weights, largest first.

        Empty if the weights were not transported.
        """
        if self.plan is None:
            return {}
        old, new = self.classes[: len(self.plan)], self.classes[len(self.plan) :]
        return {
            name: dict(sorted(zip(old, shares, strict=True), key=lambda source: -source[1]))
            for name, shares in zip(new, sources(self.plan).T.tolist(), strict=True)
        }
