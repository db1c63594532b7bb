"""Embedding and head in one module that can grow by new classes. It knows nothing of tasks or training."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cotransport.networks.folding import fold_batch_norms
from cotransport.networks.heads import Head


class Output(NamedTuple):
    """What the network says of a batch of n images."""

    features: Tensor
    """(n, d)."""
    logits: Tensor
    """(n, classes)."""


class Network(nn.Module):
    """Normalisation, embedding and head: pixels from 0 to 255 in, features and logits out."""

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

    def forward(self, images: Tensor) -> Output:
        """Images (n, 3, h, w) of any number type."""
        features = self.backbone(self.normalised(images))
        return Output(features, self.head(features))

    def normalised(self, images: Tensor) -> Tensor:
        """Pixels as the embedding sees them: each colour with mean 0 and deviation 1 over the first task's images."""
        return (images - self.mean) / self.deviation

    def frozen(self) -> Network:
        """A copy that teaches and is not trained: no gradients, batch norms folded into convolutions."""
        twin = copy.deepcopy(self).eval()
        twin.backbone = fold_batch_norms(twin.backbone)
        return twin.requires_grad_(False)


class HeadAlone(Network):
    """A head on features that are computed already, for a training that leaves the embedding as it is."""

    def __init__(self, head: Head) -> None:
        super().__init__(nn.Identity(), head, torch.zeros(3), torch.ones(3))

    def normalised(self, images: Tensor) -> Tensor:
        """Features (n, d) as they are."""
        return images
