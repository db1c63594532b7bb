"""What a user asks for in a lesson, and the classifier's settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import SECTIONS, LearnerSettings
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import (
    STRONG,
    Backbone,
    Device,
    Fit,
    PredictionSettings,
    Schedule,
    check_backbone_name,
    is_pretrained_name,
)
from cotransport.settings.validation import nearest, validated

HELD_OUT = 0.1
"""Default share of each class that is held out for testing."""
_FIXED = ("backbone", "image_size")
"""Settings of a model that never change."""


@dataclass(frozen=True)
class LessonOptions:
    """What the user asks for in a lesson."""

    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Chosen settings by section, as in a recipe. The others are suggested from the images."""
    held_out: float = HELD_OUT
    """Share of each new class that is held out for testing."""
    known_classes: Literal["refuse", "extend"] = "refuse"
    """What to do with images of known classes."""
    max_forgetting: float | None = None
    """Points of accuracy that the classes known before may lose; None for no limit."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Columns of a Hugging Face data set, and other settings of the source."""
    device: Device = Device()


def merge_choices(
    options: LessonOptions, before: Snapshot | None, chosen_before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The settings that the user has chosen in all lessons. A later choice overrides an earlier one.

    before : the model's current version, if there is one.
    chosen_before : the settings chosen in its lessons; None for a version saved from Python, whose settings all count
        as chosen.
    """
    known = ("method", "seed", "freeze_backbone", *_FIXED, *SECTIONS)
    for key, value in options.chosen.items():
        if key not in known:
            raise ConfigError(f"{key}: unknown setting{nearest(key, known)} Known: {', '.join(known)}, data, device")
        if key in SECTIONS and not isinstance(value, Mapping):
            raise ConfigError(f"{key}: give one of its keys, such as {key}.KEY=VALUE")
    earlier: dict[str, Any] = {}
    if before is not None:
        earlier = dict(before.settings if chosen_before is None else chosen_before)
        if chosen_before is None:  # every lesson calibrates the probabilities anew
            prediction = _section(earlier, "prediction")
            earlier["prediction"] = {name: value for name, value in prediction.items() if name != "temperature"}
        _check_fixed(before, options.chosen)
    if "policy" in _section(options.chosen, "augmentation"):  # its values, and not those of the policy before
        earlier["augmentation"] = {k: v for k, v in _section(earlier, "augmentation").items() if k not in STRONG}
    return earlier | {
        key: {**_section(earlier, key), **value} if key in SECTIONS and key != "memory" else value
        for key, value in options.chosen.items()
    }


def lesson_settings(
    stored: LearnerSettings | None, chosen: Mapping[str, Any], suggestion: Mapping[str, Any], device: Device
) -> LearnerSettings:
    """A model's settings for a lesson: those that the user has chosen, and suggestions for the others.

    stored : the model's settings; None for a new model.
    """
    wanted = {name: {**suggestion.get(name, {}), **_section(chosen, name)} for name in SECTIONS}
    wanted["prediction"]["fit"] = lesson_fit(stored, chosen)
    wanted["memory"] = chosen.get("memory", suggestion["memory"])  # one kind of budget excludes the other
    sections: dict[str, Any] = {name: validated(kind, wanted[name], name) for name, kind in SECTIONS.items()}
    given, schedule = _section(chosen, "schedule"), sections["schedule"]
    assert isinstance(schedule, Schedule)
    if "learning_rate" in given and "later_learning_rate" not in given:
        sections["schedule"] = schedule.model_copy(update={"later_learning_rate": schedule.learning_rate / 2})
    values = dict(sections, device=device)
    if stored is None:
        names = ("method", "backbone", "freeze_backbone")
        values |= {name: suggestion[name] for name in names if name in suggestion}
    else:
        values |= {"method": stored.method, "backbone": stored.backbone, "image_size": stored.image_size}
        values |= {"normalisation": stored.normalisation, "freeze_backbone": stored.freeze_backbone}
        values |= {"seed": stored.seed}
    if stored is None and "backbone" in chosen:
        values["backbone"] = named_backbone(chosen["backbone"])
    values |= {name: chosen[name] for name in ("method", "seed", "freeze_backbone") if name in chosen}
    return LearnerSettings.validate(values)


def lesson_fit(stored: LearnerSettings | None, chosen: Mapping[str, Any]) -> Fit:
    """How images that are not square become squares: as in the model; in a new one, as the user has chosen.

    stored : the model's settings; None for a new model.
    """
    if stored is not None:
        return stored.prediction.fit
    return validated(PredictionSettings, _section(chosen, "prediction"), "prediction").fit


def named_backbone(value: object) -> Backbone:
    """A backbone's settings from its name or its keys."""
    if isinstance(value, Backbone):
        return value
    named = {"name": value} if isinstance(value, str) else value
    settings = validated(Backbone, named, "backbone")  # type: ignore[arg-type]  # anything but a mapping is refused
    check_backbone_name(settings)
    return settings


def is_pretrained(backbone: object) -> bool:
    """Whether a chosen backbone starts with pretrained weights; False if none is chosen."""
    return backbone is not None and is_pretrained_name(named_backbone(backbone).name)


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise ModelError(f"the model's settings: {name} is not a section. Restore it from a backup")
    return section


def _check_fixed(before: Snapshot, chosen: Mapping[str, Any]) -> None:
    """Raise an error if the user asks for another backbone, image size or fit than the model's."""
    if "image_size" in chosen and chosen["image_size"] not in {None, before.image_size}:
        raise ConfigError(
            f"image_size: this model keeps {before.image_size} x {before.image_size} pixels. Start a new model for "
            "another size"
        )
    fit = _section(before.settings, "prediction").get("fit", "crop")  # models of earlier releases do not say
    if _section(chosen, "prediction").get("fit", fit) != fit:
        raise ConfigError(
            f"prediction.fit: this model keeps {fit}, because its images are stored in this form. Start a new model "
            "for another fit"
        )
    own = before.settings.get("backbone")
    if "backbone" in chosen and own is not None:
        pair = [named_backbone(one).model_copy(update={"library": None}) for one in (chosen["backbone"], own)]
        if pair[0] != pair[1]:
            raise ConfigError(f"backbone: this model keeps {pair[1].name}. Start a new model for another backbone")
