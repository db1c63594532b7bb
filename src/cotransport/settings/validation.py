"""The base class of all settings, and the error messages for values that do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from cotransport.errors import ConfigError

SettingsType = TypeVar("SettingsType", bound="Settings")
MAX_QUOTED = 200
"""Longest text of a wrong value that a message shows, in characters."""

_PLAIN_WORDS = {
    "missing": "is missing",
    "tuple_type": "give a list, for example [1, 2]",
    "model_type": "give a section with keys, for example {key: value}",
}
"""Our wording of some of pydantic's error types."""


class Settings(BaseModel):
    """Immutable settings. An unknown key is an error that suggests the nearest known one."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,  # the string below a field becomes its description
    )

    @classmethod
    def inline_sections(cls) -> dict[str, type[Settings]]:
        """The sections, by field name, whose keys are written without the section's name: see `InlineSections`."""
        return {}


def validated(kind: type[SettingsType], values: Mapping[str, Any], where: str) -> SettingsType:
    """Settings of class `kind` from plain values. If any are wrong, a ConfigError names every wrong field."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: give a section with keys, for example {{key: value}}, not {quoted(values)}")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors()
        places = [detail["loc"] for detail in details]
        # pydantic reports a list with wrong items twice: for the items, and as too short
        echoes = [any(len(p) > len(loc) and p[: len(loc)] == loc for p in places) for loc in places]
        lines = [_message(kind, detail) for detail, echo in zip(details, echoes, strict=True) if not echo]
        raise ConfigError(f"{where}: " + "\n  ".join(lines)) from None


def descriptions(kind: type[Settings]) -> dict[str, str]:
    """The description of each field: its own docstring, or the one of the base class that it overrides.

    >>> from cotransport.settings.sections import Optimiser
    >>> descriptions(Optimiser)["clip_norm"]
    'Largest norm of the gradient of all weights together; a longer gradient is scaled down. By default, no limit.'
    """
    return {name: _description(owner, name) for name, owner in visible_keys(kind).items()}


def visible_keys(kind: type[Settings]) -> dict[str, type[Settings]]:
    """The keys that a user may write in a section, each with the settings class that declares it."""
    inline = kind.inline_sections()
    keys = {name: kind for name in kind.model_fields if name not in inline}
    return keys | {name: section for section in inline.values() for name in section.model_fields}


def choices(kind: type[Settings], key: str) -> list[str]:
    """The values that a key allows, if it allows a few only.

    >>> from cotransport.settings.sections import Schedule
    >>> choices(Schedule, "shape"), choices(Schedule, "epochs")
    (['steps', 'one-cycle', 'cosine', 'constant'], [])
    """
    return [str(choice) for choice in _choices(visible_keys(kind)[key], (key,)) if isinstance(choice, str)]


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: `; did you mean 'x'?`, or a full stop if no known word is close.

    >>> nearest("epoch", ["epochs", "decay"]), nearest("xyz", ["epochs", "decay"])
    ("; did you mean 'epochs'?", '.')
    """
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else "."


def quoted(value: object) -> str:
    """A value as a message shows it, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to convert very long numbers to text
        return "a very long number"
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def as_section(value: object) -> object:
    """A value, or the mapping that it stands for: a section may be given by its name alone.

    >>> as_section("resnet18")
    {'name': 'resnet18'}
    """
    return {"name": value} if isinstance(value, str) else value


def _description(kind: type[Settings], name: str) -> str:
    for base in kind.__mro__:
        field = base.model_fields.get(name) if issubclass(base, Settings) else None
        if field is not None and field.description:
            return " ".join(field.description.split())
    return ""


def _message(kind: type[Settings], detail: Any) -> str:  # noqa: ANN401 (pydantic's ErrorDetails)
    """One line about one of pydantic's errors: the field, what is wrong, and what is allowed."""
    path, value = detail["loc"], detail.get("input")
    visible = path[1:] if path and path[0] in kind.inline_sections() else path
    field = ".".join(str(part) for part in visible)
    if detail["type"] == "extra_forbidden":
        known = sorted(visible_keys(_section(kind, path[:-1])))
        return f"{field}: unknown key{nearest(str(path[-1]), known)} Allowed here: {', '.join(known)}"
    if detail["type"] in _PLAIN_WORDS:
        return f"{field or path[0]}: {_PLAIN_WORDS[detail['type']]}"
    message = detail["msg"].removeprefix("Value error, ")
    if not field:
        return str(message)
    if detail["type"] == "literal_error":
        allowed = [str(choice) for choice in _choices(kind, path)]
        return f"{field}: {quoted(value)} is not allowed{nearest(str(value), allowed)} Allowed: {', '.join(allowed)}"
    if isinstance(value, Mapping):
        return f"{field}: {message}"
    return f"{field}: {message} (got {quoted(value)})"


def _section(kind: type[Settings], path: tuple[int | str, ...]) -> type[Settings]:
    """The settings class that a path of field names leads to."""
    for part in path:
        if part in kind.model_fields:
            leaves = _leaves(kind.model_fields[str(part)].annotation)
            kind = next(leaf for leaf in leaves if isinstance(leaf, type) and issubclass(leaf, Settings))
    return kind


def _choices(kind: type[Settings], path: tuple[int | str, ...]) -> list[object]:
    """The literal values that the field at a path allows; of a list, those of its items."""
    while isinstance(path[-1], int):
        path = path[:-1]
    field = _section(kind, path[:-1]).model_fields[str(path[-1])]
    return [choice for choice in _leaves(field.annotation) if not isinstance(choice, type)]


def _leaves(annotation: object) -> list[object]:
    """The classes and literal values in a type annotation."""
    arguments = [argument for argument in get_args(annotation) if argument is not ...]  # of a tuple of any length
    return [leaf for argument in arguments for leaf in _leaves(argument)] if arguments else [annotation]
