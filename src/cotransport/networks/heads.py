"""Classifiers on top of the features. New classes can be added to them. They know nothing of tasks or training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
