"""Folders, Hugging Face data sets, arrays and digits: what is loaded, what is refused, and with what words."""

from __future__ import annotations

import os
import re
import time
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cotransport.data import (
    DataSet,
    EncodedImages,
    Images,
    LabelledImages,
    PixelImages,
    as_images,
    as_labelled,
    load_data_set,
    open_source,
)
from cotransport.data.decoding import decode
from cotransport.data.splits import hold_out
from cotransport.errors import DataError
from cotransport.settings.sections import Data


def write(path: Path, value: int = 0, size: tuple[int, int] = (8, 8)) -> Path:
    """A grey image of one value, by which it is recognised."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3).save(path)
    return path


def loaded(folder: Path | str, **options: Any) -> DataSet:
    config = Data(source=str(folder), **options)
    return load_data_set(open_source(config), config)


def values_of(images: Images) -> list[int]:
    return [int(decode(images.item(i), images.size).mean()) for i in range(len(images))]


def by_class(data: LabelledImages) -> dict[str | int, list[int]]:
    """The values of each class's images, in order."""
    values = values_of(data.images)
    pairs = list(zip(data.labels.tolist(), values, strict=True))
    return {name: [value for label, value in pairs if label == number] for number, name in enumerate(data.classes)}


class TestImageFolder:
    @pytest.mark.parametrize("test_name", ["test", "val", "valid", "validation"])
    def test_train_and_test(self, tmp_path: Path, test_name: str) -> None:
        for value, name in enumerate(["cat", "dog", "eel"]):
            write(tmp_path / "train" / name / "2.png", 10 * value + 2)
            write(tmp_path / "train" / name / "1.png", 10 * value + 1)
            write(tmp_path / test_name / name / "3.png", 10 * value + 3)
        train, test = loaded(tmp_path)
        assert train.classes == test.classes == ("cat", "dog", "eel")
        assert by_class(train) == {"cat": [1, 2], "dog": [11, 12], "eel": [21, 22]}
        assert by_class(test) == {"cat": [3], "dog": [13], "eel": [23]}
        assert isinstance(train.images, PixelImages)
        assert train.labels.dtype == torch.int64

    def test_a_test_split_goes_before_a_validation_split(self, tmp_path: Path) -> None:
        for value, split in enumerate(["train", "val", "test"]):
            write(tmp_path / split / "cat" / "1.png", value)
        assert values_of(loaded(tmp_path).test.images) == [2]

    def test_one_folder_holds_out_a_share_of_each_class(self, tmp_path: Path) -> None:
        for name, count in {"cat": 10, "dog": 5, "eel": 2, "fox": 3}.items():
            for i in range(count):
                write(tmp_path / name / f"{i}.png", i)
        train, test = loaded(tmp_path)
        # a fifth, rounded, and at least one
        assert test.counts().tolist() == [2, 1, 1, 1]
        assert train.counts().tolist() == [8, 4, 1, 2]
        for name, count in {"cat": 10, "dog": 5, "eel": 2, "fox": 3}.items():
            assert sorted(by_class(train)[name] + by_class(test)[name]) == list(range(count))
        again = loaded(tmp_path)
        assert by_class(again.test) == by_class(test)
        assert loaded(tmp_path, held_out=0.5).test.counts().tolist() == [5, 2, 1, 2]
        assert loaded(tmp_path, held_out=0.99).train.counts().tolist() == [1, 1, 1, 1]

    def test_one_image_in_a_class_is_trained_on(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "1.png")
        write(tmp_path / "dog" / "1.png")
        write(tmp_path / "dog" / "2.png")
        with pytest.warns(UserWarning, match="class 'cat' has one image: it is trained on"):
            train, test = loaded(tmp_path)
        assert train.counts().tolist() == [1, 1]
        assert test.counts().tolist() == [0, 1]

    def test_validation_takes_from_training_images_and_leaves_test_images_alone(self, tmp_path: Path) -> None:
        for value in range(10):
            write(tmp_path / "own" / "train" / "cat" / f"{value}.png", value)
            write(tmp_path / "own" / "test" / "cat" / f"{value}.png", 100 + value)
            write(tmp_path / "none" / "cat" / f"{value}.png", value)
        train, validation = loaded(tmp_path / "own", validation=0.3)
        assert sorted(values_of(train.images) + values_of(validation.images)) == list(range(10))
        assert len(validation) == 3
        # what would be tested on is in neither part, so that choices made by validation do not leak into a test
        tested = set(values_of(loaded(tmp_path / "none").test.images))
        train, validation = loaded(tmp_path / "none", validation=0.25)
        assert len(tested) == len(validation) == 2
        assert set(values_of(train.images)) | set(values_of(validation.images)) | tested == set(range(10))
        assert len(train) + len(validation) + len(tested) == 10

    def test_nested_hidden_and_other_files(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "deep" / "er" / "1.PNG", 1)
        write(tmp_path / "cat" / "2.jpeg", 2)
        write(tmp_path / "cat" / ".hidden.png", 99)
        write(tmp_path / "cat" / ".checkpoints" / "1.png", 99)
        write(tmp_path / ".cache" / "1.png", 99)
        write(tmp_path / "stray.png", 99)
        (tmp_path / "cat" / "notes.txt").write_text("about cats")
        (tmp_path / "README").write_text("about all")
        with pytest.warns(UserWarning, match=r"left out 2 files, .*, such as .*stray\.png"):
            data = as_labelled(tmp_path)
        assert data.classes == ("cat",)
        assert sorted(values_of(data.images)) == [1, 2]

    def test_a_single_file_left_out_is_named(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "1.png")
        (tmp_path / "cat" / "notes.txt").write_text("about cats")
        with pytest.warns(UserWarning, match=r"left out 1 file, .*notes\.txt"):
            as_labelled(tmp_path)

    def test_names_with_spaces_and_letters_of_all_kinds(self, tmp_path: Path) -> None:
        names = ["a b", "c.d", "grün", "日本", "été", "🦊"]
        for value, name in enumerate(names):
            write(tmp_path / name / "bild ä.png", value)
        data = as_labelled(str(tmp_path))
        assert data.classes == tuple(sorted(names))
        assert by_class(data) == {name: [value] for value, name in enumerate(names)}

    def test_names_are_normalised_so_that_they_match_across_systems(self, tmp_path: Path) -> None:
        decomposed = unicodedata.normalize("NFD", "été")
        write(tmp_path / decomposed / "1.png")
        write(tmp_path / "z" / "1.png")
        assert open_source(Data(source=str(tmp_path))).classes == ("z", "été")  # sorted by the normalised name

    def test_the_same_name_in_two_spellings(self, tmp_path: Path) -> None:
        for form in ("NFC", "NFD"):
            write(tmp_path / unicodedata.normalize(form, "été") / "1.png")
        if len(list(tmp_path.iterdir())) < 2:
            pytest.skip("this file system knows one spelling only")
        with pytest.raises(DataError, match=r"2 classes are named 'été'\. Give every class a name of its own"):
            as_labelled(tmp_path)

    def test_a_class_named_train(self, tmp_path: Path) -> None:
        for name in ("bus", "test", "train"):
            write(tmp_path / name / "1.png")
        assert as_labelled(tmp_path).classes == ("bus", "test", "train")

    def test_classes_are_told_without_reading_an_image(self, tmp_path: Path) -> None:
        (tmp_path / "cat").mkdir()
        (tmp_path / "cat" / "1.png").write_bytes(b"not an image")
        source = open_source(Data(source=str(tmp_path)))
        assert (source.name, source.classes) == (tmp_path.name, ("cat",))
        with pytest.raises(DataError, match=r"1\.png: not an image"):
            source.splits()

    def test_different_sizes_are_brought_to_their_median(self, tmp_path: Path) -> None:
        for i, size in enumerate([(8, 8), (12, 20), (40, 16)]):
            write(tmp_path / "cat" / f"{i}.png", i, size)
        images = as_labelled(tmp_path).images
        assert isinstance(images, PixelImages)
        assert images.pixels.shape == (3, 12, 12, 3)
        assert values_of(images) == [0, 1, 2]

    def test_large_images_stay_in_their_files(self, tmp_path: Path) -> None:
        for split, sides in {"train": (300, 400), "test": (90,)}.items():
            for i, side in enumerate(sides):
                write(tmp_path / split / "cat" / f"{i}.png", 5, (side, side))
        train, test = loaded(tmp_path)
        assert isinstance(train.images, EncodedImages)
        assert isinstance(test.images, EncodedImages)
        assert train.images.size == test.images.size == 224
        assert train.images.item(0) == tmp_path / "train" / "cat" / "0.png"
        small = loaded(tmp_path, image_size=16)
        assert isinstance(small.train.images, PixelImages)
        assert small.train.images.size == small.test.images.size == 16

    def test_test_images_of_another_size(self, tmp_path: Path) -> None:
        write(tmp_path / "train" / "cat" / "1.png", 5, (10, 10))
        for i in range(3):
            write(tmp_path / "test" / "cat" / f"{i}.png", 6, (30, 30))
        train, test = loaded(tmp_path)
        assert train.images.size == test.images.size == 10

    @pytest.mark.parametrize("nothing", ["folder", "text"])
    def test_an_empty_class(self, tmp_path: Path, nothing: str) -> None:
        write(tmp_path / "cat" / "1.png")
        (tmp_path / "dog").mkdir()
        if nothing == "text":
            (tmp_path / "dog" / "notes.txt").write_text("none yet")
        with pytest.raises(DataError, match=r"dog: no images in it\. Add some, or remove"):
            as_labelled(tmp_path)

    def test_no_subfolders(self, tmp_path: Path) -> None:
        write(tmp_path / "1.png")
        with pytest.raises(DataError, match=r"no subfolder in it\. Put the images of each class into a subfolder"):
            as_labelled(tmp_path)

    @pytest.mark.parametrize(
        "name", ["/nowhere/photos", "./photos", "../photos", "photos/", "a/b/c", "C:\\photos", "~/no"]
    )
    def test_a_missing_folder(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError, match=re.escape(f"{name}: no such folder. Check the path")):
            as_labelled(name)

    @pytest.mark.parametrize("name", ["x" * 300, "~no-such-user/photos"])
    def test_a_path_that_cannot_be_looked_at(self, name: str) -> None:
        with pytest.raises(DataError, match=r"cannot be read \(.*\)\. Check the path"):
            as_labelled(name)

    def test_an_empty_path_is_not_the_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "cat" / "1.png")
        monkeypatch.chdir(tmp_path)
        assert as_labelled(".").classes == ("cat",)
        with pytest.raises(DataError, match=r"data\.source: no such folder"):
            as_labelled("")

    def test_a_file_instead_of_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"1\.png: a file\. Give a folder"):
            as_labelled(write(tmp_path / "1.png"))

    def test_a_class_with_test_images_alone(self, tmp_path: Path) -> None:
        for place in ("train/cat", "test/cat", "test/dog"):
            write(tmp_path / place / "1.png")
        with pytest.raises(DataError, match=r"test.dog: a class without training images\. Add them, or remove"):
            loaded(tmp_path)

    def test_a_class_with_training_images_alone(self, tmp_path: Path) -> None:
        for place in ("train/cat", "test/cat", "train/dog"):
            write(tmp_path / place / "1.png")
        with pytest.raises(DataError, match=r"test: no subfolder for the class 'dog', which has training images\. Add"):
            loaded(tmp_path)

    @given(
        counts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
        share=st.floats(0.01, 0.99),
    )
    @settings(max_examples=50, deadline=None)
    def test_held_out_share_of_any_class(self, counts: list[int], share: float) -> None:
        labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        pixels = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 1, 3)
        data = LabelledImages(PixelImages(pixels), labels, tuple(range(len(counts))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes of one image
            train, test = hold_out(data, share)
        assert sorted(values_of(train.images) + values_of(test.images)) == list(range(len(labels)))
        for part in (train, test):  # every image with its own label still
            assert [labels[value] for value in values_of(part.images)] == part.labels.tolist()
        for count, kept, held in zip(counts, train.counts().tolist(), test.counts().tolist(), strict=True):
            if count >= 2:
                assert kept >= 1
                assert held >= 1
                assert abs(held - share * count) <= 1
            else:
                assert (kept, held) == (count, 0)


class TestArrays:
    @pytest.mark.parametrize("channels", [None, 1, 3])
    def test_grey_and_colours(self, channels: int | None) -> None:
        shape = (5, 6, 6) if channels is None else (5, 6, 6, channels)
        array = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
        images = as_images(array)
        assert isinstance(images, PixelImages)
        expected = array.reshape(5, 6, 6, -1) * np.ones(3, dtype=np.uint8)
        assert (images.pixels.numpy() == expected).all()

    def test_alpha_is_laid_on_white_as_in_files(self) -> None:
        array = np.random.RandomState(0).randint(0, 256, (3, 20, 20, 4)).astype(np.uint8)
        images = as_images(array)
        for i in range(3):
            on_white = Image.new("RGBA", (20, 20), "white")
            expected = np.asarray(Image.alpha_composite(on_white, Image.fromarray(array[i])).convert("RGB"))
            assert np.abs(images.item(i).astype(int) - expected.astype(int)).max() <= 1  # type: ignore[union-attr]

    def test_16_bits_are_scaled(self) -> None:
        array = np.array([0, 255, 0x8000, 65535], dtype=np.uint16).reshape(4, 1, 1)
        assert values_of(as_images(array)) == [0, 0, 128, 255]

    def test_square_colours_are_not_copied(self) -> None:
        array = np.zeros((2, 6, 6, 3), dtype=np.uint8)
        images = as_images(array)
        assert isinstance(images, PixelImages)
        assert np.shares_memory(images.pixels.numpy(), array)

    def test_read_only_arrays_and_views(self) -> None:
        array = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)
        array.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (as_images(array).pixels.numpy() == array).all()  # type: ignore[union-attr]
            backwards = array.copy()[:, ::-1, :, ::-1]
            assert (as_images(backwards).pixels.numpy() == backwards).all()  # type: ignore[union-attr]

    def test_other_shapes_show_their_central_square(self) -> None:
        array = np.zeros((2, 4, 8, 3), dtype=np.uint8)
        array[:, :, 2:6] = 200
        images = as_images(array)
        assert images.size == 4
        assert values_of(images) == [200, 200]

    def test_a_given_size(self) -> None:
        assert as_images(np.zeros((2, 8, 8), dtype=np.uint8), 5).size == 5

    def test_tensors(self) -> None:
        tensor = torch.randint(0, 256, (4, 6, 6, 3), dtype=torch.uint8)
        assert torch.equal(as_images(tensor).pixels, tensor)  # type: ignore[union-attr]
        assert torch.equal(as_images(list(tensor)).pixels, tensor)  # type: ignore[union-attr]
        data = as_labelled(tensor, torch.tensor([3, 1, 3, 1]))
        assert (data.classes, data.labels.tolist()) == ((1, 3), [1, 0, 1, 0])

    def test_files_bytes_arrays_and_pillow_images_in_one_list(self, tmp_path: Path) -> None:
        path = write(tmp_path / "1.png", 1)
        images: list[object] = [
            path,
            str(write(tmp_path / "2.png", 2)),
            write(tmp_path / "3.png", 3).read_bytes(),
            np.full((8, 8, 3), 4, dtype=np.uint8),
            np.full((8, 8), 5, dtype=np.uint8),
            Image.new("L", (8, 8), 6),
            Image.new("RGBA", (8, 8), (0, 0, 0, 0)),
        ]
        assert values_of(as_images(images)) == [1, 2, 3, 4, 5, 6, 255]
        assert values_of(as_images(tuple(images[:2]))) == [1, 2]

    def test_files_in_numpy_arrays(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        assert values_of(as_images(np.array(paths))) == [1, 2]
        assert values_of(as_images(np.array(paths, dtype=object))) == [1, 2]

    def test_columns_of_a_table(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        columns = pd.DataFrame({"file": paths, "kind": ["b", "a"], "number": [7, 8]}, index=[5, 6])
        assert by_class(as_labelled(columns["file"], columns["kind"])) == {"a": [2], "b": [1]}
        assert by_class(as_labelled(columns["file"], columns["number"])) == {7: [1], 8: [2]}

    def test_a_single_file_or_image(self, tmp_path: Path) -> None:
        path = write(tmp_path / "1.png", 1)
        for one in (path, str(path), path.read_bytes(), Image.new("L", (8, 8), 1)):
            assert values_of(as_images(one)) == [1]

    def test_arrays_of_different_sizes(self) -> None:
        images = as_images([np.full((side, side, 3), side, dtype=np.uint8) for side in (4, 6, 20)])
        assert (images.size, values_of(images)) == (6, [4, 6, 20])

    def test_large_arrays_in_memory_stay_there(self) -> None:
        assert isinstance(as_images(np.zeros((1, 100, 100, 3), dtype=np.uint8)), PixelImages)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (np.zeros((2, 4, 4, 3)), "float64: give uint8 from 0 to 255 .*multiply by 255"),
            (torch.zeros(2, 4, 4, 3), "float32: give uint8"),
            (np.zeros((2, 4, 4), dtype=np.int64), "int64: give uint8"),
            (np.zeros((2, 4, 4), dtype=bool), "bool: give uint8"),
            (np.zeros((2, 3, 32, 32), dtype=np.uint8), r"32 channels: give 1 \(grey\), 3 \(RGB\) or 4 .*, last"),
            (np.zeros((32, 32, 3), dtype=np.uint8), r"looks like a single image\. Give a list of it"),
            (np.zeros((4, 4), dtype=np.uint8), r"shape \(4, 4\): give \(n, height, width, 3\)"),
            (np.zeros((0, 4, 4, 3), dtype=np.uint8), "no images"),
            (np.array("a.png"), r"shape \(\)"),
            ([], "no images. Give at least one"),
            (np.array([], dtype=object), "no images. Give at least one"),
            ([np.zeros((4, 4))], "image 0 of type float64: give uint8"),
            ([np.zeros((4, 0, 3), dtype=np.uint8)], "image 0 has the shape"),
            ([np.zeros((1, 4, 4, 3), dtype=np.uint8)], "image 0 has the shape"),
            ([np.zeros((4, 4, 3), dtype=np.uint8), 5], "image 1 is of type int: give a file's path"),
            ([None], "image 0 is of type NoneType"),
            ([b"not an image"], "image 0: not an image of a known format"),
            (["nowhere.png"], r"nowhere\.png: no such file"),
            ([Image.new("F", (4, 4))], "image 0: floating-point image"),
            (iter([]), "list_iterator is neither an array nor a list"),
            (5, "int is neither an array nor a list"),
        ],
        ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
    )
    def test_refused_with_a_remedy(self, images: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            as_images(images)


class TestLabels:
    IMAGES = np.zeros((4, 2, 2), dtype=np.uint8)

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            ([7, 3, 7, 3], (3, 7)),
            (np.array([7, 3, 7, 3], dtype=np.uint8), (3, 7)),
            (torch.tensor([7, 3, 7, 3]), (3, 7)),
            (("b", "a", "b", "a"), ("a", "b")),
            (np.array(["b", "a", "b", "a"]), ("a", "b")),
            (np.array(["b", "a", "b", "a"], dtype=object), ("a", "b")),
            ([np.str_("b"), np.str_("a"), "b", "a"], ("a", "b")),
            ([np.int64(7), 3, 7, 3], (3, 7)),
            ([True, False, True, False], (0, 1)),
            (["10", "9", "10", "9"], ("10", "9")),
        ],
        ids=repr,
    )
    def test_classes_are_the_distinct_labels(self, labels: object, classes: tuple[str | int, ...]) -> None:
        data = as_labelled(self.IMAGES, labels)
        assert data.classes == classes
        assert all(type(name) in {str, int} for name in data.classes)
        named = [data.classes[number] for number in data.labels.tolist()]
        assert named == list(labels)  # type: ignore[call-overload]
        assert data.labels.dtype == torch.int64

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["a", "b"], r"4 images but labels of shape \(2,\)\. Give one label for each image"),
            ([["a"], ["b"], ["c"], ["d"]], r"4 images but labels of shape \(4, 1\)"),
            (np.zeros((4, 1), dtype=int), r"4 images but labels of shape \(4, 1\)"),
            ([1, "a", 2, "b"], "some labels are strings and some are whole numbers"),
            ([1.0, 2.0, 1.0, 2.0], r"1\.0 as a label: use names \(strings\) or whole numbers"),
            (np.array([1.5, 2, 1, 2]), "labels of type float64: use names"),
            (["a", None, "a", "b"], "None as a label"),
            (np.array([b"a"] * 4), r"labels of type \|S1"),
            ("abcd", r"labels of shape \(\)"),
            (5, "int is neither an array nor a list"),
        ],
        ids=repr,
    )
    def test_refused_with_a_remedy(self, labels: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            as_labelled(self.IMAGES, labels)

    def test_missing_labels(self) -> None:
        with pytest.raises(DataError, match=r"labels are missing: give learn\(images, labels\)"):
            as_labelled(self.IMAGES)

    def test_labelled_images_pass_through(self) -> None:
        data = as_labelled(self.IMAGES, [0, 1, 0, 1])
        assert as_labelled(data) is data


class TestDigits:
    def test_images_and_classes(self) -> None:
        source = open_source(Data())
        assert source.name == "digits"
        assert source.classes == tuple("0123456789")
        assert not source.augmentation.flip
        train, test = source.splits()
        assert test is None
        assert isinstance(train.images, PixelImages)
        assert train.images.pixels.shape == (1797, 8, 8, 3)
        # scikit-learn gives whole numbers from 0 to 16
        values = set(train.images.pixels.unique().tolist())
        assert values == {round(step * 255 / 16) for step in range(17)}

    def test_held_out_share(self) -> None:
        train, test = loaded("digits")
        assert len(train) + len(test) == 1797
        assert min(test.counts()) >= 34  # the rarest digit has 174 images
        assert abs(len(test) / 1797 - 0.2) < 0.01

    def test_another_size(self) -> None:
        assert loaded("digits", image_size=16).train.images.size == 16


@pytest.fixture
def hf_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's tables go to a temporary folder."""
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
    """Grey images of one value each, with labels."""
    kind = datasets.ClassLabel(names=list(names)) if names else datasets.Value(label_type(labels))
    features = datasets.Features({"img": datasets.Image(), "label": kind, **more})
    images = [Image.new("RGB", (side, side), (value,) * 3) for value in values]
    columns = {"img": images, "label": list(labels), **{name: [0] * len(values) for name in more}}
    return datasets.Dataset.from_dict(columns, features=features)


def label_type(labels: Sequence[int | str | None]) -> str:
    return {int: "int64", str: "string", float: "float64"}[type(next(label for label in labels if label is not None))]


def parquet(folder: Path, **splits: datasets.Dataset) -> Path:
    """A data set in the layout of the hub."""
    (folder / "data").mkdir(parents=True)
    for split, rows in splits.items():
        rows.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.mark.usefixtures("hf_cache")
class TestHuggingFace:
    def test_train_and_test(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2, 3, 4], [0, 2, 1, 0]), test=table([5, 6], [2, 1]))
        train, test = loaded(folder)
        assert train.classes == test.classes == ("cat", "dog", "eel")
        assert by_class(train) == {"cat": [1, 4], "dog": [3], "eel": [2]}
        assert by_class(test) == {"cat": [], "dog": [6], "eel": [5]}
        assert isinstance(train.images, PixelImages)

    def test_classes_are_told_from_the_metadata(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = parquet(tmp_path / "pets", train=table([1], [0]), test=table([1], [0]))
        monkeypatch.setattr(datasets, "load_dataset", None)
        source = open_source(Data(source=str(folder)))
        assert (source.name, source.classes) == ("pets", ("cat", "dog", "eel"))

    def test_by_name_under_the_data_folder_and_before_the_hub(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        parquet(tmp_path / "root" / "owner" / "pets", train=table([1, 2], [0, 0]), test=table([3], [0]))
        write(tmp_path / "root" / "photos" / "cat" / "1.png")
        monkeypatch.setenv("COTRANSPORT_DATA", str(tmp_path / "root"))
        monkeypatch.setattr(huggingface_hub, "HfApi", None)
        assert values_of(loaded("owner/pets").train.images) == [1, 2]
        assert as_labelled("photos").classes == ("cat",)

    def test_a_folder_goes_before_the_data_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "root" / "photos" / "cat" / "1.png")
        write(tmp_path / "here" / "photos" / "dog" / "1.png")
        monkeypatch.setenv("COTRANSPORT_DATA", str(tmp_path / "root"))
        monkeypatch.chdir(tmp_path / "here")
        assert as_labelled("photos").classes == ("dog",)
        monkeypatch.chdir(tmp_path / "here" / "photos")
        assert open_source(Data(source=".")).name == "photos"

    def test_several_label_columns(self, tmp_path: Path) -> None:
        colours = datasets.ClassLabel(names=["red"])
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1], colour=colours))
        with pytest.raises(
            DataError, match=r"which column is the label\? Set data\.label_column to one of: img, label, c"
        ):
            loaded(folder)
        with pytest.raises(DataError, match=r"no column 'colr'; did you mean 'colour'\? Set data\.label_column"):
            loaded(folder, label_column="colr")
        assert labelled_classes(folder, label_column="colour") == ("red",)
        assert labelled_classes(folder, label_column="label") == ("cat", "dog", "eel")

    def test_the_usual_label_of_cifar100(self, tmp_path: Path) -> None:
        rows = table([1, 2], [0, 1], coarse_label=datasets.ClassLabel(names=["pet"]))
        folder = parquet(tmp_path / "cifar100", train=rows.rename_column("label", "fine_label"))
        assert labelled_classes(folder) == ("cat", "dog", "eel")
        assert labelled_classes(folder, label_column="coarse_label") == ("pet",)
        # a data set of that name with other columns is treated as any other
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
            loaded(folder)
        assert values_of(loaded(folder, image_column="thumb").train.images) == [1, 2]

    def test_images_as_files_or_bytes_in_plain_columns(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        columns = {"label": ["a", "b"], "file": paths, "raw": [Path(path).read_bytes() for path in paths]}
        rows = datasets.Dataset.from_dict(columns)
        folder = parquet(tmp_path / "pets", train=rows, test=rows)
        for column in ("file", "raw"):
            assert values_of(loaded(folder, image_column=column, follow_links=True).test.images) == [1, 2]
        with pytest.raises(DataError, match=r"1\.png: leads out of .*pets"):
            loaded(folder, image_column="file")

    def test_a_column_without_images(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1]))
        with pytest.raises(DataError, match=r"Set data\.image_column to one of: img, label"):
            loaded(folder, image_column="label")

    def test_names_and_numbers_as_labels(self, tmp_path: Path) -> None:
        words = parquet(tmp_path / "words", train=table([1, 2, 3], ["b", "a", "b"], None), test=table([4], ["a"], None))
        train, test = loaded(words)
        assert by_class(train) == {"a": [2], "b": [1, 3]}
        assert by_class(test) == {"a": [4], "b": []}
        numbers = parquet(tmp_path / "numbers", train=table([1, 2, 3], [10, 9, 10], None))
        assert by_class(as_labelled(numbers)) == {9: [2], 10: [1, 3]}

    def test_other_values_are_no_labels(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0.5, 1.5], None))  # type: ignore[list-item]
        with pytest.raises(DataError, match=r"column 'label' holds double, but labels are .* Set data\.label_column"):
            loaded(folder)

    def test_an_unlabelled_test_split_is_passed_over(self, tmp_path: Path) -> None:
        train, hidden = table([1, 2, 3, 4], [0, 0, 1, 1], ("cat", "dog")), table([5, 6], [-1, -1], ("cat", "dog"))
        validation = table([7], [1], ("cat", "dog"))
        with_validation = parquet(tmp_path / "one", train=train, test=hidden, validation=validation)
        assert by_class(loaded(with_validation).test) == {"cat": [], "dog": [7]}
        without = loaded(parquet(tmp_path / "two", train=train, test=hidden))
        assert without.test.counts().tolist() == [1, 1]
        assert sorted(values_of(without.train.images) + values_of(without.test.images)) == [1, 2, 3, 4]

    def test_placeholders_in_a_test_split_of_plain_labels(self, tmp_path: Path) -> None:
        train = table([1, 2, 3, 4], [1, 1, 2, 2], None)
        folder = parquet(tmp_path / "pets", train=train, test=table([5, 6], [-1, -1], None))
        assert set(values_of(loaded(folder).test.images)) < {1, 2, 3, 4}

    def test_rows_without_a_label_are_left_out(self, tmp_path: Path) -> None:
        for name, missing in (("one", -1), ("two", None)):
            folder = parquet(tmp_path / name, train=table([1, 2, 3], [0, missing, 1]), test=table([4], [0]))
            with pytest.warns(UserWarning, match="1 of 3 rows of train have no label and are left out"):
                assert by_class(loaded(folder).train) == {"cat": [1], "dog": [3], "eel": []}

    def test_no_labels_at_all(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [-1, -1]))
        with pytest.raises(DataError, match=r"the split train has no labelled rows\. Set data\.label_column"):
            loaded(folder)

    def test_a_label_in_test_alone(self, tmp_path: Path) -> None:
        train, test = table([1, 2], ["a", "b"], None), table([3, 4], ["a", "c"], None)
        with pytest.raises(DataError, match="the split test has the label 'c', which train lacks"):
            loaded(parquet(tmp_path / "pets", train=train, test=test))
        # a split that is not used may hold what it likes
        assert values_of(loaded(parquet(tmp_path / "more", train=train, test=train, validation=test)).test.images) == [
            1,
            2,
        ]

    def test_names_count_not_their_numbers(self, tmp_path: Path) -> None:
        train, test = table([1, 2], [0, 1], ("cat", "dog")), table([3, 4], [0, 1], ("dog", "cat"))
        folder = tmp_path / "pets"
        datasets.DatasetDict({"train": train, "test": test}).save_to_disk(folder)
        data = loaded(folder)
        assert by_class(data.train) == {"cat": [1], "dog": [2]}
        assert by_class(data.test) == {"cat": [4], "dog": [3]}

    def test_the_same_class_twice(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], ["a", "b"], None))
        source = open_source(Data(source=str(folder)))
        features = {"img": datasets.Image(), "label": type("ClassLabel", (), {"names": ["a", "a"]})()}
        source.__dict__["_features"] = features  # the library itself does not write such a file
        with pytest.raises(DataError, match="2 classes are named 'a'"):
            _ = source.classes

    def test_both_splits_have_one_size(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1]), test=table([3], [0], side=20))
        train, test = loaded(folder)
        assert train.images.size == test.images.size == 8
        large = parquet(tmp_path / "large", train=table([1], [0], side=100), test=table([3], [0], side=50))
        train, test = loaded(large)
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
                loaded(folder)

    def test_saved_to_disk(self, tmp_path: Path) -> None:
        both = datasets.DatasetDict({"train": table([1, 2], [0, 1]), "test": table([3], [2])})
        both.save_to_disk(tmp_path / "both")
        assert by_class(loaded(tmp_path / "both").test) == {"cat": [], "dog": [], "eel": [3]}
        table([1, 2, 3, 4], [0, 1, 0, 1]).select([3, 0, 1]).save_to_disk(tmp_path / "one")
        assert by_class(as_labelled(tmp_path / "one")) == {"cat": [1], "dog": [4, 2], "eel": []}

    def test_no_training_split(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"no split named train \(found: test\)"):
            loaded(parquet(tmp_path / "pets", test=table([1], [0])))

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets")
        (folder / "data" / "train-00000-of-00001.parquet").write_bytes(b"not parquet")
        with pytest.raises(DataError, match=r"pets: .*parquet.* Check the path") as caught:
            loaded(folder)
        assert "\n" not in str(caught.value)

    def test_progress_bars_are_left_as_they_were(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=table([1], [0]), test=table([1], [0]))
        for switch in (datasets.disable_progress_bars, datasets.enable_progress_bars):
            switch()
            disabled = datasets.are_progress_bars_disabled()
            loaded(folder)
            assert datasets.are_progress_bars_disabled() == disabled

    @pytest.mark.usefixtures("offline")
    def test_an_unknown_id_without_a_network(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)  # so that a slow attempt would be made
        started = time.monotonic()
        with pytest.raises(DataError) as caught:
            as_labelled("nobody/no-such-data")
        assert time.monotonic() - started < 5
        assert str(caught.value).startswith(
            "nobody/no-such-data: no such folder (nor under COTRANSPORT_DATA), and not found on the hub: "
        )
        assert str(caught.value).endswith("Check the path or the data set's id")
        assert datasets.config.HF_HUB_OFFLINE is False

    def test_an_id_that_the_hub_does_not_know(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Hub:
            def dataset_info(self, name: str, timeout: float) -> None:
                raise huggingface_hub.errors.RepositoryNotFoundError.__new__(
                    huggingface_hub.errors.RepositoryNotFoundError
                )

        monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
        with pytest.raises(DataError, match=r"not found on the hub: nobody/none does not exist or is private\. Check"):
            as_labelled("nobody/none")

    def test_the_hub_is_asked_for_the_full_id(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A data set on the hub goes the same way as one on the disk, once it is found."""
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
@pytest.mark.skipif("COTRANSPORT_DATA" not in os.environ, reason="set COTRANSPORT_DATA to the folder with cifar100")
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


class TestLinks:
    @pytest.fixture
    def photos(self, tmp_path: Path) -> Path:
        for name in ("cat", "dog"):
            (tmp_path / "photos" / name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name / "a.png")
        (tmp_path / "elsewhere").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / "elsewhere" / "secret.png")
        return tmp_path / "photos"

    def test_a_file_or_a_class_elsewhere_is_refused_unless_allowed(self, photos: Path, tmp_path: Path) -> None:
        (photos / "cat" / "b.png").symlink_to(tmp_path / "elsewhere" / "secret.png")
        with pytest.raises(DataError, match=r"b\.png: leads out of .*photos.*data\.follow_links: true"):
            as_labelled(photos)
        (photos / "cat" / "b.png").unlink()
        (photos / "cow").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(DataError, match=r"cow: leads out of"):
            as_labelled(photos)
        source = open_source(Data(source=str(photos), follow_links=True))
        assert source.classes == ("cat", "cow", "dog")
        assert len(source.splits().train) == 3

    def test_links_inside_are_followed_to_files(self, photos: Path) -> None:
        (photos / "cat" / "b.png").symlink_to(photos / "dog" / "a.png")
        (photos / "cat" / "loop").symlink_to(photos)
        assert as_labelled(photos).counts().tolist() == [2, 1]

    def test_a_link_to_itself(self, photos: Path) -> None:
        (photos / "cat" / "b.png").symlink_to(photos / "cat" / "b.png")
        with pytest.raises(DataError, match=r"b\.png: a link"):
            as_labelled(photos)

    def test_training_images_elsewhere(self, photos: Path, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "train").symlink_to(photos)
        with pytest.raises(DataError, match=r"train: leads out of"):
            as_labelled(tmp_path / "data")

    def test_folders_that_are_too_deep(self, photos: Path) -> None:
        deep = photos / "cat"
        for _ in range(40):
            deep = deep / "d"
        deep.mkdir(parents=True)
        with pytest.raises(DataError, match=r"more than 32 deep"):
            as_labelled(photos)

    def test_a_class_whose_name_cannot_be_shown(self, photos: Path) -> None:
        (photos / "a\x1b[2Jb").mkdir()
        with pytest.raises(DataError, match=r"cannot be shown.*Rename it"):
            as_labelled(photos)
