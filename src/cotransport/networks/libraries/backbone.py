"""Backbones of other libraries: found by name with their weights, or built again from a model's record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from cotransport.errors import ConfigError, CotransportError
from cotransport.networks.libraries import hub, timm_models, torchvision_models, transformers_models
from cotransport.networks.libraries.sizes import limited_size
from cotransport.networks.libraries.source import PublishedNetwork, first_line, import_library
from cotransport.settings.libraries import LibraryRecord, parse_library_name
from cotransport.settings.sections import Backbone
from cotransport.settings.validation import validated
from cotransport.system.files import read_json


class LibraryBackbone(nn.Module):
    """Maps normalised images (n, 3, h, w) to features (n, d) by another library's network."""

    def __init__(self, network: nn.Module, record: LibraryRecord) -> None:
        super().__init__()
        self.network, self.record = network, record

    def forward(self, images: Tensor) -> Tensor:
        """Features: what the network's own classifier would see."""
        features: Tensor = self.network(images)
        return features


def published(name: str) -> PublishedNetwork:
    """The network with this name. Its weights are not loaded yet."""
    parts = parse_library_name(name)
    if parts is None:
        raise ConfigError(f"backbone: {name!r} is not the name of another library's network")
    if parts.source == "timm":
        return timm_models.find(parts.model)
    if parts.source == "torchvision":
        return torchvision_models.find(parts.model, parts.revision or "")
    if parts.source == "folder":
        return _in_folder(Path(parts.model), name)
    return _on_hub(parts.model, parts.revision)


def load(settings: Backbone) -> LibraryBackbone:
    """The named network with its published weights, in float32."""
    found = published(settings.name)
    network, origin = found.load()
    record = validated(
        LibraryRecord,
        {
            "library": found.library,
            "model": found.model,
            "config": json.loads(json.dumps(found.config)),  # the same values as in a file
            "weights": origin,
            "sha256": checksum(network.state_dict()),
            "image_size": found.image_size,
            "crop": found.crop,
            "mean": found.mean,
            "deviation": found.deviation,
        },
        f"backbone: {settings.name}",
    )
    if settings.library is not None and settings.library.sha256 != record.sha256:
        raise ConfigError(
            f"backbone: the weights of {settings.name} have changed since the model was made. Start a new model"
        )
    return LibraryBackbone(network.train(), record)


def build(record: LibraryRecord, stored: Mapping[str, Tensor]) -> LibraryBackbone:
    """A network from a model's record, with random weights. Nothing is downloaded, and no code but the library's runs.

    stored : the model's weights. A network that is larger is refused before memory is allocated for it.
    """
    numbers = sum(tensor.numel() for tensor in stored.values())
    try:
        if record.library == "transformers":  # its settings could ask for a single tensor that is too large
            with limited_size(len(stored), numbers), torch.device("meta"):
                _architecture(record)
        with limited_size(len(stored), numbers):
            return LibraryBackbone(_architecture(record), record)
    except CotransportError:
        raise
    except Exception as error:  # libraries raise many types for settings that they do not know
        raise ConfigError(
            f"backbone: the installed {record.library} cannot build {record.model} ({first_line(error)})"
        ) from None


def check_library(settings: Backbone) -> None:
    """Raise a ConfigError if a stored backbone needs a library that is not installed."""
    if settings.library is not None:
        import_library(settings.library.library)


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of named tensors: of their names, dtypes, shapes and values, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)} ".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _architecture(record: LibraryRecord) -> nn.Module:
    if record.library == "timm":
        return timm_models.build(record.model, record.config)
    if record.library == "torchvision":
        return torchvision_models.build(record.model)
    return transformers_models.build(record.model, record.config)


def _on_hub(repository: str, revision: str | None) -> PublishedNetwork:
    """A network on the Hugging Face hub. Its description is downloaded now, its weights when they are loaded."""
    config = hub.hub_file(repository, hub.CONFIG, revision)
    hub.optional_hub_file(repository, hub.IMAGES, revision)
    origin = f"{repository}@{hub.commit_of(config)}"
    found = _in_folder(config.parent, origin)

    def load_weights() -> tuple[nn.Module, str]:
        hub.hub_file(repository, hub.WEIGHTS, revision)
        return found.load()[0], origin

    return PublishedNetwork(**{**vars(found), "load": load_weights})


def _in_folder(folder: Path, origin: str) -> PublishedNetwork:
    """A network in a folder, in the layout of transformers or of timm's hub."""
    path = folder / hub.CONFIG
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"backbone: {path} cannot be read ({first_line(error)}). Give a folder with {hub.CONFIG} and {hub.WEIGHTS}"
        ) from None
    if not isinstance(config, dict):
        raise ConfigError(f"backbone: {path} is not a network's configuration")
    if "architecture" in config and "model_type" not in config:
        return timm_models.find_in_folder(folder, config, origin)
    return transformers_models.find(folder, config, origin)
