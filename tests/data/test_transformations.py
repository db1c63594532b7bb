"""Batched changes do the same to every image as a slow twin that takes one image at a time, or as Pillow."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from cotransport.data import transformations as change

Pixels = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
SEEDS = st.integers(0, 10**6)
FACTORS = torch.tensor([0.1, 0.5, 0.9, 1.0, 1.3, 1.9])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, height: int = 9, width: int = 9, seed: int = 0) -> Tensor:
    """Images of random whole numbers, float32."""
    return torch.randint(0, 256, (count, height, width, 3), generator=generator(seed)).float()


def grey_rows(*rows: list[float]) -> Tensor:
    """One grey image (1, h, w, 3)."""
    return torch.tensor(rows, dtype=torch.float32)[None, :, :, None].expand(-1, -1, -1, 3).contiguous()


def rows_of(image: Tensor) -> list[list[float]]:
    """The first colour of one image (h, w, 3)."""
    rows: list[list[float]] = image[:, :, 0].tolist()
    return rows


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.to(torch.uint8).numpy())


def floats(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(image, dtype=np.float32))


class TestCrop:
    @staticmethod
    def slowly(image: Pixels, down: int, right: int, mirrored: bool, pad: int, reflect: bool) -> Pixels:
        """Pad one image, cut out the window and mirror it."""
        height, width = image.shape[:2]
        padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)), mode="reflect" if reflect else "constant")
        window = padded[pad + down : pad + down + height, pad + right : pad + right + width]
        return window[:, ::-1] if mirrored else window

    @given(height=st.integers(1, 7), width=st.integers(1, 7), pad=st.integers(0, 16), reflect=st.booleans(), seed=SEEDS)
    @settings(max_examples=100, deadline=None)
    def test_equals_the_slow_twin(self, height: int, width: int, pad: int, reflect: bool, seed: int) -> None:
        """Also if the padding is larger than the image, or an image is one pixel wide."""
        pixels = noise(4, height, width, seed).to(torch.uint8)
        indices = torch.tensor([3, 0, 3, 1, 2, 2])
        shift = torch.randint(-pad, pad + 1, (6, 2), generator=generator(seed))
        mirrored = torch.rand(6, generator=generator(seed)) < 0.5
        fast = change.crop(pixels, indices, shift, mirrored, pad=pad, reflect=reflect)
        assert fast.dtype == torch.uint8
        for i, index in enumerate(indices.tolist()):
            down, right = shift[i].tolist()
            expected = self.slowly(pixels[index].numpy(), down, right, bool(mirrored[i]), pad, reflect)
            assert (fast[i].numpy() == expected).all()

    def test_a_shift_by_hand(self) -> None:
        row = grey_rows([1, 2, 3, 4]).to(torch.uint8)

        def after(right: int, mirrored: bool, reflect: bool) -> list[float]:
            shift = torch.tensor([[0, right]])
            result = change.crop(row, torch.tensor([0]), shift, torch.tensor([mirrored]), pad=2, reflect=reflect)
            return rows_of(result[0])[0]

        assert after(0, False, False) == [1, 2, 3, 4]
        assert after(2, False, False) == [3, 4, 0, 0]
        assert after(-1, False, False) == [0, 1, 2, 3]
        assert after(-1, True, False) == [3, 2, 1, 0]
        assert after(2, False, True) == [3, 4, 3, 2]
        assert after(-2, False, True) == [3, 2, 1, 2]

    @pytest.mark.parametrize("reflect", [False, True])
    @pytest.mark.parametrize("pad", [0, 1])
    def test_the_storage_is_not_changed(self, pad: int, reflect: bool) -> None:
        pixels = torch.full((1, 3, 3, 3), 9, dtype=torch.uint8)
        shift, mirrored = torch.tensor([[pad, pad], [0, 0]]), torch.tensor([True, False])
        change.crop(pixels, torch.tensor([0, 0]), shift, mirrored, pad=pad, reflect=reflect).zero_()
        assert (pixels == 9).all()


class TestFlip:
    def test_chosen_images_are_mirrored(self) -> None:
        images = torch.arange(36, dtype=torch.uint8).reshape(2, 2, 3, 3)
        mirrored = change.flip(images, torch.tensor([False, True]))
        assert torch.equal(mirrored[0], images[0])
        assert (mirrored[1].numpy() == images[1].numpy()[:, ::-1]).all()


def sample_slowly(image: Floats, x: float, y: float, reflect: bool) -> Floats:
    """The colour at a place in pixels, where (0, 0) is the centre of the first pixel. Bilinear interpolation."""
    height, width = image.shape[:2]
    if reflect:
        x, y = reflect_slowly(x, width), reflect_slowly(y, height)
    left, top = math.floor(x), math.floor(y)
    colour = np.zeros(3)
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        if 0 <= row < height and 0 <= column < width:  # black beyond the edge
            colour += (1 - abs(x - column)) * (1 - abs(y - row)) * image[row, column]
    return colour


def reflect_slowly(place: float, length: int) -> float:
    """A place mirrored about the outer edges of the first and last pixel until it lies within their centres."""
    while not -0.5 <= place <= length - 0.5:
        place = -1 - place if place < -0.5 else 2 * length - 1 - place
    return min(max(place, 0), length - 1)


def warp_slowly(image: Floats, matrix: Floats, reflect: bool) -> Floats:
    """Each new pixel's centre is mapped to the old image, and the colour is looked up there."""
    height, width = image.shape[:2]
    warped = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            new = np.array([(2 * column + 1) / width - 1, (2 * row + 1) / height - 1, 1])
            right, down = matrix @ new  # from -1 to 1 within the old image
            x, y = (right + 1) * width / 2 - 0.5, (down + 1) * height / 2 - 0.5
            warped[row, column] = sample_slowly(image, x, y, reflect)
    return warped


def maps_of(
    *, rotation: float = 0, shear: tuple[float, float] = (0, 0), zoom: float = 1, to: tuple[float, float] = (0, 0)
) -> Tensor:
    """The map of one image. `to` is the translation."""
    return change.affine_maps(*(torch.tensor([value], dtype=torch.float32) for value in (rotation, shear, zoom, to)))


class TestAffineMaps:
    @given(seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_lead_from_the_new_place_back_to_the_old_one(self, seed: int) -> None:
        random = np.random.RandomState(seed)
        rotation, zoom = random.uniform(-180, 180, 3), random.uniform(0.3, 1.9, 3)
        shear, translation = random.uniform(-0.6, 0.6, (3, 2)), random.uniform(-1, 1, (3, 2))
        maps = change.affine_maps(
            *(torch.from_numpy(values).float() for values in (rotation, shear, zoom, translation))
        )
        assert maps.shape == (3, 2, 3)
        for i in range(3):
            right, down = old = random.uniform(-1, 1, 2)
            cosine, sine = math.cos(math.radians(rotation[i])), math.sin(math.radians(rotation[i]))
            turned = (cosine * right + sine * down, cosine * down - sine * right)  # anticlockwise; down is positive
            slanted = np.linalg.solve([[1, shear[i, 0]], [shear[i, 1], 1]], turned)
            new = zoom[i] * slanted + 2 * translation[i]  # a side is 2 long
            assert maps[i].numpy() @ [*new, 1] == pytest.approx(old, abs=1e-5)


class TestWarp:
    @given(height=st.integers(1, 6), width=st.integers(1, 6), reflect=st.booleans(), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_equals_the_slow_twin(self, height: int, width: int, reflect: bool, seed: int) -> None:
        """Each image has a map of its own, which may lead far beyond the edges."""
        images, maps = noise(3, height, width, seed), 4 * torch.rand(3, 2, 3, generator=generator(seed)) - 2
        warped = change.warp(images, maps, reflect=reflect)
        for i in range(3):
            expected = warp_slowly(images[i].double().numpy(), maps[i].double().numpy(), reflect)
            assert np.abs(warped[i].numpy() - expected).max() < 0.01  # of 255, in single precision

    @pytest.mark.parametrize("reflect", [False, True])
    def test_the_identity_map_changes_nothing(self, reflect: bool) -> None:
        images = noise(3, 7, 5)
        warped = change.warp(images, maps_of().expand(3, 2, 3), reflect=reflect)
        assert (warped - images).abs().max() < 0.001

    def test_a_quarter_turn_by_hand(self) -> None:
        image = grey_rows([1, 2, 3], [4, 5, 6], [7, 8, 9])
        anticlockwise, clockwise = (
            change.warp(image, maps_of(rotation=angle), reflect=False)[0] for angle in (90, -90)
        )
        assert rows_of(anticlockwise) == [pytest.approx(row, abs=1e-4) for row in ([3, 6, 9], [2, 5, 8], [1, 4, 7])]
        assert rows_of(clockwise) == [pytest.approx(row, abs=1e-4) for row in ([7, 4, 1], [8, 5, 2], [9, 6, 3])]

    @pytest.mark.parametrize("angle", [-150.0, -30.0, 12.5, 45.0, 100.0])
    def test_rotates_as_pillow_does(self, angle: float) -> None:
        image = noise(1, 20, 20)
        ours = change.warp(image, maps_of(rotation=angle), reflect=False)[0]
        theirs = floats(pillow(image[0]).rotate(angle, Image.Resampling.BILINEAR))
        down, right = torch.meshgrid(torch.arange(20) - 9.5, torch.arange(20) - 9.5, indexing="ij")
        inside = down**2 + right**2 < 9**2  # never near an edge, where Pillow does not blend with black
        assert (ours - theirs)[inside].abs().max() <= 1  # Pillow rounds
        assert inside.sum() > 200

    def test_a_translation_by_hand(self) -> None:
        image = grey_rows([1, 2, 3, 4], [5, 6, 7, 8])

        def after(right: float, down: float, reflect: bool) -> list[list[float]]:
            return rows_of(change.warp(image, maps_of(to=(right, down)), reflect=reflect)[0])

        assert after(0.5, 0, False) == [[0, 0, 1, 2], [0, 0, 5, 6]]
        assert after(-0.25, 0, False) == [[2, 3, 4, 0], [6, 7, 8, 0]]
        assert after(0, 0.5, False) == [[0, 0, 0, 0], [1, 2, 3, 4]]
        assert after(0.5, 0, True) == [[2, 1, 1, 2], [6, 5, 5, 6]]  # mirrored about the edge of the first pixel
        assert after(-0.25, 0.5, True) == [[2, 3, 4, 4], [2, 3, 4, 4]]

    def test_a_translation_comes_after_the_turn(self) -> None:
        image = grey_rows([1, 2], [3, 4])
        moved = change.warp(image, maps_of(rotation=90, to=(0.5, 0)), reflect=False)[0]
        assert rows_of(moved) == [pytest.approx([0, 2], abs=1e-4), pytest.approx([0, 1], abs=1e-4)]

    def test_a_shear_by_hand(self) -> None:
        image = grey_rows([1, 2, 3], [4, 5, 6], [7, 8, 9])

        def after(shear: tuple[float, float]) -> list[list[float]]:
            return rows_of(change.warp(image, maps_of(shear=shear), reflect=False)[0])

        # at factor 1, the outer rows move by one pixel, in opposite directions
        assert after((1, 0)) == [pytest.approx(row, abs=1e-4) for row in ([0, 1, 2], [4, 5, 6], [8, 9, 0])]
        assert after((0, 1)) == [pytest.approx(row, abs=1e-4) for row in ([0, 2, 6], [1, 5, 9], [4, 8, 0])]

    def test_a_zoom_by_hand(self) -> None:
        image = grey_rows([0, 40, 80, 120], [0, 40, 80, 120])
        enlarged = change.warp(image, maps_of(zoom=2), reflect=True)[0]
        assert rows_of(enlarged) == [[30, 50, 70, 90]] * 2  # half as steep, around the same mean
        reduced = change.warp(image, maps_of(zoom=0.5), reflect=True)[0]
        assert rows_of(reduced) == [[20, 20, 100, 100]] * 2  # mirrored beyond the edges: 40 0 | 0 40 80 120 | 120 80


class TestColours:
    """Pillow cuts the digits after the point off, so its values are up to one level lower."""

    @pytest.mark.parametrize(
        ("ours", "theirs", "rounded_grey"),
        [
            (change.brighten, ImageEnhance.Brightness, 0.0),
            (change.contrast, ImageEnhance.Contrast, 1.0),  # Pillow rounds each pixel's grey, and then their mean
            (change.saturate, ImageEnhance.Color, 0.5),  # Pillow rounds each pixel's grey
        ],
    )
    def test_factors_do_as_in_pillow(
        self,
        ours: Callable[[Tensor, Tensor], Tensor],
        theirs: Callable[[Image.Image], ImageEnhance.Brightness],
        rounded_grey: float,
    ) -> None:
        images = noise(len(FACTORS), 16, 12)
        changed = ours(images, FACTORS)
        for image, factor, result in zip(images, FACTORS.tolist(), changed, strict=True):
            difference = result - floats(theirs(pillow(image)).enhance(factor))
            error = rounded_grey * abs(1 - factor) + 0.01
            assert difference.min() >= -error
            assert difference.max() <= 1 + error

    def test_brightness_by_hand(self) -> None:
        images = grey_rows([0, 100, 200]).repeat(2, 1, 1, 1)
        bright, dark = change.brighten(images, torch.tensor([1.5, 0.5]))
        assert (rows_of(bright), rows_of(dark)) == ([[0, 150, 255]], [[0, 50, 100]])

    def test_contrast_by_hand(self) -> None:
        images = grey_rows([0, 100, 200]).repeat(3, 1, 1, 1)
        images[2] += 10
        high, low, none = change.contrast(images, torch.tensor([1.2, 0.5, 0.0]))
        assert rows_of(high) == [pytest.approx([0, 100, 220])]
        assert rows_of(low) == [pytest.approx([50, 100, 150])]
        assert rows_of(none) == [pytest.approx([110, 110, 110])]

    def test_saturation_by_hand(self) -> None:
        images = torch.tensor([100.0, 0.0, 200.0]).reshape(1, 1, 1, 3).repeat(3, 1, 1, 1)
        grey = 0.299 * 100 + 0.114 * 200
        saturated = change.saturate(images, torch.tensor([0.0, 0.5, 1.5])).reshape(3, 3).tolist()
        assert saturated[0] == pytest.approx([grey] * 3)
        assert saturated[1] == pytest.approx([(100 + grey) / 2, grey / 2, (200 + grey) / 2])
        assert saturated[2] == pytest.approx([150 - grey / 2, 0, 255])  # clipped at both ends

    def test_posterises_as_pillow_does(self) -> None:
        bits = torch.arange(1.0, 9)
        images = noise(len(bits), 16, 12)
        for image, kept, result in zip(images, bits.tolist(), change.posterise(images, bits), strict=True):
            assert torch.equal(result, floats(ImageOps.posterize(pillow(image), int(kept))))

    def test_solarises_as_pillow_does(self) -> None:
        thresholds = torch.tensor([0.0, 1.0, 99.5, 128.0, 255.0, 256.0])
        images = noise(len(thresholds), 16, 12)
        changed = change.solarise(images, thresholds)
        for image, threshold, result in zip(images, thresholds.tolist(), changed, strict=True):
            assert torch.equal(result, floats(ImageOps.solarize(pillow(image), threshold)))


class TestEqualise:
    @given(height=st.integers(1, 40), width=st.integers(1, 40), levels=st.integers(1, 256), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_equals_pillow(self, height: int, width: int, levels: int, seed: int) -> None:
        """For few and many pixels, and for images of one level up to all levels."""
        images = noise(3, height, width, seed)
        images[1] = images[1] % levels
        images[2] = 255 - images[2] ** 2 % levels
        for image, result in zip(images, change.equalise(images), strict=True):
            assert torch.equal(result, floats(ImageOps.equalize(pillow(image))))

    def test_two_levels_by_hand(self) -> None:
        # 300 pixels of level 7 and 1 of level 9: a step of 1 pixel for each new level, so 9 becomes 300, cut to 255
        image = torch.full((1, 7, 43, 3), 7.0)
        image[0, 2, 5] = 9
        result = change.equalise(image)[0, :, :, 0]
        assert result[2, 5] == 255
        assert result.sum() == 255  # all others are 0

    def test_few_pixels_are_left_alone(self) -> None:
        images = noise(2, 5, 5)
        assert torch.equal(change.equalise(images), images)

    def test_fractions_are_rounded(self) -> None:
        images = noise(1, 30, 30)
        fractions = 0.8 * torch.rand(images.shape, generator=generator()) - 0.4
        assert torch.equal(change.equalise(images + fractions), change.equalise(images))


class TestRectangles:
    @given(height=st.integers(1, 7), width=st.integers(1, 7), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_hold_the_pixels_whose_centres_they_hold(self, height: int, width: int, seed: int) -> None:
        corners = torch.randint(-8, 40, (2, 4, 2), generator=generator(seed)) / 4  # quarters, so some meet centres
        low, high = corners
        masks = change.rectangles(low, high, height, width)
        assert (masks.shape, masks.dtype) == ((4, height, width, 1), torch.bool)
        for i, ((top, left), (bottom, right)) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            for row in range(height):
                for column in range(width):
                    inside = top <= row + 0.5 < bottom and left <= column + 0.5 < right
                    assert bool(masks[i, row, column]) == inside

    def test_corners_are_down_and_right(self) -> None:
        (mask,) = change.rectangles(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 3.0]]), 2, 4)
        assert mask[:, :, 0].int().tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]


class TestCutOut:
    @given(height=st.integers(1, 9), width=st.integers(1, 9), side=st.integers(0, 15), seed=SEEDS)
    @settings(max_examples=50, deadline=None)
    def test_equals_the_slow_twin(self, height: int, width: int, side: int, seed: int) -> None:
        """Sides and places are sixteenths, which are exact in any precision."""
        images = noise(4, height, width, seed)
        centres = torch.randint(0, 17, (4, 2), generator=generator(seed)) / 16
        cut = change.cut_out(images, centres, side / 16)
        for image, (down, right), result in zip(images, centres.tolist(), cut, strict=True):
            rows = range(round((down - side / 32) * height), round((down + side / 32) * height))
            columns = range(round((right - side / 32) * width), round((right + side / 32) * width))
            colour = image.double().mean(dim=(0, 1))
            for row in range(height):
                for column in range(width):
                    expected = colour if row in rows and column in columns else image[row, column].double()
                    assert result[row, column].tolist() == pytest.approx(expected.tolist(), abs=1e-3)

    def test_a_square_by_hand(self) -> None:
        image = torch.zeros(1, 4, 4, 3)
        image[0, 0, 0] = torch.tensor([16.0, 160.0, 32.0])  # the mean colour is 1, 10, 2

        def after(down: float, right: float) -> list[list[int]]:
            cut = change.cut_out(image, torch.tensor([[down, right]]), 0.5)[0]
            return (cut == torch.tensor([1.0, 10.0, 2.0])).all(dim=-1).int().tolist()

        assert after(0.5, 0.5) == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
        assert after(0, 1) == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]  # the rest is beyond the edge
        assert after(0.75, 0.25) == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "warp": lambda images: change.warp(images, maps_of(rotation=10).expand(2, 2, 3), reflect=True),
    "brighten": lambda images: change.brighten(images, torch.tensor([0.5, 1.2])),
    "contrast": lambda images: change.contrast(images, torch.tensor([0.5, 1.2])),
    "saturate": lambda images: change.saturate(images, torch.tensor([0.5, 1.2])),
    "posterise": lambda images: change.posterise(images, torch.tensor([4.0, 5.0])),
    "solarise": lambda images: change.solarise(images, torch.tensor([100.0, 200.0])),
    "equalise": change.equalise,
    "cut_out": lambda images: change.cut_out(images, torch.tensor([[0.5, 0.5], [0.1, 0.9]]), 0.5),
}


class TestEveryChange:
    @pytest.mark.parametrize("name", CHANGES)
    def test_the_images_are_not_changed_themselves(self, name: str) -> None:
        images = noise(2, 20, 20)
        changed = CHANGES[name](images)
        assert (changed - images).flatten(1).abs().amax(dim=1).min() > 1
        changed.zero_()
        assert torch.equal(images, noise(2, 20, 20))

    @pytest.mark.parametrize("name", CHANGES)
    def test_the_result_has_the_layout_of_the_images(self, name: str) -> None:
        """Otherwise batches are not channels last, and later sums are rounded differently."""
        changed = CHANGES[name](noise(2))
        assert (changed.dtype, changed.shape) == (torch.float32, (2, 9, 9, 3))
        assert changed.is_contiguous()
