"""Which source a name means, and what the estimator accepts as input."""

from __future__ import annotations

import re
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from cotransport.data import PixelImages, as_labelled, as_splits, open_source, prefer_folder
from cotransport.data.sources import BY_HAND
from cotransport.errors import DataError
from cotransport.settings.sections import Data
from tests.data.helpers import load, values_of, write


class TestOpenSource:
    @pytest.mark.parametrize(
        "name", ["/nowhere/photos", "./photos", "../photos", "photos/", "a/b/c", "C:\\photos", "~/no"]
    )
    def test_a_missing_folder(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        with pytest.raises(DataError, match=re.escape(f"{name}: no such folder. Check the path")):
            as_labelled(name)

    def test_a_typing_mistake_is_not_taken_for_an_id_on_the_hub(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "photos" / "week1" / "cat" / "1.png")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError, match=r"^photos/weak1: no such folder; did you mean 'week1'\? Check the path$"):
            as_labelled("photos/weak1")

    def test_an_address(self) -> None:
        with pytest.raises(DataError, match=r"https://example\.org/x: nothing is downloaded .* Download the images"):
            as_labelled("https://example.org/x")

    @pytest.mark.parametrize("name", BY_HAND)
    def test_an_empty_folder_of_an_official_data_set_says_how_it_must_lie(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COTRANSPORT_DATA", str(tmp_path))
        (tmp_path / name).mkdir()
        with pytest.raises(DataError, match=rf"{name}: has no subfolders\. .* http.*must contain"):
            open_source(Data(source=name))

    @pytest.mark.parametrize("name", BY_HAND)
    def test_a_data_set_to_fetch_by_hand(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("COTRANSPORT_DATA", raising=False)
        with pytest.raises(DataError, match=rf"{name}: not found\. .* http.*COTRANSPORT_DATA names, or give its path"):
            as_labelled(name)

    @pytest.mark.parametrize("name", ["x" * 300, "~no-such-user/photos"])
    def test_a_path_that_the_system_refuses(self, name: str) -> None:
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

    def test_the_data_folder_comes_before_the_hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("owner/pets", "photos"):
            write(tmp_path / "root" / name / "cat" / "1.png")
        monkeypatch.setenv("COTRANSPORT_DATA", str(tmp_path / "root"))
        monkeypatch.setattr(huggingface_hub, "HfApi", None)
        for name in ("owner/pets", "photos"):
            assert as_labelled(name).classes == ("cat",)

    def test_a_folder_comes_before_the_data_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "root" / "photos" / "cat" / "1.png")
        write(tmp_path / "here" / "photos" / "dog" / "1.png")
        monkeypatch.setenv("COTRANSPORT_DATA", str(tmp_path / "root"))
        monkeypatch.chdir(tmp_path / "here")
        assert as_labelled("photos").classes == ("dog",)
        monkeypatch.chdir(tmp_path / "here" / "photos")
        assert open_source(Data(source=".")).name == "photos"


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
        train, test = load("digits")
        assert len(train) + len(test) == 1797
        assert min(test.counts()) >= 34  # the rarest digit has 174 images
        assert abs(len(test) / 1797 - 0.2) < 0.01

    def test_another_size(self) -> None:
        assert load("digits", image_size=16).train.images.size == 16


class TestLoadDataSet:
    def test_validation_images_are_training_images(self, tmp_path: Path) -> None:
        for value in range(10):
            write(tmp_path / "own" / "train" / "cat" / f"{value}.png", value)
            write(tmp_path / "own" / "test" / "cat" / f"{value}.png", 100 + value)
            write(tmp_path / "none" / "cat" / f"{value}.png", value)
        train, validation = load(tmp_path / "own", validation=0.3)
        assert sorted(values_of(train.images) + values_of(validation.images)) == list(range(10))
        assert len(validation) == 3
        # the images that would be held out for testing are in neither part, so validation does not reveal them
        tested = set(values_of(load(tmp_path / "none").test.images))
        train, validation = load(tmp_path / "none", validation=0.25)
        assert len(tested) == len(validation) == 2
        assert set(values_of(train.images)) | set(values_of(validation.images)) | tested == set(range(10))
        assert len(train) + len(validation) + len(tested) == 10


class TestAsLabelled:
    IMAGES = np.zeros((4, 2, 2), dtype=np.uint8)

    def test_missing_labels(self) -> None:
        with pytest.raises(DataError, match=r"labels are missing: give learn\(images, labels\)"):
            as_labelled(self.IMAGES)

    def test_labelled_images_are_returned_unchanged(self) -> None:
        data = as_labelled(self.IMAGES, [0, 1, 0, 1])
        assert as_labelled(data) is data

    def test_another_size(self) -> None:
        assert as_labelled(as_labelled(self.IMAGES, [0, 1, 0, 1]), size=5).images.size == 5

    def test_a_folder_has_a_training_and_a_test_part(self, tmp_path: Path) -> None:
        write(tmp_path / "train" / "cat" / "1.png", 1)
        write(tmp_path / "test" / "cat" / "1.png", 2)
        assert values_of(as_labelled(tmp_path).images) == [1]
        assert values_of(as_labelled(tmp_path, split="test").images) == [2]
        both = as_splits(tmp_path)
        assert both.test is not None
        assert (values_of(both.train.images), values_of(both.test.images)) == ([1], [2])
        assert as_splits(self.IMAGES, [0, 1, 0, 1]).test is None


class TestPreferFolder:
    def test_digits_are_embedded_unless_a_folder_has_that_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert prefer_folder("digits") == "digits"
        write(tmp_path / "digits" / "one" / "1.png")
        assert open_source(Data(source=prefer_folder("digits"))).classes == ("one",)
