"""The recipes that come with the package. They can be listed without importing torch or any method."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from cotransport.settings.safe_yaml import parse_yaml


def bundled_recipes() -> dict[str, Path]:
    """The bundled recipes: each name and its YAML file."""
    folder = Path(str(resources.files("cotransport.experiments"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def bundled_descriptions() -> dict[str, str]:
    """What each bundled recipe runs, in a sentence."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in bundled_recipes().items()}
    return {name: str(parse_yaml(text).get("description", "")) for name, text in texts.items()}
