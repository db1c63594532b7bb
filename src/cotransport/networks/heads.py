"""Classifiers on top of the features. Classes can be added and removed. They know nothing of tasks or training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.networks.calibration import fit_temperature
from cotransport.system.randomness import generator

DRAWN_IMAGES = 1000
"""Images, about, that are drawn to calibrate a discriminant."""
LEAST_VARIANCE = 1e-3
"""Smallest variance within classes that a discriminant assumes, as a share of the features' mean square."""
LEAST_UNSEEN = 1e-6
"""Smallest share of a variance that counts as more than rounding."""


class Head(nn.Module):
    """A classifier with a row of weights for each class."""

    scale: Tensor
    """Factor of the logits."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dimension))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes)."""
        return self.logits(features, self.weight)

    def logits(self, features: Tensor, weight: Tensor) -> Tensor:
        """The logits (n, classes) of features (n, d) with other weights (classes, d), without bias."""
        return self.scale * self.products(features, weight)

    def products(self, features: Tensor, weight: Tensor) -> Tensor:
        """The logits before they are scaled."""
        raise NotImplementedError

    def grow(self, classes: int) -> None:
        """Add `classes` new classes with random weights. The weights of the old classes do not change."""
        new = torch.empty(classes, self.weight.shape[1]).uniform_(-1, 1) * self.weight.shape[1] ** -0.5
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new.to(self.weight)]))

    def keep(self, classes: Tensor) -> None:
        """Remove all classes but these, given by their numbers (n,). The weights of the others do not change."""
        self.weight = nn.Parameter(self.weight.detach()[classes])


class CosineHead(Head):
    """Cosines between the features and each class's weights (section 4.4 of the paper), times a learnable scale."""

    def __init__(self, dimension: int, scale: float) -> None:
        super().__init__(dimension)
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def products(self, features: Tensor, weight: Tensor) -> Tensor:
        """Cosines (n, classes) between features (n, d) and weights (classes, d)."""
        with torch.autocast(features.device.type, enabled=False):  # half precision is too coarse for logits
            return F.linear(F.normalize(features.to(weight.dtype)), F.normalize(weight))


class LinearHead(Head):
    """Dot products of the features with each class's weights, times a fixed scale, with or without a bias."""

    def __init__(self, dimension: int, scale: float = 1.0, *, bias: bool = False) -> None:
        super().__init__(dimension)
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.bias = nn.Parameter(torch.empty(0)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes)."""
        logits = super().forward(features)
        return logits if self.bias is None else logits + self.bias

    def products(self, features: Tensor, weight: Tensor) -> Tensor:
        """Dot products (n, classes) of features (n, d) with weights (classes, d)."""
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features.to(weight.dtype), weight)

    def grow(self, classes: int) -> None:
        """Add `classes` new classes with random weights, and with a bias of zero if the head has one."""
        super().grow(classes)
        if self.bias is not None:
            self.bias = nn.Parameter(F.pad(self.bias.detach(), (0, classes)))

    def keep(self, classes: Tensor) -> None:
        """Remove all classes but these, given by their numbers (n,)."""
        super().keep(classes)
        if self.bias is not None:
            self.bias = nn.Parameter(self.bias.detach()[classes])


class CorrectedHead(LinearHead):
    """A linear head whose logits are corrected to alpha * logit + beta (BiC; Wu et al., 2019).

    The classes of a task share one alpha and one beta.
    """

    alpha: Tensor
    beta: Tensor

    def __init__(self, dimension: int, scale: float = 1.0) -> None:
        super().__init__(dimension, scale, bias=True)
        self.register_buffer("alpha", torch.ones(0))
        self.register_buffer("beta", torch.zeros(0))

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes)."""
        return self.alpha * super().forward(features) + self.beta

    def grow(self, classes: int) -> None:
        """Add `classes` new classes, without a correction."""
        super().grow(classes)
        self.alpha, self.beta = F.pad(self.alpha, (0, classes), value=1.0), F.pad(self.beta, (0, classes))

    def keep(self, classes: Tensor) -> None:
        """Remove all classes but these, given by their numbers (n,). The others keep their corrections."""
        super().keep(classes)
        self.alpha, self.beta = self.alpha[classes], self.beta[classes]


class ClippedHead(LinearHead):
    """A linear head without negative weights (WA; Zhao et al., 2020).

    If the features are not negative either, a class with longer weights has higher logits.
    """

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes). In training, negative weights are first set to zero."""
        if self.training:
            self.clip()
        return super().forward(features)

    @torch.no_grad()
    def clip(self) -> None:
        """Set negative weights to zero."""
        self.weight.clamp_(min=0)


class DiscriminantHead(LinearHead):
    """A linear discriminant that is computed from sums over all images, and not trained.

    Each feature is raised to a power first and keeps its sign. Powers below 1 make skewed features more like the
    Gaussians that a discriminant assumes (Yang et al., 2021: distribution calibration).

    Sums do not depend on the order in which images arrive, so neither does the classifier. They stay on the CPU: some
    devices have no float64.
    """

    sums: Tensor
    """Sum of the features of each class: float64 (classes, d)."""
    counts: Tensor
    """Number of images of each class: float64 (classes,)."""
    products_sum: Tensor
    """Sum of the outer products of all features: float64 (d, d)."""
    power: Tensor

    def __init__(self, dimension: int, power: float = 1.0) -> None:
        super().__init__(dimension, bias=True)
        self.register_buffer("power", torch.tensor(float(power)))
        self.register_buffer("sums", torch.zeros(0, dimension, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("products_sum", torch.zeros(dimension, dimension, dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DiscriminantHead:
        """Move or convert the weights, and leave the sums as they are."""
        kept = {name: self._buffers.pop(name) for name in ("sums", "counts", "products_sum")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has no types here
        self._buffers.update(kept)
        return self

    def products(self, features: Tensor, weight: Tensor) -> Tensor:
        """Dot products (n, classes) of features (n, d), raised to the power, with weights (classes, d)."""
        return super().products(self._raised(features.to(weight.dtype)), weight)

    def _raised(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs().pow(self.power.to(features))

    def grow(self, classes: int) -> None:
        """Add `classes` new classes without images."""
        super().grow(classes)
        self.sums, self.counts = F.pad(self.sums, (0, 0, 0, classes)), F.pad(self.counts, (0, classes))

    @torch.no_grad()
    def keep(self, classes: Tensor) -> None:
        r"""Remove all classes but these, given by their numbers (n,).

        The covariance within classes stays the same. A removed class is part of it: the sum of outer products is one
        matrix for all classes, from which the spread of a single class cannot be told. The sum is set to

        .. math:: (N' - C') \frac{P - \sum_k n_k m_k m_k^\top}{N - C} + \sum_{k \text{ kept}} n_k m_k m_k^\top

        for N images of C classes before and N' of C' after, class k having n_k images with the mean m_k. If all classes
        have the same covariance, as a discriminant assumes, then this is the sum without the removed classes.
        """
        super().keep(classes)
        within = self._within()
        self.sums, self.counts = self.sums[classes], self.counts[classes]
        free = max(0.0, float(self.counts.sum()) - len(classes))
        self.products_sum = free * within + self._means().T @ self.sums

    @torch.no_grad()
    def observe(self, features: Tensor, labels: Tensor) -> None:
        """Add the features (n, d) of images with these labels to the sums."""
        features, labels = self._raised(features.to(self.sums)), labels.to(self.sums.device)
        self.sums.index_add_(0, labels, features)
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=self.counts.dtype))
        self.products_sum += features.T @ features

    @torch.no_grad()
    def solve(self, shrinkage: float) -> None:
        """Compute the classifier from the sums: Gaussian classes with equal priors and one covariance.

        shrinkage : share of the covariance that is replaced by its mean variance in all directions.
        """
        means = self._means()
        weight = torch.linalg.solve(self._shrunk(self._within(), shrinkage), means.T).T
        self.weight.copy_(weight)
        assert self.bias is not None
        self.bias.copy_(-(weight * means).sum(dim=1) / 2)

    @torch.no_grad()
    def calibrate(self, shrinkage: float) -> None:
        r"""Divide the logits by the temperature that suits new images, as far as the sums tell. Call it after `solve`.

        A discriminant takes its estimates for the truth, so with few images it is far too sure. Here, new images are
        drawn: those of class k around its mean with the covariance

        .. math:: (1 + 1 / n_k) (1 - h)^{-2} \Sigma, \quad h = (1 - \text{shrinkage}) \frac{t}{N - C}, \quad
            t = \operatorname{tr}(S^{-1} \Sigma)

        for N images of C classes, n_k of them of class k, the covariance within classes Σ and the shrunk one S. Images
        that S was computed from seem closer to their means than new ones; 1 - h makes up for that, as in leave-one-out
        with the same leverage h for all images. The mean of n_k images has an error of its own, which lowers the score
        of new images of the class by t / (1 - h) / n_k on average. This is approximate: with very few images the result
        is too unsure, and with many it stays somewhat too sure.
        """
        classes, free = len(self.counts), float(self.counts.sum()) - len(self.counts)
        if classes < 2 or free < 1:  # nothing is known of the spread within classes
            return
        within, weight = self._within(), self.weight.to(self.sums)
        covariance = self._shrunk(within, shrinkage)
        trace = torch.linalg.solve(covariance, within).diagonal().sum()
        unseen = 1 / (1 - (1 - shrinkage) * trace / free).clamp_min(LEAST_UNSEEN)
        root = torch.linalg.cholesky(within + LEAST_UNSEEN * torch.diag(covariance.diagonal()))
        each = -(-DRAWN_IMAGES // classes)
        drawn = torch.randn(each, len(within), generator=generator(0), dtype=within.dtype).to(within.device)
        noise = drawn @ root.T * unseen
        labels = torch.arange(0, classes, -(-classes // DRAWN_IMAGES), device=within.device).repeat_interleave(each)
        counts = self.counts[labels]
        noise = noise.repeat(len(labels) // each, 1)  # the same for all classes, so that their order does not matter
        features = self._means()[labels] + (1 + 1 / counts).sqrt()[:, None] * noise
        assert self.bias is not None
        scores = features @ weight.T + self.bias.to(self.sums)
        scores[torch.arange(len(labels), device=within.device), labels] -= trace * unseen / counts
        temperature = fit_temperature(scores, labels)
        self.weight.div_(temperature)
        self.bias.div_(temperature)

    def _shrunk(self, within: Tensor, shrinkage: float) -> Tensor:
        """A covariance within classes (d, d), shrunk towards a sphere."""
        images = float(self.counts.sum())
        least = LEAST_VARIANCE * self.products_sum.diagonal().mean() / images  # with one image of each class, it is 0
        variance = torch.maximum(within.diagonal().mean(), least).clamp_min(torch.finfo(torch.float32).tiny)
        identity = torch.eye(len(within), dtype=within.dtype, device=within.device)
        return (1 - shrinkage) * within + shrinkage * variance * identity

    def _means(self) -> Tensor:
        """The mean features of each class (classes, d)."""
        return self.sums / self.counts[:, None]

    def _within(self) -> Tensor:
        """The covariance of the features within classes (d, d)."""
        free = max(1.0, float(self.counts.sum()) - len(self.counts))
        return (self.products_sum - self._means().T @ self.sums) / free
