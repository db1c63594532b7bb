"""The fast net: a backbone for machines without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TINY = 16
"""The fast net looks at images up to this side in full resolution,"""
TRUNK_SIDE = 28
"""and reduces larger ones until their side is at most this."""
STEM_FILTERS = 48
STEM_RIDGE = 0.05
"""Added to the variances that the stem divides by, so that noise is not blown up."""


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
