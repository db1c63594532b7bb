"""What a user asks for in a lesson, and the classifier's settings that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import SECTIONS, LearnerSettings
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import PRETRAINED_NAMES, STRONG, Backbone, Device, Schedule, check_backbone_name
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
    wanted["memory"] = chosen.get("memory", suggestion["memory"])  # one kind of budget excludes the other
    sections: dict[str, Any] = {name: validated(kind, wanted[name], name) for name, kind in SECTIONS.items()}
    given, schedule = _section(chosen, "schedule"), sections["schedule"]
    assert isinstance(schedule, Schedule)
    if "learning_rate" in given and "later_learning_rate" not in given:
        sections["schedule"] = schedule.model_copy(update={"later_learning_rate": schedule.learning_rate / 2})
    is_timed = given.get("epochs") is not None or given.get("seconds_per_task") is not None
    if is_timed and "enough" not in given:  # whoever asks for a length gets it
        sections["schedule"] = sections["schedule"].model_copy(update={"enough": None})
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
    return backbone is not None and named_backbone(backbone).name in PRETRAINED_NAMES


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise ModelError(f"the model's settings: {name} is not a section. Restore it from a backup")
    return section


def _check_fixed(before: Snapshot, chosen: Mapping[str, Any]) -> None:
    """Raise an error if the user asks for another backbone or image size than the model's."""
    if "image_size" in chosen and chosen["image_size"] not in {None, before.image_size}:
        raise ConfigError(
            f"image_size: this model keeps {before.image_size} x {before.image_size} pixels. Start a new model for "
            "another size"
        )
    own = before.settings.get("backbone")
    if "backbone" in chosen and own is not None and named_backbone(chosen["backbone"]) != named_backbone(own):
        name = named_backbone(own).name
        raise ConfigError(f"backbone: this model keeps {name}. Start a new model for another backbone")
