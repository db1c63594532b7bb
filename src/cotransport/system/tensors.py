"""Named tensors in safetensors files, which never execute code when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from cotransport.system.files import storage_error


class StoredTensors(NamedTuple):
    """The content of a safetensors file."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors to a file. They may be on any device and have any memory layout."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode  # the user's default for new files; the library would deny others to read it
    try:
        save_file(plain, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:  # the library's error for a full disk, among others
        raise storage_error(path, error) from None


def tensor_names(path: Path) -> list[str]:
    """The names of the tensors in a file. Raises ValueError if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
        raise ValueError(str(error)) from None


def read_tensors(path: Path) -> StoredTensors:
    """The tensors and metadata in a file, independent of the file afterwards. Raises ValueError if it is damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return StoredTensors({name: tensor.clone() for name, tensor in load_file(path).items()}, metadata)
    except (OSError, SafetensorError, TypeError, KeyError, ValueError) as error:
        raise ValueError(str(error)) from None
