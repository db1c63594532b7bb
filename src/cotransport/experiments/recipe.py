"""Recipes: everything that an experiment needs, read from YAML, changed by overrides and validated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from cotransport.errors import ConfigError
from cotransport.methods import Method, make_method
from cotransport.networks.backbones import check_known
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Data,
    Device,
    HeadSettings,
    Logging,
    Loss,
    NotNegative,
    Optimiser,
    Schedule,
    Settings,
    StreamSettings,
    nearest,
    validated,
)

AnyMethod = Annotated[Method, BeforeValidator(make_method), PlainSerializer(Method.dumped)]


LARGEST_RECIPE = 1 << 20
"""Characters of a recipe,"""
MOST_VALUES = 100_000
"""and values in it, at most."""


class Recipe(Settings):
    """An experiment: some methods, with some seeds each, on one stream."""

    name: str
    description: str = ""
    data: Data = Data()
    augmentation: Augmentation | None = None
    """By default what suits the data."""
    stream: StreamSettings
    memory: Budget = Budget(total=2000)
    backbone: Backbone = Backbone()
    head: HeadSettings = HeadSettings()
    schedule: Schedule = Schedule()
    optimiser: Optimiser = Optimiser()
    loss: Loss = Loss()
    device: Device = Device()
    logging: Logging = Logging()
    follow: str | None = None
    """Folder of an earlier experiment: every method and seed trains the epochs that were recorded for it there."""
    methods: Annotated[tuple[AnyMethod, ...], Field(min_length=1)]
    seeds: Annotated[tuple[NotNegative, ...], Field(min_length=1)] = (1,)
    metric: Literal["top1", "top5"] = "top1"
    initial_accuracy: bool = False
    """Look at every task's new classes before they are trained: how well transported weights, random weights and the
    nearest class mean tell them apart."""

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        labels = [label_of(method) for method in self.methods]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"methods: several are labelled {label!r}. Give each a label of its own")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: one is listed twice. List every seed once")
        check_known(self.backbone)
        return self


def label_of(method: Method) -> str:
    """The name of a method's run in results and figures."""
    return method.label or method.name


def bundled_recipes() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    folder = Path(str(resources.files("cotransport.experiments"))) / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load_recipe(name: str, overrides: Sequence[str] = (), data: str | None = None) -> Recipe:
    """A bundled recipe or a YAML file, with `key=value` overrides and another source of data."""
    path = bundled_recipes().get(name, Path(name))
    values = _extended(path, name)
    values.setdefault("name", path.stem)
    if data is not None:
        _set(values, ["data", "source"], data)
    set_all(values, overrides)
    return validated(Recipe, values, f"recipe {name}")


def set_all(values: dict[str, Any], overrides: Sequence[str]) -> None:
    """Change values by `key=value` overrides, in place."""
    # a whole list or section first, whatever the order, so that it does not undo what is said of its parts
    for override in sorted(overrides, key=lambda override: override.partition("=")[0].count(".")):
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {override}: give key=value, for example --set schedule.epochs=5")
        try:
            value = _parsed_yaml(text)
        except ValueError:
            raise ConfigError(
                f"--set {override}: not valid YAML after the equals sign. Close brackets and quotes"
            ) from None
        _set(values, key.split("."), value)


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, where YAML would forget the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping with distinct keys."""
        counts = Counter(str(key.value) for key, _ in node.value)
        for key, _ in node.value:
            if counts[str(key.value)] > 1:
                problem = f"the key {key.value!r} is there twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.value[-1][0].start_mark)
        return super().construct_mapping(node, deep)


def _parsed_yaml(text: str) -> Any:  # noqa: ANN401 (whatever it holds)
    """What YAML holds; ValueError if it is none, or would grow beyond all measure when its aliases are followed."""
    if len(text) > LARGEST_RECIPE:
        raise ValueError(f"more than {LARGEST_RECIPE:,} characters")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """Values below a node when all aliases are followed."""
    if id(node) in counts:
        if not counts[id(node)]:
            raise ValueError("an alias refers to what it is part of")
        return counts[id(node)]
    counts[id(node)] = 0  # it is being counted
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    total = 1 + sum(_count(part, counts) for part in parts)
    if total > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values when its aliases are followed")
    counts[id(node)] = total
    return total


def _extended(path: Path, name: str, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's values over those of the one that it `extends`, a bundled recipe or a file beside it."""
    if path.resolve() in below:
        raise ConfigError(f"{path}: extends itself, over {', '.join(map(str, below))}")
    try:
        values = _parsed(path, name)
    except ConfigError as error:
        raise ConfigError(f"{below[-1]}: extends: {error}" if below else str(error)) from None
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: give the name of a bundled recipe or a YAML file, not {base!r}")
    inherited = _extended(bundled_recipes().get(base, path.parent / base), base, (*below, path.resolve()))
    for key in ("name", "description"):
        inherited.pop(key, None)
    return _merged(inherited, values)


def _merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Values over a base, section by section; lists and single values are replaced."""
    merged = dict(base)
    for key, value in values.items():
        below = merged.get(key)
        if isinstance(below, str) and isinstance(value, dict):  # a section given by name alone
            below = {"name": below}
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _parsed(path: Path, name: str) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            values = _parsed_yaml(file.read(LARGEST_RECIPE + 1))
    except FileNotFoundError:
        known = bundled_recipes()
        hint = f"{nearest(name, known)} Bundled: {', '.join(known)}"
        raise ConfigError(f"{name}: no such file, and no bundled recipe has that name{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a recipe is a mapping of sections such as data, stream, schedule and methods")
    return values


def _label(item: object) -> str | None:
    """What a method in a list is called."""
    if isinstance(item, dict):
        item = item.get("label") or item.get("name")
    return item if isinstance(item, str) else None


def _set(values: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Put a value at a path of keys, and in lists of positions, or of methods' names."""
    where: Any = values
    for place, part in enumerate(path):
        here = f"--set {'.'.join(path[: place + 1])}"
        key: str | int = part
        if isinstance(where, list):
            labels = [_label(item) for item in where]
            if part in labels:
                key = labels.index(part)
            elif part.isdigit() and int(part) < len(where):
                key = int(part)
            else:
                names = list(filter(None, labels))
                known = f"{nearest(part.lower(), names)} Named are: {', '.join(names)}" if names else "."
                raise ConfigError(f"{here}: not a position in a list of {len(where)}{known}")
        elif not isinstance(where, dict):
            raise ConfigError(f"{here}: there is nothing below {'.'.join(path[:place])}")
        if place == len(path) - 1:
            where[key] = value
            return
        below = where[int(key)] if isinstance(where, list) else where.get(key)
        if below is None:
            below = {}
        elif isinstance(below, str):  # a method or a section given by name alone
            below = {"name": below}
        where[key] = below
        where = below
