"""Networks that map images to feature vectors. They know nothing of classes.

A backbone is any module that maps normalised images (n, 3, h, w) to features (n, d). `build` makes those with a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.errors import ConfigError, ModelError
from cotransport.networks import efficientnet_lite
from cotransport.networks.efficientnet_lite import VARIANTS, EfficientNetLite
from cotransport.networks.fast_net import FastNet
from cotransport.networks.libraries import backbone as libraries
from cotransport.networks.libraries.backbone import LibraryBackbone
from cotransport.networks.resnet import cifar_resnet, resnet18
from cotransport.settings.libraries import LARGEST_SIDE, LibraryRecord
from cotransport.settings.sections import Backbone, check_backbone_name


def fast(settings: Backbone, image_size: int) -> FastNet:
    """The fast net."""
    return FastNet(settings.width, image_size, last_relu=settings.last_relu)


def lite(settings: Backbone, image_size: int) -> EfficientNetLite:
    """EfficientNet-Lite, with random weights."""
    return EfficientNetLite(VARIANTS[settings.name])


BACKBONES: dict[str, Callable[[Backbone, int], nn.Module]] = {
    "fast": fast,
    "resnet8": partial(cifar_resnet, layers=8),
    "resnet20": partial(cifar_resnet, layers=20),
    "resnet32": partial(cifar_resnet, layers=32),
    "resnet18": resnet18,
    **dict.fromkeys(VARIANTS, lite),
}


def build(settings: Backbone, image_size: int) -> nn.Module:
    """The backbone that the settings name, for images of this size. Another library's has its published weights."""
    check_backbone_name(settings)
    if settings.name in BACKBONES:
        return _with_dimension(BACKBONES[settings.name](settings, image_size), settings, image_size)
    return _with_dimension(libraries.load(settings), settings, image_size)


def rebuild(settings: Backbone, image_size: int, stored: Mapping[str, Tensor]) -> nn.Module:
    """The backbone of a saved model from another library, with random weights. Nothing is downloaded.

    stored : the model's weights. A network that is larger is refused before it is built.
    """
    if settings.library is None:
        raise ConfigError(f"backbone.library: missing, so {settings.name} cannot be built again")
    backbone, size = libraries.build(settings.library, stored), min(image_size, LARGEST_SIDE)
    if settings.dimension is not None:
        check_numbers(settings.dimension * feature_dimension(backbone, size), stored)
    return _with_dimension(backbone, settings, size)


def check_numbers(least: int, stored: Mapping[str, Tensor]) -> None:
    """Raise a ModelError if a network has at least this many numbers, and fewer are stored."""
    if least > sum(tensor.numel() for tensor in stored.values()):
        raise ModelError("the network is larger than the stored weights. Restore the model from a backup")


def library_record(backbone: nn.Module) -> LibraryRecord | None:
    """What a saved model must keep of a backbone from another library; None for any other backbone."""
    return next((module.record for module in backbone.modules() if isinstance(module, LibraryBackbone)), None)


def _with_dimension(backbone: nn.Module, settings: Backbone, image_size: int) -> nn.Module:
    """The backbone, with the layers that `dimension` adds."""
    if settings.dimension is None:
        return backbone
    width = feature_dimension(backbone, image_size)
    return nn.Sequential(backbone, nn.Linear(width, settings.dimension, bias=False), CentringNorm(settings.dimension))


def output_dimension(settings: Backbone) -> int:
    """The length of a built-in backbone's feature vectors, without building it."""
    return settings.dimension or _own_dimension(settings)


def fewest_weights(settings: Backbone) -> int:
    """A lower bound on the number of weights of a built-in backbone, without building it."""
    fast = FastNet.fewest_weights(settings.width) if settings.name == "fast" else 0
    return fast + _own_dimension(settings) * (settings.dimension or 0)


def _own_dimension(settings: Backbone) -> int:
    """The length of the feature vectors before the layer that `dimension` adds."""
    if settings.name in VARIANTS:
        return efficientnet_lite.FEATURES
    return {"fast": 4 * settings.width, "resnet18": 512}.get(settings.name, 64)


def load_pretrained(backbone: nn.Module, settings: Backbone) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Load the published weights of a new backbone, if it has any; returns the normalisation that they expect."""
    record = library_record(backbone)
    if record is not None:  # the library has loaded them
        return record.mean, record.deviation
    for module in backbone.modules():
        if isinstance(module, EfficientNetLite):
            efficientnet_lite.load_weights(module, settings.name)
            return efficientnet_lite.NORMALISATION
    return None


class CentringNorm(nn.BatchNorm1d):
    """Centres features of few dimensions, which would otherwise all lie on one side of the origin.

    After training, it is a fixed linear map, like the layer before it.
    """

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension, affine=False)

    def forward(self, features: Tensor) -> Tensor:
        """Normalised features (n, d). A single image has no deviation, so it uses the running statistics."""
        if self.training and len(features) == 1:
            return F.batch_norm(features, self.running_mean, self.running_var, eps=self.eps)
        return super().forward(features)


def find_fast_net(backbone: nn.Module) -> FastNet | None:
    """The fast net in a backbone, or None. Layers may follow it."""
    return next((module for module in backbone.modules() if isinstance(module, FastNet)), None)


def feature_dimension(backbone: nn.Module, image_size: int) -> int:
    """The length of a backbone's feature vectors for images of this size."""
    training = backbone.training
    backbone.eval()
    parameter = next(backbone.parameters(), torch.empty(0))
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(1, 3, image_size, image_size, device=parameter.device))
    except (RuntimeError, ValueError, AssertionError) as error:  # some libraries raise the latter two
        raise ConfigError(f"backbone: does not take images of {image_size} x {image_size} pixels ({error})") from None
    backbone.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(f"backbone: must map images (n, 3, h, w) to features (n, d), but one image gave {found}")
    return features.shape[1]
