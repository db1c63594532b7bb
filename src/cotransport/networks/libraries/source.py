"""What the libraries have in common: a published network, and how the library itself is imported."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

from torch import nn

from cotransport.errors import ConfigError
from cotransport.settings.libraries import LARGEST_SIDE

Library = Literal["timm", "torchvision", "transformers"]
WHITE = 255.0
"""The largest value of a colour. Libraries give means and deviations of colours from 0 to 1."""


@dataclass(frozen=True)
class PublishedNetwork:
    """A pretrained network that was found, but not loaded yet."""

    library: Library
    model: str
    """The network's name in the library; of transformers, the type of the model."""
    weights: str
    """Where the weights come from, with their revision where it is known."""
    image_size: int
    """Side of the images that the weights were trained on."""
    crop: float
    """Share of an image's shorter side that the library's own evaluation shows."""
    mean: tuple[float, ...]
    """Means of the colours, from 0 to 255."""
    deviation: tuple[float, ...]
    load: Callable[[], tuple[nn.Module, str]] = field(repr=False)
    """Returns the network, from images (n, 3, h, w) to features (n, d), and where exactly its weights came from."""
    config: Mapping[str, Any] = field(default_factory=dict)


def import_library(name: Library) -> ModuleType:
    """An installed library. A ConfigError says how to install it."""
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"backbone: this network needs {name}, which is not installed: pip install {name}")
    try:
        return importlib.import_module(name)
    except Exception as error:  # builds of torch and torchvision that do not fit each other raise several kinds
        raise ConfigError(
            f"backbone: this network needs {name}, which cannot be imported ({first_line(error)}). Install a version "
            "that matches the installed torch"
        ) from None


def colours(values: Sequence[float], white: float = WHITE) -> tuple[float, ...]:
    """Means or deviations of colours from 0 to 1, as values from 0 to 255. One value stands for all three colours."""
    found = tuple(white * float(value) for value in values)
    return found * 3 if len(found) == 1 else found


def image_side(side: object, where: str) -> int:
    """The side of images, as a library gives it; a ConfigError unless it is a whole number of pixels."""
    if not isinstance(side, int) or not 0 < side <= LARGEST_SIDE:
        raise ConfigError(f"{where}: unusable image size ({side!r}). Choose another network")
    return side


def first_line(error: Exception) -> str:
    """The first line of a library's error, without a full stop."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
