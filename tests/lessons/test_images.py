"""The labelled images that a user names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, DataError
from cotransport.lessons.images import labelled_images, open_lesson_source
from cotransport.lessons.options import LessonOptions
from cotransport.model.snapshot import Snapshot
from tests.conftest import blobs
from tests.lessons.helpers import write

NOTHING_CHOSEN = LessonOptions()


def snapshot(classes: tuple[str, ...]) -> Snapshot:
    return Snapshot({}, classes, (len(classes),), 4, {}, Memory())


class TestOpenLessonSource:
    def test_lists_classes_without_reading_an_image(self, tmp_path: Path) -> None:
        for name in ("cat", "dog"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.png").write_bytes(b"not an image")
        assert open_lesson_source(str(tmp_path), None, NOTHING_CHOSEN).classes == ("cat", "dog")

    def test_an_error_comes_before_any_folder_is_made(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no such folder"):
            open_lesson_source(str(tmp_path / "nowhere"), None, NOTHING_CHOSEN)
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="empty"):
            open_lesson_source(str(tmp_path / "empty"), None, NOTHING_CHOSEN)

    def test_the_image_size_is_no_setting_of_the_data(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="Give it with --image-size"):
            open_lesson_source(str(tmp_path), None, LessonOptions(data={"image_size": 8}))
        with pytest.raises(ConfigError, match="data: image_size"):
            open_lesson_source(str(tmp_path), 10**6, NOTHING_CHOSEN)


class TestLabelledImages:
    def test_are_numbered_as_the_model_numbers_its_classes(self, tmp_path: Path) -> None:
        data = blobs(2, 3)
        write(data, tmp_path)
        known = snapshot(("class 1", "other", "class 0"))
        found = labelled_images(replace(known, image_size=8), str(tmp_path), NOTHING_CHOSEN)
        assert found.classes == ("class 1", "other", "class 0")
        assert found.counts().tolist() == [3, 0, 3]

    def test_a_test_part_is_preferred(self, tmp_path: Path) -> None:
        write(blobs(1, 3), tmp_path / "train")
        write(blobs(1, 2), tmp_path / "test")
        assert len(labelled_images(snapshot(("class 0",)), str(tmp_path), NOTHING_CHOSEN)) == 2

    def test_a_class_that_was_never_learned_is_an_error(self, tmp_path: Path) -> None:
        write(blobs(1, 2, first=9), tmp_path)
        known = tuple(f"class {number}" for number in range(9)) + tuple("abcdef")
        with pytest.raises(DataError, match=r"the class 'class 9' was never learned\. .* Known: class 0, .*, \.\.\.$"):
            labelled_images(snapshot(known), str(tmp_path), NOTHING_CHOSEN)

    def test_a_folder_above_the_classes_is_an_error_of_its_own(self, tmp_path: Path) -> None:
        for week, number in (("week1", 0), ("week2", 1)):
            write(blobs(1, 2, first=number), tmp_path / week)
        with pytest.raises(DataError, match=r"If these are the classes, give .*week1 instead"):
            labelled_images(snapshot(("class 0", "class 1")), str(tmp_path), NOTHING_CHOSEN)


def test_a_model_beside_images_does_not_make_them_a_hugging_face_data_set(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(blobs(2, 2), tmp_path / "here")
    model.rename(tmp_path / "here" / "model")
    monkeypatch.chdir(tmp_path / "here")
    assert "model" in open_lesson_source(".", None, LessonOptions()).classes


def test_a_lesson_is_not_streamed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.streaming: a lesson uses all .* Leave the setting out"):
        open_lesson_source(str(tmp_path), None, LessonOptions(data={"streaming": True}))


def test_a_model_in_the_place_of_images_is_an_error(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"a model, not images\. The command takes the model first: learn MODEL DATA"):
        open_lesson_source(str(model), None, LessonOptions())
