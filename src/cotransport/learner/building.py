"""Networks for a learner: fresh ones, and those of a saved model."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cotransport.data import channel_statistics, sample
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import LearnerSettings, colour_statistics
from cotransport.learner.state import State
from cotransport.networks import backbones
from cotransport.networks.libraries.backbone import check_library
from cotransport.networks.network import Network
from cotransport.settings.libraries import LARGEST_SIDE, parse_library_name
from cotransport.settings.sections import PRETRAINED_NAMES, Backbone, View, check_backbone_name, is_pretrained_name
from cotransport.system.randomness import seeded
from cotransport.training.task_data import TaskData

STEM_IMAGES = 256
"""Images of the first task, at most, that the fast net's stem is computed from."""
DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
"""Supported floating-point types of weights."""
NEW_NETWORK = 0
"""Place of the random draws for a network's first weights."""


def new_network(settings: LearnerSettings, data: TaskData, before: State | None, task: int) -> Network:
    """An untrained network without classes. Colour statistics and the stem come from the first task's images only."""
    size, images, workers = data.new.images.size, data.new.images, settings.device.workers
    view = View(fit=settings.prediction.fit)
    named = None if isinstance(settings.backbone, nn.Module) else settings.backbone
    if settings.freeze_backbone and named is not None and not is_pretrained_name(named.name):
        raise ConfigError(
            "freeze_backbone: this backbone starts with random weights, which are not worth keeping. Choose "
            f"{' or '.join(PRETRAINED_NAMES)}, a network of another library such as timm:NAME, give a torch module "
            "with pretrained weights, or freeze the backbone after the first task"
        )
    if named is not None and is_pretrained_name(named.name):
        if settings.normalisation != "images":
            raise ConfigError(f"normalisation: {named.name} brings its own. Leave it out")
        if settings.freeze_backbone and named.dimension is not None:
            raise ConfigError(
                "backbone.dimension: adds a layer with random weights, which cannot be frozen. Leave it out"
            )
    with seeded(settings.seed, NEW_NETWORK, task):
        backbone = _backbone(settings, size)
        head = settings.method.make_head(backbones.feature_dimension(backbone, size), settings.head)
    expected = None if named is None else backbones.load_pretrained(backbone, named)
    if before is None:
        chosen = settings.normalisation if expected is None else expected
        statistics = colour_statistics(chosen) or channel_statistics(images, workers, view)
        network = Network(backbone, head, *statistics)
    else:
        network = Network(backbone, head, before.network.mean.cpu(), before.network.deviation.cpu())
    fast = None if named is None else backbones.find_fast_net(backbone)
    if fast is not None:
        earlier = None if before is None else backbones.find_fast_net(before.network.backbone)
        if earlier is not None:
            fast.stem.copy_(earlier.stem)
        else:
            fast.fit_stem(network.normalised(sample(images, STEM_IMAGES, workers, view)))
    return network


def restored_network(
    settings: LearnerSettings, tensors: Mapping[str, Tensor], *, classes: int, image_size: int
) -> Network:
    """A network with stored weights. A backbone that is larger than the weights is refused before it is built."""
    is_module = isinstance(settings.backbone, nn.Module)
    if isinstance(settings.backbone, Backbone):
        check_library(settings.backbone)
    try:
        with torch.random.fork_rng():  # building draws random weights, which are then replaced
            if isinstance(settings.backbone, nn.Module):
                backbone = copy.deepcopy(settings.backbone)
                dimension = backbones.feature_dimension(backbone, image_size)
            elif parse_library_name(settings.backbone.name) is not None:
                backbone = backbones.rebuild(settings.backbone, image_size, tensors)
                dimension = backbones.feature_dimension(backbone, min(image_size, LARGEST_SIDE))
                backbones.check_numbers(classes * dimension, tensors)
            else:
                _check_size(settings.backbone, tensors, classes)
                backbone = backbones.build(settings.backbone, image_size)
                dimension = backbones.output_dimension(settings.backbone)
            head = settings.method.make_head(dimension, settings.head)
            head.grow(classes)
            network = Network(backbone, head, torch.zeros(3), torch.ones(3))
    except ConfigError as error:
        if is_module:
            raise  # most likely about the user's own argument
        raise ModelError(f"the model's network cannot be built; it may belong to a later release: {error}") from None
    except (RuntimeError, MemoryError, OverflowError) as error:  # sizes that no network could have
        raise ModelError(f"the model's network cannot be built ({error}). Restore it from a backup") from None
    _check_weights(network, tensors, is_module=is_module)
    dtypes = _weight_dtypes(network, tensors)
    if len(dtypes) == 1 and torch.float32 not in dtypes:  # what it has already; sums stay in float64
        network.to(dtypes.pop())
    network.load_state_dict(tensors, assign=not is_module)
    return network


def _check_size(backbone: Backbone, stored: Mapping[str, Tensor], classes: int) -> None:
    """Raise an error if a built-in backbone and its head would be larger than the stored weights."""
    check_backbone_name(backbone)
    smallest = backbones.fewest_weights(backbone) + classes * backbones.output_dimension(backbone)
    backbones.check_numbers(smallest, stored)


def _backbone(settings: LearnerSettings, image_size: int) -> nn.Module:
    if isinstance(settings.backbone, nn.Module):
        return copy.deepcopy(settings.backbone)
    return backbones.build(settings.backbone, image_size)


def _check_weights(network: Network, stored: Mapping[str, Tensor], *, is_module: bool) -> None:
    """Raise an error unless the stored weights are numbers and fit the network."""
    dtypes = _weight_dtypes(network, stored)
    mixed = len(dtypes) > 1 and not is_module  # a user's own module may have buffers of any dtype
    if not dtypes <= DTYPES or mixed:
        raise ModelError("the weights have mixed or unsupported dtypes. Restore the model from a backup")
    if any(bool(torch.isnan(tensor).any()) for tensor in stored.values()):
        raise ModelError("some weights are not numbers. Restore the model from a backup")
    wanted = network.state_dict()
    for name in (*wanted, *stored):
        pair = [_shape_and_kind(part[name]) if name in part else None for part in (wanted, stored)]
        if pair[0] != pair[1]:
            remedy = "Give a module of the same architecture" if is_module else "Restore the model from a backup"
            raise ModelError(f"the weights do not fit the network, first at {name!r}. {remedy}")


def _weight_dtypes(network: Network, stored: Mapping[str, Tensor]) -> set[torch.dtype]:
    """The floating-point types of stored weights. Sums that a head keeps in float64 are not weights."""
    sums = {name for name, tensor in network.state_dict().items() if tensor.dtype == torch.float64}
    return {tensor.dtype for name, tensor in stored.items() if tensor.is_floating_point() and name not in sums}


def _shape_and_kind(tensor: Tensor) -> tuple[torch.Size, bool | torch.dtype]:
    """What a network's tensor and a stored one must share. A network may have been trained in any float dtype."""
    return tensor.shape, tensor.is_floating_point() or tensor.dtype
