"""The recipes that come with the package. They can be listed without importing torch or any method."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from cotransport.settings.safe_yaml import parse_yaml

FAST = "-fast"
"""Ending of recipes that are made for a laptop."""
GROUPS = {
    "First steps": r"digits.*",
    "CIFAR-100 in equal tasks": r"cifar100-b0-.*",
    "CIFAR-100, half of the classes first": r"cifar100-b50-.*",
    "Other data sets": r"(imagenet|cub|rafdb).*",
    "What the parts of COIL do": r"cifar100-.*",
}
"""Titles of groups of recipes, with the pattern of their names. A recipe belongs to the first group that fits."""


def bundled_recipes() -> dict[str, Path]:
    """The bundled recipes: each name and its YAML file."""
    folder = Path(str(resources.files("cotransport.experiments"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def bundled_descriptions() -> dict[str, str]:
    """What each bundled recipe runs and, after a semicolon, how long it takes."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in bundled_recipes().items()}
    return {name: str(parse_yaml(text).get("description", "")) for name, text in texts.items()}


class Summary(NamedTuple):
    """The two halves of a bundled recipe's description."""

    shows: str
    """What the recipe runs."""
    takes: str
    """How long it takes."""


def bundled_groups() -> dict[str, dict[str, Summary]]:
    """The recipes in groups. Within a group, the fewest tasks come first, and a fast version after its recipe."""
    groups: dict[str, dict[str, Summary]] = {title: {} for title in GROUPS}
    descriptions = bundled_descriptions()
    for name in sorted(descriptions, key=_natural):
        title = next(title for title, pattern in GROUPS.items() if re.fullmatch(pattern, name))
        shows, _, takes = descriptions[name].removesuffix(".").rpartition("; ")
        groups[title][name] = Summary(shows, takes)
    return groups


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts numbers in names by their value.

    >>> sorted(["b0-10", "b0-2-fast", "b0-2"], key=_natural)
    ['b0-2', 'b0-2-fast', 'b0-10']
    """
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]
