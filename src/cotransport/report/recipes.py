"""Values from the recipe that a result carries. The recipe may be incomplete or from another version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from cotransport.experiments.results import Result
from cotransport.report.text import one_line
from cotransport.settings.sections import STRONG


def setting(recipe: Mapping[str, Any], *path: str) -> object:
    """The value at a path of keys; None if the value or a section above it is missing.

    >>> setting({"data": {"source": "digits"}}, "data", "source"), setting({}, "data", "source")
    ('digits', None)
    """
    value: object = recipe
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def method_settings(result: Result) -> Mapping[str, Any] | None:
    """The settings of a result's own method; None if the recipe does not list it."""
    methods = setting(result.recipe, "methods")
    for method in methods if isinstance(methods, list) else []:
        if isinstance(method, Mapping) and (method.get("label") or method.get("name")) == result.label:
            return method
    return None


def data_set_name(result: Result) -> str:
    """Name of the data set: the last part of a folder's path or of a hub id."""
    return one_line(PurePath(str(setting(result.recipe, "data", "source") or "")).name) or "data"


def augmentation_name(result: Result) -> str:
    """The augmentation in a few words: its policy, what was changed in it, and mixing, as in `trivial, cutout 0.3`.

    Features of a frozen backbone are not augmented. Earlier releases had one policy only.
    """
    if setting(result.recipe, "freeze_backbone"):
        return "none"
    recipe, policy = result.recipe, setting(result.recipe, "augmentation", "policy") or "basic"
    usual = STRONG if policy == "strong" else {}
    values = {name: setting(recipe, "augmentation", name) for name in STRONG}
    changed = {name: value for name, value in values.items() if value is not None and value != usual.get(name, 0)}
    mixing = {name: setting(recipe, "loss", name) for name in ("mixup", "cutmix")}
    added = {**(changed if policy != "none" else {}), **{name: value for name, value in mixing.items() if value}}
    return one_line(", ".join([str(policy), *(f"{name} {value}" for name, value in added.items())]))


def uses_validation_images(result: Result) -> bool:
    """Whether the evaluation used held-out training images instead of the test images."""
    return setting(result.recipe, "data", "validation") is not None
