"""What a user asks for in a lesson, and what was asked for in all lessons of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cotransport.errors import ConfigError
from cotransport.learner.lesson_settings import check_fixed, choices_before, fit_of, section
from cotransport.learner.settings import SECTIONS
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import STRONG, Device
from cotransport.settings.validation import nearest

HELD_OUT = 0.1
"""Default share of each class that is held out for testing."""


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
    """Points of accuracy that the classes known before may lose; None for no limit. A version is refused only if the
    whole 95 % interval of the loss lies above this."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Columns of a Hugging Face data set, and other settings of the source."""
    device: Device = Device()


def merge_choices(options: LessonOptions, before: Snapshot | None) -> dict[str, Any]:
    """The settings that the user has chosen in all lessons. A later choice overrides an earlier one.

    before : the model's current version, if there is one.
    """
    known = ("method", "seed", "freeze_backbone", "backbone", "image_size", *SECTIONS)
    for key, value in options.chosen.items():
        if key not in known:
            raise ConfigError(f"{key}: unknown setting{nearest(key, known)} Known: {', '.join(known)}, data, device")
        if key in SECTIONS and not isinstance(value, Mapping):
            raise ConfigError(f"{key}: give one of its keys, such as {key}.KEY=VALUE")
    earlier: dict[str, Any] = {}
    if before is not None:
        earlier = choices_before(before)
        own, fit = before.settings.get("backbone"), fit_of(before.settings)
        check_fixed(options.chosen, image_size=before.image_size, fit=fit, backbone=own)
    if "policy" in section(options.chosen, "augmentation"):  # its values, and not those of the policy before
        earlier["augmentation"] = {k: v for k, v in section(earlier, "augmentation").items() if k not in STRONG}
    return earlier | {
        key: {**section(earlier, key), **value} if key in SECTIONS and key != "memory" else value
        for key, value in options.chosen.items()
    }
