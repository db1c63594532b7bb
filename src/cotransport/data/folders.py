"""Images in folders, one for each class."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data.decoding import SUFFIXES, Item
from cotransport.data.images import Label, LabelledImages, images_from_parts
from cotransport.data.splits import TEST_SPLITS, Splits, check_distinct
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Augmentation, Data

DEEPEST = 32
"""Folders below a class's own."""


class ImageFolder:
    """`train/` and `test/` with a subfolder per class, or one folder with a subfolder per class."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path) -> None:
        self._settings, self.name = settings, folder.name or folder.resolve().name
        self._train, self._test = folder, None
        self._root = None if settings.follow_links else folder
        if _subfolders(folder / "train"):  # otherwise it is a class of that name
            self._train = folder / "train"
            _check_link(self._train, self._root)
            self._test = next((folder / split for split in TEST_SPLITS if (folder / split).is_dir()), None)

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The subfolders' names, sorted."""
        return tuple(_class_folders(self._train, self._root))

    def splits(self) -> Splits:
        """The files below the subfolders."""
        train = _files(self._train, self.classes, self._root)
        if self._test is None:
            (images,) = images_from_parts([train.items], self._settings.image_size)
            return Splits(LabelledImages(images, train.labels, self.classes), None)
        _check_link(self._test, self._root)
        test = _files(self._test, self.classes, self._root)
        train_images, test_images = images_from_parts([train.items, test.items], self._settings.image_size)
        return Splits(
            LabelledImages(train_images, train.labels, self.classes),
            LabelledImages(test_images, test.labels, self.classes),
        )


class _Files(NamedTuple):
    items: list[Item]
    labels: Tensor


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _class_folders(folder: Path, root: Path | None) -> dict[str, Path]:
    """The subfolders of a folder by class name, sorted; links may not lead out of the root, if there is one."""
    # the same letter can be written in two ways, and file systems differ in which they use
    named = sorted((unicodedata.normalize("NFC", path.name), path) for path in _subfolders(folder))
    if not named:
        raise DataError(f"{folder}: no subfolder in it. Put the images of each class into a subfolder named after it")
    for name, path in named:
        if not name.isprintable():
            raise DataError(f"{folder}: a subfolder's name has characters that cannot be shown: {name!r}. Rename it")
        _check_link(path, root)
    check_distinct((name for name, _ in named), str(folder))
    return dict(named)


def _files(folder: Path, classes: Sequence[Label], root: Path | None) -> _Files:
    """The images of all classes; a class must not be empty, nor be in one of training and test alone."""
    folders = _class_folders(folder, root)
    for name, path in folders.items():
        if name not in classes:
            raise DataError(f"{path}: a class without training images. Add them, or remove the folder")
    items: list[Item] = []
    labels: list[int] = []
    ignored = [path for path in sorted(folder.iterdir()) if path.is_file() and _is_image(path)]
    for number, name in enumerate(str(label) for label in classes):
        if name not in folders:
            raise DataError(f"{folder}: no subfolder for the class {name!r}, which has training images. Add it")
        files = _visible_files(folders[name], root)
        images = [path for path in files if _is_image(path)]
        ignored += [path for path in files if not _is_image(path)]
        if not images:
            raise DataError(f"{folders[name]}: no images in it. Add some, or remove this class from all folders")
        items += images
        labels += [number] * len(images)
    if ignored:
        warnings.warn(
            f"{folder}: left out {len(ignored)} file{'s' if len(ignored) > 1 else ''}, without an image's suffix or "
            f"outside the classes' subfolders, such as {ignored[0]}",
            CotransportWarning,
            stacklevel=2,
        )
    return _Files(items, torch.tensor(labels))


def images_below(folder: Path) -> list[Path]:
    """All images in a folder and its subfolders, sorted."""
    return [path for path in _visible_files(folder, None) if _is_image(path)]


def _visible_files(folder: Path, root: Path | None) -> list[Path]:
    """All files below a folder, sorted, but for hidden ones and those in hidden folders, which tools leave behind."""
    found: list[Path] = []
    folders = [(folder, 0)]
    while folders:
        here, depth = folders.pop()
        if depth > DEEPEST:
            raise DataError(f"{folder}: folders within folders, more than {DEEPEST} deep. Move the images up")
        for path in _entries(here):
            if path.name.startswith("."):
                continue
            _check_link(path, root)
            if path.is_dir() and not path.is_symlink():  # a link to a folder inside would show its images twice
                folders.append((path, depth + 1))
            elif path.is_file():
                found.append(path)
    return sorted(found)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}). Check its permissions") from None


def _check_link(path: Path, root: Path | None) -> None:
    """An error if a link leads out of the folder that the user has named: it might show what is not theirs."""
    if path.is_symlink():
        check_inside(path, root)


def check_inside(path: Path, root: Path | None) -> None:
    """An error unless a path, all links followed, is below a folder, if there is one."""
    if root is None:
        return
    try:
        inside = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a link to itself
        raise DataError(f"{path}: a link that leads nowhere. Remove it") from None
    if not inside:
        raise DataError(
            f"{path}: leads out of {root}. Put a copy there, or allow that with data.follow_links: true "
            "(--set data.follow_links=true)"
        )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
