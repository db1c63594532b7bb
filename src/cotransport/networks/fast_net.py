"""The fast net: a backbone for machines without a GPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TINY = 16
"""Largest side, in pixels, of images whose full resolution the stem keeps. It halves that of larger images."""
TRUNK_SIDE = 28
"""Largest side at the first block. Larger inputs are halved until they fit."""
STEM_FILTERS = 48
"""Number of filters of the stem."""
STEM_RIDGE = 0.05
"""Added to the variances that the stem divides by, so that it does not amplify noise."""


class FastBlock(nn.Module):
    """Convolution, max-pooling, norm and ReLU, followed by `residuals` residual convolutions."""

    def __init__(self, inputs: int, outputs: int, *, pool: bool, residuals: int, relu: bool = True) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True) if relu else nn.Identity()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()  # first, so that the norm has fewer pixels
        self.norm = nn.BatchNorm2d(outputs)
        self.residuals = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
            )
            for _ in range(residuals)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / 2, w / 2), rounded down; without pooling (n, outputs, h, w)."""
        x = self.relu(self.norm(self.pool(self.conv(x))))
        for residual in self.residuals:
            x = x + residual(x)
        return x


class FastNet(nn.Module):
    """Few convolutions, with many channels where the resolution is low, so that the CPU's matrix units are busy.

    The filters of the stem are the principal directions of patches of the first task's images (Coates and Ng, 2012;
    Page, 2019). They are not trained, so the first trained convolution needs no gradient of its input.
    """

    stem: Tensor
    """(filters, 3, side, side)."""

    def __init__(self, width: int, image_size: int, *, last_relu: bool = True) -> None:
        super().__init__()
        side, self.stride = (4, 2) if image_size > TINY else (3, 1)
        self.register_buffer("stem", torch.randn(STEM_FILTERS, 3, side, side) / (side * 3**0.5))
        resolution, reductions, blocks, inputs = image_size // self.stride, [], [], STEM_FILTERS
        while resolution > TRUNK_SIDE:
            reductions.append(reduction(inputs))
            resolution = -(-resolution // 2)
        for outputs, residuals in ((width, 1), (2 * width, 1), (4 * width, 0)):
            pool = resolution >= 4  # with a single pixel and a single image, a norm could not be trained
            relu = last_relu or outputs < 4 * width
            blocks.append(FastBlock(inputs, outputs, pool=pool, residuals=residuals, relu=relu))
            resolution, inputs = resolution // 2 if pool else resolution, outputs
        self.reductions, self.blocks = nn.Sequential(*reductions), nn.Sequential(*blocks)
        for module in self.blocks.modules():
            if isinstance(module, nn.Conv2d):  # starts by passing its input on; the other filters are random
                nn.init.dirac_(module.weight[: module.in_channels])

    @staticmethod
    def fewest_weights(width: int) -> int:
        """The number of weights of the trained 3 x 3 convolutions after the first one."""
        inputs_and_outputs = (width, width), (width, 2 * width), (2 * width, 2 * width), (2 * width, 4 * width)
        return sum(9 * inputs * outputs for inputs, outputs in inputs_and_outputs)

    def fit_stem(self, images: Tensor) -> None:
        """Set the stem from normalised images (n, 3, h, w).

        Its filters are the principal directions of their patches, whitened, and the negatives of these.
        """
        side, image_size = self.stem.shape[-1], images.shape[-1]
        if image_size < side:
            return
        stride = max(side, image_size // 8)  # some patches of each image are enough
        patches = F.unfold(images, side, stride=stride).transpose(1, 2).flatten(0, 1).double()  # (patches, 3 side^2)
        patches = patches - patches.mean(dim=0)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))  # in ascending order
        directions = directions * torch.where(directions.sum(dim=0) < 0, -1, 1)  # the library's signs are arbitrary
        whitening = (directions / torch.sqrt(variances + STEM_RIDGE)).T.flip(0)
        filters = whitening[: STEM_FILTERS // 2].reshape(-1, 3, side, side)
        self.stem.copy_(torch.cat([filters, -filters]))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 4 width)."""
        x = F.relu(F.conv2d(x, self.stem, stride=self.stride, padding=1))
        features: Tensor = self.blocks(self.reductions(x)).amax(dim=(2, 3))
        return features


def reduction(width: int) -> nn.Sequential:
    """A convolution that halves the resolution."""
    return nn.Sequential(
        nn.Conv2d(width, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )
