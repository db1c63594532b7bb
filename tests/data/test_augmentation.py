"""Batched augmentation does the same to every image as a slow twin that takes one image at a time."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cotransport.data.augmentation import Draws, brighten, crop, draw, flip
from cotransport.settings.sections import Augmentation


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draws_of(shifts: list[tuple[int, int]], flips: list[bool]) -> Draws:
    count = len(shifts)
    return Draws(torch.tensor(shifts), torch.ones(count, 4), torch.tensor(flips), torch.ones(count))


def crop_slowly(
    image: npt.NDArray[np.uint8], down: int, right: int, flip: bool, pad: int, mode: str
) -> npt.NDArray[np.uint8]:
    """Pad one image, cut out the window and mirror it."""
    height, width = image.shape[:2]
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="constant" if mode == "zero" else "reflect")
    window = padded[pad + down : pad + down + height, pad + right : pad + right + width]
    return window[:, ::-1] if flip else window


class TestCrop:
    @given(
        height=st.integers(1, 7),
        width=st.integers(1, 7),
        pad=st.integers(0, 16),
        padding=st.sampled_from(["zero", "reflect"]),
        seed=st.integers(0, 10**6),
    )
    @settings(max_examples=100, deadline=None)
    def test_equals_the_slow_twin(
        self, height: int, width: int, pad: int, padding: Literal["zero", "reflect"], seed: int
    ) -> None:
        """Also if the padding is larger than the image, or an image is one pixel wide."""
        pixels = torch.randint(0, 256, (4, height, width, 3), generator=generator(seed), dtype=torch.uint8)
        config = Augmentation(crop_padding=pad, padding=padding)
        indices = torch.tensor([3, 0, 3, 1, 2, 2])
        draws = draw(config, len(indices), generator(seed))
        fast = crop(pixels, indices, draws, config)
        assert fast.dtype == torch.uint8
        for i, index in enumerate(indices.tolist()):
            (down, right), flip = draws.shift[i].tolist(), bool(draws.flip[i])
            expected = crop_slowly(pixels[index].numpy(), down, right, flip, pad, padding)
            assert (fast[i].numpy() == expected).all()

    def test_a_shift_by_hand(self) -> None:
        row = torch.tensor([[1, 2, 3, 4]], dtype=torch.uint8)[None, :, :, None].expand(
            1, 1, 4, 3
        )  # one row of 4 pixels

        def after(right: int, flip: bool, padding: Literal["zero", "reflect"]) -> list[int]:
            config = Augmentation(crop_padding=2, padding=padding)
            pixels = crop(row, torch.tensor([0]), draws_of([(0, right)], [flip]), config)
            return pixels[0, 0, :, 0].tolist()

        assert after(0, False, "zero") == [1, 2, 3, 4]
        assert after(2, False, "zero") == [3, 4, 0, 0]
        assert after(-1, False, "zero") == [0, 1, 2, 3]
        assert after(-1, True, "zero") == [3, 2, 1, 0]
        assert after(2, False, "reflect") == [3, 4, 3, 2]
        assert after(-2, False, "reflect") == [3, 2, 1, 2]

    def test_the_storage_is_not_changed(self) -> None:
        pixels = torch.full((1, 3, 3, 3), 9, dtype=torch.uint8)
        for padding in ("zero", "reflect"):
            config = Augmentation.model_validate({"crop_padding": 1, "padding": padding})
            crop(pixels, torch.tensor([0, 0]), draws_of([(1, 1), (0, 0)], [True, False]), config).zero_()
            assert (pixels == 9).all()


class TestFlipAndBrighten:
    def test_drawn_images_are_mirrored(self) -> None:
        images = torch.arange(24, dtype=torch.uint8).reshape(2, 2, 2, 3)
        mirrored = flip(images, draws_of([(0, 0), (0, 0)], [False, True]))
        assert (mirrored[0] == images[0]).all()
        assert (mirrored[1].numpy() == images[1].numpy()[:, ::-1]).all()

    def test_brightness_multiplies_each_image_up_to_255(self) -> None:
        images = torch.tensor([0, 100, 200], dtype=torch.uint8).reshape(1, 1, 3, 1).expand(2, 1, 3, 3)
        draws = draws_of([(0, 0), (0, 0)], [False, False])._replace(brightness=torch.tensor([1.5, 0.5]))
        result = brighten(images, draws)
        assert result.dtype == torch.float32
        assert result[0, 0, :, 0].tolist() == [0, 150, 255]
        assert result[1, 0, :, 0].tolist() == [0, 50, 100]
        assert images[0, 0, :, 0].tolist() == [0, 100, 200]


class TestDraw:
    def test_shifts_are_uniform_over_the_padding(self) -> None:
        shift = draw(Augmentation(crop_padding=2), 2000, generator()).shift
        for axis in range(2):
            counts = torch.bincount(shift[:, axis] + 2, minlength=5)
            assert counts.sum() == 2000
            assert len(counts) == 5
            assert (counts - 400).abs().max() < 80  # four standard deviations of 18
        assert not (shift[:, 0] == shift[:, 1]).all()

    def test_about_half_are_flipped(self) -> None:
        share = draw(Augmentation(), 4000, generator()).flip.float().mean()
        assert abs(share - 0.5) < 0.032  # four standard deviations
        assert not draw(Augmentation(flip=False), 4000, generator()).flip.any()

    def test_brightness_range(self) -> None:
        factors = draw(Augmentation(brightness=0.4), 4000, generator()).brightness
        assert 0.6 <= factors.min() < 0.61
        assert 1.39 < factors.max() <= 1.4
        assert abs(factors.mean() - 1) < 0.015
        assert (draw(Augmentation(), 9, generator()).brightness == 1).all()

    def test_window_ranges(self) -> None:
        area, ratio, x, y = draw(Augmentation(min_area=0.3), 4000, generator()).window.unbind(1)
        assert 0.3 <= area.min() < 0.31
        assert 0.99 < area.max() <= 1
        assert 0.75 - 1e-6 <= ratio.min() < 0.76
        assert 1.32 < ratio.max() <= 4 / 3 + 1e-6
        assert abs(ratio.log().mean()) < 0.011  # wide and high windows are equally frequent
        for place in (x, y):
            assert 0 <= place.min() < 0.01
            assert 0.99 < place.max() <= 1

    def test_the_whole_area_is_the_whole_image(self) -> None:
        window = draw(Augmentation(min_area=1), 50, generator()).window
        assert (window[:, :2] == 1).all()

    def test_without_augmentation_nothing_changes(self) -> None:
        config = Augmentation(crop_padding=0, flip=False)
        pixels = torch.randint(0, 256, (5, 3, 3, 3), generator=generator(), dtype=torch.uint8)
        assert (crop(pixels, torch.arange(5), draw(config, 5, generator()), config) == pixels).all()

    def test_the_same_seed_gives_the_same_draws(self) -> None:
        config = Augmentation(brightness=0.2)
        one, two, other = (draw(config, 20, generator(seed)) for seed in (3, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))

    def test_settings_do_not_change_each_others_draws(self) -> None:
        plain, all_on = draw(Augmentation(), 20, generator()), draw(Augmentation(brightness=0.5), 20, generator())
        assert torch.equal(plain.shift, all_on.shift)
        assert torch.equal(plain.window, all_on.window)
        assert torch.equal(plain.flip, all_on.flip)
        no_crop = draw(Augmentation(crop_padding=0, min_area=1), 20, generator())
        assert torch.equal(plain.flip, no_crop.flip)

    def test_part_and_windows_belong_to_the_same_images(self) -> None:
        draws = draw(Augmentation(brightness=0.2), 6, generator())
        part = draws.part(torch.tensor([4, 1]))
        columns: list[tuple[Tensor, Tensor]] = list(zip(part, draws, strict=True))
        for chosen, whole in columns:
            assert torch.equal(chosen[0], whole[4])
            assert torch.equal(chosen[1], whole[1])
        assert [list(window) for window in part.windows()] == [
            pytest.approx(draws.window[index].tolist()) for index in (4, 1)
        ]
