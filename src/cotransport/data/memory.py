"""Exemplars of old classes as an immutable value: `updated` returns a new memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data.images import Images, LabelledImages, concatenate
from cotransport.data.labels import Label

_TIE = 1e-12
"""Squared distances that differ by less than this count as equal: the rest is rounding."""


class Memory:
    """The exemplars of each class in herding order, the most representative first. Immutable.

    The images may be given as a function, which is called when they are first needed. Prediction may not need them.
    """

    def __init__(self, exemplars: tuple[Images, ...] | Callable[[], tuple[Images, ...]] = ()) -> None:
        self._exemplars = exemplars

    @property
    def exemplars(self) -> tuple[Images, ...]:
        """The exemplars of each class."""
        if not isinstance(self._exemplars, tuple):
            self._exemplars = self._exemplars()
        return self._exemplars

    def __len__(self) -> int:
        """The number of exemplars of all classes."""
        return sum(len(images) for images in self.exemplars)

    def updated(self, chosen: Mapping[int, Images], quota: int | None) -> Memory:
        """A memory with the exemplars of some classes replaced or added. Every class keeps its first `quota` only."""
        classes = max([len(self.exemplars), *(number + 1 for number in chosen)])
        merged = [chosen[n] if n in chosen else self.exemplars[n] for n in range(classes)]
        return Memory(tuple(images if quota is None else images.first(quota) for images in merged))

    def labelled(self, classes: tuple[Label, ...]) -> LabelledImages | None:
        """All exemplars with their labels, or None if there are none."""
        if not len(self):
            return None
        counts = torch.tensor([len(images) for images in self.exemplars])
        labels = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return LabelledImages(concatenate(self.exemplars), labels, classes)


def herding(features: Tensor, quota: int) -> Tensor:
    r"""Indices of the exemplars of one class, chosen one after the other (Welling, 2009; Rebuffi et al., 2017).

    .. math:: p_k = \arg\min_x \| \mu - \frac{1}{k} ( \phi(x) + \sum_{j<k} \phi(p_j) ) \|

    where :math:`\mu` is the mean of the unit-length features :math:`\phi` (n, d). No image is chosen twice; ties go to
    the lower index.

    >>> herding(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), quota=2).tolist()
    [2, 0]
    """
    units = F.normalize(features.double())
    mean = units.mean(dim=0)
    towards_mean, lengths = units @ mean, units.square().sum(dim=1)
    towards_chosen = torch.zeros_like(towards_mean)
    left = torch.ones(len(units), dtype=torch.bool, device=units.device)
    chosen: list[int] = []
    for k in range(1, min(quota, len(units)) + 1):
        # squared distance, without the terms that are the same for all candidates
        distance = (2 * towards_chosen + lengths) / k**2 - 2 * towards_mean / k
        distance = torch.where(left, distance, torch.inf)
        best = int(torch.nonzero(distance <= distance.min() + _TIE)[0])
        chosen.append(best)
        left[best] = False
        towards_chosen += units @ units[best]
    return torch.tensor(chosen, dtype=torch.int64)
