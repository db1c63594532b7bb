"""Decode a file or encoded bytes to a square of RGB pixels. Only this module deals with Pillow's peculiarities."""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from cotransport.errors import DataError
from cotransport.overview import Picture

Pixels: TypeAlias = npt.NDArray[np.uint8]


class Encoded(NamedTuple):
    """The bytes of an image file."""

    data: bytes
    name: str
    """The image's name in messages."""


Item: TypeAlias = Path | Encoded | Pixels
"""One image: a file, the bytes of a file, or pixels (height, width, 3)."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats that are read. Pillow passes some others to external programs, such as EPS files to Ghostscript."""
SUFFIXES = frozenset(
    {".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Suffixes of image files."""
THUMBNAIL, TINY = 112, 40
"""Sides in pixels: of a thumbnail at most, and of one that is stored without loss."""
_ORIENTATION = 0x0112  # the EXIF tag of the camera's orientation
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Window(NamedTuple):
    """A part of an image, relative to its size."""

    area: float
    """Share of the image's area."""
    ratio: float
    """Width divided by height."""
    x: float
    """Horizontal position, from 0 (left) to 1 (right)."""
    y: float
    """Vertical position, from 0 (top) to 1 (bottom)."""


def image_size(item: Item) -> tuple[int, int]:
    """The stored width and height. Of a file, only the header is read."""
    if isinstance(item, np.ndarray):
        return int(item.shape[1]), int(item.shape[0])
    with _image_errors(_name(item)), _open(item) as image:
        width, height = image.size
    return width, height


def decode(item: Item, size: int, crop: Window | float = 1.0) -> Pixels:
    """A part of an image as pixels (size, size, 3).

    crop : the part. A number means a central square, and is the square's side as a share of the shorter side.

    The first of several frames is used. Grey and palette images become RGB, transparent parts become white, 16-bit
    values are scaled to 8 bits, and the camera's orientation is applied.
    """
    if isinstance(item, np.ndarray):
        return np.array(_square(Image.fromarray(item), size, crop), dtype=np.uint8)
    name = _name(item)
    with _image_errors(name), _open(item) as image:
        width, height = image.size
        left, top, right, bottom = crop_box(width, height, crop)
        # a JPEG is decoded at a half, a quarter ... of its resolution if that is enough; other formats ignore this
        image.draft("RGB", (math.ceil(width * size / (right - left)), math.ceil(height * size / (bottom - top))))
        image.load()
        square = _square(_rgb(image, name), size, crop)
        turn = _UPRIGHT.get(image.getexif().get(_ORIENTATION))
    return np.array(square if turn is None else square.transpose(turn), dtype=np.uint8)


def whole_image(item: Item) -> Pixels:
    """All pixels (height, width, 3) of an image, converted as in `decode`."""
    if isinstance(item, np.ndarray):
        return item
    name = _name(item)
    with _image_errors(name), _open(item) as image:
        image.load()
        return np.array(_rgb(ImageOps.exif_transpose(image), name), dtype=np.uint8)


def pixels_of(image: Image.Image, name: str) -> Pixels:
    """The pixels (height, width, 3) of an image that Pillow has opened, converted like a file in `decode`."""
    with _image_errors(name):
        return np.array(_rgb(ImageOps.exif_transpose(image), name), dtype=np.uint8)


def png(pixels: Pixels) -> bytes:
    """Pixels (height, width, 3) as the bytes of a PNG file, which is lossless."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def thumbnail(item: Item) -> Picture:
    """The central square of an image, small: a JPEG, or a lossless PNG if the image itself is tiny."""
    side = min(THUMBNAIL, *image_size(item))
    pixels = decode(item, side)
    if side <= TINY:
        return Picture(png(pixels), "image/png")
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80, optimize=True)
    return Picture(buffer.getvalue(), "image/jpeg")


def _rgb(image: Image.Image, name: str) -> Image.Image:
    """An image of any mode as RGB."""
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(f"{name}: more than 16 bits per pixel. Save it with 8 or 16 bits per channel")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise DataError(f"{name}: floating-point image without a known range. Save it with 8 or 16 bits per channel")
    try:
        if image.mode in {"RGBA", "LA", "PA", "RGBa"} or "transparency" in image.info:
            coloured = image.convert("RGBA")
            on_white = Image.new("RGBA", coloured.size, "white")
            return Image.alpha_composite(on_white, coloured).convert("RGB")
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError:  # LAB and the like
        raise DataError(f"{name}: colours of mode {image.mode} cannot be turned into RGB. Save it as RGB") from None


@contextmanager
def _image_errors(name: str) -> Iterator[None]:
    """Turn any exception into a DataError that names the image: on damaged files, Pillow may raise any type."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{name}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file. Check the path"
    if isinstance(error, IsADirectoryError):
        return "a folder, not an image. Give the files in it; to learn from a folder, give no labels"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image of a known format ({', '.join(FORMATS)}), or damaged. Replace or remove the file"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"more than the {Image.MAX_IMAGE_PIXELS:,} pixels allowed. Scale it down"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror}). Check the file and its permissions"
    return f"damaged or truncated image ({error}). Replace or remove the file"


def _open(item: Path | Encoded) -> Image.Image:
    if isinstance(item, Path) and not stat.S_ISREG(mode := item.stat().st_mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{item}: a pipe or a device, not a file. Remove it")  # reading it might never end
    image = Image.open(io.BytesIO(item.data) if isinstance(item, Encoded) else item, formats=FORMATS)
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        image.close()
        raise Image.DecompressionBombError  # Pillow itself only warns at this size
    return image


def _square(image: Image.Image, size: int, crop: Window | float) -> Image.Image:
    box = crop_box(*image.size, crop)
    if image.size == (size, size) and box == (0, 0, size, size):
        return image
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0)


def crop_box(width: int, height: int, crop: Window | float) -> tuple[float, float, float, float]:
    """The edges of a part of an image in pixels: left, top, right, bottom."""
    if isinstance(crop, Window):
        area = crop.area * width * height
        w, h = min(width, math.sqrt(area * crop.ratio)), min(height, math.sqrt(area / crop.ratio))
        left, top = (width - w) * crop.x, (height - h) * crop.y
    else:
        w = h = crop * min(width, height)
        left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def _name(item: Path | Encoded) -> str:
    return item.name if isinstance(item, Encoded) else str(item)
