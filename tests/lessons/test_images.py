"""The images of a lesson: which are trained on, and which are held out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cotransport.data import LabelledImages, PixelImages
from cotransport.data.memory import Memory
from cotransport.data.splits import Splits
from cotransport.errors import ConfigError, DataError
from cotransport.lessons.images import (
    MOST_HELD_OUT,
    divide,
    labelled_images,
    merge_held_out,
    open_lesson_source,
)
from cotransport.lessons.options import LessonOptions
from cotransport.model.snapshot import Snapshot
from tests.conftest import blobs
from tests.lessons.helpers import image_bytes, write
from tests.model.helpers import pixels, values

NOTHING_CHOSEN = LessonOptions()


def labelled(**classes: PixelImages) -> LabelledImages:
    """Labelled images from the images of each class."""
    labels = torch.cat([torch.full((len(images),), number) for number, images in enumerate(classes.values())])
    return LabelledImages(PixelImages(torch.cat([one.pixels for one in classes.values()])), labels, tuple(classes))


def by_class(data: LabelledImages) -> dict[str | int, list[int]]:
    """The values of each class's grey images."""
    return {
        name: values(data.images.take(torch.nonzero(data.labels == number).flatten()))
        for number, name in enumerate(data.classes)
    }


def snapshot(classes: tuple[str, ...], *held_out: PixelImages) -> Snapshot:
    return Snapshot({}, classes, (len(classes),), 4, {}, Memory(), Memory(held_out))


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


class TestDivide:
    def test_a_share_of_each_new_class_is_held_out(self) -> None:
        data = blobs(2, 20)
        train, test = divide(Splits(data, None), (), Memory(), 0.1)
        assert (train.counts().tolist(), test.counts().tolist()) == ([18, 18], [2, 2])
        parts = [{part.images.item(place).tobytes() for place in range(len(part))} for part in (train, test)]  # type: ignore[union-attr]
        assert not parts[0] & parts[1]
        assert len(parts[0] | parts[1]) == 40

    def test_at_most_some_of_a_class_are_held_out(self) -> None:
        train, test = divide(Splits(blobs(1, 200), None), (), Memory(), 0.5)
        assert (len(train), len(test)) == (200 - MOST_HELD_OUT, MOST_HELD_OUT)

    def test_test_images_of_the_source_are_held_out(self) -> None:
        train, test = divide(Splits(blobs(2, 10), blobs(2, 60, seed=1)), (), Memory(), 0.5)
        assert train.counts().tolist() == [10, 10]
        assert test.counts().tolist() == [MOST_HELD_OUT, MOST_HELD_OUT]

    def test_known_classes_keep_what_they_have_held_out(self) -> None:
        data = labelled(old=pixels(1, 2, 3, 4), new=pixels(11, 12, 13, 14))
        train, test = divide(Splits(data, None), ("old",), Memory((pixels(2, 4),)), 0.5)
        assert by_class(train)["old"] == [1, 3]
        assert sorted(by_class(train)["new"] + by_class(test)["new"]) == [11, 12, 13, 14]
        assert by_class(test)["old"] == []

    def test_test_images_of_known_classes_are_not_added(self) -> None:
        parts = Splits(labelled(old=pixels(1), new=pixels(11)), labelled(old=pixels(5), new=pixels(15)))
        train, test = divide(parts, ("old",), Memory((pixels(2),)), 0.5)
        assert by_class(train) == {"old": [1], "new": [11]}
        assert by_class(test) == {"old": [], "new": [15]}

    def test_known_classes_alone_hold_nothing_out(self) -> None:
        for own_test in (None, labelled(old=pixels(5))):
            train, test = divide(Splits(labelled(old=pixels(1, 2, 3)), own_test), ("old",), Memory((pixels(2),)), 0.5)
            assert (by_class(train), len(test)) == ({"old": [1, 3]}, 0)


class TestMergeHeldOut:
    def test_new_images_come_after_those_that_are_there(self) -> None:
        before = snapshot(("a", "b"), pixels(1), pixels(2, 3))
        merged = merge_held_out(before, labelled(c=pixels(5), b=pixels(4)), ("a", "b", "c", "d"))
        assert [values(images) for images in merged.exemplars] == [[1], [2, 3, 4], [5], []]

    def test_the_first_lesson_has_only_its_own(self) -> None:
        merged = merge_held_out(None, labelled(b=pixels(4), a=pixels(1)), ("a", "b"))
        assert [values(images) for images in merged.exemplars] == [[1], [4]]

    def test_a_model_saved_from_python_may_have_none(self) -> None:
        merged = merge_held_out(snapshot(("a",)), labelled(b=pixels(4)), ("a", "b"))
        assert [values(images) for images in merged.exemplars] == [[], [4]]

    def test_they_do_not_depend_on_the_images_of_the_lesson(self) -> None:
        data = labelled(a=pixels(1, 2))
        merged = merge_held_out(None, data, ("a",))
        before = image_bytes(merged)
        data.images.pixels.zero_()  # type: ignore[union-attr]
        assert image_bytes(merged) == before


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
