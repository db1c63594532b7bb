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

from cotransport.data.files import FileList, check_link, visible_files
from cotransport.data.formats import is_image, remedy
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label, check_distinct
from cotransport.data.loading import images_from_parts
from cotransport.data.splits import TEST_SPLITS, Splits
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Augmentation, Data, Fit


class ImageFolder:
    """`train/` and `test/` with a subfolder per class, or one folder with a subfolder per class."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path) -> None:
        self._settings, self.name = settings, folder.name or folder.resolve().name
        self._train, self._test = folder, None
        self._root = None if settings.follow_links else folder
        if subfolders(folder / "train"):  # without subfolders, it is a class named train
            self._train = folder / "train"
            check_link(self._train, self._root)
            self._test = labelled_test_folder(folder)

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The subfolders' names, sorted."""
        return tuple(_class_folders(self._train, self._root))

    def training_files(self) -> LabelledFiles:
        """The files below the subfolders. Raises an error if these seem to be above the classes."""
        train = class_files(self._train, self.classes, self._root)
        if not self._settings.nested:
            _check_depth(train.files)
        return train

    def splits(self, fit: Fit = "crop") -> Splits:
        """The images below the subfolders."""
        train = self.training_files()
        if self._test is None:
            (images,) = images_from_parts([train.files], self._settings.image_size, fit)
            return Splits(LabelledImages(images, train.labels, self.classes), None)
        check_link(self._test, self._root)
        test = class_files(self._test, self.classes, self._root)
        train_images, test_images = images_from_parts([train.files, test.files], self._settings.image_size, fit)
        return Splits(
            LabelledImages(train_images, train.labels, self.classes),
            LabelledImages(test_images, test.labels, self.classes),
        )


class LabelledFiles(NamedTuple):
    """Files and the numbers of their classes."""

    files: FileList
    labels: Tensor
    """int64 (n,)."""


def labelled_test_folder(folder: Path) -> Path | None:
    """The first folder of test images that says which class they are of; None if there is none."""
    present = [folder / split for split in TEST_SPLITS if (folder / split).is_dir()]
    labelled = next((path for path in present if subfolders(path)), None)
    if present and labelled is None:
        warnings.warn(
            f"{present[0]}: has no subfolders, so the classes of its images are not known. It is not used, and some "
            "training images are held out instead",
            CotransportWarning,
            stacklevel=2,
        )
    return labelled


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, apart from hidden ones; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _class_folders(folder: Path, root: Path | None) -> dict[str, Path]:
    """The subfolders by class name, sorted. If a root is given, links must not lead out of it."""
    # Unicode can encode the same letter in two ways, and file systems differ in which one they use
    named = sorted((unicodedata.normalize("NFC", path.name), path) for path in subfolders(folder))
    if not named and any(folder.glob("*.tar")):
        raise DataError(
            f"{folder}: has tar files, as in WebDataset, which are not read: a task needs all images of its classes, "
            "and shards mix the classes. Unpack them into a subfolder per class, or convert them to parquet files"
        )
    if not named:
        raise DataError(
            f"{folder}: has no subfolders. Put the images of each class into a subfolder named after the class"
        )
    for name, path in named:
        if not name.isprintable():
            raise DataError(
                f"{folder}: the name of a subfolder has characters that cannot be shown: {name!r}. Rename it"
            )
        check_link(path, root)
    check_distinct((name for name, _ in named), str(folder))
    return dict(named)


def class_files(folder: Path, classes: Sequence[Label], root: Path | None) -> LabelledFiles:
    """The images of all classes. Every class must have images, and the same classes must be in training and test."""
    folders = _class_folders(folder, root)
    for name, path in folders.items():
        if name not in classes:
            raise DataError(f"{path}: a class without training images. Add them, or remove the folder")
    files = FileList(folder)
    labels: list[int] = []
    unreadable: list[Path] = []
    ignored = [path for path in sorted(folder.iterdir()) if path.is_file() and is_image(path.name)]
    for number, name in enumerate(str(label) for label in classes):
        if name not in folders:
            raise DataError(f"{folder}: no subfolder for the class {name!r}, which has training images. Add it")
        own = folders[name]
        below = visible_files(own, root)
        images = [file for file in below if is_image(file)]
        others = [own / file for file in below if not is_image(file)]
        if not images:
            raise _no_images(own, others)
        unreadable += [file for file in others if remedy(file.name)]
        ignored += [file for file in others if not remedy(file.name)]
        files.names += [f"{own.name}/{file}" for file in images]
        labels += [number] * len(images)
    if unreadable:
        warnings.warn(
            f"{folder}: left out {len(unreadable)} file{'s' if len(unreadable) > 1 else ''}, such as {unreadable[0]}: "
            f"{remedy(unreadable[0].name)}",
            CotransportWarning,
            stacklevel=2,
        )
    if ignored:
        warnings.warn(
            f"{folder}: ignored {len(ignored)} file{'s' if len(ignored) > 1 else ''}, not named like an image or "
            f"outside the subfolders of classes, such as {ignored[0]}",
            CotransportWarning,
            stacklevel=2,
        )
    return LabelledFiles(files, torch.tensor(labels))


def _check_depth(files: FileList) -> None:
    """Raise an error if the folder seems to be one above the classes: all images are in folders below its subfolders.

    If these folders all have the same name, such as `images`, it only warns.
    """
    places = [name.split("/") for name in files.names]
    if any(len(place) < 3 for place in places):  # CLASS/IMAGE
        return
    first = files.folder / places[0][0]
    message = (
        f"{files.folder}: its subfolders have no images, but folders below them have, such as {first / places[0][1]}. "
        f"If these are the classes, give {first} instead"
    )
    if len({place[1] for place in places}) > 1:
        raise DataError(
            f"{message}. If {first.name} is a class, with all images below it, set data.nested: true",
            hint="That is --set data.nested=true, or learn(Data(source=..., nested=True)) in Python",
        )
    warnings.warn(message, CotransportWarning, stacklevel=3)


def _no_images(folder: Path, files: Sequence[Path]) -> DataError:
    """The error for a class whose files are none that can be read."""
    for file in files:
        if (needed := remedy(file.name)) is not None:
            return DataError(f"{folder}: has no images that can be read. {file.name}: {needed}")
    return DataError(f"{folder}: has no images. Add some, or remove this class from all folders")
