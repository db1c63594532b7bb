"""Sphinx extension: reference pages written from the code, so that they cannot disagree with it.

A page contains a comment such as `<!-- generated: recipe -->`. Before the page is parsed, the comment is replaced by
Markdown made from the settings' fields and docstrings, or from the command's help texts.
"""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.text import Text
from sphinx.application import Sphinx
from sphinx.config import Config

PLACEHOLDER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
PAGES = ("reference/settings", "reference/methods", "reference/commands")
BOUNDS = {
    annotated_types.Gt: ("gt", "above"),
    annotated_types.Ge: ("ge", "at least"),
    annotated_types.Lt: ("lt", "below"),
    annotated_types.Le: ("le", "at most"),
}
OBVIOUS = 2**31
"""Upper bounds from here on only guard against overflow and are not shown."""
PARAMETER = re.compile(r"^(\w+(?:, \w+)*) : (.*)$")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    for name in ("recipe", "settings", "methods", "commands"):
        app.add_config_value(f"reference_{name}", None, "env", str)
    app.connect("source-read", fill_placeholders)
    app.connect("env-get-outdated", lambda *_: list(PAGES))  # the code behind them may have changed
    app.connect("autodoc-process-docstring", separate_parameters)
    return {"parallel_read_safe": True}


def fill_placeholders(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace each placeholder of a page by what is generated for it."""
    writers: dict[str, Callable[[Config], Iterator[str]]] = {
        "recipe": recipe_reference,
        "methods": methods_reference,
        "commands": commands_reference,
    }
    source[0] = PLACEHOLDER.sub(lambda found: "\n".join(writers[found[1]](app.config)), source[0])


def separate_parameters(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Show lines such as `cost : (alpha, beta)` as a list of definitions, not as one paragraph."""
    changed: list[str] = []
    for line in lines:
        if found := PARAMETER.match(line):
            changed += ["", f"``{found[1]}``", f"    {found[2]}"]
        else:
            changed.append(line)
    lines[:] = changed


def recipe_reference(config: Config) -> Iterator[str]:
    """The keys of a recipe, then every section with its keys."""
    recipe, base = _found(config.reference_recipe), _found(config.reference_settings)
    sections = {name: kind for name, field in recipe.model_fields.items() if (kind := _section(field, base))}
    yield from ["## The recipe", "", inspect.getdoc(recipe) or "", ""]
    shown = {name: f"see [{name}](#{name})" for name in sections}
    yield from _table(recipe, shown | {"methods": "list of names, or of [names with settings](methods.md)"})
    for name, kind in sections.items():
        yield from ["", f"## {name}", "", inspect.getdoc(kind) or "", "", *_table(kind)]


def methods_reference(config: Config) -> Iterator[str]:
    """Every method with its settings."""
    base = _found(config.reference_settings)
    for name, kind in _found(config.reference_methods)().items():
        yield from ["", f"## {name}", "", f"**{kind.title}.** {inspect.getdoc(kind)}", ""]
        yield from _table(kind, flatten=base)


def commands_reference(config: Config) -> Iterator[str]:
    """Every sub-command with its arguments and options, from the help texts."""
    import typer

    group: Any = typer.main.get_command(_found(config.reference_commands))
    for name, command in sorted(group.commands.items()):
        shown = [parameter for parameter in command.params if getattr(parameter, "help", None)]
        arguments = [one for one in shown if one.param_type_name == "argument"]
        options = " [OPTIONS]" if len(shown) > len(arguments) else ""
        words = [_name(one) if one.required else f"[{_name(one)}]" for one in arguments]
        usage = " ".join([f"cotransport {name}{options}", *words])
        yield from ["", f"## {name}", "", "```text", usage, "```", "", _plain(command.help), ""]
        if shown:
            yield from ["| argument or option | meaning | default |", "|---|---|---|"]
            yield from (_row(f"`{_name(one)}`", _plain(one.help), _default_of_option(one)) for one in shown)


def _name(parameter: Any) -> str:  # noqa: ANN401 (a click parameter)
    """What the user types for an option, or reads for an argument."""
    if parameter.param_type_name == "option":
        return ", ".join(parameter.opts)
    return str(parameter.metavar or parameter.name.upper())


def _default_of_option(parameter: Any) -> str:  # noqa: ANN401 (a click parameter)
    if isinstance(parameter.show_default, str):
        return str(parameter.show_default)
    value = getattr(parameter.default, "value", parameter.default)
    return f"`{value}`" if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _table(kind: Any, shown: dict[str, str] | None = None, flatten: type | None = None) -> Iterator[str]:  # noqa: ANN401
    """A settings class as a Markdown table.

    shown : text for the column of values, instead of the type.
    flatten : show the fields of nested settings of this base class as if they were the class's own.
    """
    yield from ["| setting | values | default | meaning |", "|---|---|---|---|"]
    yield from _rows(kind, shown or {}, flatten)


def _rows(kind: Any, shown: dict[str, str], flatten: type | None, defaults: object = None) -> Iterator[str]:  # noqa: ANN401
    """Table rows; `defaults` is an instance whose values count instead of the fields' own defaults."""
    for name, field in kind.model_fields.items():
        value = getattr(defaults, name) if defaults is not None else field.get_default(call_default_factory=True)
        part = _section(field, flatten) if flatten else None
        if part is not None:
            yield from _rows(part, shown, flatten, value)
            continue
        values = shown.get(name) or _values(field.annotation, tuple(field.metadata))
        default = "" if name in shown and not field.is_required() else _default(value)
        yield _row(f"`{name}`", values, default, _description(kind, name))


def _row(*cells: str) -> str:
    escaped = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(escaped) + " |"


def _description(kind: Any, name: str) -> str:  # noqa: ANN401
    """A field's docstring, or that of the class whose field it overrides."""
    for base in kind.__mro__:
        field = getattr(base, "model_fields", {}).get(name)
        if field is not None and field.description:
            return str(field.description)
    return ""


def _default(value: object) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or isinstance(value, bool):
        return f"`{'null' if value is None else str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`" if value != "" else ""


def _section(field: FieldInfo, base: type) -> Any:  # noqa: ANN401
    """The settings class of a field, if it is a section."""
    candidates = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, base)), None)


def _values(annotation: Any, bounds: tuple[Any, ...] = ()) -> str:  # noqa: ANN401
    """The values that a type allows, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], (*annotation.__metadata__, *bounds))
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in {Union, types.UnionType}:
        return ", or ".join("`null`" if part is type(None) else _values(part, bounds) for part in arguments)
    if origin is tuple:
        return f"list ({_values(arguments[0])})"
    words = {bool: "`true` or `false`", str: "text", int: "whole number", float: "number"}
    return " ".join([words.get(annotation, getattr(annotation, "__name__", str(annotation))), _limits(bounds)]).strip()


def _limits(bounds: tuple[Any, ...]) -> str:
    """Bounds in words, such as `above 0 and below 1`."""
    constraints = [part for bound in bounds for part in (bound.metadata if isinstance(bound, FieldInfo) else [bound])]
    words = []
    for constraint in constraints:
        name, word = BOUNDS.get(type(constraint), ("", ""))
        if name and abs(limit := getattr(constraint, name)) < OBVIOUS:
            words.append(f"{word} {limit:g}")
    return " and ".join(words)


def _plain(text: str | None) -> str:
    """A help text without the markup for terminals."""
    return Text.from_markup(inspect.cleandoc(text or "")).plain


def _found(path: str) -> Any:  # noqa: ANN401
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
