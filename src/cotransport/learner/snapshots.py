"""A learner's state and settings as a snapshot for the model folder, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

import torch
from torch import Tensor, nn

from cotransport.errors import ModelError
from cotransport.learner.building import restored_network
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.model.snapshot import Snapshot
from cotransport.networks.backbones import library_record
from cotransport.settings.sections import Device, Fit, View
from cotransport.training.feature_cache import DIGEST, FeatureCache

_NETWORK, _BACKBONE, _PLAN = "network.", "network.backbone.", "plan"
_ALL_FEATURES = "features."
_CROP, _FIT, _DIGESTS, _FEATURES = (_ALL_FEATURES + part for part in ("crop", "fit", "{}.digests", "{}.values"))
_FITS: tuple[Fit, ...] = get_args(Fit)
"""The values of `fit`, in the order of their stored numbers."""


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
        _plain_settings(state, settings),
        state.classes,
        state.task_sizes,
        state.image_size,
        tensors,
        state.memory,
        state.held_out,
        shared=frozenset(shared),
        chosen=chosen,
    )


def _plain_settings(state: State, settings: LearnerSettings) -> dict[str, Any]:
    """The settings as plain values, with all that is needed to build the network again."""
    values = settings.plain()
    record = None if values["backbone"] is None else library_record(state.network.backbone)
    if record is not None:
        values["backbone"]["library"] = record.model_dump(mode="json")
    return values


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


def without_features(tensors: Mapping[str, Tensor], digests: Collection[bytes]) -> dict[str, Tensor]:
    """A snapshot's tensors without the stored features of the images with these digests."""
    first = tensors.get(_FEATURES.format(0))
    cache = None if first is None else _feature_cache(tensors, first.shape[-1])
    if cache is None or cache.digests.isdisjoint(digests):
        return dict(tensors)
    rest = {name: tensor for name, tensor in tensors.items() if not name.startswith(_ALL_FEATURES)}
    return {**rest, **_feature_tensors(cache.only(cache.digests.difference(digests)))}


def _feature_tensors(cache: FeatureCache) -> dict[str, Tensor]:
    crop, fit = cache.view
    tensors = {_CROP: torch.tensor(float("nan") if crop is None else crop, dtype=torch.float64)}
    if fit != "crop":  # the only one that earlier releases know
        tensors[_FIT] = torch.tensor(_FITS.index(fit), dtype=torch.uint8)
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
    crop, fit = tensors[_CROP], tensors.get(_FIT, torch.tensor(0, dtype=torch.uint8))
    if (
        (crop.numel(), fit.numel()) != (1, 1)
        or not crop.is_floating_point()
        or fit.dtype != torch.uint8
        or int(fit) >= len(_FITS)
    ):
        raise ModelError("the stored features do not say what was seen. Restore the model from a backup")
    return FeatureCache(View(None if bool(crop.isnan()) else crop.item(), _FITS[int(fit)]), parts)
