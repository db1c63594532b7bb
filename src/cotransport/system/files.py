"""Files that are there as a whole or not at all, and the reading of files that nobody vouches for.

What is written goes beside its place, is synced, and is then renamed: a crash leaves the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from cotransport.errors import CotransportError, StorageError

PART = ".part"
"""End of the names of files that are being written."""
LARGEST_JSON = 64 << 20
"""Bytes of a JSON file that is read at all,"""
DEEPEST_JSON = 64
"""and values within values."""
_REMEDY = "Free some space or check the path and its permissions, and try again. Everything saved before is still there"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A place beside `path` to write a file to; afterwards it is synced and renamed, or removed if anything failed."""
    beside = path.with_name(f".{path.name}{PART}")
    try:
        with storage_errors(path):
            beside.unlink(missing_ok=True)  # it may be a link to something else
            yield beside
            _sync(beside)
            beside.replace(path)
            _sync(path.parent)
    except BaseException:
        with _ignored():
            beside.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file that a reader sees as a whole or not at all."""
    with atomic_write(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write named tensors, wherever they are and however they lie in memory, as safetensors."""
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode  # as the user wants new files to be; the library would let nobody else read them
    try:
        save_file(plain, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:  # its own name for a full disk
        raise StorageError(f"{path}: cannot be written ({error}). {_REMEDY}") from None


def storable_name(name: str) -> str:
    r"""A file's name as text that can be stored: what is not valid Unicode is escaped.

    >>> storable_name("caf\udce9.png")
    'caf\\udce9.png'
    """
    return name.encode("utf-8", "backslashreplace").decode()


def write_json(path: Path, values: object) -> None:
    """Write a JSON file that a reader sees as a whole or not at all."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False))


def read_json_bytes(path: Path) -> bytes:
    """The bytes of a JSON file; ValueError if it is no file, or larger than anything we write."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")  # a pipe would keep us waiting
    with path.open("rb") as file:
        text = file.read(LARGEST_JSON + 1)
    if len(text) > LARGEST_JSON:
        raise ValueError(f"more than {LARGEST_JSON >> 20} MiB")
    return text


def read_json(path: Path) -> Any:  # noqa: ANN401 (whatever is in the file)
    """What a JSON file holds; ValueError if it is none."""
    try:
        values = json.loads(read_json_bytes(path))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [values], 0
    while level := [part for value in level for part in _parts(value)]:
        depth += 1
        if depth > DEEPEST_JSON:
            raise ValueError("nested too deeply")
    return values


def _parts(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def rename_folder(folder: Path, place: Path) -> None:
    """Sync a folder with the files in it, and give it the name that it is read by."""
    with storage_errors(place):
        for path in folder.iterdir():
            _sync(path)
        _sync(folder)
        folder.rename(place)
        _sync(place.parent)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """What the system refuses, as an error that names the file and the remedy."""
    try:
        yield
    except CotransportError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error}). {_REMEDY}") from None


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except OSError:
        return


def _sync(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    if path.is_dir() and os.name == "nt":  # Windows does not open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
