"""Image folders: what is loaded, what is refused, and with which message."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import torch

from cotransport.data import EncodedImages, PixelImages, as_labelled, open_source
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Data
from tests.data.helpers import by_class, load, values_of, write


class TestDepth:
    """A folder one level above the classes, and classes whose images are in folders of their own."""

    def test_a_folder_above_the_classes_is_refused(self, tmp_path: Path) -> None:
        _write_all(tmp_path, "week1/cat", "week2/dog")
        with pytest.raises(DataError, match=r"such as .*week1/cat\. .*give .*week1 instead\. .*data\.nested: true"):
            load(tmp_path)

    def test_it_can_be_allowed(self, tmp_path: Path) -> None:
        _write_all(tmp_path, "cat/camera1", "cat/camera2", "dog/camera1")
        assert load(tmp_path, nested=True).train.classes == ("cat", "dog")
        assert as_labelled(Data(source=str(tmp_path), nested=True), size=4).images.size == 4

    def test_one_folder_of_the_same_name_in_each_class_is_only_noticed(self, tmp_path: Path) -> None:
        _write_all(tmp_path, "cat/images", "dog/images")
        with pytest.warns(CotransportWarning, match=r"such as .*cat/images\. .*give .*cat instead$"):
            assert load(tmp_path).train.classes == ("cat", "dog")

    def test_an_image_directly_in_a_class_shows_that_it_is_one(self, tmp_path: Path) -> None:
        _write_all(tmp_path, "cat", "cat/camera1", "dog/camera1")
        assert load(tmp_path).train.classes == ("cat", "dog")


def _write_all(folder: Path, *places: str) -> None:
    """Two images in each place."""
    for number, name in enumerate(f"{place}/{number}.png" for place in places for number in range(2)):
        write(folder / name, number)


class TestImageFolder:
    @pytest.mark.parametrize("test_name", ["test", "val", "valid", "validation"])
    def test_train_and_test(self, tmp_path: Path, test_name: str) -> None:
        for value, name in enumerate(["cat", "dog", "eel"]):
            write(tmp_path / "train" / name / "2.png", 10 * value + 2)
            write(tmp_path / "train" / name / "1.png", 10 * value + 1)
            write(tmp_path / test_name / name / "3.png", 10 * value + 3)
        train, test = load(tmp_path)
        assert train.classes == test.classes == ("cat", "dog", "eel")
        assert by_class(train) == {"cat": [1, 2], "dog": [11, 12], "eel": [21, 22]}
        assert by_class(test) == {"cat": [3], "dog": [13], "eel": [23]}
        assert isinstance(train.images, PixelImages)
        assert train.labels.dtype == torch.int64

    def test_a_test_folder_is_preferred_to_a_validation_folder(self, tmp_path: Path) -> None:
        for value, split in enumerate(["train", "val", "test"]):
            write(tmp_path / split / "cat" / "1.png", value)
        assert values_of(load(tmp_path).test.images) == [2]

    def test_an_unlabelled_test_folder_is_passed_over(self, tmp_path: Path) -> None:
        for place in ("train/cat/1.png", "val/cat/2.png", "test/3.png"):
            write(tmp_path / place, int(place[-5]))
        assert values_of(load(tmp_path).test.images) == [2]

    def test_without_a_labelled_test_folder_images_are_held_out(self, tmp_path: Path) -> None:
        for place in ("train/cat/1.png", "train/cat/2.png", "test/3.png"):
            write(tmp_path / place, int(place[-5]))
        with pytest.warns(UserWarning, match=r"test: has no subfolders.*held out instead"):
            train, test = load(tmp_path)
        assert sorted(values_of(train.images) + values_of(test.images)) == [1, 2]

    def test_nested_hidden_and_other_files(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "deep" / "er" / "1.PNG", 1)
        write(tmp_path / "cat" / "2.jpeg", 2)
        write(tmp_path / "cat" / ".hidden.png", 99)
        write(tmp_path / "cat" / ".checkpoints" / "1.png", 99)
        write(tmp_path / ".cache" / "1.png", 99)
        write(tmp_path / "stray.png", 99)
        (tmp_path / "cat" / "notes.txt").write_text("about cats")
        (tmp_path / "README").write_text("about all")
        with pytest.warns(UserWarning, match=r"ignored 2 files, .*, such as .*stray\.png"):
            data = as_labelled(tmp_path)
        assert data.classes == ("cat",)
        assert sorted(values_of(data.images)) == [1, 2]

    def test_a_single_ignored_file_is_named(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "1.png")
        (tmp_path / "cat" / "notes.txt").write_text("about cats")
        with pytest.warns(UserWarning, match=r"ignored 1 file, .*notes\.txt"):
            as_labelled(tmp_path)

    def test_names_with_spaces_and_any_letters(self, tmp_path: Path) -> None:
        names = ["a b", "c.d", "grün", "日本", "été", "🦊"]
        for value, name in enumerate(names):
            write(tmp_path / name / "bild ä.png", value)
        data = as_labelled(str(tmp_path))
        assert data.classes == tuple(sorted(names))
        assert by_class(data) == {name: [value] for value, name in enumerate(names)}

    def test_names_are_normalised_so_that_they_agree_between_systems(self, tmp_path: Path) -> None:
        decomposed = unicodedata.normalize("NFD", "été")
        write(tmp_path / decomposed / "1.png")
        write(tmp_path / "z" / "1.png")
        assert open_source(Data(source=str(tmp_path))).classes == ("z", "été")  # sorted by the normalised name

    def test_the_same_name_in_two_spellings(self, tmp_path: Path) -> None:
        for form in ("NFC", "NFD"):
            write(tmp_path / unicodedata.normalize(form, "été") / "1.png")
        if len(list(tmp_path.iterdir())) < 2:
            pytest.skip("this file system normalises names")
        with pytest.raises(DataError, match=r"2 classes are named 'été'\. Give every class a different name"):
            as_labelled(tmp_path)

    def test_a_class_named_train(self, tmp_path: Path) -> None:
        for name in ("bus", "test", "train"):
            write(tmp_path / name / "1.png")
        assert as_labelled(tmp_path).classes == ("bus", "test", "train")

    def test_classes_are_listed_without_reading_an_image(self, tmp_path: Path) -> None:
        (tmp_path / "cat").mkdir()
        (tmp_path / "cat" / "1.png").write_bytes(b"not an image")
        source = open_source(Data(source=str(tmp_path)))
        assert (source.name, source.classes) == (tmp_path.name, ("cat",))
        with pytest.raises(DataError, match=r"1\.png: not an image"):
            source.splits()

    def test_different_sizes_become_their_median(self, tmp_path: Path) -> None:
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
        train, test = load(tmp_path)
        assert isinstance(train.images, EncodedImages)
        assert isinstance(test.images, EncodedImages)
        assert train.images.size == test.images.size == 224
        assert train.images.item(0) == tmp_path / "train" / "cat" / "0.png"
        small = load(tmp_path, image_size=16)
        assert isinstance(small.train.images, PixelImages)
        assert small.train.images.size == small.test.images.size == 16

    def test_test_images_get_the_size_of_training_images(self, tmp_path: Path) -> None:
        write(tmp_path / "train" / "cat" / "1.png", 5, (10, 10))
        for i in range(3):
            write(tmp_path / "test" / "cat" / f"{i}.png", 6, (30, 30))
        train, test = load(tmp_path)
        assert train.images.size == test.images.size == 10

    @pytest.mark.parametrize("nothing", ["folder", "text"])
    def test_an_empty_class(self, tmp_path: Path, nothing: str) -> None:
        write(tmp_path / "cat" / "1.png")
        (tmp_path / "dog").mkdir()
        if nothing == "text":
            (tmp_path / "dog" / "notes.txt").write_text("none yet")
        with pytest.raises(DataError, match=r"dog: has no images\. Add some, or remove"):
            as_labelled(tmp_path)

    def test_shards_of_a_web_data_set(self, tmp_path: Path) -> None:
        (tmp_path / "shard-000000.tar").write_bytes(b"")
        with pytest.raises(DataError, match=r"tar files, as in WebDataset, .* convert them to parquet files"):
            as_labelled(tmp_path)

    def test_no_subfolders(self, tmp_path: Path) -> None:
        write(tmp_path / "1.png")
        with pytest.raises(DataError, match=r"has no subfolders\. Put the images of each class into a subfolder"):
            as_labelled(tmp_path)

    def test_a_class_with_test_images_only(self, tmp_path: Path) -> None:
        for place in ("train/cat", "test/cat", "test/dog"):
            write(tmp_path / place / "1.png")
        with pytest.raises(DataError, match=r"test.dog: a class without training images\. Add them, or remove"):
            load(tmp_path)

    def test_a_class_with_training_images_only(self, tmp_path: Path) -> None:
        for place in ("train/cat", "test/cat", "train/dog"):
            write(tmp_path / place / "1.png")
        with pytest.raises(DataError, match=r"test: no subfolder for the class 'dog', which has training images\. Add"):
            load(tmp_path)


class TestLinks:
    @pytest.fixture
    def photos(self, tmp_path: Path) -> Path:
        for name in ("photos/cat/a.png", "photos/dog/a.png", "elsewhere/secret.png"):
            write(tmp_path / name)
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

    def test_links_inside_the_folder_are_followed_to_files(self, photos: Path) -> None:
        (photos / "cat" / "b.png").symlink_to(photos / "dog" / "a.png")
        (photos / "cat" / "loop").symlink_to(photos)
        assert as_labelled(photos).counts().tolist() == [2, 1]

    def test_a_link_to_itself_is_refused(self, photos: Path) -> None:
        (photos / "cat" / "b.png").symlink_to(photos / "cat" / "b.png")
        with pytest.raises(DataError, match=r"b\.png: a link"):
            as_labelled(photos)
        with pytest.raises(DataError, match=r"b\.png: a link that leads nowhere"):
            open_source(Data(source=str(photos), follow_links=True)).splits()

    def test_a_training_folder_elsewhere_is_refused(self, photos: Path, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "train").symlink_to(photos)
        with pytest.raises(DataError, match=r"train: leads out of"):
            as_labelled(tmp_path / "data")

    def test_deeply_nested_folders_are_refused(self, photos: Path) -> None:
        deep = photos / "cat"
        for _ in range(40):
            deep = deep / "d"
        deep.mkdir(parents=True)
        with pytest.raises(DataError, match=r"nested more than 32 deep"):
            as_labelled(photos)

    def test_a_class_name_that_cannot_be_shown_is_refused(self, photos: Path) -> None:
        (photos / "a\x1b[2Jb").mkdir()
        with pytest.raises(DataError, match=r"cannot be shown.*Rename it"):
            as_labelled(photos)
