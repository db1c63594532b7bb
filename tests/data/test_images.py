"""Both storages are values: parts of them, copies and joins do not depend on what happens to the rest."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cotransport.data import EncodedImages, Images, LabelledImages, PixelImages, concatenate, resize
from cotransport.data import images as storage
from cotransport.data.decoding import Encoded, Item, decode
from cotransport.data.images import evenly_spaced, images_from, images_from_parts
from cotransport.errors import DataError


def grey(value: int, side: int = 4) -> npt.NDArray[np.uint8]:
    """An image of one value, by which it is recognised."""
    return np.full((side, side, 3), value, dtype=np.uint8)


def png(value: int, side: int = 4) -> Encoded:
    buffer = io.BytesIO()
    Image.fromarray(grey(value, side)).save(buffer, "PNG")
    return Encoded(buffer.getvalue(), f"grey {value}")


def pixel_images(values: Sequence[int], side: int = 4) -> PixelImages:
    pixels = [grey(value, side) for value in values] or np.empty((0, side, side, 3), dtype=np.uint8)
    return PixelImages(torch.from_numpy(np.stack(pixels) if len(values) else pixels))


def encoded_images(values: Sequence[int], side: int = 4) -> EncodedImages:
    return EncodedImages.of([png(value, side) for value in values], side)


def values_of(images: Images) -> list[int]:
    """What `grey` and `png` were given."""
    return [int(decode(images.item(i), images.size).mean()) for i in range(len(images))]


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

    def test_kept_is_equal(self, make: Maker) -> None:
        images = make([10, 20, 30]).take(torch.tensor([2, 0])).detached()
        assert values_of(images) == [30, 10]
        assert images.size == 4

    def test_fitted_changes_the_size_and_nothing_else(self, make: Maker) -> None:
        images = make([10, 20, 30]).take(torch.tensor([2, 0]))
        assert resize(images, 4) is images
        larger = resize(images, 7)
        assert larger.size == 7
        assert values_of(larger) == [30, 10]
        assert decode(larger.item(0), larger.size).shape == (7, 7, 3)

    def test_fitted_beyond_what_is_kept_in_memory(self, make: Maker) -> None:
        larger = resize(make([10, 20]), 100)
        assert isinstance(larger, EncodedImages)
        assert values_of(larger) == [10, 20]

    def test_empty_images_can_be_fitted(self, make: Maker) -> None:
        for size in (7, 100):
            empty = resize(make([10]).first(0), size)
            assert (len(empty), empty.size) == (0, size)

    def test_labelled_classes_are_renumbered_in_the_order_asked_for(self, make: Maker) -> None:
        data = LabelledImages(make([10, 20, 11, 30, 21]), torch.tensor([0, 1, 0, 2, 1]), ("a", "b", "c"))
        chosen = data.select_classes([1, 0])
        assert values_of(chosen.images) == [10, 20, 11, 21]
        assert chosen.labels.tolist() == [1, 0, 1, 0]
        assert chosen.classes == ("b", "a")
        assert data.counts().tolist() == [2, 2, 1]
        assert data.take(torch.tensor([3])).counts().tolist() == [0, 0, 1]


class TestIndependence:
    def test_taken_pixels_outlive_the_origin(self) -> None:
        origin = pixel_images([10, 20])
        taken, kept = origin.take(torch.tensor([0, 1])), origin.first(2).detached()
        origin.pixels.zero_()
        assert values_of(taken) == [10, 20]
        assert values_of(kept) == [10, 20]

    def test_first_shares_pixels_so_that_shrinking_copies_nothing(self) -> None:
        images = pixel_images([10, 20, 30])
        assert images.first(2).pixels.data_ptr() == images.pixels.data_ptr()

    def test_kept_files_may_be_deleted(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        path.write_bytes(png(10).data)
        images = EncodedImages.of([path], 4)
        kept = images.detached()
        path.unlink()
        assert values_of(kept) == [10]
        with pytest.raises(DataError, match=r"a\.png: no such file"):
            values_of(images)
        with pytest.raises(DataError, match=r"a\.png: cannot be read .* Put the file back"):
            images.detached()

    def test_a_damaged_file_is_still_named_after_it_was_kept(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        path.write_bytes(b"nonsense")
        kept = EncodedImages.of([path], 4).detached()
        with pytest.raises(DataError, match=r"a\.png: not an image"):
            values_of(kept)

    @pytest.mark.parametrize("as_array", [True, False], ids=["arrays", "pixels"])
    def test_kept_arrays_do_not_hang_on_the_array_they_are_part_of(self, as_array: bool) -> None:
        large = np.stack([grey(value, 6) for value in range(50)])
        if as_array:
            images = EncodedImages.of(list(large), 6)
        else:
            images = concatenate([PixelImages(torch.from_numpy(large)), encoded_images([70])]).first(50)  # type: ignore[assignment]
        kept = images.take(torch.tensor([7, 3])).detached()
        large[:] = 0
        assert values_of(kept) == [7, 3]
        assert sum(len(origin) for origin in kept.origins) == 2


class TestJoined:
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

    def test_joins_of_joins(self) -> None:
        one, two, three = encoded_images([1, 2]), encoded_images([3, 4]), encoded_images([5])
        left = concatenate([concatenate([one, two]).take(torch.tensor([3, 1])), three])
        assert values_of(concatenate([three, left])) == [5, 4, 2, 5]

    def test_mixed_storages(self) -> None:
        assert values_of(concatenate([pixel_images([1, 2]), encoded_images([3])])) == [1, 2, 3]
        assert values_of(concatenate([encoded_images([3]), pixel_images([1, 2])])) == [3, 1, 2]

    def test_size_is_the_first_ones(self) -> None:
        images = concatenate([pixel_images([1], side=4), pixel_images([2], side=6)])
        assert (images.size, values_of(images)) == (4, [1, 2])
        assert concatenate([pixel_images([1], side=4).first(0), pixel_images([2], side=6)]).size == 6

    def test_empty_parts_are_passed_over(self) -> None:
        empty = encoded_images([])
        images = concatenate([empty, pixel_images([1]), empty, pixel_images([2])])
        assert isinstance(images, PixelImages)
        assert values_of(images) == [1, 2]
        assert len(concatenate([empty, pixel_images([])])) == 0
        assert concatenate([pixel_images([], side=6), empty]).size == 6

    @given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 255), max_size=4)), min_size=1, max_size=6))
    @settings(max_examples=50, deadline=None)
    def test_is_concatenation_whatever_the_storages(self, parts: list[tuple[bool, list[int]]]) -> None:
        images = concatenate([STORAGES[encoded](values) for encoded, values in parts])
        expected = [value for _, values in parts for value in values]
        assert values_of(images) == expected
        backwards = torch.arange(len(expected)).flip(0)
        assert values_of(images.take(backwards)) == expected[::-1]


class TestStored:
    def test_small_images_live_in_memory(self) -> None:
        images = images_from([png(1, 64), png(2, 64)], None)
        assert isinstance(images, PixelImages)
        assert images.size == 64
        assert values_of(images) == [1, 2]

    def test_larger_images_stay_encoded(self) -> None:
        images = images_from([png(1, 65), png(2, 65)], None)
        assert isinstance(images, EncodedImages)
        assert (images.size, values_of(images)) == (65, [1, 2])

    def test_too_many_for_memory_stay_encoded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "IN_MEMORY_BYTES", 2 * 4 * 4 * 3)
        assert isinstance(images_from([png(1), png(2)], None), PixelImages)
        assert isinstance(images_from([png(1), png(2), png(3)], None), EncodedImages)
        # training and test images count together, because both must be seen in the same way
        assert [type(part) for part in images_from_parts([[png(1), png(2)], [png(3)]], None)] == [EncodedImages] * 2

    def test_a_given_size_decides(self) -> None:
        small = images_from([png(1, 300)], 32)
        assert isinstance(small, PixelImages)
        assert small.pixels.shape == (1, 32, 32, 3)
        assert isinstance(images_from([png(1, 8)], 65), EncodedImages)

    def test_natural_size_is_the_median_of_the_shorter_sides(self) -> None:
        def of(width: int, height: int) -> Item:
            return np.zeros((height, width, 3), dtype=np.uint8)

        assert images_from([of(10, 99), of(30, 20), of(99, 50)], None).size == 20
        assert images_from([of(999, 500)], None).size == 224

    def test_test_images_take_the_size_of_training_images(self) -> None:
        train, test = images_from_parts([[png(1, 8), png(2, 8)], [png(3, 16)]], None)
        assert (train.size, test.size) == (8, 8)
        assert (values_of(train), values_of(test)) == ([1, 2], [3])

    def test_nothing_to_store(self) -> None:
        with pytest.raises(DataError, match="no images"):
            images_from([], None)
        assert len(images_from([], 8)) == 0

    @pytest.mark.parametrize("side", [8, 100])
    def test_a_broken_file_is_found_at_once(self, side: int) -> None:
        items = [png(1, side), png(2, side), Encoded(b"nonsense", "c.png"), png(3, side)]
        for size in (None, side):
            with pytest.raises(DataError, match=r"c\.png: not an image"):
                images_from(items, size)

    def test_many_images_are_decoded_by_workers_in_their_order(self) -> None:
        values = [i % 256 for i in range(600)]
        assert values_of(images_from([png(value) for value in values], None)) == values

    def test_an_error_in_a_worker_comes_out_as_it_is(self) -> None:
        items = [png(i % 256) for i in range(300)]
        items[280] = Encoded(items[280].data[:50], "c.png")
        with pytest.raises(DataError) as caught:
            images_from(items, 4)
        assert str(caught.value).startswith("c.png: damaged or truncated image")
        assert "\n" not in str(caught.value)

    @given(length=st.integers(0, 5000), at_most=st.integers(1, 300))
    @settings(max_examples=50, deadline=None)
    def test_spread(self, length: int, at_most: int) -> None:
        indices = evenly_spaced(length, at_most)
        assert len(indices) == min(length, at_most) == len(set(indices))
        if length > 1 < at_most:
            assert (indices[0], indices[-1]) == (0, length - 1)
            gaps = np.diff(indices)
            assert gaps.max() - gaps.min() <= 1
