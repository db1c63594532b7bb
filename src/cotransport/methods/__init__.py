"""The methods by name. Every `Method` in a module of this package is found, so there is no list to maintain."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from cotransport.errors import ConfigError
from cotransport.methods.base import Method
from cotransport.settings.validation import nearest, validated

__all__ = ["Method", "known_methods", "make_method"]


def known_methods() -> dict[str, type[Method]]:
    """All methods by name: those of this package, and any other subclass of `Method` that has been imported."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    named = [kind for kind in _subclasses(Method) if "name" in vars(kind)]
    return {kind.name: kind for kind in sorted(named, key=lambda kind: kind.name)}


def make_method(value: str | Mapping[str, Any] | Method, where: str = "method") -> Method:
    """A method from its name, or from its name and settings: `coil`, or `{name: coil, reg: 0.1}`."""
    if isinstance(value, Method):
        return value
    if not isinstance(value, str | Mapping):
        raise ConfigError(f"{where}: {value!r} is neither a method's name nor a mapping with its name and settings")
    settings = {"name": value} if isinstance(value, str) else dict(value)
    name = settings.pop("name", None)
    known = known_methods()
    if name is None:
        raise ConfigError(f"{where}: the method's name is missing. Known: {', '.join(known)}")
    if not isinstance(name, str) or name not in known:
        raise ConfigError(
            f"{where}.name: {name!r} is not a method{nearest(str(name).lower(), known)} Known: {', '.join(known)}"
        )
    return validated(known[name], settings, f"{where} ({name})")


def _subclasses(kind: type[Method]) -> list[type[Method]]:
    return [found for child in kind.__subclasses__() for found in [child, *_subclasses(child)]]
