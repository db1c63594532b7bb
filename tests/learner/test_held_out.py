"""Images that are held out, and those that are trained on."""

from __future__ import annotations

import pytest
import torch

from cotransport.data import LabelledImages, PixelImages
from cotransport.data.memory import Memory
from cotransport.data.splits import Splits
from cotransport.errors import CotransportWarning, DataError
from cotransport.learner.held_out import MOST_HELD_OUT, divide, merge_held_out, without_kept
from tests.conftest import blobs
from tests.lessons.helpers import image_bytes
from tests.model.helpers import pixels, values


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


class TestWithoutKept:
    """Photographs that the model keeps for a known class, given again under another name."""

    KEPT = (Memory((pixels(1, 2), pixels(5))), Memory((pixels(3), pixels(6))))
    """The images of the known classes `a` and `b`: held out, and exemplars."""

    def test_copies_under_another_name_are_left_out(self) -> None:
        images = Splits(labelled(a=pixels(1, 8), new=pixels(2, 3, 6, 9)), labelled(a=pixels(7), new=pixels(5, 4)))
        with pytest.warns(CotransportWarning) as warned:
            train, test = without_kept(images, ("a", "b"), *self.KEPT)
        assert test is not None
        assert by_class(train) == {"a": [1, 8], "new": [9]}
        assert by_class(test) == {"a": [7], "new": [4]}
        assert [str(one.message) for one in warned] == [
            f"new: 2 images are left out, because the model keeps the same as {name}. It can only find copies of "
            "images that it keeps, so check the others too"
            for name in "ab"
        ]

    def test_copies_of_another_class_are_left_out_of_a_known_one(self) -> None:
        images = Splits(labelled(b=pixels(1, 5, 6, 9)), None)
        with pytest.warns(CotransportWarning, match="b: 1 image is left out, because the model keeps the same as a"):
            train, _ = without_kept(images, ("a", "b"), *self.KEPT)
        assert by_class(train) == {"b": [5, 6, 9]}

    def test_a_class_with_nothing_else_is_an_error(self) -> None:
        images = Splits(labelled(new=pixels(1, 2)), None)
        with pytest.raises(DataError, match=r"the class 'new' has only images that are known as 'a'\. Give it others"):
            without_kept(images, ("a", "b"), *self.KEPT)

    def test_other_images_stay(self) -> None:
        images = Splits(labelled(new=pixels(11, 12)), None)
        assert without_kept(images, ("a", "b"), *self.KEPT).train is images.train
        assert without_kept(images, ("a",), Memory()) is images


class TestDivide:
    def test_a_share_of_each_new_class_is_held_out(self) -> None:
        data = blobs(2, 20)
        train, test = divide(Splits(data, None), (), Memory(), 0.1)
        assert (train.counts().tolist(), test.counts().tolist()) == ([18, 18], [2, 2])
        parts = [{part.images.item(place).tobytes() for place in range(len(part))} for part in (train, test)]  # type: ignore[union-attr]
        assert not parts[0] & parts[1]
        assert len(parts[0] | parts[1]) == 40

    def test_without_a_share_nothing_is_held_out(self) -> None:
        for own_test in (None, blobs(2, 3, seed=1)):
            train, test = divide(Splits(blobs(2, 5), own_test), (), Memory(), 0.0)
            assert (train.counts().tolist(), len(test)) == ([5, 5], 0)

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

    def test_images_that_are_all_held_out_already_are_an_error(self) -> None:
        data = labelled(old=pixels(1, 2))
        with pytest.raises(DataError, match="all of these images are held out already"):
            divide(Splits(data, None), ("old",), Memory((pixels(2, 1, 3),)), 0.5)

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
        before = Memory((pixels(1), pixels(2, 3)))
        merged = merge_held_out(before, labelled(c=pixels(5), b=pixels(4)), ("a", "b", "c", "d"))
        assert [values(images) for images in merged.exemplars] == [[1], [2, 3, 4], [5], []]

    def test_the_first_lesson_has_only_its_own(self) -> None:
        merged = merge_held_out(Memory(), labelled(b=pixels(4), a=pixels(1)), ("a", "b"))
        assert [values(images) for images in merged.exemplars] == [[1], [4]]

    def test_classes_that_were_known_before_may_have_none(self) -> None:
        merged = merge_held_out(Memory(), labelled(b=pixels(4)), ("a", "b"))
        assert [values(images) for images in merged.exemplars] == [[], [4]]

    def test_they_do_not_depend_on_the_images_of_the_lesson(self) -> None:
        data = labelled(a=pixels(1, 2))
        merged = merge_held_out(Memory(), data, ("a",))
        before = image_bytes(merged)
        data.images.pixels.zero_()  # type: ignore[union-attr]
        assert image_bytes(merged) == before
