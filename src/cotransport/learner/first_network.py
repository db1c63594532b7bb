"""The network of a new model: as the user asks, or as a trial on the images decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn

from cotransport.data import LabelledImages
from cotransport.learner.choice import (
    PRETRAINED,
    PRETRAINED_SIDE,
    SMALLEST_SIDE,
    Candidate,
    Trial,
    Way,
    may_suit,
    try_networks,
)
from cotransport.learner.lesson_settings import is_pretrained, lesson_settings, named_backbone
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import largest_side, suggest
from cotransport.methods import make_method
from cotransport.networks.libraries.backbone import published
from cotransport.settings.libraries import parse_library_name
from cotransport.settings.sections import Backbone, Device
from cotransport.training.feature_cache import FeatureCache
from cotransport.training.listener import Listener
from cotransport.training.loop import TrainingControl

HINT = (
    "for photographs, a pretrained network usually learns faster and needs fewer images: "
    "pip install 'cotransport[pretrained]'"
)


class NetworkChoice(NamedTuple):
    """The network of a new model."""

    image_size: int
    suggestion: Mapping[str, Any] = {}
    """Settings that replace the usual suggestions."""
    features: FeatureCache | None = None
    """Features that the trial has computed."""
    is_fine_tuned: bool = False
    """Whether its pretrained weights are trained further."""


def choose_network(
    train: LabelledImages,
    chosen: Mapping[str, Any],
    device: Device,
    decided: Way | None,
    *,
    is_gpu: bool,
    listener: Listener,
) -> NetworkChoice:
    """Choose the network of a new model.

    train : training images in their own size.
    chosen : the user's settings. A trial decides only what they leave open.
    decided : the decision when the same lesson was started before, which is kept; None if there is none.
    """
    size: int | None = chosen.get("image_size")
    is_module = isinstance(chosen.get("backbone"), nn.Module)
    own = NetworkChoice(size or min(train.images.size, largest_side(is_gpu or is_module)))
    if is_module and chosen.get("freeze_backbone"):
        return own._replace(suggestion=_method_for_frozen_backbone(chosen))
    wants_pretrained = is_pretrained(chosen.get("backbone")) or chosen.get("freeze_backbone") is not None
    if "backbone" in chosen and not is_pretrained(chosen["backbone"]):
        return own
    is_small = train.images.size < SMALLEST_SIDE
    if not wants_pretrained and (not may_suit(train) or (is_small and size is not None)):
        if not is_small:
            listener.note(HINT)
        return own
    seen = _published_input(chosen.get("backbone"))
    is_fine_tuned = chosen.get("freeze_backbone") is False
    pretrained = NetworkChoice(
        size or seen.image_size, {**_frozen(chosen), **seen.suggestion}, is_fine_tuned=is_fine_tuned
    )
    if wants_pretrained or size is not None or _needs_frozen_backbone(chosen):
        return pretrained
    tuned = NetworkChoice(seen.image_size, {"backbone": PRETRAINED, **seen.suggestion}, is_fine_tuned=True)
    choices: dict[Way, NetworkChoice] = {"frozen": pretrained, "from scratch": own, "fine-tuned": tuned}
    if decided is not None:
        return choices[decided]
    return _choose_by_trial(train, chosen, device, choices, is_gpu=is_gpu, listener=listener)


def way_of(settings: Mapping[str, Any]) -> Way:
    """How the network of a new model was chosen, by the settings of its first lesson as plain values."""
    if settings["freeze_backbone"]:
        return "frozen"
    return "fine-tuned" if is_pretrained(settings["backbone"]) else "from scratch"


def _choose_by_trial(
    train: LabelledImages,
    chosen: Mapping[str, Any],
    device: Device,
    choices: Mapping[Way, NetworkChoice],
    *,
    is_gpu: bool,
    listener: Listener,
) -> NetworkChoice:
    """The choice that a trial prefers. Fine-tuning is tried on a GPU only: without one, a trial would take too long."""

    def settings(way: Way) -> LearnerSettings:
        choice = choices[way]
        usual = suggest(train, 0, is_gpu=is_gpu, is_fine_tuned=choice.is_fine_tuned)
        return lesson_settings(None, chosen, {**usual, **choice.suggestion}, device)

    frozen = settings("frozen")
    features = FeatureCache(frozen.prediction.view)
    ways: tuple[Way, ...] = ("from scratch", "fine-tuned") if is_gpu else ("from scratch",)
    trial = try_networks(
        train,
        frozen,
        {way: Candidate(settings(way), choices[way].image_size) for way in ways},
        features=features,
        control=TrainingControl(listener=listener.trial, features=listener.features),
    )
    if trial is None:
        return choices["frozen"]._replace(features=features)
    listener.note(_verdict(trial))
    best = choices[trial.best]
    return best._replace(features=features) if trial.best == "frozen" else best


def later_network(settings: LearnerSettings, image_size: int, chosen: Mapping[str, Any]) -> NetworkChoice:
    """The network of a model that exists already: its own."""
    named = settings.backbone
    seen = {} if isinstance(named, nn.Module) or named.library is None else _crop(named.library.crop)
    is_frozen = chosen.get("freeze_backbone", settings.freeze_backbone)
    is_trained = not isinstance(named, nn.Module) and is_pretrained(named) and not is_frozen
    return NetworkChoice(image_size, seen, is_fine_tuned=is_trained)


def _published_input(backbone: object) -> NetworkChoice:
    """The images that the weights of a pretrained network were trained on, by default those of the usual network."""
    named = None if backbone is None else named_backbone(backbone)
    if not isinstance(named, Backbone) or parse_library_name(named.name) is None:
        return NetworkChoice(PRETRAINED_SIDE)
    found = published(named.name)
    return NetworkChoice(found.image_size, _crop(found.crop))


def _crop(share: float) -> dict[str, Any]:
    return {"prediction": {"crop": share}}


def _needs_frozen_backbone(chosen: Mapping[str, Any]) -> bool:
    """Whether the user has chosen a method that cannot train a backbone."""
    return "method" in chosen and make_method(chosen["method"]).needs_frozen_backbone


def _frozen(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Suggestions for a pretrained network, which stays frozen unless the user wants to train it."""
    if chosen.get("freeze_backbone") is False:
        return {"backbone": PRETRAINED}
    return {"backbone": PRETRAINED, "freeze_backbone": True, **_method_for_frozen_backbone(chosen)}


def _method_for_frozen_backbone(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The method for a backbone that stays frozen, unless the user wants to train a head on it."""
    wants_training = any(chosen.get("memory", {}).values())
    wants_training |= bool({"schedule", "optimiser", "loss", "augmentation"} & chosen.keys())
    return {} if wants_training else {"method": "analytic"}


def _verdict(trial: Trial) -> str:
    """The result of a trial in a sentence."""
    names: dict[Way, str] = {
        "frozen": f"{PRETRAINED}, frozen, recognises",
        "from scratch": "a network trained from scratch",
        "fine-tuned": f"{PRETRAINED}, fine-tuned,",
    }
    found = "; ".join(f"{names[way]} {100 * share:.1f} %" for way, share in trial.shares.items())
    verdict = f"a trial on {trial.images:,} of the training images: {found}"
    if len(trial.shares) == 1:
        return verdict
    outcomes: dict[Way, str] = {
        "frozen": "so the frozen one is used",
        "from scratch": "so the model is trained from scratch",
        "fine-tuned": "so it is fine-tuned",
    }
    return f"{verdict}; {outcomes[trial.best]}"
