"""A backbone and a head in one module. It knows nothing of tasks or training."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cotransport.networks.folding import fold_batch_norms
from cotransport.networks.heads import Head


class Output(NamedTuple):
    """The network's output for a batch of n images."""

    features: Tensor
    """(n, d)."""
    logits: Tensor
    """(n, classes)."""


class Network(nn.Module):
    """Normalisation, backbone and head: pixels from 0 to 255 in, features and logits out."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, backbone: nn.Module, head: Head, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.register_buffer("mean", mean.view(1, 3, 1, 1))
        self.register_buffer("deviation", deviation.view(1, 3, 1, 1))

    @property
    def dimension(self) -> int:
        """Length of the feature vectors."""
        return int(self.head.weight.shape[1])

    @property
    def trained_weights(self) -> int:
        """Number of weights that training changes."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def forward(self, images: Tensor, with_logits: bool = True) -> Output:
        """Features and logits of images (n, 3, h, w) with any dtype.

        with_logits : whether to compute logits. Otherwise they are empty (n, 0).
        """
        features = self.backbone(self.normalised(images))
        return Output(features, self.head(features) if with_logits else features.new_zeros(len(features), 0))

    def normalised(self, images: Tensor) -> Tensor:
        """Pixels as the backbone sees them: over the first task's images, each colour has mean 0 and deviation 1."""
        return (images - self.mean) / self.deviation

    def frozen(self) -> Network:
        """A copy that is not trained, to be used as a teacher: no gradients, batch norms folded into convolutions."""
        twin = copy.deepcopy(self).eval()
        twin.backbone = fold_batch_norms(twin.backbone)
        return twin.requires_grad_(False)


class HeadAlone(Network):
    """A head that is trained on features computed before, because the backbone does not change."""

    def __init__(self, head: Head) -> None:
        super().__init__(nn.Identity(), head, torch.zeros(3), torch.ones(3))

    def normalised(self, images: Tensor) -> Tensor:
        """Features (n, d), unchanged."""
        return images
