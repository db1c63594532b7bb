"""A learner's state and settings as a snapshot for the model folder, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cotransport.errors import ModelError
from cotransport.learner.building import restored_network
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Device
from cotransport.training.feature_cache import DIGEST, FeatureCache

_NETWORK, _BACKBONE, _PLAN = "network.", "network.backbone.", "plan"
_CROP, _DIGESTS, _FEATURES = "features.crop", "features.{}.digests", "features.{}.values"


def snapshot_of(state: State, settings: LearnerSettings, chosen: Mapping[str, Any] | None = None) -> Snapshot:
    """A snapshot of a learner.

    chosen : the settings that its user has chosen, as plain values; None if that is not known.
    """
    tensors = {f"{_NETWORK}{name}": tensor for name, tensor in state.network.state_dict().items()}
    if state.plan is not None:
        tensors[_PLAN] = state.plan
    shared: set[str] = set()
    if state.features is not None:  # the backbone does not change any more
        found = _feature_tensors(state.features)
        tensors |= found
        shared = {*found, *(name for name in tensors if name.startswith(_BACKBONE))}
    return Snapshot(
        settings.plain(),
        state.classes,
        state.task_sizes,
        state.image_size,
        tensors,
        state.memory,
        state.held_out,
        shared=frozenset(shared),
        chosen=chosen,
    )


def restored(
    snapshot: Snapshot, *, backbone: nn.Module | None = None, device: Device = Device()
) -> tuple[State, LearnerSettings]:
    """The state and settings that are in a snapshot."""
    settings = LearnerSettings.from_plain(snapshot.settings, backbone=backbone, device=device)
    weights = {
        name.removeprefix(_NETWORK): tensor for name, tensor in snapshot.tensors.items() if name.startswith(_NETWORK)
    }
    network = restored_network(settings, weights, classes=len(snapshot.classes), image_size=snapshot.image_size)
    plan = snapshot.tensors.get(_PLAN)
    features = _feature_cache(snapshot.tensors, network.dimension)
    state = State(
        snapshot.classes,
        snapshot.task_sizes,
        snapshot.image_size,
        network.eval(),
        snapshot.memory,
        plan,
        features,
        snapshot.held_out,
    )
    return state, settings


def _feature_tensors(cache: FeatureCache) -> dict[str, Tensor]:
    tensors = {_CROP: torch.tensor(float("nan") if cache.crop is None else cache.crop, dtype=torch.float64)}
    for number, (digests, features) in enumerate(cache.parts):
        tensors |= {_DIGESTS.format(number): digests, _FEATURES.format(number): features}
    return tensors


def _feature_cache(tensors: Mapping[str, Tensor], dimension: int) -> FeatureCache | None:
    """The stored features; None if there are none."""
    if _CROP not in tensors:
        return None
    parts: list[tuple[Tensor, Tensor]] = []
    while _DIGESTS.format(len(parts)) in tensors:
        digests, features = (tensors.get(name.format(len(parts))) for name in (_DIGESTS, _FEATURES))
        assert digests is not None
        if (
            features is None
            or (digests.ndim, features.ndim) != (2, 2)
            or (digests.dtype, features.dtype) != (torch.uint8, torch.float32)
            or (digests.shape, features.shape) != ((len(features), DIGEST), (len(features), dimension))
        ):
            raise ModelError("the stored features do not fit the network. Restore the model from a backup")
        parts.append((digests, features))
    crop = tensors[_CROP]
    if crop.numel() != 1 or not crop.is_floating_point():
        raise ModelError("the stored features do not say what was seen. Restore the model from a backup")
    return FeatureCache(None if bool(crop.isnan()) else crop.item(), parts)
