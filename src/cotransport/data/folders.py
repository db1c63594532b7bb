"""Folders of images, with a subfolder per class."""

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
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label, check_distinct
from cotransport.data.loading import images_from_parts
from cotransport.data.splits import TEST_SPLITS, Splits
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Augmentation, Data

DEEPEST = 32
"""Deepest nesting of folders below the folder of a class."""


class ImageFolder:
    """`train/` and `test/` with a subfolder per class, or one folder with a subfolder per class."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path) -> None:
        self._settings, self.name = settings, folder.name or folder.resolve().name
        self._train, self._test = folder, None
        self._root = None if settings.follow_links else folder
        if _subfolders(folder / "train"):  # without subfolders, it is a class named train
            self._train = folder / "train"
            _check_link(self._train, self._root)
            self._test = next((folder / split for split in TEST_SPLITS if (folder / split).is_dir()), None)

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The subfolders' names, sorted."""
        return tuple(_class_folders(self._train, self._root))

    def splits(self) -> Splits:
        """The images below the subfolders."""
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
    """The subfolders by class name, sorted. If a root is given, links must not lead out of it."""
    # Unicode can encode the same letter in two ways, and file systems differ in which one they use
    named = sorted((unicodedata.normalize("NFC", path.name), path) for path in _subfolders(folder))
    if not named:
        raise DataError(
            f"{folder}: has no subfolders. Put the images of each class into a subfolder named after the class"
        )
    for name, path in named:
        if not name.isprintable():
            raise DataError(
                f"{folder}: the name of a subfolder has characters that cannot be shown: {name!r}. Rename it"
            )
        _check_link(path, root)
    check_distinct((name for name, _ in named), str(folder))
    return dict(named)


def _files(folder: Path, classes: Sequence[Label], root: Path | None) -> _Files:
    """The images of all classes. Every class must have images, and the same classes must be in training and test."""
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
            raise DataError(f"{folders[name]}: has no images. Add some, or remove this class from all folders")
        items += images
        labels += [number] * len(images)
    if ignored:
        warnings.warn(
            f"{folder}: ignored {len(ignored)} file{'s' if len(ignored) > 1 else ''}, not named like an image or "
            f"outside the subfolders of classes, such as {ignored[0]}",
            CotransportWarning,
            stacklevel=2,
        )
    return _Files(items, torch.tensor(labels))


def images_below(folder: Path) -> list[Path]:
    """The image files in a folder and its subfolders, sorted."""
    return [path for path in _visible_files(folder, None) if _is_image(path)]


def _visible_files(folder: Path, root: Path | None) -> list[Path]:
    """All files below a folder, sorted. Hidden files and folders, which tools leave behind, are skipped."""
    found: list[Path] = []
    folders = [(folder, 0)]
    while folders:
        here, depth = folders.pop()
        if depth > DEEPEST:
            raise DataError(f"{folder}: folders are nested more than {DEEPEST} deep. Move the images up")
        for path in _entries(here):
            if path.name.startswith("."):
                continue
            _check_link(path, root)
            if path.is_dir() and not path.is_symlink():  # a link to a folder inside would repeat its images
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
            f"{path}: leads out of {root}. Put a copy into the folder, or allow links with data.follow_links: true "
            "(--set data.follow_links=true)"
        )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
