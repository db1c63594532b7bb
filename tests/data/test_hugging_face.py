"""Hugging Face data sets: what is loaded, what is refused, and with which message."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pytest
from PIL import Image

from cotransport.data import EncodedImages, PixelImages, as_labelled, load_data_set, open_source
from cotransport.errors import DataError
from cotransport.settings.sections import Data
from tests.data.helpers import by_class, load, values_of, write


@pytest.fixture
def hf_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library cache its tables in a temporary folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def table(
    values: Sequence[int],
    labels: Sequence[int | str | None],
    names: Sequence[str] | None = ("cat", "dog", "eel"),
    *,
    side: int = 8,
    **more: datasets.ClassLabel,
) -> datasets.Dataset:
    """A table of grey images with labels."""
    kind = datasets.ClassLabel(names=list(names)) if names else datasets.Value(label_type(labels))
    features = datasets.Features({"img": datasets.Image(), "label": kind, **more})
    images = [Image.new("RGB", (side, side), (value,) * 3) for value in values]
    columns = {"img": images, "label": list(labels), **{name: [0] * len(values) for name in more}}
    return datasets.Dataset.from_dict(columns, features=features)


def label_type(labels: Sequence[int | str | None]) -> str:
    return {int: "int64", str: "string", float: "float64"}[type(next(label for label in labels if label is not None))]


def parquet(folder: Path, **splits: datasets.Dataset) -> Path:
    """Write a data set in the layout of the hub."""
    (folder / "data").mkdir(parents=True)
    for split, rows in splits.items():
        rows.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.usefixtures("hf_cache")
class TestHuggingFace:
    def test_train_and_test(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2, 3, 4], [0, 2, 1, 0]), test=table([5, 6], [2, 1]))
        train, test = load(folder)
        assert train.classes == test.classes == ("cat", "dog", "eel")
        assert by_class(train) == {"cat": [1, 4], "dog": [3], "eel": [2]}
        assert by_class(test) == {"cat": [], "dog": [6], "eel": [5]}
        assert isinstance(train.images, PixelImages)

    def test_classes_are_read_from_the_metadata(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = parquet(tmp_path / "pets", train=table([1], [0]), test=table([1], [0]))
        monkeypatch.setattr(datasets, "load_dataset", None)
        source = open_source(Data(source=str(folder)))
        assert (source.name, source.classes) == ("pets", ("cat", "dog", "eel"))

    def test_several_label_columns(self, tmp_path: Path) -> None:
        colours = datasets.ClassLabel(names=["red"])
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1], colour=colours))
        with pytest.raises(
            DataError, match=r"which column is the label\? Set data\.label_column to one of: img, label, c"
        ):
            load(folder)
        with pytest.raises(DataError, match=r"no column 'colr'; did you mean 'colour'\? Set data\.label_column"):
            load(folder, label_column="colr")
        assert labelled_classes(folder, label_column="colour") == ("red",)
        assert labelled_classes(folder, label_column="label") == ("cat", "dog", "eel")

    def test_cifar100_has_a_default_label_column(self, tmp_path: Path) -> None:
        rows = table([1, 2], [0, 1], coarse_label=datasets.ClassLabel(names=["pet"]))
        folder = parquet(tmp_path / "cifar100", train=rows.rename_column("label", "fine_label"))
        assert labelled_classes(folder) == ("cat", "dog", "eel")
        assert labelled_classes(folder, label_column="coarse_label") == ("pet",)
        # a data set of that name with other columns has no default
        assert labelled_classes(parquet(tmp_path / "other" / "cifar100", train=table([1], [0]))) == (
            "cat",
            "dog",
            "eel",
        )

    def test_several_image_columns(self, tmp_path: Path) -> None:
        rows = table([1, 2], [0, 1])
        rows = rows.add_column("thumb", [{"bytes": row["bytes"], "path": None} for row in encoded_column(rows)])
        rows = rows.cast_column("thumb", datasets.Image())
        folder = parquet(tmp_path / "pets", train=rows, test=rows)
        with pytest.raises(DataError, match=r"which column is the image\? Set data\.image_column to one of"):
            load(folder)
        assert values_of(load(folder, image_column="thumb").train.images) == [1, 2]

    def test_images_as_files_or_bytes_in_plain_columns(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        columns = {"label": ["a", "b"], "file": paths, "raw": [Path(path).read_bytes() for path in paths]}
        rows = datasets.Dataset.from_dict(columns)
        folder = parquet(tmp_path / "pets", train=rows, test=rows)
        for column in ("file", "raw"):
            assert values_of(load(folder, image_column=column, follow_links=True).test.images) == [1, 2]
        with pytest.raises(DataError, match=r"1\.png: leads out of .*pets"):
            load(folder, image_column="file")

    def test_a_column_without_images(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1]))
        with pytest.raises(DataError, match=r"Set data\.image_column to one of: img, label"):
            load(folder, image_column="label")

    def test_names_and_numbers_as_labels(self, tmp_path: Path) -> None:
        words = parquet(tmp_path / "words", train=table([1, 2, 3], ["b", "a", "b"], None), test=table([4], ["a"], None))
        train, test = load(words)
        assert by_class(train) == {"a": [2], "b": [1, 3]}
        assert by_class(test) == {"a": [4], "b": []}
        numbers = parquet(tmp_path / "numbers", train=table([1, 2, 3], [10, 9, 10], None))
        assert by_class(as_labelled(numbers)) == {9: [2], 10: [1, 3]}

    def test_other_types_of_labels_are_refused(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0.5, 1.5], None))  # type: ignore[list-item]
        with pytest.raises(DataError, match=r"column 'label' holds double, but labels are .* Set data\.label_column"):
            load(folder)

    def test_an_unlabelled_test_split_is_skipped(self, tmp_path: Path) -> None:
        train, hidden = table([1, 2, 3, 4], [0, 0, 1, 1], ("cat", "dog")), table([5, 6], [-1, -1], ("cat", "dog"))
        validation = table([7], [1], ("cat", "dog"))
        with_validation = parquet(tmp_path / "one", train=train, test=hidden, validation=validation)
        assert by_class(load(with_validation).test) == {"cat": [], "dog": [7]}
        without = load(parquet(tmp_path / "two", train=train, test=hidden))
        assert without.test.counts().tolist() == [1, 1]
        assert sorted(values_of(without.train.images) + values_of(without.test.images)) == [1, 2, 3, 4]

    def test_a_test_split_of_placeholders_is_skipped(self, tmp_path: Path) -> None:
        train = table([1, 2, 3, 4], [1, 1, 2, 2], None)
        folder = parquet(tmp_path / "pets", train=train, test=table([5, 6], [-1, -1], None))
        assert set(values_of(load(folder).test.images)) < {1, 2, 3, 4}

    def test_rows_without_a_label_are_ignored(self, tmp_path: Path) -> None:
        for name, missing in (("one", -1), ("two", None)):
            folder = parquet(tmp_path / name, train=table([1, 2, 3], [0, missing, 1]), test=table([4], [0]))
            with pytest.warns(UserWarning, match="1 of 3 rows of train have no label and are ignored"):
                assert by_class(load(folder).train) == {"cat": [1], "dog": [3], "eel": []}

    def test_no_labels_at_all(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [-1, -1]))
        with pytest.raises(DataError, match=r"the split train has no labelled rows\. Set data\.label_column"):
            load(folder)

    def test_a_label_that_only_the_test_split_has(self, tmp_path: Path) -> None:
        train, test = table([1, 2], ["a", "b"], None), table([3, 4], ["a", "c"], None)
        with pytest.raises(DataError, match="the split test has the label 'c', which train does not have"):
            load(parquet(tmp_path / "pets", train=train, test=test))
        # a split that is not used is not checked
        assert values_of(load(parquet(tmp_path / "more", train=train, test=train, validation=test)).test.images) == [
            1,
            2,
        ]

    def test_labels_are_matched_by_name(self, tmp_path: Path) -> None:
        train, test = table([1, 2], [0, 1], ("cat", "dog")), table([3, 4], [0, 1], ("dog", "cat"))
        folder = tmp_path / "pets"
        datasets.DatasetDict({"train": train, "test": test}).save_to_disk(folder)
        data = load(folder)
        assert by_class(data.train) == {"cat": [1], "dog": [2]}
        assert by_class(data.test) == {"cat": [4], "dog": [3]}

    def test_two_classes_with_the_same_name(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], ["a", "b"], None))
        source = open_source(Data(source=str(folder)))
        features = {"img": datasets.Image(), "label": type("ClassLabel", (), {"names": ["a", "a"]})()}
        source.__dict__["_features"] = features  # the library itself does not write such a file
        with pytest.raises(DataError, match="2 classes are named 'a'"):
            _ = source.classes

    def test_both_splits_have_one_size(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1]), test=table([3], [0], side=20))
        train, test = load(folder)
        assert train.images.size == test.images.size == 8
        large = parquet(tmp_path / "large", train=table([1], [0], side=100), test=table([3], [0], side=50))
        train, test = load(large)
        assert isinstance(train.images, EncodedImages)
        assert isinstance(test.images, EncodedImages)
        assert train.images.size == test.images.size == 100
        assert (values_of(train.images), values_of(test.images)) == ([1], [3])

    def test_damaged_and_missing_images_are_named_by_their_row(self, tmp_path: Path) -> None:
        rows = datasets.Dataset.from_dict(
            {"img": [None, {"bytes": b"nonsense", "path": "b.png"}], "label": [0, 1]},
            features=datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}),
        )
        for row, message in (
            (0, "no image in the column 'img'. Remove the row"),
            (1, "not an image of a known format"),
        ):
            folder = parquet(tmp_path / f"row{row}", train=table([5], [0], ("a", "b")), test=rows.select([row]))
            with pytest.raises(DataError, match=re.escape(f"row{row} test, row 0: {message}")):
                load(folder)

    def test_saved_to_disk(self, tmp_path: Path) -> None:
        both = datasets.DatasetDict({"train": table([1, 2], [0, 1]), "test": table([3], [2])})
        both.save_to_disk(tmp_path / "both")
        assert by_class(load(tmp_path / "both").test) == {"cat": [], "dog": [], "eel": [3]}
        table([1, 2, 3, 4], [0, 1, 0, 1]).select([3, 0, 1]).save_to_disk(tmp_path / "one")
        assert by_class(as_labelled(tmp_path / "one")) == {"cat": [1], "dog": [4, 2], "eel": []}

    def test_no_training_split(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no split named train \(found: test\)"):
            load(parquet(tmp_path / "pets", test=table([1], [0])))

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets")
        (folder / "data" / "train-00000-of-00001.parquet").write_bytes(b"not parquet")
        with pytest.raises(DataError, match=r"pets: .*parquet.* Check the path") as caught:
            load(folder)
        assert "\n" not in str(caught.value)

    def test_progress_bars_are_restored(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1], [0]), test=table([1], [0]))
        for switch in (datasets.disable_progress_bars, datasets.enable_progress_bars):
            switch()
            disabled = datasets.are_progress_bars_disabled()
            load(folder)
            assert datasets.are_progress_bars_disabled() == disabled

    @pytest.mark.usefixtures("offline")
    def test_an_unknown_id_says_where_it_was_looked_for(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for root, words in (
            (tmp_path, "nor under COTRANSPORT_DATA"),
            (tmp_path / "no", "and COTRANSPORT_DATA is not a folder"),
        ):
            monkeypatch.setenv("COTRANSPORT_DATA", str(root))
            with pytest.raises(DataError, match=rf"nobody/no-such-data: no such folder \({words}"):
                as_labelled("nobody/no-such-data")

    @pytest.mark.usefixtures("offline")
    def test_an_unknown_id_without_a_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("COTRANSPORT_DATA", raising=False)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)  # the library would make a slow attempt
        started = time.monotonic()
        with pytest.raises(DataError) as caught:
            as_labelled("nobody/no-such-data")
        assert time.monotonic() - started < 5
        problem = "nobody/no-such-data: no such folder (and COTRANSPORT_DATA is not set), and the hub cannot be reached"
        assert str(caught.value).startswith(problem)
        assert "set COTRANSPORT_DATA to the folder that contains it" in str(caught.value)
        assert datasets.config.HF_HUB_OFFLINE is False

    def test_an_id_that_is_not_on_the_hub(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Hub:
            def dataset_info(self, name: str, timeout: float) -> None:
                raise huggingface_hub.errors.RepositoryNotFoundError.__new__(
                    huggingface_hub.errors.RepositoryNotFoundError
                )

        monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
        with pytest.raises(DataError, match=r"not found on the hub: nobody/none does not exist or is private\. Check"):
            as_labelled("nobody/none")

    def test_the_hub_is_asked_for_the_full_id(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """After that, a data set on the hub is treated like a local one."""
        asked = []
        folder = parquet(tmp_path / "copy", train=table([1, 2], [0, 1]), test=table([3], [2]))
        monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda _, name, timeout: asked.append(name))
        for function in ("load_dataset", "load_dataset_builder"):
            original = getattr(datasets, function)
            monkeypatch.setattr(datasets, function, redirected(original, "uoft-cs/cifar100", folder))
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("COTRANSPORT_DATA", raising=False)
        source = open_source(Data(source="cifar100"))
        assert (source.name, source.classes) == ("cifar100", ("cat", "dog", "eel"))
        assert values_of(source.splits().train.images) == [1, 2]
        assert set(asked) == {"uoft-cs/cifar100"}


def labelled_classes(folder: Path, **options: Any) -> tuple[str | int, ...]:
    return open_source(Data(source=str(folder), **options)).classes


def encoded_column(rows: datasets.Dataset) -> list[dict[str, Any]]:
    return list(rows.cast_column("img", datasets.Image(decode=False))["img"])


def redirected(function: Any, name: str, folder: Path) -> Any:
    def call(asked: str) -> Any:
        assert asked == name
        return function(str(folder))

    return call


@pytest.mark.usefixtures("hf_cache")
@pytest.mark.skipif(not os.environ.get("COTRANSPORT_DATA"), reason="set COTRANSPORT_DATA to the folder with cifar100")
class TestRealCifar100:
    def test_loads_exactly(self) -> None:
        source = open_source(Data(source="cifar100"))
        assert len(source.classes) == 100
        assert source.classes[:3] == ("apple", "aquarium_fish", "baby")
        train, test = load_data_set(source, Data(source="cifar100"))
        folder = Path(os.environ["COTRANSPORT_DATA"]) / "cifar100"
        for name, part, count in (("train", train, 500), ("test", test, 100)):
            assert isinstance(part.images, PixelImages)
            assert part.images.pixels.shape == (100 * count, 32, 32, 3)
            assert part.counts().tolist() == [count] * 100
            rows = datasets.Dataset.from_parquet(str(next(folder.rglob(f"*{name}*.parquet"))))
            for index in (0, 1, 7777, 100 * count - 1):
                row = rows[index]
                assert (part.images.item(index) == np.asarray(row["img"])).all()
                assert part.labels[index] == row["fine_label"]


@pytest.mark.usefixtures("hf_cache")
@pytest.mark.parametrize(
    "place",
    ["https://example.invalid/train.parquet", "s3://bucket/train.parquet", "zip://a::https://example.invalid/b"],
)
def test_a_folder_that_refers_to_files_elsewhere_is_refused(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)  # a look-up would fail in another way
    folder = parquet(tmp_path / "d", train=table([1, 2], [0, 1], ("cat", "dog")), test=table([3], [0], ("cat", "dog")))
    card = f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {place}\n---\n"
    (folder / "README.md").write_text(card)
    with pytest.raises(DataError, match=re.escape(f"README.md: refers to {place!r}")):
        load(folder)
    (folder / "README.md").write_text(
        card.replace(place, "data/train-*.parquet\n  - split: test\n    path: data/test-*.parquet")
        + f"# From {place}\n"
    )
    assert len(load(folder).train) == 2
