"""The arguments of a classifier: which of them a user has chosen, and which are left to the images.

`"auto"` leaves a method, a backbone or a section to the images. A dictionary chooses the keys that it has, and a
settings object chooses all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from cotransport.errors import ConfigError
from cotransport.learner.lesson_settings import choices_before, section
from cotransport.learner.settings import SECTIONS, LearnerSettings, as_settings, check_whole_number
from cotransport.methods import Method
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import LARGEST_IMAGE, Device
from cotransport.settings.validation import Settings

AUTO: Final = "auto"
NESTED = ("method", "backbone", "device", *SECTIONS)
"""Arguments with keys of their own, which scikit-learn names `schedule__epochs`."""


def is_auto(value: object) -> bool:
    """Whether an argument is left to the images."""
    return isinstance(value, str) and value == AUTO


def chosen_settings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a user has chosen, by section."""
    chosen = {name: arguments[name] for name in ("seed", "normalisation")}
    chosen |= {name: arguments[name] for name in ("method", "backbone") if not is_auto(arguments[name])}
    optional = ("image_size", "freeze_backbone")
    chosen |= {name: arguments[name] for name in optional if arguments[name] is not None}
    if "image_size" in chosen:
        check_whole_number("image_size", chosen["image_size"], 1, LARGEST_IMAGE)
    for name, kind in SECTIONS.items():
        value = arguments[name]
        if not is_auto(value):
            chosen[name] = dict(value) if isinstance(value, Mapping) else as_settings(kind, value, name).model_dump()
    return chosen


def chosen_device(value: object) -> Device:
    """The device that a user has chosen."""
    return Device() if is_auto(value) else as_settings(Device, value, "device")


def plain_choices(chosen: Mapping[str, Any], settings: LearnerSettings) -> dict[str, Any]:
    """The settings that a user has chosen as plain values, taken from the settings that follow from them."""
    plain = settings.plain()
    choices: dict[str, Any] = {}
    for name, value in chosen.items():
        if name in SECTIONS:
            choices[name] = {key: plain[name][key] for key in value}
        elif name == "image_size":  # the images have this size, whatever the settings say
            choices[name] = int(value)
        elif plain[name] is not None:  # not a user's own module
            choices[name] = plain[name]
    return choices


def stored_arguments(snapshot: Snapshot, settings: LearnerSettings) -> dict[str, Any]:
    """The arguments of a classifier that was saved."""
    chosen = choices_before(snapshot)
    arguments = {name: section(chosen, name) if name in chosen else AUTO for name in SECTIONS}
    is_chosen = "backbone" in chosen or isinstance(settings.backbone, nn.Module)
    return arguments | {
        "method": chosen.get("method", AUTO),
        "backbone": settings.backbone if is_chosen else AUTO,  # with what is recorded about its library
        "image_size": chosen.get("image_size"),
        "freeze_backbone": chosen.get("freeze_backbone"),
        "normalisation": settings.normalisation,
        "seed": settings.seed,
    }


def keys_of(value: object, name: str) -> dict[str, Any]:
    """The keys that an argument chooses, with their values."""
    if is_auto(value):
        return {}
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Settings):
        return value.dumped() if isinstance(value, Method) else value.model_dump()
    raise ConfigError(f"{name}: {type(value).__name__} has no keys. Give a name or a dictionary to change a key")
