"""Embedding and head in one module that can grow by new classes. It knows nothing of tasks or training."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Output(NamedTuple):
    """What the network says of a batch of n images."""

    features: Tensor
    """(n, d)."""
    logits: Tensor
    """(n, classes)."""


class CosineHead(nn.Module):
    """Scaled cosine between features and each class's weights (section 4.4 of the paper, with a learnable scale)."""

    def __init__(self, dimension: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(0, dimension))
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes)."""
        with torch.autocast(features.device.type, enabled=False):  # half precision would blur the logits
            units = F.normalize(features.to(self.weight.dtype))
            return self.scale * F.linear(units, F.normalize(self.weight))

    def grow(self, classes: int) -> None:
        """Add so many classes with random weights; those of the old classes stay as they are."""
        new = torch.empty(classes, self.weight.shape[1]).uniform_(-1, 1) * self.weight.shape[1] ** -0.5
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), new.to(self.weight)]))


class Network(nn.Module):
    """Normalisation, embedding and head: pixels from 0 to 255 in, features and logits out."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, backbone: nn.Module, head: CosineHead, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.register_buffer("mean", mean.view(1, 3, 1, 1))
        self.register_buffer("deviation", deviation.view(1, 3, 1, 1))

    @property
    def dimension(self) -> int:
        """Length of the feature vectors."""
        return int(self.head.weight.shape[1])

    def forward(self, images: Tensor) -> Output:
        """Images (n, 3, h, w) of any number type."""
        features = self.backbone((images - self.mean) / self.deviation)
        return Output(features, self.head(features))

    def frozen(self) -> Network:
        """A copy that is not trained: no gradients, running statistics fixed."""
        twin = copy.deepcopy(self).eval()
        return twin.requires_grad_(False)
