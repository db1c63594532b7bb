"""Where images come from: folders, Hugging Face data sets, arrays in memory and the embedded digits.

A source tells its classes without reading an image, and loads its images into the storage that suits them.
"""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from cotransport.config import Augmentation, Data, nearest
from cotransport.data.decoding import SUFFIXES, Item, Pixels, as_rgb
from cotransport.data.images import Images, Label, LabelledImages, PixelImages, stored
from cotransport.errors import DataError

TEST_SPLITS = ("test", "validation", "valid", "val")
HUB_IDS = {"cifar100": "uoft-cs/cifar100", "imagenet": "ILSVRC/imagenet-1k"}
LABEL_COLUMNS = {"cifar100": "fine_label"}
_SPLIT_SEED = 1993


class Splits(NamedTuple):
    """Training images, and test images where the source has its own."""

    train: LabelledImages
    test: LabelledImages | None


class Source(Protocol):
    """A set of images with classes."""

    name: str
    augmentation: Augmentation
    """What suits these images where the user asks for nothing else."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """Names of the classes, without reading an image."""
        ...

    def splits(self) -> Splits:
        """The images."""
        ...


class DataSet(NamedTuple):
    """Images to learn from and images to be tested on, with the same classes."""

    train: LabelledImages
    test: LabelledImages


def open_source(settings: Data) -> Source:
    """The source that the settings name: digits, a folder, a data set under COTRANSPORT_DATA, or one on the hub."""
    name = settings.source
    if name == "digits":
        return Digits(settings)
    root = os.environ.get("COTRANSPORT_DATA")
    for folder in [Path(name).expanduser()] + ([Path(root).expanduser() / name] if root else []):
        if folder.is_file():
            raise DataError(
                f"{folder}: a file, but data is a folder with a subfolder per class or a Hugging Face data set"
            )
        if folder.is_dir():
            return HuggingFace(settings, folder) if _has_tables(folder) else ImageFolder(settings, folder)
    return HuggingFace(settings, None)


def load(source: Source, settings: Data) -> DataSet:
    """A source's images, with a share of the training images held out where testing needs it."""
    train, test = source.splits()
    if settings.validation is not None:
        return _divided(train, settings.validation)
    return DataSet(train, test) if test is not None else _divided(train, settings.held_out)


class Digits:
    """Scikit-learn's 1,797 images of handwritten digits, 8 x 8 pixels."""

    name = "digits"
    augmentation = Augmentation(crop_padding=1, flip=False)
    classes: tuple[Label, ...] = tuple(str(digit) for digit in range(10))

    def __init__(self, settings: Data) -> None:
        self._settings = settings

    def splits(self) -> Splits:
        """All of them for training; testing takes a held-out share."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        values = np.round(digits.images * (255 / 16)).astype(np.uint8)
        images = images_of(values, self._settings.image_size)
        return Splits(LabelledImages(images, torch.from_numpy(digits.target).long(), self.classes), None)


class ImageFolder:
    """`train/` and `test/` with a subfolder per class, or one folder with a subfolder per class."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path) -> None:
        self._settings, self._folder, self.name = settings, folder, folder.name
        self._train = folder / "train" if (folder / "train").is_dir() else folder
        tests = [folder / split for split in TEST_SPLITS if (folder / split).is_dir()]
        self._test = tests[0] if tests and self._train != folder else None

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The subfolders' names, sorted."""
        return tuple(_class_folders(self._train))

    def splits(self) -> Splits:
        """The files below the subfolders."""
        train = _files(self._train, self.classes)
        test = _files(self._test, self.classes) if self._test is not None else None
        size = self._settings.image_size
        images = stored(train.items + (test.items if test else []), size)
        count = len(train.items)
        if test is None:
            return Splits(LabelledImages(images, train.labels, self.classes), None)
        places = torch.arange(len(images))
        return Splits(
            LabelledImages(images.take(places[:count]), train.labels, self.classes),
            LabelledImages(images.take(places[count:]), test.labels, self.classes),
        )


class HuggingFace:
    """A Hugging Face data set in a local folder or, without one, on the hub."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path | None) -> None:
        self._settings = settings
        self.name = folder.name if folder else settings.source
        self._location = str(folder) if folder else HUB_IDS.get(settings.source, settings.source)
        self._local = folder

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The names in the label column's type, or the distinct labels in it."""
        features = self._features()
        if features is not None:
            names = getattr(features[self._label_column(features)], "names", None)
            if names is not None:
                return _distinct(names, self._location)
        train = self._tables["train"]
        return tuple(sorted({_label(value) for value in train[self._label_column(train.features)]}))

    def splits(self) -> Splits:
        """The split `train`, and `test` or `validation` where it is labelled."""
        names = [split for split in TEST_SPLITS if split in self._tables]
        labelled = [split for split in names if (self._labels(split) >= 0).any()]
        parts = ["train", *labelled[:1]]
        items = [_Rows(self._tables[part], self._image_column(self._tables[part].features)) for part in parts]
        size = self._settings.image_size
        images = [stored(rows, size) for rows in items]
        sets = [
            LabelledImages(part, self._labels(split), self.classes) for part, split in zip(images, parts, strict=True)
        ]
        return Splits(sets[0], sets[1] if len(sets) > 1 else None)

    @cached_property
    def _tables(self) -> Any:  # noqa: ANN401 (a DatasetDict)
        import datasets

        with self._explained():
            tables = datasets.load_dataset(self._location)
        if "train" not in tables:
            raise DataError(f"{self._location}: no split named train (found: {', '.join(tables)})")
        return tables

    def _features(self) -> Any:  # noqa: ANN401 (Features, or None)
        """The columns' types, from the metadata alone."""
        import datasets
        from pyarrow import parquet

        with self._explained():
            if self._local:
                files = sorted(self._local.rglob("*train*.parquet")) or sorted(self._local.rglob("*.parquet"))
                return datasets.Features.from_arrow_schema(parquet.read_schema(files[0])) if files else None
            return datasets.load_dataset_builder(self._location).info.features

    def _labels(self, split: str) -> Tensor:
        """Class numbers; below zero where a label is missing."""
        table = self._tables[split]
        column = self._label_column(table.features)
        if hasattr(table.features[column], "names"):
            return torch.tensor(table[column][:], dtype=torch.int64)
        number = {name: position for position, name in enumerate(self.classes)}
        return torch.tensor([number.get(_label(value), -1) for value in table[column]], dtype=torch.int64)

    def _image_column(self, features: Any) -> str:  # noqa: ANN401
        images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
        return self._column("image_column", self._settings.image_column, images, features)

    def _label_column(self, features: Any) -> str:  # noqa: ANN401
        chosen = self._settings.label_column or LABEL_COLUMNS.get(self._location.rsplit("/", 1)[-1])
        labels = [name for name, kind in features.items() if type(kind).__name__ == "ClassLabel"]
        plain = [name for name in ("label", "labels", "class") if name in features]
        return self._column("label_column", chosen, labels or plain, features)

    def _column(self, field: str, chosen: str | None, candidates: list[str], features: Any) -> str:  # noqa: ANN401
        if chosen is not None and chosen in features:
            return chosen
        if chosen is None and len(candidates) == 1:
            return candidates[0]
        columns = ", ".join(features)
        wrong = f"no column {chosen!r}{nearest(chosen, features)}" if chosen else f"which column is the {field.removesuffix('_column')}?"
        raise DataError(f"{self._location}: {wrong} Set data.{field} to one of: {columns}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import datasets

        shown = datasets.are_progress_bars_disabled()
        datasets.disable_progress_bars()
        try:
            yield
        except DataError:
            raise
        except Exception as error:  # the library and its network clients raise many kinds
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = "" if self._local else "no such folder (nor under COTRANSPORT_DATA), and not found on the hub: "
            raise DataError(f"{self._settings.source}: {where}{reason}. Check the path or the data set's id") from None
        finally:
            if not shown:
                datasets.enable_progress_bars()


def labelled(images: object, labels: object = None) -> LabelledImages:
    """What a user hands to the estimator: a folder or data set by name, or images with their labels."""
    if isinstance(images, LabelledImages):
        return images
    if labels is None:
        if isinstance(images, str | os.PathLike):
            return open_source(Data(source=os.fspath(images))).splits().train
        raise DataError(
            "labels are missing: give learn(images, labels), or the path of a folder with a subfolder per class"
        )
    stored_images = images_of(images)
    names = np.asarray(labels)
    if names.ndim != 1 or len(names) != len(stored_images):
        raise DataError(f"{len(stored_images)} images but labels of shape {names.shape}. Give one label for each image")
    if names.dtype.kind not in "iuUOb" or (names.dtype.kind == "O" and not all(isinstance(n, str) for n in names)):
        raise DataError(f"labels of type {names.dtype}: use names (strings) or whole numbers")
    classes, numbers = np.unique(names, return_inverse=True)
    return LabelledImages(stored_images, torch.from_numpy(numbers).long(), tuple(_label(name) for name in classes))


def images_of(images: object, size: int | None = None) -> Images:
    """Images from an array (n, h, w, 3), (n, h, w, 1) or (n, h, w), or from a sequence of arrays, files or bytes."""
    if isinstance(images, Tensor):
        images = images.numpy(force=True)
    if isinstance(images, str | os.PathLike | bytes):
        images = [images]
    if isinstance(images, np.ndarray) and images.dtype != object:
        if images.ndim not in {3, 4} or 0 in images.shape:
            raise DataError(
                f"images of shape {images.shape}: give (n, height, width, 3), or (n, height, width) for grey"
            )
        height, width = images.shape[1:3]
        if height == width and size in {None, height}:
            return PixelImages(torch.from_numpy(_rgb(images)))
        return stored(list(_rgb(images)), size)
    if not isinstance(images, Sequence | np.ndarray):
        raise DataError(f"images of type {type(images).__name__}: give an array, or a list of files or arrays")
    items: list[Item] = [_item(image) for image in images]
    return stored(items, size)


def _item(image: object) -> Item:
    if isinstance(image, bytes):
        return image
    if isinstance(image, str | os.PathLike):
        return Path(image)
    if isinstance(image, Image.Image):
        return np.array(as_rgb(image, "image"), dtype=np.uint8)
    if isinstance(image, np.ndarray) and image.ndim in {2, 3}:
        return _rgb(image[None])[0]
    raise DataError(
        f"an image of type {type(image).__name__}: give a file's path, its bytes, or an array (height, width, 3)"
    )


def _rgb(array: npt.NDArray[Any]) -> Pixels:
    """Images (n, h, w) or (n, h, w, channels) of 8 or 16 bits, as uint8 (n, h, w, 3)."""
    if array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)
    if array.dtype != np.uint8:
        raise DataError(
            f"images of type {array.dtype}: give uint8 from 0 to 255 (for floats from 0 to 1: multiply by 255)"
        )
    if array.ndim == 3:
        array = array[..., None]
    if array.shape[3] == 4:
        alpha = array[..., 3:].astype(np.uint16)
        return np.asarray((array[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255, dtype=np.uint8)
    if array.shape[3] not in {1, 3}:
        raise DataError(f"images with {array.shape[3]} channels: give 1 (grey), 3 (RGB) or 4 (RGB and alpha), last")
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:3], 3)))


class _Files(NamedTuple):
    items: list[Item]
    labels: Tensor


def _class_folders(folder: Path) -> dict[str, Path]:
    """The subfolders of a folder by class name."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    folders = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise DataError(f"{folder}: no subfolder in it. Put the images of each class into a subfolder named after it")
    names = _distinct([unicodedata.normalize("NFC", path.name) for path in folders], str(folder))
    return {str(name): path for name, path in zip(names, folders, strict=True)}


def _files(folder: Path, classes: Sequence[Label]) -> _Files:
    folders = _class_folders(folder)
    for name in folders:
        if name not in classes:
            raise DataError(f"{folders[name]}: a class without training images. Add them, or remove the folder")
    items: list[Item] = []
    labels: list[int] = []
    ignored: list[Path] = []
    for number, name in enumerate(str(label) for label in classes):
        if name not in folders:
            raise DataError(f"{folder}: no subfolder for the class {name!r}, which has training images. Add it")
        files = [path for path in sorted(folders[name].rglob("*")) if path.is_file() and not path.name.startswith(".")]
        images = [path for path in files if path.suffix.lower() in SUFFIXES]
        ignored += [path for path in files if path.suffix.lower() not in SUFFIXES]
        if not images:
            raise DataError(f"{folders[name]}: no images in it. Add some, or remove the folder of this class")
        items += images
        labels += [number] * len(images)
    if ignored:
        warnings.warn(f"{folder}: {len(ignored)} files are not images and left out, such as {ignored[0]}", stacklevel=2)
    return _Files(items, torch.tensor(labels))


@dataclass(frozen=True, eq=False)
class _Rows(Sequence[Item]):
    """The image column of a Hugging Face table, read from the mapped file row by row."""

    table: Any
    column: str

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are never asked for)
        row = self.table.data.column(self.column)[index].as_py()
        if row is None or (row["bytes"] is None and row["path"] is None):
            raise DataError(f"row {index} of column {self.column!r} has no image. Remove the row")
        return bytes(row["bytes"]) if row["bytes"] is not None else Path(row["path"])


def _has_tables(folder: Path) -> bool:
    return any(
        next(folder.glob(pattern), None) is not None
        for level in ("", "*/", "*/*/")
        for pattern in (f"{level}*.parquet", f"{level}*.arrow")
    )


def _divided(data: LabelledImages, share: float) -> DataSet:
    """A share of each class held out, the same at every call; a class of one image keeps it for training."""
    random = np.random.RandomState(_SPLIT_SEED)
    kept, held = [], []
    for number, name in enumerate(data.classes):
        indices = random.permutation(torch.nonzero(data.labels == number).flatten().numpy())
        if len(indices) == 1:
            warnings.warn(
                f"class {name!r} has one image: it is trained on, and there is none to test with",
                stacklevel=2,
            )
        out = min(max(1, round(share * len(indices))), len(indices) - 1)
        held.append(indices[:out])
        kept.append(indices[out:])
    train, test = (torch.from_numpy(np.sort(np.concatenate(parts))) for parts in (kept, held))
    return DataSet(data.take(train), data.take(test))


def _distinct(names: Sequence[Label], where: str) -> tuple[Label, ...]:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f"{where}: several classes are named {repeated[0]!r}. Give every class a name of its own")
    return tuple(names)


def _label(value: object) -> Label:
    """A label as a plain string or whole number."""
    if isinstance(value, str):
        return str(value)
    return int(value)  # type: ignore[call-overload,no-any-return]
