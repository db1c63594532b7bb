"""Recipes: everything that an experiment needs, read from YAML, changed by overrides and validated.

This module is not in `settings`, because a recipe names methods, and methods are a layer above settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from cotransport.errors import ConfigError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.methods import Method, known_methods, make_method
from cotransport.settings.overrides import apply_overrides, set_value, with_changed_items
from cotransport.settings.safe_yaml import MAX_CHARACTERS, parse_yaml
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Data,
    Device,
    HeadSettings,
    LoggerName,
    Loss,
    NotNegative,
    Optimiser,
    PredictionSettings,
    Schedule,
    StreamSettings,
    check_backbone_name,
)
from cotransport.settings.validation import Settings, as_section, nearest, validated

AnyMethod = Annotated[Method, BeforeValidator(make_method), PlainSerializer(Method.dumped)]


def _as_names(value: object) -> object:
    """A list of names, which may be given as a single name."""
    return (value,) if isinstance(value, str) else value


class Recipe(Settings):
    """An experiment: one or more methods on one stream of tasks, each run with one or more seeds."""

    name: str
    """The recipe's name in results. By default, the name of its file."""
    description: str = ""
    """What the recipe runs, in a sentence."""
    data: Data = Data()
    """Where the images come from."""
    augmentation: Augmentation | None = None
    """Random changes to training images. By default, those that suit the data."""
    stream: StreamSettings
    """How the classes are split into tasks."""
    memory: Budget = Budget(total=2000)
    """How many exemplars of old classes are kept."""
    backbone: Backbone = Backbone()
    """The network that maps images to features."""
    freeze_backbone: bool = False
    """Leave a pretrained backbone unchanged and train the head only, on features without augmentation."""
    head: HeadSettings = HeadSettings()
    """The classifier on top of the features."""
    schedule: Schedule = Schedule()
    """How long each task is trained, and with which learning rates."""
    optimiser: Optimiser = Optimiser()
    """Stochastic gradient descent."""
    loss: Loss = Loss()
    """The cross-entropy, which all methods share."""
    prediction: PredictionSettings = PredictionSettings()
    """How images are classified after training."""
    device: Device = Device()
    """The hardware that trains, and how it is used."""
    logging: Annotated[tuple[LoggerName, ...], BeforeValidator(_as_names)] = ()
    """Logs of the training: a name or a list of them. `csv` and `tensorboard` write into the run's folder; `wandb` and
    `mlflow` go where these programs are set up to keep runs. All but `csv` need an extra, as in
    `pip install 'cotransport[wandb]'`."""
    follow: str | None = None
    """Folder of an earlier experiment. Every method and seed trains for the numbers of epochs recorded there."""
    methods: Annotated[tuple[AnyMethod, ...], Field(min_length=1)]
    """The methods to run: each a name, or a mapping of its name and settings."""
    seeds: Annotated[tuple[NotNegative, ...], Field(min_length=1)] = (1,)
    """The random seeds. Every method runs once with each of them."""
    metric: Literal["top1", "top5"] = "top1"
    """The accuracy that summaries show: of the best guess, or of the five best guesses."""
    initial_accuracy: bool = False
    """Also measure how well each task's new classes are recognised before training: with transported weights, with the
    nearest class mean and with random weights."""

    @model_validator(mode="after")
    def _fits_together(self) -> Recipe:
        labels = [label_of(method) for method in self.methods]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"methods: several have the label {label!r}. Give each a different label")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: one is listed twice. List each seed once")
        check_backbone_name(self.backbone)
        return self


def with_new_settings(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as a result stores it, with the defaults of settings that did not exist yet when it was stored."""
    values = {**_defaults(Recipe), **stored}
    for name, field in Recipe.model_fields.items():
        default = field.get_default()
        if name not in values and isinstance(default, Settings):
            values[name] = default.model_dump(mode="json")
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Settings) and isinstance(values.get(name), Mapping):
                values[name] = {**_defaults(kind), **values[name]}
    if isinstance(values.get("methods"), list):
        values["methods"] = [_method_with_new_settings(method) for method in values["methods"]]
    return values | {"method": _method_with_new_settings(values.get("method"))}


def _method_with_new_settings(stored: object) -> object:
    known = known_methods()
    if not isinstance(stored, Mapping) or stored.get("name") not in known:
        return stored
    return {**known[stored["name"]]().dumped(), **stored}


def _defaults(kind: type[Settings]) -> dict[str, Any]:
    """The defaults of single values; sections are left out."""
    found = {name: field.get_default() for name, field in kind.model_fields.items() if not field.is_required()}
    return {
        name: value for name, value in found.items() if value is None or isinstance(value, bool | int | float | str)
    }


def label_of(method: Method) -> str:
    """The name of a method in results and figures."""
    return method.label or method.name


def load_recipe(name: str, overrides: Sequence[str] = (), data: str | None = None) -> Recipe:
    """A bundled recipe or a YAML file, with `key=value` overrides, and with another data source if one is given."""
    path = bundled_recipes().get(name, Path(name))
    values = _read_extended(path, name)
    values.setdefault("name", path.stem)
    if data is not None:
        set_value(values, "data.source", data)
    apply_overrides(values, overrides)
    return validated(Recipe, values, f"recipe {name}")


def _read_extended(path: Path, name: str, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The values of a recipe, merged into those of the recipe that it `extends`, if any.

    extending : the files whose `extends` led here. A file that extends itself is an error.
    """
    try:
        resolved = path.resolve()
    except (ValueError, OSError, RuntimeError):  # characters that no path has, or links in a circle
        raise ConfigError(
            f"{name!r}: cannot be the path of a recipe. Give a file, or a bundled recipe's name"
        ) from None
    if resolved in extending:
        raise ConfigError(f"{path}: extends itself, through {', '.join(map(str, extending))}. Remove one `extends`")
    try:
        values = _read(path, name)
    except ConfigError as error:
        raise ConfigError(f"{extending[-1]}: extends: {error}" if extending else str(error)) from None
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: give the name of a bundled recipe or a YAML file, not {base!r}")
    base_path = bundled_recipes().get(base, path.parent / base)
    inherited = _read_extended(base_path, base, (*extending, resolved))
    for key in ("name", "description"):
        inherited.pop(key, None)
    try:
        return _merge(inherited, values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A base with values merged in, section by section. Single values are replaced, and lists by lists.

    A mapping in place of the list of methods changes settings of some of them: `methods: {wa: {combine: ratio}}`.
    """
    merged = dict(base)
    for key, value in values.items():
        section = as_section(merged.get(key))
        if key == "methods" and isinstance(section, list) and isinstance(value, dict):
            merged[key] = with_changed_items(section, value, key)
        else:
            merged[key] = _merge(section, value) if isinstance(section, dict) and isinstance(value, dict) else value
    return merged


def _read(path: Path, name: str) -> dict[str, Any]:
    """The values in a recipe's file."""
    try:
        with path.open(encoding="utf-8") as file:
            values = parse_yaml(file.read(MAX_CHARACTERS + 1))
    except FileNotFoundError:
        known = bundled_recipes()
        hint = f"{nearest(name, known)} Bundled: {', '.join(known)}"
        raise ConfigError(f"{path}: no such file, and no bundled recipe has that name{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a recipe is a mapping of sections such as data, stream, schedule and methods")
    return values
