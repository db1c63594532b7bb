"""Class centres from the features that a training computes anyway, so that they cost almost nothing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cotransport.data import Mixed
from cotransport.training.objective import Moment
from cotransport.training.processes import Processes
from cotransport.transport import centres_of_sums, class_sums


class RunningCentres:
    """The two sums of Eq. 7, of features and of images, over recent steps. After an epoch, a batch counts little."""

    def __init__(self, classes: int, dimension: int, processes: Processes, *, unit: bool) -> None:
        self._classes, self._processes, self._unit = classes, processes, unit
        self._sums = torch.zeros(classes, dimension, device=processes.device)
        self._counts = torch.zeros(classes, device=processes.device)

    def observe(self, features: Tensor, labels: Tensor, moment: Moment, mixed: Mixed | None = None) -> None:
        """Add a batch of features (n, d). A mixed image counts for both of its classes, by their shares."""
        kept = 1 - 1 / moment.steps
        self._sums.mul_(kept)
        self._counts.mul_(kept)
        if mixed is None:
            self._add(features, labels)
        else:
            self._add(features, labels, 1 - mixed.share)
            self._add(features, mixed.labels, mixed.share)

    def _add(self, features: Tensor, labels: Tensor, weights: Tensor | None = None) -> None:
        features = features.to(self._sums.dtype)
        sums, counts = class_sums(features, labels, self._classes, unit=self._unit, weights=weights)
        self._sums.add_(sums)
        self._counts.add_(counts)

    def centres(self) -> Tensor:
        """Class centres (classes, d). Every class must have been observed: after the first epoch, all have been."""
        sums, counts = self._sums, self._counts
        if self._processes.count > 1:  # each process has seen its own part of every batch
            sums, counts = (self._processes.reduce(part.clone(), "sum") for part in (sums, counts))
        return centres_of_sums(sums, counts, unit=self._unit)

    def state_dict(self) -> dict[str, Tensor]:
        """The sums, for a checkpoint."""
        return {"sums": self._sums, "counts": self._counts}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from the sums of a checkpoint."""
        self._sums.copy_(state["sums"])
        self._counts.copy_(state["counts"])
