"""Data sets in their official layouts: what is read, and what is refused with which message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cotransport.data import open_source
from cotransport.errors import DataError
from cotransport.settings.sections import Data
from tests.data.helpers import by_class, load, write


@pytest.fixture
def cub(tmp_path: Path) -> Path:
    """Two species with two images each, one of them for training."""
    folders = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    _list(tmp_path / "classes.txt", {str(number): name for number, name in enumerate(folders, start=1)})
    images = {str(2 * place + turn + 1): f"{name}/{turn}.jpg" for place, name in enumerate(folders) for turn in (0, 1)}
    _list(tmp_path / "images.txt", images)
    _list(tmp_path / "image_class_labels.txt", {"1": "1", "2": "1", "3": "2", "4": "2"})
    _list(tmp_path / "train_test_split.txt", {"1": "1", "2": "0", "3": "0", "4": "1"})
    for number, path in images.items():
        write(tmp_path / "images" / path, 10 * int(number))
    return tmp_path


@pytest.fixture
def raf(tmp_path: Path) -> Path:
    """Three training images and one test image."""
    lists = {"train_1.jpg": "5", "train_2.jpg": "1", "train_3.jpg": "7", "test_1.jpg": "5"}
    _list(tmp_path / "basic" / "EmoLabel" / "list_patition_label.txt", lists)
    for value, name in enumerate(lists):
        write(tmp_path / "basic" / "Image" / "aligned" / name.replace(".", "_aligned."), 10 * value)
        write(tmp_path / "basic" / "Image" / "original" / name, 200)
    return tmp_path


def _list(file: Path, pairs: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key} {value}\n" for key, value in pairs.items()))


class TestCub:
    def test_official_split_and_readable_names(self, cub: Path) -> None:
        train, test = load(cub)
        assert train.classes == test.classes == ("Black footed Albatross", "Laysan Albatross")
        assert by_class(train) == {"Black footed Albatross": [10], "Laysan Albatross": [40]}
        assert by_class(test) == {"Black footed Albatross": [20], "Laysan Albatross": [30]}

    def test_in_the_folder_into_which_the_archive_is_unpacked(self, cub: Path) -> None:
        outer = cub / "outer"
        (outer / "CUB_200_2011").mkdir(parents=True)
        (outer / "attributes.txt").write_text("1 has_bill_shape::curved\n")
        for path in [path for path in cub.iterdir() if path != outer]:
            path.rename(outer / "CUB_200_2011" / path.name)
        assert load(outer).train.classes == ("Black footed Albatross", "Laysan Albatross")

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            (
                "image_class_labels.txt",
                "1 1\n2 9\n",
                r"image_class_labels\.txt, line 2: '2 9': this value is not known",
            ),
            (
                "image_class_labels.txt",
                "1 1\n2\n",
                r"image_class_labels\.txt, line 2: '2': expected an id, a space and a value",
            ),
            (
                "image_class_labels.txt",
                "1 1\n2 1\n3 2\n",
                r"image_class_labels\.txt: image 4 of images\.txt is missing",
            ),
            ("train_test_split.txt", "1 1\n2 0\n3 0\n", r"train_test_split\.txt: image 4 of images\.txt is missing"),
            ("train_test_split.txt", "1 2\n", r"train_test_split\.txt, line 1"),
            ("train_test_split.txt", "1 1\n2 1\n3 1\n4 1\n", "the lists name no test images"),
            ("train_test_split.txt", "1 0\n2 0\n3 0\n4 0\n", "the lists name no training images"),
            ("images.txt", "1 a.jpg\n1 b.jpg\n", r"images\.txt, line 2: '1 b\.jpg': this id is listed twice"),
            ("images.txt", "", r"images\.txt: empty"),
            ("classes.txt", "1 001.Same\n2 002.Same\n", "2 classes are named 'Same'"),
        ],
    )
    def test_damaged_lists(self, cub: Path, file: str, content: str, message: str) -> None:
        (cub / file).write_text(content)
        with pytest.raises(DataError, match=message):
            load(cub)

    def test_a_list_that_is_not_text(self, cub: Path) -> None:
        (cub / "classes.txt").write_bytes(b"1 \xff\xfe\n")
        with pytest.raises(DataError, match=r"classes\.txt: cannot be read"):
            load(cub)

    def test_missing_list(self, cub: Path) -> None:
        (cub / "classes.txt").unlink()
        with pytest.raises(DataError, match=r"classes\.txt: cannot be read"):
            load(cub)

    def test_missing_image(self, cub: Path) -> None:
        (cub / "images" / "002.Laysan_Albatross" / "0.jpg").unlink()
        with pytest.raises(DataError, match=r"0\.jpg"):
            load(cub)

    def test_a_path_out_of_the_folder(self, cub: Path) -> None:
        text = (cub / "images.txt").read_text()
        write(cub.parent / "secret.jpg")
        (cub / "images.txt").write_text(text.replace("001.Black_footed_Albatross/0.jpg", "../../secret.jpg"))
        with pytest.raises(DataError, match="leads out of"):
            load(cub)


class TestRafDb:
    def test_aligned_images_and_names_of_expressions(self, raf: Path) -> None:
        train, test = load(raf)
        assert train.classes == ("surprise", "fear", "disgust", "happiness", "sadness", "anger", "neutral")
        assert [train.classes[label] for label in train.labels] == ["sadness", "surprise", "neutral"]
        assert [test.classes[label] for label in test.labels] == ["sadness"]
        assert load(raf / "basic").train.classes == train.classes

    def test_other_names(self, raf: Path) -> None:
        _list(raf / "basic" / "EmoLabel" / "list_patition_label.txt", {"valid_1.jpg": "1"})
        with pytest.raises(DataError, match=r"'valid_1\.jpg' is neither a train nor a test image"):
            load(raf)


@pytest.mark.skipif(
    not Path(os.environ.get("COTRANSPORT_DATA", ""), "cub200", "images.txt").exists(),
    reason="CUB-200 is not in the folder COTRANSPORT_DATA",
)
def test_the_whole_of_cub() -> None:
    train, test = open_source(Data(source="cub200", image_size=32)).splits()
    assert (len(train), len(test or ())) == (5994, 5794)
    assert len(train.classes) == 200
    assert train.counts().min() >= 29
