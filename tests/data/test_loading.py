"""Images are loaded into the storage that suits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from cotransport.data import EncodedImages, Images, PixelImages, loading, resize
from cotransport.data.decoding import Encoded, Item, decode
from cotransport.data.loading import images_from, images_from_parts
from cotransport.errors import DataError
from tests.data.helpers import encoded_images, grey_png, pixel_images, values_of

Maker = Callable[[Sequence[int]], Images]


class TestStorage:
    def test_small_images_are_kept_in_memory(self) -> None:
        images = images_from([grey_png(1, 64), grey_png(2, 64)], None)
        assert isinstance(images, PixelImages)
        assert images.size == 64
        assert values_of(images) == [1, 2]

    def test_larger_images_stay_encoded(self) -> None:
        images = images_from([grey_png(1, 65), grey_png(2, 65)], None)
        assert isinstance(images, EncodedImages)
        assert (images.size, values_of(images)) == (65, [1, 2])

    def test_too_many_for_memory_stay_encoded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loading, "IN_MEMORY_BYTES", 2 * 4 * 4 * 3)
        assert isinstance(images_from([grey_png(1), grey_png(2)], None), PixelImages)
        assert isinstance(images_from([grey_png(1), grey_png(2), grey_png(3)], None), EncodedImages)
        # training and test images count together, because both must be treated in the same way
        parts = images_from_parts([[grey_png(1), grey_png(2)], [grey_png(3)]], None)
        assert all(isinstance(part, EncodedImages) for part in parts)

    def test_a_given_size_is_used(self) -> None:
        small = images_from([grey_png(1, 300)], 32)
        assert isinstance(small, PixelImages)
        assert small.pixels.shape == (1, 32, 32, 3)
        assert isinstance(images_from([grey_png(1, 8)], 65), EncodedImages)

    def test_the_default_size_is_the_median_of_the_shorter_sides(self) -> None:
        def of(width: int, height: int) -> Item:
            return np.zeros((height, width, 3), dtype=np.uint8)

        assert images_from([of(10, 99), of(30, 20), of(99, 50)], None).size == 20
        assert images_from([of(999, 500)], None).size == 224

    def test_test_images_get_the_size_of_training_images(self) -> None:
        train, test = images_from_parts([[grey_png(1, 8), grey_png(2, 8)], [grey_png(3, 16)]], None)
        assert (train.size, test.size) == (8, 8)
        assert (values_of(train), values_of(test)) == ([1, 2], [3])

    def test_no_images(self) -> None:
        with pytest.raises(DataError, match="no images"):
            images_from([], None)
        assert len(images_from([], 8)) == 0

    @pytest.mark.parametrize("side", [8, 100])
    def test_a_broken_file_is_found_at_once(self, side: int) -> None:
        items = [grey_png(1, side), grey_png(2, side), Encoded(b"nonsense", "c.png"), grey_png(3, side)]
        for size in (None, side):
            with pytest.raises(DataError, match=r"c\.png: not an image"):
                images_from(items, size)

    def test_workers_keep_the_order_of_images(self) -> None:
        values = [i % 256 for i in range(600)]
        assert values_of(images_from([grey_png(value) for value in values], None)) == values

    def test_an_error_in_a_worker_keeps_its_message(self) -> None:
        items = [grey_png(i % 256) for i in range(300)]
        items[280] = Encoded(items[280].data[:50], "c.png")
        with pytest.raises(DataError) as caught:
            images_from(items, 4)
        assert str(caught.value).startswith("c.png: damaged or truncated image")
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("size", [4, 100, None])
    def test_an_error_lists_several_wrong_images(self, size: int | None) -> None:
        items = [Encoded(b"nonsense", f"{number}.png") for number in range(30)]
        with pytest.raises(DataError) as caught:
            images_from(items[:2], size)
        assert str(caught.value).startswith("2 images cannot be used:\n  0.png: not an image")
        with pytest.raises(DataError) as caught:
            images_from(items, size)
        assert str(caught.value).startswith("30 images cannot be used, such as:\n")
        assert str(caught.value).count("\n") == 20


@pytest.mark.parametrize("make", [pixel_images, encoded_images])
class TestResize:
    def test_only_the_size_changes(self, make: Maker) -> None:
        images = make([10, 20, 30]).take(torch.tensor([2, 0]))
        assert resize(images, 4) is images
        larger = resize(images, 7)
        assert larger.size == 7
        assert values_of(larger) == [30, 10]
        assert decode(larger.item(0), larger.size).shape == (7, 7, 3)

    def test_large_images_become_encoded(self, make: Maker) -> None:
        larger = resize(make([10, 20]), 100)
        assert isinstance(larger, EncodedImages)
        assert values_of(larger) == [10, 20]

    def test_no_images_can_be_resized(self, make: Maker) -> None:
        for size in (7, 100):
            empty = resize(make([10]).first(0), size)
            assert (len(empty), empty.size) == (0, size)
