"""The images in a model folder, by class and with their ids."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cotransport.data import EncodedImages
from cotransport.errors import ConfigError, ModelError
from cotransport.lessons import stored_images
from cotransport.lessons.stored_images import image_overview, list_images
from tests.model.helpers import damage, pixels, snapshot, store_with


def id_of(value: int) -> str:
    """The id of a grey image of 4 x 4 pixels."""
    grey = np.full((4, 4, 3), value, dtype=np.uint8)
    return hashlib.sha256(b"(4, 4, 3)" + grey.tobytes()).hexdigest()[:12]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two versions. The second one has one exemplar less of the first class, and a held-out image more."""
    store_with(
        tmp_path / "m",
        snapshot(pixels(1, 2), pixels(3), held_out=(pixels(7), pixels(8))),
        snapshot(pixels(1), pixels(3), held_out=(pixels(7), pixels(8, 9))),
    )
    return tmp_path / "m"


def test_every_image_is_listed_with_its_uses(folder: Path) -> None:
    found = [(one.id, one.class_name, one.exemplar_in, one.held_out_in) for one in list_images(folder)]
    assert found == [
        (id_of(1), "class 0", (1, 2), ()),
        (id_of(2), "class 0", (1,), ()),
        (id_of(7), "class 0", (), (1, 2)),
        (id_of(3), "class 1", (1, 2), ()),
        (id_of(8), "class 1", (), (1, 2)),
        (id_of(9), "class 1", (), (2,)),
    ]


def test_an_image_that_is_kept_for_both_is_listed_once(tmp_path: Path) -> None:
    store_with(tmp_path / "m", snapshot(pixels(1), held_out=(pixels(2),)), snapshot(pixels(2), held_out=(pixels(1),)))
    found = [(one.id, one.exemplar_in, one.held_out_in) for one in list_images(tmp_path / "m")]
    assert sorted(found) == sorted([(id_of(2), (2,), (1,)), (id_of(1), (1,), (2,))])


def test_an_image_of_two_classes_is_listed_in_both(tmp_path: Path) -> None:
    store_with(tmp_path / "m", snapshot(pixels(1), pixels(1)))
    assert [(one.id, one.class_name) for one in list_images(tmp_path / "m")] == [
        (id_of(1), "class 0"),
        (id_of(1), "class 1"),
    ]


def test_a_renamed_class_has_its_present_name(tmp_path: Path) -> None:
    first = snapshot(pixels(1, 2), pixels(3))
    store_with(tmp_path / "m", first, replace(snapshot(pixels(1), pixels(3)), classes=("cat", "class 1")))
    found = {one.id: (one.class_name, one.exemplar_in) for one in list_images(tmp_path / "m")}
    assert found[id_of(1)] == ("cat", (1, 2))
    assert found[id_of(3)] == ("class 1", (1, 2))
    assert found[id_of(2)] == ("class 0", (1,)), "only the first version has this image"


def test_files_keep_their_names(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "cat.png")
    store_with(tmp_path / "m", snapshot(EncodedImages.of([tmp_path / "cat.png"], 4), pixels(1)))
    digest = hashlib.sha256((tmp_path / "cat.png").read_bytes()).hexdigest()
    found = [(one.id, one.file_name) for one in list_images(tmp_path / "m")]
    assert found == [(digest[:12], "cat.png"), (id_of(1), "")]


def test_one_class_can_be_chosen(folder: Path) -> None:
    assert {one.class_name for one in list_images(folder, "class 1")} == {"class 1"}
    assert [one.name for one in image_overview(folder, "class 1").classes] == ["class 1"]
    with pytest.raises(ConfigError, match=r"--class 'cat': no image of this class.*Classes: class 0, class 1"):
        list_images(folder, "cat")


def test_pictures_show_the_images(folder: Path) -> None:
    found = image_overview(folder)
    assert (found.model, found.current) == ("m", 2)
    values = [
        [int(np.asarray(Image.open(io.BytesIO(picture.data)))[0, 0, 0]) for _, picture in one.shown]
        for one in found.classes
    ]
    assert values == [[1, 2, 7], [3, 8, 9]]


@pytest.mark.parametrize(("most", "shown"), [(1000, [3, 3]), (4, [2, 2]), (3, [1, 1]), (1, [1, 0])])
def test_pictures_are_limited(most: int, shown: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_images, "MOST_PICTURES", most)
    found = image_overview(folder).classes
    assert [len(one.shown) for one in found] == shown
    assert [one.images for one in found] == [3, 3]


@pytest.mark.parametrize("file", ["versions/0001/model.json", "images/0001.parquet"])
def test_damage_is_an_error(file: str, folder: Path) -> None:
    damage(folder / file, "changed")
    with pytest.raises(ModelError, match=rf"{Path(file).name}: damaged"):
        list_images(folder)


def test_a_folder_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model"):
        list_images(tmp_path)
