"""Copies of images: kept once, never in both halves, and named if they contradict each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cotransport.data import EncodedImages, LabelledImages, PixelImages, duplicates, open_source
from cotransport.data.duplicates import without_copies
from cotransport.data.splits import Splits
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Data
from tests.lessons.helpers import learn
from tests.model.helpers import pixels, values

LABELS = torch.tensor([0, 0, 0, 1, 1])


def labelled(images: PixelImages | EncodedImages, labels: torch.Tensor = LABELS) -> LabelledImages:
    return LabelledImages(images, labels, ("cat", "dog"))


def photographs(folder: Path, **seeds: list[int]) -> Splits:
    """Images of 80 pixels, one for each seed: the same seed gives the same pixels, in another kind of file."""
    for name, own in seeds.items():
        for number, seed in enumerate(own):
            path = folder / name / f"{number}.{'png' if number % 2 else 'bmp'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.RandomState(seed).randint(0, 256, (80, 80, 3)).astype(np.uint8)).save(path)
    return open_source(Data(source=str(folder))).splits()


def test_distinct_images_stay_as_they_are() -> None:
    images = Splits(labelled(pixels(1, 2, 3, 4, 5)), None)
    assert without_copies(images) == images


def test_copies_in_a_class_are_kept_once() -> None:
    with pytest.warns(CotransportWarning, match="^1 image is a copy of another one and is left out"):
        train, _ = without_copies(Splits(labelled(pixels(1, 2, 1, 4, 5)), None))
    assert (values(train.images), train.labels.tolist()) == ([1, 2, 4, 5], [0, 0, 1, 1])


def test_a_copy_of_a_test_image_is_not_trained_on() -> None:
    test = labelled(pixels(2, 5), torch.tensor([0, 1]))
    with pytest.warns(CotransportWarning, match="^2 images are copies of others and are left out"):
        train, kept = without_copies(Splits(labelled(pixels(1, 2, 3, 4, 5)), test))
    assert (values(train.images), kept) == ([1, 3, 4], test)


@pytest.mark.parametrize("most", [100, 0])
def test_contradicting_labels_are_named_by_file(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "MOST_DECODED", most)
    images = photographs(tmp_path, cat=[1, 2, 3], dog=[4, 5, 3])  # the third of each are files of the same kind
    assert isinstance(images.train.images, EncodedImages)
    message = r"in two classes.*cat/2\.bmp and .*dog/2\.bmp\. Remove the wrong one"
    with pytest.warns(CotransportWarning, match=message):
        train, _ = without_copies(images)
    assert train.counts().tolist() == [3, 2]


def test_copies_in_other_files_have_the_same_pixels(tmp_path: Path) -> None:
    images = photographs(tmp_path, cat=[1, 1, 2], dog=[4, 5])
    with pytest.warns(CotransportWarning, match="1 image is a copy"):
        assert without_copies(images).train.counts().tolist() == [2, 2]


def test_images_that_differ_only_outside_the_middle_are_others(tmp_path: Path) -> None:
    for number in range(2):
        image = Image.new("RGB", (200, 70), (9, 9, 9))
        image.putpixel((0, 0), (number, 0, 0))
        (tmp_path / "cat").mkdir(exist_ok=True)
        image.save(tmp_path / "cat" / f"{number}.png")
    images = open_source(Data(source=str(tmp_path))).splits()
    assert len(without_copies(images).train) == 2


@pytest.mark.parametrize("most", [100, 7])
def test_one_kind_of_comparison_counts_for_both_halves(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "MOST_DECODED", most)
    train = photographs(tmp_path / "train", cat=[1, 2, 3], dog=[4, 5, 6]).train
    test = photographs(tmp_path / "test", cat=[7], dog=[4]).train
    with pytest.warns(CotransportWarning, match="1 image is a copy"):
        assert without_copies(Splits(train, test)).train.counts().tolist() == [3, 2]


def test_training_images_that_are_all_test_images_are_an_error() -> None:
    data = labelled(pixels(1, 2, 3, 4, 5))
    with pytest.raises(DataError, match="the class 'cat' has only images that"), pytest.warns():
        without_copies(Splits(data, data))


def test_a_class_of_copies_alone_is_an_error() -> None:
    with pytest.raises(DataError, match="the class 'dog' has only images that another class"), pytest.warns():
        without_copies(Splits(labelled(pixels(1, 2, 3, 1, 2)), None))


def test_all_images_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    photographs(tmp_path, cat=[1, 2], dog=[3, 4])
    for name in ("cat/1.png", "dog/1.png"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    images = open_source(Data(source=str(tmp_path))).splits()
    with pytest.raises(DataError, match=r"^2 images cannot be used:\n.*cat/1\.png: damaged.*\n.*dog/1\.png: damaged"):
        without_copies(images)


def test_a_lesson_never_tests_what_it_trains_on(tmp_path: Path) -> None:
    for name, first in (("cat", 0), ("dog", 100)):
        (tmp_path / "d" / name).mkdir(parents=True)
        for number in range(40):
            colour = (first + number // 2, 40, 80)  # every image twice
            Image.new("RGB", (8, 8), colour).save(tmp_path / "d" / name / f"{number}.png")
    with pytest.warns(CotransportWarning, match="40 images are copies"):
        outcome = learn(tmp_path / "m", tmp_path / "d")
    assert outcome.report.lesson.images + sum(one.images for one in outcome.report.per_class) == 40
