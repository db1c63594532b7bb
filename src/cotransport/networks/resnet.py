"""Residual networks (He et al., 2016) as backbones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.settings.sections import Backbone

SMALL = 64
"""Largest side, in pixels, of images for which `auto` chooses the small stem."""


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut (figure 2 of the paper)."""

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
    """A shortcut without parameters: it takes every stride-th pixel, and new channels are zero (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.missing = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        before = self.missing // 2
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.missing - before))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A shortcut by a 1 x 1 convolution (option B)."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A stem, stages of basic blocks, and global average pooling. Each stage after the first halves the resolution."""

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
    """The first layer for small images. It keeps the resolution."""
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))


def large_stem(width: int) -> nn.Sequential:
    """The first layers for large images. They divide the resolution by four."""
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    )


def cifar_resnet(settings: Backbone, image_size: int, *, layers: int) -> ResNet:
    """The narrow ResNets for CIFAR: 6 n + 2 layers, with 16, 32 and 64 channels."""
    return ResNet(small_stem(16), (16, 32, 64), (layers - 2) // 6, PaddedShortcut)


def resnet18(settings: Backbone, image_size: int) -> ResNet:
    """The 18-layer ResNet, with the stem that the settings choose."""
    small = settings.stem == "small" or (settings.stem == "auto" and image_size <= SMALL)
    return ResNet(small_stem(64) if small else large_stem(64), (64, 128, 256, 512), 2, projection)
