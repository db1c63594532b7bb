"""Networks that map images to feature vectors. They know nothing of classes.

A backbone is any module that maps normalised images (n, 3, h, w) to features (n, d); `build` makes those known by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.errors import ConfigError
from cotransport.settings import sections as config
from cotransport.settings.sections import check_backbone_name

SMALL = 64
"""Images up to this side get a stem that keeps their resolution."""
TINY = 16
"""The fast net looks at images up to this side in full resolution,"""
TRUNK_SIDE = 28
"""and reduces larger ones until their side is at most this."""
STEM_FILTERS = 48
STEM_RIDGE = 0.05
"""Added to the variances that the stem divides by, so that noise is not blown up."""


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (He et al., 2016, figure 2)."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        return F.relu(residual + self.shortcut(x), inplace=True)


class PaddedShortcut(nn.Module):
    """Identity without parameters: every stride-th pixel, new channels zero (option A of He et al.)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.missing = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        before = self.missing // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.missing - before))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Shortcut by a 1 x 1 convolution (option B of He et al.)."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A stem, stages of basic blocks that halve the resolution from the second on, and global average pooling."""

    def __init__(
        self,
        stem: nn.Sequential,
        widths: Sequence[int],
        depth: int,
        shortcut: Callable[[int, int, int], nn.Module],
    ) -> None:
        super().__init__()
        self.stem = stem
        blocks, inputs = [], widths[0]
        for stage, width in enumerate(widths):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                same = stride == 1 and inputs == width
                blocks.append(
                    BasicBlock(inputs, width, stride, nn.Identity() if same else shortcut(inputs, width, stride))
                )
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, widths[-1])."""
        features: Tensor = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return features


def small_stem(width: int) -> nn.Sequential:
    """Keeps the resolution."""
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def large_stem(width: int) -> nn.Sequential:
    """Reduces the resolution four times."""
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def cifar_resnet(settings: config.Backbone, image_size: int, *, layers: int) -> ResNet:
    """The thin ResNets for CIFAR: 6 n + 2 layers of widths 16, 32, 64."""
    return ResNet(small_stem(16), (16, 32, 64), (layers - 2) // 6, PaddedShortcut)


def resnet18(settings: config.Backbone, image_size: int) -> ResNet:
    """The 18-layer ResNet, with the large-image stem or one that keeps small images' resolution."""
    small = settings.stem == "small" or (settings.stem == "auto" and image_size <= SMALL)
    return ResNet(small_stem(64) if small else large_stem(64), (64, 128, 256, 512), 2, projection)


class FastBlock(nn.Module):
    """Convolution, max-pool, norm and ReLU, and after them as many residual convolutions as asked for."""

    def __init__(self, inputs: int, outputs: int, *, pool: bool, residuals: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()  # before the norm, which then has a quarter to do
        self.norm = nn.BatchNorm2d(outputs)
        self.residuals = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
            )
            for _ in range(residuals)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / 2, w / 2), rounded down; without pooling (n, outputs, h, w)."""
        x = F.relu(self.norm(self.pool(self.conv(x))), inplace=True)
        for residual in self.residuals:
            x = x + residual(x)
        return x


class FastNet(nn.Module):
    """Few convolutions, wide where the resolution is low, so that a processor's matrix units are busy.

    The stem compares patches with the main directions in which patches of the first images vary (Coates and Ng, 2012;
    Page, 2019). It is fixed, so the first trained convolution needs no gradient of its input.
    """

    stem: Tensor

    def __init__(self, width: int, image_size: int) -> None:
        super().__init__()
        side, self.stride = (4, 2) if image_size > TINY else (3, 1)
        self.register_buffer("stem", torch.randn(STEM_FILTERS, 3, side, side) / (side * 3**0.5))
        resolution, reductions, blocks, inputs = image_size // self.stride, [], [], STEM_FILTERS
        while resolution > TRUNK_SIDE:
            reductions.append(reduction(inputs))
            resolution = -(-resolution // 2)
        for outputs, residuals in ((width, 1), (2 * width, 1), (4 * width, 0)):
            pool = resolution >= 4  # at a single pixel, a norm could not learn from a single image
            blocks.append(FastBlock(inputs, outputs, pool=pool, residuals=residuals))
            resolution, inputs = resolution // 2 if pool else resolution, outputs
        self.reductions, self.blocks = nn.Sequential(*reductions), nn.Sequential(*blocks)
        for module in self.blocks.modules():
            if isinstance(module, nn.Conv2d):  # hands on what it is given, beside filters that are random
                nn.init.dirac_(module.weight[: module.in_channels])

    def look_at(self, images: Tensor) -> None:
        """Set the stem by normalised images (n, 3, h, w): whitened patches' main directions, and their negatives."""
        side, image_size = self.stem.shape[-1], images.shape[-1]
        if image_size < side:
            return
        stride = max(side, image_size // 8)  # some patches of each image are enough
        patches = F.unfold(images, side, stride=stride).transpose(1, 2).flatten(0, 1).double()  # (patches, 3 side^2)
        patches = patches - patches.mean(dim=0)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))  # from the smallest on
        directions = directions * torch.where(directions.sum(dim=0) < 0, -1, 1)  # otherwise the library chooses signs
        whitening = (directions / torch.sqrt(variances + STEM_RIDGE)).T.flip(0)
        filters = whitening[: STEM_FILTERS // 2].reshape(-1, 3, side, side)
        self.stem.copy_(torch.cat([filters, -filters]))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 4 width)."""
        x = F.relu(F.conv2d(x, self.stem, stride=self.stride, padding=1))
        features: Tensor = self.blocks(self.reductions(x)).amax(dim=(2, 3))
        return features


def reduction(width: int) -> nn.Sequential:
    """Halves the resolution."""
    return nn.Sequential(
        nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )


def fast(settings: config.Backbone, image_size: int) -> FastNet:
    """The net for a small machine, with a deeper stem for larger images."""
    return FastNet(settings.width, image_size)


BACKBONES: dict[str, Callable[[config.Backbone, int], nn.Module]] = {
    "fast": fast,
    "resnet8": partial(cifar_resnet, layers=8),
    "resnet20": partial(cifar_resnet, layers=20),
    "resnet32": partial(cifar_resnet, layers=32),
    "resnet18": resnet18,
}


def build(settings: config.Backbone, image_size: int) -> nn.Module:
    """The backbone with this name, for images of this size."""
    check_backbone_name(settings)
    made = BACKBONES[settings.name](settings, image_size)
    if settings.dimension is None:
        return made
    width = feature_dimension(made, image_size)
    return nn.Sequential(made, nn.Linear(width, settings.dimension, bias=False), CentringNorm(settings.dimension))


class CentringNorm(nn.BatchNorm1d):
    """Keeps features of few dimensions from gathering on one side; when trained, a part of the linear layer before."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, affine=False)

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d); a single image, which has no deviation, goes by the running statistics."""
        if self.training and len(features) == 1:
            return F.batch_norm(features, self.running_mean, self.running_var, eps=self.eps)
        return super().forward(features)


def find_fast_net(backbone: nn.Module) -> FastNet | None:
    """The fast net of a backbone that was built by name, with or without a layer after it."""
    return next((module for module in backbone.modules() if isinstance(module, FastNet)), None)


def feature_dimension(backbone: nn.Module, image_size: int) -> int:
    """Length of the feature vectors that a backbone gives for images of this size."""
    training = backbone.training
    backbone.eval()
    parameter = next(backbone.parameters(), torch.empty(0))
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(1, 3, image_size, image_size, device=parameter.device))
    except RuntimeError as error:
        raise ConfigError(f"backbone: does not take images of {image_size} x {image_size} pixels ({error})") from None
    backbone.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(f"backbone: must map images (n, 3, h, w) to features (n, d), but one image gave {found}")
    return features.shape[1]
