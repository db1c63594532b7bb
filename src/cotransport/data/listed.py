"""Data sets in the layout of their official archives, where text files list the images, their classes and the split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from cotransport.data.decoding import Item
from cotransport.data.files import check_inside
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label, check_distinct
from cotransport.data.lists import pairs
from cotransport.data.loading import images_from_parts
from cotransport.data.splits import Splits
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation, Data, Fit

RAF_DB_CLASSES = {
    "1": "surprise",
    "2": "fear",
    "3": "disgust",
    "4": "happiness",
    "5": "sadness",
    "6": "anger",
    "7": "neutral",
}
"""Names of the labels in RAF-DB, as its documentation gives them."""


@dataclass(frozen=True)
class Listed:
    """One line of a list: an image, its class and its split."""

    path: Path
    label: str
    """A key of the classes."""
    is_training: bool


@dataclass(frozen=True)
class Listing:
    """The lists of a data set."""

    classes: Mapping[str, str]
    """The names of the classes by their labels in the lists."""
    images: list[Listed]


class ListedImages:
    """A data set whose images are listed in text files."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path, read: Callable[[Path], Listing]) -> None:
        self._settings, self._folder, self._read = settings, folder, read
        self.name = folder.name or folder.resolve().name

    @cached_property
    def _listing(self) -> Listing:
        return self._read(self._folder)

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The names of the classes, in the order of the data set."""
        return check_distinct(self._listing.classes.values(), str(self._folder))

    def splits(self, fit: Fit = "crop") -> Splits:
        """The images of the official split."""
        root = None if self._settings.follow_links else self._folder
        numbers = {label: number for number, label in enumerate(self._listing.classes)}
        items: dict[bool, list[Item]] = {True: [], False: []}
        labels: dict[bool, list[int]] = {True: [], False: []}
        for listed in self._listing.images:
            check_inside(listed.path, root)
            items[listed.is_training].append(listed.path)
            labels[listed.is_training].append(numbers[listed.label])
        for is_training, split in ((True, "training"), (False, "test")):
            if not items[is_training]:
                raise DataError(f"{self._folder}: the lists name no {split} images. Unpack the archive again")
        train, test = images_from_parts([items[True], items[False]], self._settings.image_size, fit)
        return Splits(
            LabelledImages(train, torch.tensor(labels[True]), self.classes),
            LabelledImages(test, torch.tensor(labels[False]), self.classes),
        )


def listed_source(settings: Data, folder: Path) -> ListedImages | None:
    """CUB-200-2011 or RAF-DB in a folder, if it has the layout of one of them."""
    for root in (folder, folder / "CUB_200_2011"):  # the archive has attributes.txt beside this folder
        if (root / "image_class_labels.txt").is_file() and (root / "train_test_split.txt").is_file():
            return ListedImages(settings, root, cub200)
    for root in (folder, folder / "basic"):
        if (root / "EmoLabel" / "list_patition_label.txt").is_file():
            return ListedImages(settings, root, raf_db)
    return None


def cub200(folder: Path) -> Listing:
    """CUB-200-2011: `images.txt`, `image_class_labels.txt`, `train_test_split.txt`, `classes.txt` and `images/`."""
    classes = {label: _species(name) for label, name in pairs(folder / "classes.txt").items()}
    paths, labels = pairs(folder / "images.txt"), pairs(folder / "image_class_labels.txt", allowed=classes)
    splits = pairs(folder / "train_test_split.txt", allowed=("0", "1"))
    for name, found in (("image_class_labels.txt", labels), ("train_test_split.txt", splits)):
        missing = next((number for number in paths if number not in found), None)
        if missing is not None:
            raise DataError(f"{folder / name}: image {missing} of images.txt is missing. Unpack the archive again")
    images = [Listed(folder / "images" / path, labels[number], splits[number] == "1") for number, path in paths.items()]
    return Listing(classes, images)


def raf_db(folder: Path) -> Listing:
    """RAF-DB, basic expressions: `EmoLabel/list_patition_label.txt` and `Image/aligned/`."""
    file = folder / "EmoLabel" / "list_patition_label.txt"
    images = []
    for name, label in pairs(file, allowed=RAF_DB_CLASSES).items():
        path = Path(name)
        if not name.startswith(("train", "test")):
            raise DataError(f"{file}: {name!r} is neither a train nor a test image. Unpack the archive again")
        aligned = folder / "Image" / "aligned" / f"{path.stem}_aligned{path.suffix}"
        images.append(Listed(aligned, label, name.startswith("train")))
    return Listing(RAF_DB_CLASSES, images)


def _species(name: str) -> str:
    """A readable name.

    >>> _species("001.Black_footed_Albatross")
    'Black footed Albatross'
    """
    return name.partition(".")[2].replace("_", " ") or name
