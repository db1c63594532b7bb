"""Every image file becomes a square of RGB pixels, or a DataError that names the file and a remedy."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from cotransport.data.augmentation import draw
from cotransport.data.decoding import (
    THUMBNAIL,
    TINY,
    Encoded,
    Window,
    central_box,
    decode,
    image_size,
    pixels_of,
    thumbnail,
    window_box,
)
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation, Fit

SIDE = 4
RED, WHITE = (255, 0, 0), (255, 255, 255)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> Encoded:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return Encoded(buffer.getvalue(), f"test.{kind.lower()}")


def constant(image: Image.Image, kind: str = "PNG", **options: object) -> tuple[int, int, int]:
    """Decode an image of one colour, and return the colour."""
    pixels = decode(encoded(image, kind, **options), SIDE)
    assert pixels.shape == (SIDE, SIDE, 3)
    assert pixels.dtype == np.uint8
    assert (pixels == pixels[0, 0]).all()
    red, green, blue = pixels[0, 0].tolist()
    return red, green, blue


def picture(width: int, height: int) -> Image.Image:
    """Smooth colours that differ in every corner, so that any rotation or shift is visible."""
    y, x = np.mgrid[0:height, 0:width]
    colours = [255 * x / width, 255 * y / height, 127 + 100 * np.sin(3 * x / width + 5 * y / height)]
    return Image.fromarray(np.stack(colours, axis=2).astype(np.uint8))


def central_square(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """A simple twin of `decode`: the central square of an upright RGB image, cut out and then scaled in one step."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return np.asarray(image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR))


def assert_close(one: npt.NDArray[np.uint8], other: npt.NDArray[np.uint8], tolerance: float) -> None:
    """Equal within a tolerance at every pixel."""
    assert one.shape == other.shape
    assert np.abs(one.astype(int) - other.astype(int)).max() <= tolerance


class TestModes:
    def test_rgb_of_the_right_size_is_not_changed(self) -> None:
        original = np.random.RandomState(0).randint(0, 256, (6, 6, 3)).astype(np.uint8)
        assert (decode(encoded(Image.fromarray(original)), 6) == original).all()

    def test_grey(self) -> None:
        assert constant(Image.new("L", (9, 9), 77)) == (77, 77, 77)

    def test_transparent_grey_becomes_white(self) -> None:
        # half of 100 and half of 255: 100 * 128/255 + 255 * 127/255 = 177.2
        assert constant(Image.new("LA", (9, 9), (100, 128))) == (177, 177, 177)

    @pytest.mark.parametrize(("alpha", "expected"), [(255, RED), (0, WHITE), (51, (255, 204, 204))])
    def test_transparent_colours_become_white(self, alpha: int, expected: tuple[int, int, int]) -> None:
        # alpha 51 is one fifth: 0 * 1/5 + 255 * 4/5 = 204
        assert constant(Image.new("RGBA", (9, 9), (*RED, alpha))) == expected

    def test_palette(self) -> None:
        image = Image.new("P", (9, 9), 1)
        image.putpalette([0, 0, 0, 12, 34, 56])
        assert constant(image) == (12, 34, 56)

    def test_palette_with_a_transparent_colour(self) -> None:
        image = Image.new("P", (9, 9), 1)
        image.putpalette([0, 0, 0, 12, 34, 56])
        assert constant(image, transparency=1) == WHITE
        assert constant(image, transparency=0) == (12, 34, 56)

    def test_palette_with_alpha_for_each_colour(self) -> None:
        image = Image.new("P", (9, 9), 1)
        image.putpalette([0, 0, 0, *RED])
        assert constant(image, transparency=bytes([255, 51])) == (255, 204, 204)

    def test_grey_and_rgb_with_a_transparent_colour(self) -> None:
        assert constant(Image.new("L", (9, 9), 7), transparency=7) == WHITE
        assert constant(Image.new("RGB", (9, 9), RED), transparency=RED) == WHITE

    @pytest.mark.parametrize("value", [0, 1])
    def test_one_bit(self, value: int) -> None:
        assert constant(Image.new("1", (9, 9), value)) == (255 * value,) * 3

    def test_cmyk(self) -> None:
        # full cyan without black reflects no red: 255 - 255, 255 - 0, 255 - 0
        red, green, blue = constant(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "JPEG", quality=95)
        assert (red, green, blue) == pytest.approx((0, 255, 255), abs=3)
        assert constant(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "TIFF") == (0, 255, 255)

    @pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
    @pytest.mark.parametrize(("value", "expected"), [(65535, 255), (0x8000, 0x80), (0x12FF, 0x12), (255, 0)])
    def test_16_bit_grey_is_scaled_not_clipped(self, kind: str, value: int, expected: int) -> None:
        image = Image.fromarray(np.full((9, 9), value, dtype=np.uint16))
        assert constant(image, kind) == (expected,) * 3

    def test_16_bit_colours(self) -> None:
        # Pillow cannot write one, so this is a PNG by hand: one pixel with three channels of two bytes
        data = zlib.compress(b"\0" + struct.pack(">HHH", 65535, 0x8000, 0))
        png = png_of(1, 1, bits=16, colour_type=2, data=data)
        assert decode(Encoded(png, "x"), 1)[0, 0].tolist() == [255, 128, 0]

    @pytest.mark.parametrize("mode", ["HSV", "YCbCr"])
    def test_other_colour_spaces(self, mode: str) -> None:
        pixels = pixels_of(Image.new("RGB", (3, 3), RED).convert(mode), "x")
        assert_close(pixels, np.full((3, 3, 3), RED, dtype=np.uint8), 2)

    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
    def test_the_first_of_several_frames_is_used(self, kind: str) -> None:
        frames = [Image.new("RGB", (9, 9), colour) for colour in (RED, (0, 255, 0), (0, 0, 255))]
        options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
        assert constant(frames[0], kind, save_all=True, append_images=frames[1:], **options) == RED

    def test_gif_with_a_transparent_background(self) -> None:
        image = Image.new("P", (9, 9), 1)
        image.putpalette([0, 0, 0, *RED])
        assert constant(image, "GIF", transparency=1) == WHITE

    def test_webp_with_alpha(self) -> None:
        red, green, blue = constant(Image.new("RGBA", (9, 9), (*RED, 51)), "WEBP", lossless=True)
        assert (red, green, blue) == pytest.approx((255, 204, 204), abs=1)

    def test_an_image_looks_the_same_in_every_format(self) -> None:
        image = picture(40, 30)
        expected = central_square(image, 10)
        for kind in ("PNG", "BMP", "TIFF", "PPM"):
            assert (decode(encoded(image, kind), 10) == expected).all()
        for kind in ("JPEG", "WEBP"):
            assert_close(decode(encoded(image, kind, quality=95), 10), expected, 12)

    def test_a_camera_file_of_several_images(self) -> None:
        image = picture(64, 48)
        assert_close(decode(encoded(image, "MPO", quality=95), 12), central_square(image, 12), 12)


class TestOrientation:
    @pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
    @pytest.mark.parametrize("orientation", range(10))
    def test_orientation_is_applied_as_pillow_does(self, kind: str, orientation: int) -> None:
        image = picture(49, 32)
        exif = Image.Exif()
        exif[0x0112] = orientation  # 0 and 9 are not valid, and change nothing
        options: dict[str, object] = {"lossless": True} if kind == "WEBP" else {}
        item = encoded(image, kind, exif=exif, **options)
        with Image.open(io.BytesIO(item.data)) as opened:
            upright = ImageOps.exif_transpose(opened).convert("RGB")
        assert (decode(item, 16) == central_square(upright, 16)).all()
        # a JPEG is decoded at half its resolution here; a wrong rotation would make a difference of 100 or more
        window = Window(area=1.0, ratio=1.0, x=0.5, y=0.5)
        whole = np.asarray(upright.resize((16, 16), Image.Resampling.BILINEAR, box=window_box(*upright.size, window)))
        assert_close(decode(item, 16, window), whole, 20)

    def test_orientation_of_an_image_that_the_user_opened(self) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        item = encoded(picture(8, 4), exif=exif)
        with Image.open(io.BytesIO(item.data)) as opened:
            assert (pixels_of(opened, "x") == np.asarray(picture(8, 4).rotate(-90, expand=True))).all()

    def test_damaged_exif_data_is_ignored(self) -> None:
        image = picture(20, 20)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns
            pixels = decode(
                encoded(image, "JPEG", quality=95, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\1\x12garbage"), 20
            )
        assert_close(pixels, np.asarray(image), 16)


class TestCrops:
    def test_reduced_decoding_is_close_to_full_decoding(self) -> None:
        image = picture(640, 480)
        item = encoded(image, "JPEG", quality=95)
        assert_close(decode(item, 32), central_square(image, 32), 4)
        window = Window(area=0.5, ratio=1.2, x=0.9, y=0.1)
        assert_close(decode(item, 32, window), decode(encoded(image), 32, window), 4)

    def test_reduced_decoding_keeps_enough_resolution(self) -> None:
        # a checkerboard as fine as the output: a coarser decoding would turn it grey
        board = np.kron(np.indices((8, 8)).sum(axis=0) % 2 * 255, np.ones((30, 30))).astype(np.uint8)
        image = Image.new("L", (960, 240), 128)
        image.paste(Image.fromarray(board), (360, 0))
        pixels = decode(encoded(image, "JPEG", quality=95), 64).astype(int)
        assert abs(pixels[4::8, 4::8, 0] - board[15::30, 15::30]).max() < 30

    def test_the_central_square(self) -> None:
        # the central 2 x 2 of 8 x 4 pixels are white: half of the shorter side
        pixels = np.zeros((4, 8, 3), dtype=np.uint8)
        pixels[1:3, 3:5] = 255
        assert (decode(pixels, 2, 0.5) == 255).all()
        assert (decode(encoded(Image.fromarray(pixels)), 2, 0.5) == 255).all()
        # in each quarter of the 4 x 4 square one pixel of four is white; the filter reaches a little further
        assert 64 <= decode(pixels, 2, 1.0).mean() <= 100

    @pytest.mark.parametrize(
        ("size", "share", "box"),
        [
            ((5, 4), 1.0, (0, 0, 4, 4)),  # a half pixel is rounded down: (5 - 4) // 2
            ((4, 7), 1.0, (0, 1, 4, 5)),
            ((4, 4), 0.875, (0, 0, 4, 4)),  # 3.5 is rounded up
            ((12, 12), 0.875, (0, 0, 11, 11)),  # 10.5 too
            ((256, 300), 0.875, (16, 38, 240, 262)),
            ((1, 9), 0.1, (0, 4, 1, 5)),  # at least one pixel
        ],
    )
    def test_the_central_square_has_whole_pixels(
        self, size: tuple[int, int], share: float, box: tuple[int, int, int, int]
    ) -> None:
        assert central_box(*size, share, "crop") == box

    def test_large_jpeg_files_are_decoded_at_a_lower_resolution(self) -> None:
        """At half of it if twice the pixels that are needed remain: 2 * 20 of 80, but not of 79."""
        for side, scale in ((79, 1), (80, 2), (159, 2), (160, 4), (400, 8), (900, 8)):
            item = encoded(picture(side + 7, side), "JPEG")
            with Image.open(io.BytesIO(item.data)) as image:
                image.draft("RGB", (image.width // scale, image.height // scale))
                assert image.size == (-(-(side + 7) // scale), -(-side // scale))
                assert (decode(item, 20) == central_square(image.copy(), 20)).all()

    def test_a_window_of_pixels(self) -> None:
        # a quarter of the area in the lower right corner
        pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)[..., None].repeat(3, axis=2)
        square = decode(pixels, 4, Window(area=0.25, ratio=1.0, x=1.0, y=1.0))
        assert (square == pixels[4:, 4:]).all()

    @given(
        width=st.integers(1, 5000),
        height=st.integers(1, 5000),
        area=st.floats(0.01, 1),
        ratio=st.floats(0.75, 4 / 3),
        x=st.floats(0, 1),
        y=st.floats(0, 1),
    )
    @settings(max_examples=200, deadline=None)
    def test_a_window_is_inside_the_image_and_has_the_given_area(
        self, width: int, height: int, area: float, ratio: float, x: float, y: float
    ) -> None:
        left, top, right, bottom = window_box(width, height, Window(area, ratio, x, y))
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        whole = width * height
        if right - left < width * (1 - 1e-9) and bottom - top < height * (1 - 1e-9):  # it was not cut at the edge
            assert (right - left) * (bottom - top) == pytest.approx(area * whole, rel=1e-6)
            assert (right - left) / (bottom - top) == pytest.approx(ratio, rel=1e-6)
        else:
            assert (right - left) * (bottom - top) <= area * whole * (1 + 1e-6)
        assert 3 / 4 * (1 - 1e-6) <= (right - left) / (bottom - top) <= 4 / 3 * (1 + 1e-6)  # nearly square

    @given(width=st.integers(1, 40), height=st.integers(1, 40), size=st.integers(1, 20), seed=st.integers(0, 10**6))
    @settings(max_examples=50, deadline=None)
    def test_any_window_of_any_image_can_be_decoded(self, width: int, height: int, size: int, seed: int) -> None:
        item = encoded(Image.new("RGB", (width, height), (10, 20, 30)))
        generator = torch.Generator().manual_seed(seed)
        for window in draw(Augmentation(min_area=0.05), 3, generator).windows():
            pixels = decode(item, size, window)
            assert pixels.shape == (size, size, 3)
            assert (pixels == [10, 20, 30]).all()

    @pytest.mark.parametrize("fit", ["pad", "stretch"])
    def test_windows_have_the_proportions_of_the_image_if_all_of_it_is_seen(self, fit: Fit) -> None:
        # a quarter of the area is half of each side, in the lower right corner
        assert window_box(80, 40, Window(area=0.25, ratio=1.0, x=1.0, y=1.0), fit) == (40, 20, 80, 40)
        assert window_box(80, 40, Window(area=1.0, ratio=1.0, x=0.3, y=0.3), fit) == (0, 0, 80, 40)
        # as wide as it is and half as high: twice the ratio of the image
        assert window_box(80, 40, Window(area=0.5, ratio=2.0, x=0.0, y=0.5), fit) == pytest.approx((0, 10, 80, 30))

    def test_the_average_area_of_windows(self) -> None:
        windows = draw(Augmentation(min_area=0.2), 4000, torch.Generator().manual_seed(0)).windows()
        boxes = [window_box(100, 100, window) for window in windows]
        areas = [(right - left) * (bottom - top) / 10_000 for left, top, right, bottom in boxes]
        # the mean of 0.2 to 1 is 0.6; the largest windows are cut at the edge, which costs a few hundredths
        assert 0.55 < np.mean(areas) < 0.6
        assert min(areas) >= 0.2 * (1 - 1e-6)

    def test_the_size_is_read_from_the_header(self) -> None:
        assert image_size(encoded(Image.new("RGB", (7, 5)))) == (7, 5)
        assert image_size(np.zeros((5, 7, 3), dtype=np.uint8)) == (7, 5)


def png_of(width: int, height: int, *, bits: int = 8, colour_type: int = 0, data: bytes = b"") -> bytes:
    """A PNG with any values in its header."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


class TestFit:
    """Images of 8 x 4 pixels: the left half black, the right half white."""

    HALVES = np.repeat(np.repeat(np.array([[[0], [255]]], np.uint8), 4, axis=1), 4, axis=0).repeat(3, axis=2)

    def test_stretching_shows_all_of_an_image(self) -> None:
        square = decode(self.HALVES, 4, fit="stretch")
        assert (square[:, 0] == 0).all()
        assert (square[:, 3] == 255).all()
        assert (decode(self.HALVES, 4)[:, 0] == 0).all()  # the central square has the halves of both halves

    def test_padding_shows_all_of_an_image_between_grey_borders(self) -> None:
        square = decode(self.HALVES, 8, fit="pad")
        assert (square[2:6] == self.HALVES).all()
        assert (square[:2] == 128).all()
        assert (square[6:] == 128).all()
        turned = decode(self.HALVES.transpose(1, 0, 2), 8, fit="pad")
        assert (turned == square.transpose(1, 0, 2)).all()

    def test_an_odd_border_is_smaller_on_the_left_and_at_the_top(self) -> None:
        square = decode(self.HALVES[:3], 8, fit="pad")  # 3 of 8 rows, so 2 above and 3 below
        assert (square[2:5] == self.HALVES[:3]).all()
        assert (square[[0, 1, 5, 6, 7]] == 128).all()

    def test_a_part_is_padded_like_an_image(self) -> None:
        half = Window(area=0.25, ratio=1.0, x=1.0, y=0.0)  # 4 x 2 pixels
        square = decode(encoded(Image.fromarray(self.HALVES)), 4, half, "pad")
        assert (square[1:3] == 255).all()
        assert (square[[0, 3]] == 128).all()
        assert (decode(self.HALVES, 4, half, "stretch") == 255).all()

    @pytest.mark.parametrize("fit", ["pad", "stretch"])
    @pytest.mark.parametrize("shape", [(1, 3000), (3000, 1)])
    def test_very_long_images(self, shape: tuple[int, int], fit: Fit) -> None:
        square = decode(np.full((*shape, 3), 7, np.uint8), 8, fit=fit)
        assert square.shape == (8, 8, 3)
        assert (square == 7).any()

    @pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
    def test_square_images_are_seen_whole(self, fit: Fit) -> None:
        image = picture(20, 20)
        assert (decode(encoded(image), 20, fit=fit) == np.asarray(image)).all()


def broken_files() -> dict[str, bytes]:
    jpeg, png = encoded(picture(320, 240), "JPEG").data, encoded(picture(64, 48), "PNG").data
    float_tiff = encoded(Image.new("F", (4, 4), 0.5), "TIFF").data
    wide_tiff = encoded(Image.fromarray(np.full((4, 4), 70_000, dtype=np.int32)), "TIFF").data
    return {
        "empty.jpg": b"",
        "half.jpg": jpeg[: len(jpeg) // 2],
        "header-only.jpg": jpeg[:30],
        "half.png": png[: len(png) // 2],
        "header-only.png": png[:33],
        "garbled.png": png[:60] + bytes(len(png) - 60),
        "half.gif": encoded(picture(64, 48), "GIF").data[:400],
        "half.webp": encoded(picture(64, 48), "WEBP").data[:200],
        "half.bmp": encoded(picture(64, 48), "BMP").data[:400],
        "half.tif": encoded(picture(64, 48), "TIFF").data[:400],
        "text.png": b"this is not an image",
        "page.jpg": b"<html><body>404 not found</body></html>",
        "postscript.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
        "bomb.png": png_of(60_000, 60_000),
        "large.png": png_of(10_000, 10_000),
        "float.tif": float_tiff,
        "32-bit.tif": wide_tiff,
    }


class TestThumbnails:
    @pytest.mark.parametrize(("width", "height", "side"), [(300, 200, THUMBNAIL), (90, 60, 60), (50, 500, 50)])
    def test_a_photograph_becomes_a_small_square(self, width: int, height: int, side: int) -> None:
        whole = picture(width, height)
        found = thumbnail(encoded(whole))
        assert found.media_type == "image/jpeg"
        shown = Image.open(io.BytesIO(found.data))
        assert (shown.format, shown.size) == ("JPEG", (side, side))
        assert_close(np.asarray(shown), central_square(whole, side), tolerance=16)

    def test_a_tiny_image_keeps_every_pixel(self) -> None:
        pixels = np.asarray(picture(TINY, TINY))
        found = thumbnail(pixels)
        assert found.media_type == "image/png"
        assert (np.asarray(Image.open(io.BytesIO(found.data))) == pixels).all()


class TestErrors:
    @pytest.mark.parametrize("name", broken_files())
    @pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning", "ignore:Truncated File Read")
    def test_names_the_file_and_a_remedy(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / name
        path.write_bytes(broken_files()[name])
        remedies = {"bomb.png": "Scale it down", "large.png": "Scale it down"}
        remedies |= dict.fromkeys(["float.tif", "32-bit.tif"], "Save it with 8 or 16 bits")
        remedies["postscript.jpg"] = "not an image of a known format"  # and not passed to Ghostscript
        for item in (path, Encoded(path.read_bytes(), str(path))):
            with pytest.raises(DataError) as caught:
                decode(item, 8)
            assert str(caught.value).startswith(f"{path}: ")
            assert remedies.get(name, "Replace or remove the file") in str(caught.value)
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("name", ["empty.jpg", "text.png", "bomb.png", "large.png", "header-only.jpg"])
    @pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
    def test_some_errors_are_found_in_the_header(self, name: str) -> None:
        with pytest.raises(DataError, match=name):
            image_size(Encoded(broken_files()[name], name))

    def test_bombs_are_refused_if_warnings_are_errors(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(DataError, match=r"large\.png: more than .* pixels allowed"):
                image_size(Encoded(broken_files()["large.png"], "large.png"))

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"nowhere\.png: no such file\. Check the path"):
            decode(tmp_path / "nowhere.png", 8)

    def test_a_folder_instead_of_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"a folder, not an image\. Give the files in it"):
            decode(tmp_path, 8)

    def test_colours_that_cannot_be_converted(self) -> None:
        with pytest.raises(DataError, match=r"image 3: colours of mode La .* Save it as RGB"):
            pixels_of(Image.new("La", (4, 4)), "image 3")

    def test_a_truncated_image_that_the_user_opened(self) -> None:
        data = broken_files()["half.jpg"]
        with Image.open(io.BytesIO(data)) as opened, pytest.raises(DataError, match="image 3: damaged or truncated"):
            pixels_of(opened, "image 3")

    @given(
        place=st.integers(0, 10_000),
        value=st.integers(0, 255),
        kind=st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF"]),
    )
    @settings(max_examples=50, deadline=None)
    def test_a_wrong_byte_gives_pixels_or_a_data_error(self, place: int, value: int, kind: str) -> None:
        data = bytearray(encoded(picture(24, 16), kind).data)
        data[place % len(data)] = value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of many things
            try:
                pixels = decode(Encoded(bytes(data), "wrong"), 8)
            except DataError as error:
                assert str(error).startswith("wrong: ")
            else:
                assert pixels.shape == (8, 8, 3)
