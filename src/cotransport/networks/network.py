"""Embedding and head in one module that can grow by new classes. It knows nothing of tasks or training."""

from __future__ import annotations

import copy
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval


class Output(NamedTuple):
    """What the network says of a batch of n images."""

    features: Tensor
    """(n, d)."""
    logits: Tensor
    """(n, classes)."""


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


def fold_batch_norms(backbone: nn.Module) -> nn.Module:
    """A module in evaluation mode with its batch norms folded into convolutions; as it is if it cannot be traced."""
    try:
        traced = fx.symbolic_trace(backbone)
    except Exception:  # a user's module may do anything that tracing cannot follow
        return backbone
    calls = Counter(node.target for node in traced.graph.nodes if node.op == "call_module")
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        convolution, norm = (traced.get_submodule(str(place.target)) for place in (before, node))
        # what derives from them, or is hooked to, may compute something else
        plain = type(convolution) is nn.Conv2d and not convolution._forward_pre_hooks and not convolution._forward_hooks
        if not plain or type(norm) is not nn.BatchNorm2d or norm.running_mean is None:
            continue
        if calls[before.target] > 1 or calls[node.target] > 1:  # shared by several places
            continue
        assert isinstance(convolution, nn.Conv2d)
        traced.set_submodule(str(before.target), fuse_conv_bn_eval(convolution, norm))
        node.replace_all_uses_with(before)
        traced.graph.erase_node(node)
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced
