"""Classifiers on top of the features, which grow by new classes. They know nothing of tasks or training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Head(nn.Module):
    """A classifier with a row of weights for each class, to which classes can be added."""

    scale: Tensor

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
        """What this head would say with other weights (classes, d)."""
        raise NotImplementedError

    def grow(self, classes: int) -> None:
        """Add so many classes with random weights; those of the old classes stay as they are."""
        new = torch.empty(classes, self.weight.shape[1]).uniform_(-1, 1) * self.weight.shape[1] ** -0.5
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new.to(self.weight)]))


class CosineHead(Head):
    """Scaled cosine between features and each class's weights (section 4.4 of the paper, with a learnable scale)."""

    def __init__(self, dimension: int, scale: float) -> None:
        super().__init__(dimension)
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def logits(self, features: Tensor, weight: Tensor) -> Tensor:
        """What this head would say with other weights (classes, d)."""
        with torch.autocast(features.device.type, enabled=False):  # half precision would blur the logits
            units = F.normalize(features.to(weight.dtype))
            return self.scale * F.linear(units, F.normalize(weight))


class LinearHead(Head):
    """Dot products of features with each class's weights, times a fixed scale; and a bias where there is one."""

    def __init__(self, dimension: int, scale: float = 1.0, *, bias: bool = False) -> None:
        super().__init__(dimension)
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.bias = nn.Parameter(torch.empty(0)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes)."""
        logits = super().forward(features)
        return logits if self.bias is None else logits + self.bias

    def logits(self, features: Tensor, weight: Tensor) -> Tensor:
        """What this head would say with other weights (classes, d), and without bias."""
        with torch.autocast(features.device.type, enabled=False):
            return self.scale * F.linear(features.to(weight.dtype), weight)

    def grow(self, classes: int) -> None:
        """Add so many classes with random weights and a bias of zero."""
        super().grow(classes)
        if self.bias is not None:
            self.bias = nn.Parameter(F.pad(self.bias.detach(), (0, classes)))


class CorrectedHead(LinearHead):
    """A linear head whose logits are corrected to alpha * logit + beta; the classes of a task share both numbers."""

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
        """Add so many classes, uncorrected."""
        super().grow(classes)
        self.alpha, self.beta = F.pad(self.alpha, (0, classes), value=1.0), F.pad(self.beta, (0, classes))


class ClippedHead(LinearHead):
    """A linear head without negative weights: on features that are not negative either, longer ones say more."""

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes); what a step of training has made negative is set to zero first."""
        if self.training:
            self.clip()
        return super().forward(features)

    @torch.no_grad()
    def clip(self) -> None:
        """Set negative weights to zero."""
        self.weight.clamp_(min=0)
