"""Both storages are values: parts, copies and concatenations do not change with the images they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotransport.data import EncodedImages, Images, LabelledImages, PixelImages, concatenate
from cotransport.data.images import evenly_spaced
from cotransport.errors import DataError
from tests.data.helpers import encoded_images, grey, grey_png, pixel_images, values_of

STORAGES = [pixel_images, encoded_images]
Maker = Callable[[Sequence[int]], Images]


@pytest.mark.parametrize("make", STORAGES)
class TestBothStorages:
    def test_take_follows_the_indices(self, make: Maker) -> None:
        images = make([10, 20, 30])
        assert values_of(images.take(torch.tensor([2, 0, 2]))) == [30, 10, 30]
        assert values_of(images.take(torch.tensor([2, 1])).take(torch.tensor([1]))) == [20]
        assert len(images.take(torch.tensor([], dtype=torch.int64))) == 0
        assert values_of(images) == [10, 20, 30]

    def test_first_is_a_prefix(self, make: Maker) -> None:
        images = make([10, 20, 30])
        assert [values_of(images.first(count)) for count in (0, 2, 9)] == [[], [10, 20], [10, 20, 30]]
        assert images.first(0).size == 4

    def test_a_detached_copy_is_equal(self, make: Maker) -> None:
        images = make([10, 20, 30]).take(torch.tensor([2, 0])).detached()
        assert values_of(images) == [30, 10]
        assert images.size == 4


class TestIndependence:
    def test_taken_pixels_do_not_change_with_the_origin(self) -> None:
        origin = pixel_images([10, 20])
        taken, kept = origin.take(torch.tensor([0, 1])), origin.first(2).detached()
        origin.pixels.zero_()
        assert values_of(taken) == [10, 20]
        assert values_of(kept) == [10, 20]

    def test_first_shares_pixels(self) -> None:
        images = pixel_images([10, 20, 30])
        assert images.first(2).pixels.data_ptr() == images.pixels.data_ptr()

    def test_files_may_be_deleted_after_detaching(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        path.write_bytes(grey_png(10).data)
        images = EncodedImages.of([path], 4)
        kept = images.detached()
        path.unlink()
        assert values_of(kept) == [10]
        with pytest.raises(DataError, match=r"a\.png: no such file"):
            values_of(images)
        with pytest.raises(DataError, match=r"a\.png: cannot be read .* Put the file back"):
            images.detached()

    def test_a_damaged_file_is_still_named_after_detaching(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        path.write_bytes(b"nonsense")
        kept = EncodedImages.of([path], 4).detached()
        with pytest.raises(DataError, match=r"a\.png: not an image"):
            values_of(kept)

    @pytest.mark.parametrize("as_array", [True, False], ids=["arrays", "pixels"])
    def test_detached_images_do_not_keep_a_large_array_alive(self, as_array: bool) -> None:
        large = np.stack([grey(value, 6) for value in range(50)])
        if as_array:
            images = EncodedImages.of(list(large), 6)
        else:
            images = concatenate([PixelImages(torch.from_numpy(large)), encoded_images([70])]).first(50)  # type: ignore[assignment]
        kept = images.take(torch.tensor([7, 3])).detached()
        large[:] = 0
        assert values_of(kept) == [7, 3]
        assert sum(len(origin) for origin in kept.origins) == 2


class TestConcatenate:
    def test_pixels_stay_pixels(self) -> None:
        images = concatenate([pixel_images([1, 2]), pixel_images([3])])
        assert isinstance(images, PixelImages)
        assert values_of(images) == [1, 2, 3]

    def test_encoded_images_of_shared_origins(self) -> None:
        images = encoded_images([1, 2, 3, 4])
        one, two = images.take(torch.tensor([3, 0])), images.take(torch.tensor([2]))
        other = encoded_images([9])
        both = concatenate([one, other, two])
        assert values_of(both) == [4, 1, 9, 3]
        assert isinstance(both, EncodedImages)
        assert len(both.origins) == 2

    def test_concatenations_of_concatenations(self) -> None:
        one, two, three = encoded_images([1, 2]), encoded_images([3, 4]), encoded_images([5])
        left = concatenate([concatenate([one, two]).take(torch.tensor([3, 1])), three])
        assert values_of(concatenate([three, left])) == [5, 4, 2, 5]

    def test_mixed_storages(self) -> None:
        assert values_of(concatenate([pixel_images([1, 2]), encoded_images([3])])) == [1, 2, 3]
        assert values_of(concatenate([encoded_images([3]), pixel_images([1, 2])])) == [3, 1, 2]

    def test_the_size_is_that_of_the_first(self) -> None:
        images = concatenate([pixel_images([1], side=4), pixel_images([2], side=6)])
        assert (images.size, values_of(images)) == (4, [1, 2])
        assert concatenate([pixel_images([1], side=4).first(0), pixel_images([2], side=6)]).size == 6

    def test_empty_parts_are_skipped(self) -> None:
        empty = encoded_images([])
        images = concatenate([empty, pixel_images([1]), empty, pixel_images([2])])
        assert isinstance(images, PixelImages)
        assert values_of(images) == [1, 2]
        assert len(concatenate([empty, pixel_images([])])) == 0
        assert concatenate([pixel_images([], side=6), empty]).size == 6

    @given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 255), max_size=4)), min_size=1, max_size=6))
    @settings(max_examples=50, deadline=None)
    def test_any_storages_in_any_order(self, parts: list[tuple[bool, list[int]]]) -> None:
        images = concatenate([STORAGES[encoded](values) for encoded, values in parts])
        expected = [value for _, values in parts for value in values]
        assert values_of(images) == expected
        backwards = torch.arange(len(expected)).flip(0)
        assert values_of(images.take(backwards)) == expected[::-1]


class TestLabelledImages:
    DATA = LabelledImages(pixel_images([10, 20, 11, 30, 21]), torch.tensor([0, 1, 0, 2, 1]), ("a", "b", "c"))

    def test_counts(self) -> None:
        assert self.DATA.counts().tolist() == [2, 2, 1]
        assert self.DATA.take(torch.tensor([3])).counts().tolist() == [0, 0, 1]

    @pytest.mark.parametrize("make", STORAGES)
    def test_selected_classes_are_renumbered_in_the_given_order(self, make: Maker) -> None:
        data = LabelledImages(make([10, 20, 11, 30, 21]), self.DATA.labels, self.DATA.classes)
        chosen = data.select_classes([1, 0])
        assert values_of(chosen.images) == [10, 20, 11, 21]
        assert chosen.labels.tolist() == [1, 0, 1, 0]
        assert chosen.classes == ("b", "a")

    def test_no_classes_have_no_images(self) -> None:
        chosen = self.DATA.select_classes([])
        assert (len(chosen), len(chosen.images), chosen.classes) == (0, 0, ())

    def test_labels_are_renumbered_by_name(self) -> None:
        data = self.DATA.renumbered(("x", "c", "b", "a"))
        assert data.classes == ("x", "c", "b", "a")
        assert data.labels.tolist() == [3, 2, 3, 1, 2]
        assert data.labels.dtype == torch.int64
        assert data.images is self.DATA.images

    def test_numbers_are_names_too(self) -> None:
        data = LabelledImages(pixel_images([10, 20]), torch.tensor([0, 1]), (7, 5))
        assert data.renumbered((5, 6, 7)).labels.tolist() == [2, 0]

    def test_a_class_with_images_must_be_among_the_new_classes(self) -> None:
        with pytest.raises(DataError, match=r"the class 'b' has images, but is not among the classes"):
            self.DATA.renumbered(("a", "c"))
        without_b = self.DATA.take(torch.tensor([0, 3]))
        assert without_b.renumbered(("c", "a")).labels.tolist() == [1, 0]

    def test_no_images_can_be_renumbered(self) -> None:
        data = LabelledImages(pixel_images([]), torch.empty(0, dtype=torch.int64), ())
        assert data.renumbered(("a",)).classes == ("a",)


@given(length=st.integers(0, 5000), at_most=st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_evenly_spaced_indices(length: int, at_most: int) -> None:
    indices = evenly_spaced(length, at_most)
    assert len(indices) == min(length, at_most) == len(set(indices))
    if length > 1 < at_most:
        assert (indices[0], indices[-1]) == (0, length - 1)
        gaps = np.diff(indices)
        assert gaps.max() - gaps.min() <= 1
