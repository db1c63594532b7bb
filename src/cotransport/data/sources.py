"""Where images come from: folders, official layouts, Hugging Face data sets, arrays and the embedded digits.

A source lists its classes without reading an image, and loads its images into the storage that suits them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch

from cotransport.data.arrays import as_images, as_labelled_images
from cotransport.data.files import check_local
from cotransport.data.folders import ImageFolder, subfolders
from cotransport.data.hugging_face import HuggingFace, is_hub_id, is_hugging_face
from cotransport.data.imagenet import imagenet_source
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label
from cotransport.data.listed import listed_source
from cotransport.data.loading import resize
from cotransport.data.splits import DataSet, Splits, hold_out
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation, Data, Fit
from cotransport.settings.validation import nearest

BY_HAND = {
    "cub200": "CUB-200-2011: download it from https://www.vision.caltech.edu/datasets/cub_200_2011 and unpack it. The "
    "folder must contain images/, images.txt, image_class_labels.txt, train_test_split.txt and classes.txt, or the "
    "folder CUB_200_2011 with these",
    "imagenet": "ImageNet (ILSVRC 2012): get the training and validation images from https://image-net.org, or the "
    "archive of Kaggle's ImageNet Object Localization Challenge, and unpack them. The folder must contain train/ and "
    "val/, each with a subfolder per synset; or a flat val/, and beside it LOC_val_solution.csv or the development "
    "kit",
    "raf-db": "RAF-DB: ask its authors for it at http://www.whdeng.cn/RAF/model1.html and unpack it. The folder must "
    "contain basic/EmoLabel/list_patition_label.txt and basic/Image/aligned/",
}
"""Data sets that cannot be downloaded automatically: where they come from, and which layout they need."""


class Source(Protocol):
    """A data set that can be opened."""

    name: str
    augmentation: Augmentation
    """The augmentation that suits these images, used where the user chooses none."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The names of the classes. No image is read."""
        ...

    def splits(self, fit: Fit = "crop") -> Splits:
        """Load the images.

        fit : how images that are kept in memory become squares.
        """
        ...


class Digits:
    """Scikit-learn's 1,797 images of handwritten digits, 8 x 8 pixels."""

    name = "digits"
    augmentation = Augmentation(crop_padding=1, flip=False)
    classes: tuple[Label, ...] = tuple(str(digit) for digit in range(10))

    def __init__(self, settings: Data) -> None:
        self._settings = settings

    def splits(self, fit: Fit = "crop") -> Splits:
        """All images are for training. There are no test images."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        values = np.round(digits.images * (255 / 16)).astype(np.uint8)
        images = as_images(values, self._settings.image_size, fit)
        return Splits(LabelledImages(images, torch.from_numpy(digits.target).long(), self.classes), None)


def usual_augmentation(source: str) -> Augmentation:
    """The augmentation that suits a source, by its name alone: only the digits differ from others."""
    return Digits.augmentation if source == Digits.name else Augmentation()


def open_source(settings: Data) -> Source:
    """The source that the settings name: digits, a folder, a data set under COTRANSPORT_DATA, or one on the hub."""
    source = _named_source(settings)
    if settings.streaming and not isinstance(source, HuggingFace):
        raise DataError(
            f"{settings.source}: only Hugging Face data sets in parquet files are streamed. Set data.streaming to false"
        )
    return source


def _named_source(settings: Data) -> Source:
    name = settings.source
    check_local(name)
    if name == Digits.name:
        return Digits(settings)
    root = os.environ.get("COTRANSPORT_DATA")
    try:
        for folder in [Path(name).expanduser()] + ([Path(root).expanduser() / name] if root else []):
            if folder.is_file():
                raise DataError(
                    f"{folder}: a file. Give a folder with a subfolder per class, or a Hugging Face data set"
                )
            if folder.is_dir() and name:
                return _source_in(folder, settings)
    except (OSError, RuntimeError) as error:  # no permission, a name that is too long, no such user
        raise DataError(f"{name}: cannot be read ({error}). Check the path") from None
    if name in BY_HAND:
        raise DataError(
            f"{name}: not found. {BY_HAND[name]}. Name the folder {name} and put it into the folder that the "
            "environment variable COTRANSPORT_DATA names, or give its path with --data"
        )
    parent = Path(name).parent
    if not is_hub_id(name) or ("/" in name and parent.is_dir()):  # a path with a typing mistake, not an id
        others = [path.name for path in subfolders(parent)] if name else []
        raise DataError(f"{name or 'data.source'}: no such folder{nearest(Path(name).name, others)} Check the path")
    return HuggingFace(settings, None)


def _source_in(folder: Path, settings: Data) -> Source:
    """The source in a folder, by the folder's layout."""
    official = listed_source(settings, folder) or imagenet_source(settings, folder)
    if official is not None:
        return official
    if is_hugging_face(folder):
        return HuggingFace(settings, folder if folder.name else folder.resolve())  # the library needs a name
    if folder.name in BY_HAND and not subfolders(folder):
        raise DataError(f"{folder}: has no subfolders. {BY_HAND[folder.name]}")
    return ImageFolder(settings, folder)


def open_whole_source(settings: Data) -> Source:
    """A source whose images are all used at once, as in a lesson. Streaming is for experiments, which have tasks."""
    if settings.streaming:
        raise DataError(
            "data.streaming: a lesson uses all of its images at once, so they cannot be streamed. Leave the setting out"
        )
    return open_source(settings)


def load_data_set(source: Source, settings: Data, fit: Fit = "crop") -> DataSet:
    """A source's training and test images.

    If it has no test images, a share of the training images is held out for testing. If the settings ask for
    validation, a share of the remaining training images takes the place of the test images.
    """
    train, test = source.splits(fit)
    if test is None:
        train, test = hold_out(train, settings.held_out)
    return DataSet(train, test) if settings.validation is None else hold_out(train, settings.validation)


def prefer_folder(name: str) -> str:
    """The source that a user means: `digits` is the embedded data set, unless a folder has that name."""
    return f"./{name}" if name == Digits.name and Path(name).is_dir() else name


def as_splits(images: object, labels: object = None, size: int | None = None, fit: Fit = "crop") -> Splits:
    """The estimator's input as labelled images: images with labels, or the name of a folder or data set, or settings.

    size : side of the images, in pixels.
    fit : how images that are kept in memory become squares.
    """
    if isinstance(images, LabelledImages):
        return Splits(images if size is None else replace(images, images=resize(images.images, size, fit)), None)
    if labels is not None:
        return Splits(as_labelled_images(images, labels, size, fit), None)
    if isinstance(images, Data):
        return open_whole_source(images.model_copy(update={"image_size": size or images.image_size})).splits(fit)
    if isinstance(images, str | os.PathLike):
        return open_source(Data(source=prefer_folder(os.fspath(images)), image_size=size)).splits(fit)
    raise DataError(
        "labels are missing: give learn(images, labels), or the path of a folder with a subfolder per class"
    )


def as_labelled(
    images: object,
    labels: object = None,
    size: int | None = None,
    fit: Fit = "crop",
    *,
    split: Literal["train", "test"] = "train",
) -> LabelledImages:
    """One part of the estimator's input.

    split : the part to load of a folder or data set that has both training and test images.
    """
    train, test = as_splits(images, labels, size, fit)
    return test if split == "test" and test is not None else train
