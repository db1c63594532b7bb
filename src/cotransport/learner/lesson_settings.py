"""The settings of a lesson: what the user has chosen, and suggestions for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import SECTIONS, LearnerSettings
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import (
    Backbone,
    Device,
    Fit,
    PredictionSettings,
    Schedule,
    check_backbone_name,
    is_pretrained_name,
)
from cotransport.settings.validation import validated


def lesson_settings(
    stored: LearnerSettings | None, chosen: Mapping[str, Any], suggestion: Mapping[str, Any], device: Device
) -> LearnerSettings:
    """A model's settings for a lesson: those that the user has chosen, and suggestions for the others.

    stored : the model's settings; None for a new model.
    """
    wanted = {name: {**suggestion.get(name, {}), **section(chosen, name)} for name in SECTIONS}
    wanted["prediction"]["fit"] = lesson_fit(stored, chosen)
    wanted["memory"] = chosen.get("memory", suggestion["memory"])  # one kind of budget excludes the other
    sections: dict[str, Any] = {name: validated(kind, wanted[name], name) for name, kind in SECTIONS.items()}
    given, schedule = section(chosen, "schedule"), sections["schedule"]
    assert isinstance(schedule, Schedule)
    if "learning_rate" in given and "later_learning_rate" not in given:
        sections["schedule"] = schedule.model_copy(update={"later_learning_rate": schedule.learning_rate / 2})
    is_timed = given.get("epochs") is not None or given.get("seconds_per_task") is not None
    if is_timed and "enough" not in given:  # a length that the user chose is kept
        sections["schedule"] = sections["schedule"].model_copy(update={"enough": None})
    values = dict(sections, device=device)
    if stored is None:
        suggested = ("method", "backbone", "freeze_backbone")
        values |= {name: suggestion[name] for name in suggested if name in suggestion}
    else:
        values |= {"method": stored.method, "backbone": stored.backbone, "image_size": stored.image_size}
        values |= {"normalisation": stored.normalisation, "freeze_backbone": stored.freeze_backbone}
        values |= {"seed": stored.seed}
    if stored is None and "backbone" in chosen:
        values["backbone"] = named_backbone(chosen["backbone"])
    names = ("method", "seed", "freeze_backbone", "normalisation")
    values |= {name: chosen[name] for name in names if name in chosen}
    return LearnerSettings.validate(values)


def lesson_fit(stored: LearnerSettings | None, chosen: Mapping[str, Any]) -> Fit:
    """How images that are not square become squares: as in the model; in a new one, as the user has chosen.

    stored : the model's settings; None for a new model.
    """
    return fit_of(chosen) if stored is None else stored.prediction.fit


def fit_of(settings: Mapping[str, Any]) -> Fit:
    """How images become squares by settings that are given as plain values."""
    return validated(PredictionSettings, section(settings, "prediction"), "prediction").fit


def named_backbone(value: object) -> Backbone | nn.Module:
    """A backbone's settings from its name or its keys. A user's own module stays what it is."""
    if isinstance(value, Backbone | nn.Module):
        return value
    named = {"name": value} if isinstance(value, str) else value
    settings = validated(Backbone, named, "backbone")  # type: ignore[arg-type]  # anything but a mapping is refused
    check_backbone_name(settings)
    return settings


def is_pretrained(backbone: object) -> bool:
    """Whether a chosen backbone starts with pretrained weights by name; False if none is chosen."""
    if backbone is None:
        return False
    named = named_backbone(backbone)
    return isinstance(named, Backbone) and is_pretrained_name(named.name)


def choices_before(before: Snapshot) -> dict[str, Any]:
    """The settings of a model that its user has chosen.

    All count as chosen if the model does not say which. An earlier release saved such models from Python.
    """
    if before.chosen is not None:
        return dict(before.chosen)
    prediction = section(before.settings, "prediction")
    kept = {name: value for name, value in prediction.items() if name != "temperature"}  # every lesson calibrates anew
    return {**before.settings, "prediction": kept}


def check_fixed(chosen: Mapping[str, Any], *, image_size: int, fit: object, backbone: object) -> None:
    """Raise an error if the user asks for another image size, fit or backbone than a model has."""
    if chosen.get("image_size") not in {None, image_size}:
        raise ConfigError(
            f"image_size: this model keeps {image_size} x {image_size} pixels. Start a new model for another size"
        )
    if section(chosen, "prediction").get("fit", fit) != fit:
        raise ConfigError(
            f"prediction.fit: this model keeps {fit}, because its images are stored in this form. Start a new model "
            "for another fit"
        )
    if "backbone" in chosen and backbone is not None:
        own = named_backbone(backbone)
        if _as_named(named_backbone(chosen["backbone"])) != _as_named(own):
            name = own.name if isinstance(own, Backbone) else "the module it was made with"
            raise ConfigError(f"backbone: this model keeps {name}. Start a new model for another backbone")


def _as_named(backbone: Backbone | nn.Module) -> Backbone | nn.Module:
    """A backbone without what a model records about its library."""
    return backbone.model_copy(update={"library": None}) if isinstance(backbone, Backbone) else backbone


def section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of chosen settings; empty if nothing in it is chosen."""
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise ModelError(f"the model's settings: {name} is not a section. Restore it from a backup")
    return section
