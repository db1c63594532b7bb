"""Networks of timm: by their names, or from a folder in the layout of timm's hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from cotransport.errors import ConfigError
from cotransport.networks.libraries.hub import WEIGHTS, commit_of, hub_file
from cotransport.networks.libraries.source import (
    PublishedNetwork,
    colours,
    first_line,
    image_side,
    import_library,
)
from cotransport.settings.libraries import parse_library_name
from cotransport.settings.validation import nearest


def find(name: str) -> PublishedNetwork:
    """A network of timm whose weights are on the hub."""
    timm = import_library("timm")
    _check_known(name)
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise ConfigError(f"backbone: timm:{name}: {first_line(error)}. See timm.list_pretrained()") from None
    if config is None or not config.hf_hub_id:
        raise ConfigError(
            f"backbone: timm:{name} has no weights on the Hugging Face hub. See timm.list_pretrained() for others"
        )
    repository = str(config.hf_hub_id)
    full = f"{config.architecture}.{config.tag}" if config.tag else str(config.architecture)

    def load() -> tuple[nn.Module, str]:
        file = hub_file(repository, WEIGHTS)
        return _with_weights(full, file, {}), f"{repository}@{commit_of(file)}"

    return _published(full, config.to_dict(), repository, load)


def find_in_folder(folder: Path, config: Mapping[str, Any], origin: str) -> PublishedNetwork:
    """A network in timm's hub layout.

    config : the content of config.json.
    origin : where the folder came from.
    """
    timm = import_library("timm")
    architecture, published = config["architecture"], config.get("pretrained_cfg") or config
    tagged = f"timm:{architecture}.{published.get('tag')}"
    try:
        known = parse_library_name(tagged) is not None and timm.is_model_pretrained(tagged.removeprefix("timm:"))
    except ConfigError:
        known = False
    name = tagged.removeprefix("timm:") if known else str(architecture)
    parse_library_name(f"timm:{name}")
    _check_known(name)
    arguments = {key: value for key, value in (config.get("model_args") or {}).items() if key != "num_classes"}
    if arguments.pop("in_chans", 3) != 3:
        raise ConfigError(
            f"{origin}: config.json: the network does not take images with three colours. Choose another one"
        )
    _check_arguments(arguments, f"{origin}: config.json: model_args")
    load = partial(_with_weights, name, folder / WEIGHTS, arguments)
    return _published(name, published, origin, lambda: (load(), origin), arguments)


def build(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The architecture of a network, with random weights and without a classifier. Nothing is downloaded.

    arguments : as a record has them.
    """
    timm = import_library("timm")
    _check_known(name)
    _check_arguments(arguments, "backbone.library.config")
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **arguments)
    return network


def _check_arguments(arguments: Mapping[str, Any], where: str) -> None:
    """Refuse arguments other than the kind of pooling: some make timm read files or download."""
    for key, value in arguments.items():
        if key != "global_pool" or not isinstance(value, str):
            raise ConfigError(f"{where}: {key} is not supported. Choose another network")


def _with_weights(name: str, file: Path, arguments: Mapping[str, Any]) -> nn.Module:
    timm = import_library("timm")
    if not file.is_file():
        raise ConfigError(f"{file}: no such file. Weights are read from no other file")
    try:
        network: nn.Module = timm.create_model(
            name,
            pretrained=True,
            num_classes=0,
            pretrained_cfg_overlay={"file": str(file), "custom_load": False},
            **arguments,
        )
    except Exception as error:  # timm, torch and safetensors raise many types
        raise ConfigError(f"{file}: does not fit timm's {name} ({first_line(error)})") from None
    return network


def _check_known(name: str) -> None:
    """Raise a ConfigError unless the installed timm knows the architecture."""
    timm = import_library("timm")
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise ConfigError(f"backbone: timm does not know {architecture!r}{nearest(architecture, timm.list_models())}")


def _published(
    name: str,
    config: Mapping[str, Any],
    weights: str,
    load: Callable[[], tuple[nn.Module, str]],
    arguments: Mapping[str, Any] | None = None,
) -> PublishedNetwork:
    from timm.data import resolve_data_config

    seen = resolve_data_config(pretrained_cfg=dict(config))
    return PublishedNetwork(
        library="timm",
        model=name,
        weights=weights,
        image_size=image_side(seen["input_size"][-1], f"timm:{name}"),
        crop=min(1.0, float(seen["crop_pct"])),
        mean=colours(seen["mean"]),
        deviation=colours(seen["std"]),
        load=load,
        config=arguments or {},
    )
