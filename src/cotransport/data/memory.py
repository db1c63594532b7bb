"""Exemplars of old classes as an immutable value: `updated` returns a new memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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
    return _herded(units, units.mean(dim=0), quota)


def herding_in_one_pass(chunks: Iterable[Tensor], quota: int, candidates: int, random: torch.Generator) -> Tensor:
    """The same for a class whose features come in chunks (n, d), of which only a sample is kept at a time.

    candidates : size of the sample that the exemplars are chosen from, all features with the same probability. If it
        has room for the whole class, the result is that of `herding`.
    random : draws a number for each image, so the result does not depend on how the features are cut into chunks.

    The mean is that of all features. A sample of fewer images than `quota` is enlarged to it.

    >>> chunks = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]).split(2)
    >>> herding_in_one_pass(chunks, quota=2, candidates=3, random=torch.Generator()).tolist()
    [2, 0]
    """
    kept, draws, places = torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    total, count = torch.zeros(1), 0
    for chunk in chunks:
        units = F.normalize(chunk.double()).cpu()
        total = total + units.sum(dim=0)
        kept = torch.cat([kept, units])
        draws = torch.cat([draws, torch.rand(len(units), generator=random, dtype=torch.float64)])
        places = torch.cat([places, torch.arange(count, count + len(units))])
        count += len(units)
        sample = draws.topk(min(max(candidates, quota), len(draws)), largest=False).indices.sort().values
        kept, draws, places = kept[sample], draws[sample], places[sample]
    return places[_herded(kept, total / count, quota)]


def _herded(units: Tensor, mean: Tensor, quota: int) -> Tensor:
    """Indices of the candidates (n, d) whose mean comes closest to `mean` (d,), chosen one after the other."""
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
