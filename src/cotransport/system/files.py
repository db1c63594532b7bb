"""Write files atomically, and read files that are not trusted.

A file is written under a temporary name, synced and then renamed, so a crash leaves either the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from cotransport.errors import CotransportError, StorageError

AnyPath: TypeAlias = str | os.PathLike[str]
"""A path as callers may give it."""
PART = ".part"
"""Suffix of files that are still being written."""
LARGEST_JSON = 64 << 20
"""Largest JSON file that is read, in bytes."""
DEEPEST_JSON = 64
"""Deepest nesting of lists and mappings in a JSON file that is read."""
_REMEDY = "Free some space or check the path and its permissions, and try again. Everything saved before is still there"


@contextmanager
def atomic_write(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A temporary path to write to. At the end, the file is renamed to `path`; on an error, it is removed.

    sync : make the system write it to the disk at once. Without it, a power failure may lose the file.
    """
    temporary = path.with_name(f".{path.name}{PART}")
    try:
        with storage_errors(path):
            temporary.unlink(missing_ok=True)  # it may be a link to another file
            yield temporary
            if sync:
                _sync(temporary)
            temporary.replace(path)
            if sync:
                _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, sync: bool = True) -> None:
    """Write a text file atomically."""
    with atomic_write(path, sync=sync) as temporary:
        temporary.write_text(text, encoding="utf-8")


def storable_name(name: str) -> str:
    r"""A file's name as valid Unicode text, with other bytes escaped.

    >>> storable_name("caf\udce9.png")
    'caf\\udce9.png'
    """
    return name.encode("utf-8", "backslashreplace").decode()


def write_json(path: Path, values: object, *, sync: bool = True) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False), sync=sync)


def read_json_bytes(path: Path) -> bytes:
    """The bytes of a JSON file. Raises ValueError if it is not a regular file, or is too large."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("not a file")  # reading a pipe might never end
    with path.open("rb") as file:
        text = file.read(LARGEST_JSON + 1)
    if len(text) > LARGEST_JSON:
        raise ValueError(f"more than {LARGEST_JSON >> 20} MiB")
    return text


def read_json(path: Path) -> Any:  # noqa: ANN401 (whatever is in the file)
    """The values in a JSON file. Raises ValueError if it is not valid JSON, too large or nested too deeply."""
    try:
        values = json.loads(read_json_bytes(path))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level, depth = [values], 0
    while level := [child for value in level for child in _children(value)]:
        depth += 1
        if depth > DEEPEST_JSON:
            raise ValueError("nested too deeply")
    return values


def _children(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def checksum(path: Path) -> str:
    """The SHA-256 checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents. Their names are synced to the disk, so that a power failure loses none."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        with suppress(PermissionError):  # a folder may allow new entries without allowing to be read
            _sync(folder.parent)


def rename_folder(folder: Path, place: Path) -> None:
    """Move a finished folder to its final place, after its files are synced to the disk."""
    with storage_errors(place):
        for path in folder.iterdir():
            _sync(path)
        _sync(folder)
        folder.rename(place)
        _sync(place.parent)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError inside into a StorageError that names the file and the remedy."""
    try:
        yield
    except CotransportError:
        raise
    except OSError as error:
        raise storage_error(path, error.strerror or error) from None


def storage_error(path: Path, reason: object) -> StorageError:
    """The error for a file that could not be written."""
    return StorageError(f"{path}: cannot be written ({reason}). {_REMEDY}")


def _sync(path: Path) -> None:
    """Make the system write a file, or the entries of a folder, to the disk."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
