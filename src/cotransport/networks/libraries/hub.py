"""Files of networks on the Hugging Face hub, downloaded once. Only JSON and safetensors files are ever asked for."""

from __future__ import annotations

from pathlib import Path

from cotransport.errors import ConfigError
from cotransport.networks.libraries.source import first_line

TIMEOUT = 10.0
"""Seconds in which the hub must answer."""
CONFIG, IMAGES, WEIGHTS = "config.json", "preprocessor_config.json", "model.safetensors"


def hub_file(repository: str, name: str, revision: str | None = None) -> Path:
    """A file of a repository, from the local cache or the hub."""
    found = optional_hub_file(repository, name, revision)
    if found is None:
        raise ConfigError(
            f"backbone: {_shown(repository, revision)} has no file {name}. Choose a network that is published as "
            "safetensors"
        )
    return found


def optional_hub_file(repository: str, name: str, revision: str | None = None) -> Path | None:
    """A file of a repository, from the local cache or the hub; None if the repository has no such file."""
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # public, but not typed so
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    try:
        return Path(hf_hub_download(repository, name, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        pass
    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:  # without a network, a download would be tried for half a minute
        info = HfApi().model_info(repository, revision=revision, timeout=TIMEOUT)
        if name not in {file.rfilename for file in info.siblings or ()}:
            return None
        return Path(hf_hub_download(repository, name, revision=info.sha))
    except Exception as error:  # the library and its network clients raise many types
        raise ConfigError(
            f"backbone: {_shown(repository, revision)}: {name} is not on this machine and cannot be downloaded "
            f"({first_line(error)}). Check the name and your connection, or download the network and use folder:PATH"
        ) from None
    finally:
        if shown:
            enable_progress_bars()


def commit_of(path: Path) -> str:
    """The commit of a file in the local cache, where files are in folders named by their commit."""
    return path.parent.name


def _shown(repository: str, revision: str | None) -> str:
    return repository if revision is None else f"{repository}@{revision}"
