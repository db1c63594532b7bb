"""`--set key=value`: changes to settings before they are validated.

A key is a path such as `schedule.epochs`. In a list, a part of the path is a position or an item's label or name, as
in `methods.coil.reg`. A new list may name items of the list that it replaces: `methods=[wa]` keeps the settings that
`wa` had there.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cotransport.errors import ConfigError
from cotransport.settings.safe_yaml import parse_yaml
from cotransport.settings.validation import as_section, nearest


def apply_overrides(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Change values by `key=value` overrides, in place.

    >>> values = {"backbone": "resnet18", "seeds": [1, 2]}
    >>> apply_overrides(values, ["seeds.1=5", "backbone.stem=large"])
    >>> values
    {'backbone': {'name': 'resnet18', 'stem': 'large'}, 'seeds': [1, 5]}
    """
    # shorter keys first, in any order of the arguments: replacing a section must not undo a change to its parts
    for override in sorted(overrides, key=lambda override: override.partition("=")[0].count(".")):
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {override}: give key=value, for example --set schedule.epochs=5")
        try:
            value = parse_yaml(text)
        except ValueError:
            raise ConfigError(
                f"--set {override}: not valid YAML after the equals sign. Close brackets and quotes"
            ) from None
        set_value(values, key, value)


def set_value(values: dict[str, Any], key: str, value: object) -> None:
    """Set the value at a key such as `schedule.epochs`, in place. Missing sections on the way are created."""
    path = key.split(".")
    where: Any = values
    for depth, part in enumerate(path):
        here = f"--set {'.'.join(path[: depth + 1])}"
        step: Any = part
        if isinstance(where, list):
            step = _position(where, part, here)
        elif not isinstance(where, dict):
            raise ConfigError(f"{here}: there is nothing below {'.'.join(path[:depth])}")
        below = where[step] if isinstance(where, list) else where.get(step)
        if depth == len(path) - 1:
            where[step] = _with_named_items(value, below)
            return
        where[step] = {} if below is None else as_section(below)
        where = where[step]


def _with_named_items(value: object, before: object) -> object:
    """A new value. If it is a list, items of the list before may be given by their labels or names.

    A name that several items share means none of them.
    """
    if not isinstance(value, list) or not isinstance(before, list):
        return value
    names = Counter(item.get("name") for item in before if isinstance(item, dict))
    known = {item["name"]: item for item in before if isinstance(item, dict) and names[item.get("name")] == 1}
    known |= {label: item for item in before if (label := _label(item))}
    return [copy.deepcopy(known.get(item, item)) if isinstance(item, str) else item for item in value]


def with_changed_items(items: list[Any], changes: Mapping[Any, Any], key: str) -> list[Any]:
    """The items of a list, some with other settings. The changes name them by label or name; `key` is the list's.

    >>> with_changed_items(["replay", {"name": "wa", "rt_weight": 1}], {"wa": {"combine": "ratio"}}, "methods")
    ['replay', {'name': 'wa', 'rt_weight': 1, 'combine': 'ratio'}]
    """
    changed = list(items)
    for name, change in changes.items():
        position = _position(changed, str(name), f"{key}.{name}")
        item = as_section(changed[position])
        if not isinstance(item, Mapping) or not isinstance(change, Mapping):
            raise ConfigError(f"{key}.{name}: give a mapping of the settings to change, not {change!r}")
        changed[position] = {**item, **change}
    return changed


def _position(items: list[Any], part: str, here: str) -> int:
    """The position in a list that a part of a key means: an item's label or name, or a number."""
    labels = [_label(item) for item in items]
    if part in labels:
        return labels.index(part)
    if part in map(str, range(len(items))):
        return int(part)
    names = list(filter(None, labels))
    known = f"{nearest(part.lower(), names)} Names in the list: {', '.join(names)}" if names else "."
    raise ConfigError(f"{here}: not a position in a list of {len(items)}{known}")


def _label(item: object) -> str | None:
    """The label of an item in a list of methods, or else its name."""
    if isinstance(item, dict):
        item = item.get("label") or item.get("name")
    return item if isinstance(item, str) else None
