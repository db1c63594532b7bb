"""Hugging Face data sets: in a local folder (parquet files, or written by `save_to_disk`), or on the hub.

They are read from memory-mapped files, or as a stream (`data.streaming`).
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cotransport.data.decoding import Item
from cotransport.data.images import LabelledImages
from cotransport.data.labels import Label, check_distinct
from cotransport.data.loading import images_from_parts
from cotransport.data.splits import TEST_SPLITS, Splits
from cotransport.data.streaming import StreamedTable, streamed_images
from cotransport.data.tables import ImageColumn, MappedTable
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.safe_yaml import parse_yaml
from cotransport.settings.sections import Augmentation, Data, Fit
from cotransport.settings.validation import nearest

HUB_IDS = {"cifar100": "uoft-cs/cifar100", "imagenet": "ILSVRC/imagenet-1k"}
"""Short names of data sets on the hub."""
LABEL_COLUMNS = {"cifar100": "fine_label"}
"""The label column of data sets that have several."""
HUB_TIMEOUT = 10.0
"""Seconds in which the hub must answer. Without a network, its own library would try for half a minute."""
_SAVED_TO_DISK = ("dataset_dict.json", "state.json")


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder contains a Hugging Face data set, rather than a subfolder of images per class."""
    if any((folder / name).is_file() for name in _SAVED_TO_DISK):
        return True
    found = (path for level in ("", "*/", "*/*/") for path in folder.glob(f"{level}*.parquet"))
    return not all(_is_in_model(path) for path in found)


def _is_in_model(path: Path) -> bool:
    """Whether a parquet file holds the images of one of our models, which may lie beside the images of a lesson."""
    model = path.parent.parent
    return path.parent.name == "images" and (model / "manifest.json").is_file() and (model / "versions").is_dir()


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a data set's id on the hub: `name` or `owner/name`.

    >>> is_hub_id("uoft-cs/cifar100"), is_hub_id("./photos"), is_hub_id("a/b/c")
    (True, False, False)
    """
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name, re.ASCII) is not None


class HuggingFace:
    """A Hugging Face data set in a local folder or, without one, on the hub."""

    augmentation = Augmentation()

    def __init__(self, settings: Data, folder: Path | None) -> None:
        self._settings, self._folder = settings, folder
        self.name = settings.source if folder is None else folder.name or folder.resolve().name
        self._location = str(folder) if folder else HUB_IDS.get(settings.source, settings.source)

    @cached_property
    def classes(self) -> tuple[Label, ...]:
        """The class names that the label column declares, or else its distinct labels."""
        names = getattr(self._features[self._label_column(self._features)], "names", None)
        if names is not None:
            return check_distinct(names, self._location)
        return tuple(sorted({label for label in self._labels("train") if label is not None}))

    def splits(self, fit: Fit = "crop") -> Splits:
        """The split `train`, and the first labelled one of `test`, `validation` and the like."""
        parts = [self._rows("train")]
        if not len(parts[0].images):
            raise DataError(
                f"{self._location}: the split train has no labelled rows. Set data.label_column to another column"
            )
        others = (self._rows(split) for split in TEST_SPLITS if split in self._tables)
        parts += islice((part for part in others if len(part.images)), 1)
        load = streamed_images if self._settings.streaming else images_from_parts
        images = load([part.images for part in parts], self._settings.image_size, fit)
        sets = [LabelledImages(part, rows.labels, self.classes) for part, rows in zip(images, parts, strict=True)]
        return Splits(sets[0], sets[1] if len(sets) > 1 else None)

    def _rows(self, split: str) -> _LabelledRows:
        """The labelled rows of a split."""
        labels = self._labels(split)
        number = {name: position for position, name in enumerate(self.classes)}
        unknown = [label for label in labels if label is not None and label not in number]
        if len(unknown) == len(labels) - labels.count(None):  # published test splits often have placeholders
            labels, unknown = [None] * len(labels), []
        if unknown:
            raise DataError(
                f"{self._location}: the split {split} has the label {unknown[0]!r}, which train does not have. "
                "Remove the rows with that label, or add some to train"
            )
        labelled = [row for row, label in enumerate(labels) if label is not None]
        if 0 < len(labelled) < len(labels):
            missing = len(labels) - len(labelled)
            warnings.warn(
                f"{self._location}: {missing} of {len(labels)} rows of {split} have no label and are ignored",
                CotransportWarning,
                stacklevel=3,
            )
        numbers = torch.tensor([number[label] for label in labels if label is not None], dtype=torch.int64)
        root = None if self._settings.follow_links else self._folder
        table = self._tables[split]
        column = ImageColumn(self._image_column(table.features), f"{self._location} {split}", root)
        with self._library_errors(f"Set data.image_column to one of: {', '.join(table.features)}"):
            return _LabelledRows(table.images(column, self._label_column(table.features), labelled), numbers)

    def _labels(self, split: str) -> list[Label | None]:
        """The class name of each row of a split, or None if the row has no label."""
        from pyarrow import types

        table = self._tables[split]
        column = self._label_column(table.features)
        values = table.values(column)
        names = getattr(table.features[column], "names", None)
        if names is not None:  # -1 means that the label is missing
            return [names[value] if value is not None and value >= 0 else None for value in values.to_pylist()]
        if not any(fits(values.type) for fits in (types.is_integer, types.is_string, types.is_large_string)):
            raise DataError(
                f"{self._location}: the column {column!r} holds {values.type}, but labels are names (strings) or whole "
                f"numbers. Set data.label_column to one of: {', '.join(table.features)}"
            )
        labels: list[Label | None] = values.to_pylist()
        return labels

    @cached_property
    def _tables(self) -> Mapping[str, MappedTable | StreamedTable]:
        """The splits by name."""
        if self._folder is not None:
            _check_stays_local(self._folder)
        tables = self._streamed_tables() if self._settings.streaming else self._mapped_tables()
        if "train" not in tables:
            raise DataError(
                f"{self._location}: no split named train (found: {', '.join(tables)}). Give a data set that has one"
            )
        return tables

    @property
    def _is_saved_to_disk(self) -> bool:
        return self._folder is not None and any((self._folder / name).is_file() for name in _SAVED_TO_DISK)

    def _mapped_tables(self) -> Mapping[str, MappedTable | StreamedTable]:
        import datasets

        with self._library_errors():
            if self._is_saved_to_disk:
                tables = datasets.load_from_disk(self._location)
            else:
                tables = datasets.load_dataset(self._location)
        if isinstance(tables, datasets.Dataset):
            tables = {"train": tables}
        return {split: MappedTable(table) for split, table in tables.items()}

    def _streamed_tables(self) -> Mapping[str, MappedTable | StreamedTable]:
        import datasets

        if self._is_saved_to_disk:
            raise DataError(
                f"{self._location}: written by save_to_disk, and read in place without a copy. Set data.streaming to "
                "false"
            )
        with self._library_errors():
            builder = datasets.load_dataset_builder(self._location)
            if builder.name != "parquet":
                raise DataError(
                    f"{self._location}: made of {builder.name} files, which store the labels together with the images. "
                    "Only parquet files are streamed: convert them, or set data.streaming to false"
                )
            files: Mapping[object, Sequence[str]] = builder.config.data_files
        features = builder.info.features
        return {str(split): StreamedTable(names, features, self._library_errors) for split, names in files.items()}

    @cached_property
    def _features(self) -> Any:  # noqa: ANN401 (Features)
        """The types of the columns, from the metadata if possible, so that no table is read."""
        import datasets
        from pyarrow import parquet

        features = None
        with self._library_errors():
            if self._folder is None:
                features = datasets.load_dataset_builder(self._location).info.features
            elif files := sorted(self._folder.rglob("*train*.parquet")) or sorted(self._folder.rglob("*.parquet")):
                schema = parquet.read_schema(files[0])
                if b"huggingface" in (schema.metadata or {}):
                    features = datasets.Features.from_arrow_schema(schema)
        return self._tables["train"].features if features is None else features

    def _image_column(self, features: Any) -> str:  # noqa: ANN401
        images = [name for name, kind in features.items() if type(kind).__name__ == "Image"]
        return self._column("image_column", self._settings.image_column, images, features)

    def _label_column(self, features: Any) -> str:  # noqa: ANN401
        usual = LABEL_COLUMNS.get(self.name.rsplit("/", 1)[-1])
        if self._settings.label_column is None and usual in features:
            return str(usual)
        labels = [name for name, kind in features.items() if type(kind).__name__ == "ClassLabel"]
        plain = [name for name in ("label", "labels", "class") if name in features]
        return self._column("label_column", self._settings.label_column, labels or plain, features)

    def _column(self, field: str, chosen: str | None, candidates: list[str], features: Any) -> str:  # noqa: ANN401
        if chosen is not None and chosen in features:
            return chosen
        if chosen is None and len(candidates) == 1:
            return candidates[0]
        kind = field.removesuffix("_column")
        wrong = f"no column {chosen!r}{nearest(chosen, features)}" if chosen else f"which column is the {kind}?"
        raise DataError(f"{self._location}: {wrong} Set data.{field} to one of: {', '.join(features)}")

    @contextmanager
    def _library_errors(self, remedy: str = "Check the path or the data set's id") -> Iterator[None]:
        """Turn all errors of the library and its network clients into a DataError."""
        import datasets

        shown, offline = not datasets.are_progress_bars_disabled(), datasets.config.HF_HUB_OFFLINE
        datasets.disable_progress_bars()
        try:
            if self._folder is not None or not self._hub_answers:
                datasets.config.HF_HUB_OFFLINE = True  # a downloaded copy of a data set on the hub can still be used
            yield
        except DataError:
            raise
        except Exception as error:
            if self._folder is None and datasets.config.HF_HUB_OFFLINE:
                raise DataError(
                    f"{self._settings.source}: no such folder {_beside()}, and the hub cannot be reached (or "
                    "HF_HUB_OFFLINE is set)",
                    hint="Name the data set's folder with --data, or set COTRANSPORT_DATA to the folder that contains "
                    "it. To download it, check the network and the data set's id",
                ) from None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise DataError(f"{self._settings.source}: {self._not_found}{reason}. {remedy}") from None
        finally:
            datasets.config.HF_HUB_OFFLINE = offline
            if shown:
                datasets.enable_progress_bars()

    @cached_property
    def _hub_answers(self) -> bool:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            HfApi().dataset_info(self._location, timeout=HUB_TIMEOUT)
        except RepositoryNotFoundError:
            raise ValueError(f"{self._location} does not exist or is private") from None
        except Exception:  # the library raises many types without a network
            return False
        return True

    @property
    def _not_found(self) -> str:
        return "" if self._folder else f"no such folder {_beside()}, and not found on the hub: "


def _beside() -> str:
    """In which other folder a data set was looked for, in brackets."""
    root = os.environ.get("COTRANSPORT_DATA")
    if not root:
        return "(and COTRANSPORT_DATA is not set)"
    return "(nor under COTRANSPORT_DATA)" if Path(root).is_dir() else f"(and COTRANSPORT_DATA is not a folder: {root})"


class _LabelledRows(NamedTuple):
    """The labelled rows of a split."""

    images: Sequence[Item]
    labels: Tensor
    """int64 (n,): the class of each row."""


def _check_stays_local(folder: Path) -> None:
    """Raise an error if the description of a data set in a folder names files elsewhere, such as on a web server."""
    card = folder / "README.md"
    if not card.is_file():
        return
    try:
        text = card.read_text(encoding="utf-8", errors="replace")
        front = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", text, re.DOTALL)
        values = None if front is None else parse_yaml(front[1])
    except (OSError, ValueError) as error:
        raise DataError(f"{card}: cannot be read ({error}). Correct or remove it") from None
    remote = next((text for text in _texts(values) if "://" in text or "::" in text), None)
    if remote is not None:
        raise DataError(
            f"{card}: refers to {remote!r}, but a data set in a folder is read from this folder alone. Remove the "
            "reference, or download the files into the folder"
        )


def _texts(values: object) -> Iterator[str]:
    """All strings in a description's `configs`, which say where the data is."""
    level: list[object] = [values.get("configs")] if isinstance(values, dict) else []
    while level:
        yield from (value for value in level if isinstance(value, str))
        level = [
            part
            for value in level
            for part in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
