"""The settings of a learner: every section, validated, in one immutable value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from cotransport.errors import ConfigError, ModelError
from cotransport.methods import Method, make_method
from cotransport.settings import sections
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Device,
    HeadSettings,
    Loss,
    Optimiser,
    PredictionSettings,
    Schedule,
)
from cotransport.settings.validation import Settings, quoted, validated

SettingsType = TypeVar("SettingsType", bound=Settings)
SECTIONS: dict[str, type[Settings]] = {
    "memory": Budget,
    "schedule": Schedule,
    "optimiser": Optimiser,
    "loss": Loss,
    "augmentation": Augmentation,
    "head": HeadSettings,
    "prediction": PredictionSettings,
}
"""Sections that a saved model keeps. The device is not among them: a model may be loaded on another machine."""
IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
"""Mean and standard deviation of each colour in ImageNet, from 0 to 255."""
LARGEST_WHOLE = 2**31 - 1


@dataclass(frozen=True)
class LearnerSettings:
    """How a learner learns. `validate` makes one from a user's values."""

    method: Method
    backbone: Backbone | nn.Module
    memory: Budget = Budget(total=2000)
    schedule: Schedule = Schedule()
    optimiser: Optimiser = Optimiser()
    loss: Loss = Loss()
    augmentation: Augmentation = Augmentation()
    head: HeadSettings = HeadSettings()
    prediction: PredictionSettings = PredictionSettings()
    device: Device = Device()
    image_size: int | None = None
    freeze_backbone: bool = False
    normalisation: object = "images"
    seed: int = 0

    @classmethod
    def validate(cls, values: Mapping[str, Any]) -> LearnerSettings:
        """Settings from a user's values: names, dictionaries or settings objects for sections."""
        given: dict[str, Any] = {name: values[name] for name in (field.name for field in fields(cls)) if name in values}
        given["method"] = make_method(values["method"])
        sections_of: dict[str, type[Settings]] = {**SECTIONS, "device": Device}
        for name, kind in sections_of.items():
            if name in given:
                given[name] = as_settings(kind, given[name], name)
        if not isinstance(given["backbone"], nn.Module):
            named = {"name": given["backbone"]} if isinstance(given["backbone"], str) else given["backbone"]
            given["backbone"] = as_settings(Backbone, named, "backbone")
        checked = cls(**given)
        check_whole_number("seed", checked.seed, at_least=0)
        if checked.image_size is not None:
            check_whole_number("image_size", checked.image_size, 1, sections.LARGEST_IMAGE)
        if not isinstance(checked.freeze_backbone, bool):
            raise ConfigError(f"freeze_backbone: give true or false, not {quoted(checked.freeze_backbone)}")
        statistics = colour_statistics(checked.normalisation)
        if statistics is None or isinstance(checked.normalisation, str):
            return checked
        # plain numbers, so that settings can be compared: arrays cannot
        return replace(checked, normalisation=tuple(tuple(part.tolist()) for part in statistics))

    @classmethod
    def from_plain(
        cls, values: Mapping[str, Any], *, backbone: nn.Module | None = None, device: Device = Device()
    ) -> LearnerSettings:
        """Settings from the values that `plain` returned. `backbone` is the module that `plain` left out."""
        given = dict(values)
        named = given.pop("backbone", None)
        try:
            if backbone is not None and (named is not None or not isinstance(backbone, nn.Module)):
                raise ConfigError(
                    "backbone: give the torch module that the model was made with; nothing if it was made with a name"
                )
            if named is None and backbone is None:
                raise ModelError(
                    "this model was made with a user's own torch module, so it can be used from Python only. Give a "
                    "module of the same architecture: load(..., backbone=module)"
                )
            known = {field.name for field in fields(cls)} - {"device"}
            later = [name for name in given if name not in known]
            if later:
                raise ModelError(
                    f"the model has a setting {later[0]!r}, which belongs to a later release. Upgrade cotransport"
                )
            given["backbone"] = backbone if named is None else named
            defaults: dict[str, Any] = {"method": None, **{name: {} for name in SECTIONS}}
            return cls.validate({**defaults, **given, "device": device})
        except ConfigError as error:
            if backbone is not None:
                raise  # most likely about the user's own argument
            raise ModelError(
                f"the model's settings cannot be used; it may belong to a later release: {error}"
            ) from None

    def plain(self) -> dict[str, Any]:
        """All settings except the device, as plain values. If the backbone is a module, its value is None."""
        values: dict[str, Any] = {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}
        values["method"] = self.method.dumped()
        values["backbone"] = None if isinstance(self.backbone, nn.Module) else self.backbone.model_dump(mode="json")
        values["image_size"], values["seed"] = self.image_size, int(self.seed)
        values["freeze_backbone"] = bool(self.freeze_backbone)
        statistics = colour_statistics(self.normalisation)
        is_name = isinstance(self.normalisation, str) or statistics is None
        values["normalisation"] = self.normalisation if is_name else [part.tolist() for part in statistics or ()]
        return values


def as_settings(kind: type[SettingsType], value: object, name: str) -> SettingsType:
    """A section of the settings, from an object of its class or a dictionary with its keys."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: give {kind.__name__}(...) or a dictionary with its keys, not {value!r}")
    section: SettingsType = validated(kind, value, name)
    return section


def check_whole_number(name: str, value: object, at_least: int, at_most: int = LARGEST_WHOLE) -> None:
    """Raise an error unless a setting is a whole number within bounds."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or not at_least <= int(value) <= at_most:  # type: ignore[call-overload]  # it has an index
        raise ConfigError(f"{name}: give a whole number from {at_least} to {at_most:,}, not {quoted(value)}")


def colour_statistics(normalisation: object) -> tuple[Tensor, Tensor] | None:
    """Mean and standard deviation of each colour; None if they come from the first images."""
    if isinstance(normalisation, str):
        if normalisation == "images":
            return None
        normalisation = IMAGENET if normalisation == "imagenet" else None
    try:
        mean, deviation = torch.tensor(normalisation, dtype=torch.float32).unbind()
    except (TypeError, ValueError, RuntimeError, IndexError, OverflowError):
        mean = deviation = torch.empty(0)
    is_finite = bool(torch.isfinite(mean).all()) and bool(torch.isfinite(deviation).all())
    if mean.shape != (3,) or not is_finite or not bool((deviation > 0).all()):
        raise ConfigError(
            "normalisation: give 'images', 'imagenet', or three means and three deviations above 0, such as "
            "((124, 116, 104), (58, 57, 57))"
        )
    return mean, deviation
