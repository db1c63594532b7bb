"""The files below a folder: found in a fixed order, and held in little memory. Links that lead out are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cotransport.data.formats import is_image, remedy
from cotransport.errors import DataError

DEEPEST = 32
"""Deepest nesting of folders below the folder of a class."""


class FileList(Sequence[Path]):
    """Paths below one folder. Only their names are kept: `Path` objects would take three times the memory."""

    def __init__(self, folder: Path, names: Iterable[str] = ()) -> None:
        self.folder = folder
        self.names = list(names)
        """Paths relative to the folder."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are not used)
        return self.folder / self.names[index]


def images_below(folder: Path) -> list[Path]:
    """The image files in a folder and its subfolders, sorted; also those of formats that cannot be read here."""
    return [folder / name for name in visible_files(folder, None) if is_image(name) or remedy(name)]


def check_local(name: str) -> None:
    """Raise a DataError if a name is an address on the internet: nothing is downloaded from there."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name):
        raise DataError(f"{name}: nothing is downloaded from addresses. Download the images, and give their path")


def visible_files(folder: Path, root: Path | None) -> list[str]:
    """The names of all files below a folder, relative to it, sorted.

    Hidden files and folders, which tools leave behind, are skipped.

    root : links must not lead out of this folder. Without it, they may lead anywhere.
    """
    found: list[str] = []
    folders = [("", 0)]
    while folders:
        here, depth = folders.pop()
        if depth > DEEPEST:
            raise DataError(f"{folder}: folders are nested more than {DEEPEST} deep. Move the images up")
        for entry in _entries(folder / here):
            if entry.name.startswith("."):
                continue
            name = f"{here}/{entry.name}" if here else entry.name
            if entry.is_symlink():
                check_inside(folder / name, root)
                if _leads_to_file(entry):  # a link to a folder inside would repeat its images
                    found.append(name)
            elif entry.is_dir():
                folders.append((name, depth + 1))
            elif entry.is_file():
                found.append(name)
    return sorted(found, key=lambda name: name.split("/"))


def _leads_to_file(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_file()
    except OSError:
        raise DataError(f"{link.path}: a link that leads nowhere. Remove it") from None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}). Check its permissions") from None


def check_link(path: Path, root: Path | None) -> None:
    """Raise a DataError if a link leads out of the root: it might expose other people's files."""
    if path.is_symlink():
        check_inside(path, root)


def check_inside(path: Path, root: Path | None) -> None:
    """Raise a DataError if a path leads out of the root, when links are followed. Without a root, all are allowed."""
    if root is None:
        return
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link to itself
        raise DataError(f"{path}: a link that leads nowhere. Remove it") from None
    if not inside:
        raise DataError(
            f"{path}: leads out of {root}. Put a copy into the folder, or allow links with data.follow_links: true",
            hint="That is --set data.follow_links=true, or learn(Data(source=..., follow_links=True)) in Python",
        )
