"""ImageNet (ILSVRC 2012) as it is unpacked: `train/` with a folder per synset, and `val/` with such folders or without.

A synset is a class, named by its WordNet id, such as n01440764. Readable names, and the classes of a flat `val/`, are
read from the files of the official development kit or from those of Kaggle's archive, if they are there.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch

from cotransport.data.files import FileList, check_link
from cotransport.data.folders import LabelledFiles, class_files, labelled_test_folder, subfolders
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label
from cotransport.data.lists import pairs, read_list
from cotransport.data.loading import images_from_parts
from cotransport.data.splits import Splits
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation, Data, Fit

KAGGLE = Path("ILSVRC", "Data", "CLS-LOC")
"""Where the images are in Kaggle's archive."""
KIT = Path("ILSVRC2012_devkit_t12", "data")
"""Where the lists are in the official development kit."""
TRUTH = "ILSVRC2012_validation_ground_truth.txt"
"""The class number of each validation image, in the development kit. The numbers are explained by `meta.mat`."""
SOLUTION = "LOC_val_solution.csv"
"""The synset of each validation image, in Kaggle's archive."""
SYNSET = r"n\d{8}"
"""A WordNet id."""
NAMES = "LOC_synset_mapping.txt"
"""The words of each synset, in Kaggle's archive."""


class ImageNet:
    """ImageNet, or a part of its classes."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path, images: Path) -> None:
        """folder : where the lists are; images : where `train/` and `val/` are."""
        self._settings, self._folder, self._images = settings, folder, images
        self._root = None if settings.follow_links else folder
        self.name = folder.name or folder.resolve().name

    @cached_property
    def _synsets(self) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in subfolders(self._images / "train")))

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """Readable names in the order of the synsets; the synsets themselves if there is no list of names."""
        words = _words(self._folder)
        first = [words.get(synset, synset).split(",")[0].strip() for synset in self._synsets]
        counts = Counter(first)  # there are two cranes, a bird and a machine
        return tuple(
            name if counts[name] == 1 else f"{name} ({synset})"
            for name, synset in zip(first, self._synsets, strict=True)
        )

    def splits(self, fit: Fit = "crop") -> Splits:
        """The training images, and the validation images for testing."""
        for split in ("train", "val"):
            check_link(self._images / split, self._root)
        train = class_files(self._images / "train", self._synsets, self._root)
        test = self._validation()
        if test is None:
            (images,) = images_from_parts([train.files], self._settings.image_size, fit)
            return Splits(LabelledImages(images, train.labels, self.classes), None)
        train_images, test_images = images_from_parts([train.files, test.files], self._settings.image_size, fit)
        return Splits(
            LabelledImages(train_images, train.labels, self.classes),
            LabelledImages(test_images, test.labels, self.classes),
        )

    def _validation(self) -> LabelledFiles | None:
        folder = self._images / "val"
        if not folder.is_dir():
            labelled = labelled_test_folder(self._images)
            return None if labelled is None else class_files(labelled, self._synsets, self._root)
        if subfolders(folder):
            return class_files(folder, self._synsets, self._root)
        truth = _validation_synsets(self._folder)
        numbers = {synset: number for number, synset in enumerate(self._synsets)}
        found = {path.stem: path for path in sorted(folder.iterdir())}
        chosen = {stem: numbers[synset] for stem, synset in truth.items() if synset in numbers}
        missing = next((stem for stem in chosen if stem not in found), None)
        if missing is not None:
            raise DataError(f"{folder}: the image {missing} is missing. Unpack the archive again")
        for stem in chosen:
            check_link(found[stem], self._root)
        if not chosen:
            raise DataError(f"{folder}: the lists name no image of these classes. Unpack the archive again")
        files = FileList(folder, (found[stem].name for stem in chosen))
        return LabelledFiles(files, torch.tensor(list(chosen.values())))


def imagenet_source(settings: Data, folder: Path) -> ImageNet | None:
    """ImageNet in a folder, if the training images are in folders named by synsets."""
    for images in (folder, folder / KAGGLE):
        found = subfolders(images / "train")
        packed = sorted(path for path in (images / "train").glob("n*.tar") if re.fullmatch(SYNSET, path.stem))
        unpacked = set(found)
        left = next((path for path in packed if path.with_suffix("") not in unpacked), None)
        if left is not None:
            raise DataError(
                f"{left}: a synset that is not unpacked. Unpack each archive in train/ into a folder of its name, "
                f"such as train/{left.stem}/"
            )
        if found and all(re.fullmatch(SYNSET, path.name) for path in found):
            return ImageNet(settings, folder, images)
    return None


def _words(folder: Path) -> Mapping[str, str]:
    """The words of each synset, from whichever list there is; empty without a list."""
    if (folder / NAMES).is_file():
        return pairs(folder / NAMES)
    return dict(_kit_synsets(folder).values())


def _validation_synsets(folder: Path) -> dict[str, str]:
    """The synset of each validation image, by the image's name without its suffix."""
    if (folder / SOLUTION).is_file():
        rows = csv.reader(line for _, line in read_list(folder / SOLUTION))
        next(rows, None)  # the headings
        return {row[0]: row[1].split()[0] for row in rows if len(row) > 1 and row[1].strip()}
    truth = _kit_file(folder, TRUTH)
    synsets = _kit_synsets(folder)
    if truth is None or not synsets:
        raise DataError(
            f"{folder}: the images in val/ are not in folders, and nothing says which class they are of. Put Kaggle's "
            f"{SOLUTION} there, or {TRUTH} and meta.mat of the development kit"
        )
    found = {}
    for line, (number, text) in enumerate(read_list(truth), start=1):
        if text not in synsets:
            raise DataError(f"{truth}, line {number}: {text[:60]!r} is not a class. Unpack the development kit again")
        found[f"ILSVRC2012_val_{line:08d}"] = synsets[text][0]
    return found


def _kit_synsets(folder: Path) -> dict[str, tuple[str, str]]:
    """The synset and the words of each class number in the development kit; empty without it."""
    file = _kit_file(folder, "meta.mat")
    if file is None:
        return {}
    from scipy.io import loadmat

    try:
        synsets = loadmat(str(file), squeeze_me=True)["synsets"]
        rows = zip(synsets["ILSVRC2012_ID"], synsets["WNID"], synsets["words"], strict=True)
        return {str(int(number)): (str(synset), str(words)) for number, synset, words in rows}
    except Exception as error:  # scipy raises many types for a damaged file
        raise DataError(f"{file}: cannot be read ({error}). Unpack the development kit again") from None


def _kit_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / KIT / name) if path.is_file()), None)
