"""Decode a file or encoded bytes to a square of RGB pixels. Only this module deals with Pillow's peculiarities."""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from cotransport.data.formats import readable_formats, remedy
from cotransport.errors import DataError, TooManyPixelsError
from cotransport.overview import Picture
from cotransport.settings.sections import Fit

Pixels: TypeAlias = npt.NDArray[np.uint8]


class Encoded(NamedTuple):
    """The bytes of an image file."""

    data: bytes
    name: str
    """The image's name in messages."""


Item: TypeAlias = Path | Encoded | Pixels
"""One image: a file, the bytes of a file, or pixels (height, width, 3)."""

THUMBNAIL, TINY = 112, 40
"""Sides in pixels: of a thumbnail at most, and of one that is stored without loss."""
GREY = (128, 128, 128)
"""Colour of the borders that make an image square."""
ENOUGH = 2
"""A JPEG file is decoded at a lower resolution if at least this many times the pixels that are needed remain."""
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


WIDEST = 4 / 3
"""Largest ratio of the sides of a random part that becomes a square."""


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


def item_name(item: Path | Encoded) -> str:
    """An image's name in messages."""
    return item.name if isinstance(item, Encoded) else str(item)


def image_size(item: Item) -> tuple[int, int]:
    """The stored width and height. Of a file, only the header is read."""
    if isinstance(item, np.ndarray):
        return int(item.shape[1]), int(item.shape[0])
    with _image_errors(item_name(item)), _open(item) as image:
        width, height = image.size
    return width, height


def decode(item: Item, size: int, crop: Window | float = 1.0, fit: Fit = "crop") -> Pixels:
    """A part of an image as pixels (size, size, 3).

    crop : the part. A number means the central part, and is its share of the sides; see `central_box`.
    fit : how the part becomes a square.

    The first of several frames is used. Grey and palette images become RGB, transparent parts become white, 16-bit
    values are scaled to 8 bits, and the camera's orientation is applied.
    """
    part = partial(_window, window=crop) if isinstance(crop, Window) else partial(_centre, share=crop)
    if isinstance(item, np.ndarray):
        return np.array(part(Image.fromarray(item), size=size, fit=fit), dtype=np.uint8)
    with _image_errors(item_name(item)), _open(item) as image:
        return np.array(part(image, size=size, fit=fit), dtype=np.uint8)


def whole_image(item: Item) -> Pixels:
    """All pixels (height, width, 3) of an image, converted as in `decode`."""
    if isinstance(item, np.ndarray):
        return item
    with _image_errors(item_name(item)), _open(item) as image:
        image.load()
        return np.array(_rgb(ImageOps.exif_transpose(image)), dtype=np.uint8)


def pixels_of(image: Image.Image, name: str) -> Pixels:
    """The pixels (height, width, 3) of an image that Pillow has opened, converted like a file in `decode`."""
    with _image_errors(name):
        return np.array(_rgb(ImageOps.exif_transpose(image)), dtype=np.uint8)


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


class _UnsupportedError(Exception):
    """Pixels of a kind that cannot become RGB. The message says what to do."""


def _rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as RGB."""
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise _UnsupportedError("more than 16 bits per pixel. Save it with 8 or 16 bits per channel")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise _UnsupportedError("floating-point image without a known range. Save it with 8 or 16 bits per channel")
    try:
        if image.mode in {"RGBA", "LA", "PA", "RGBa"} or "transparency" in image.info:
            coloured = image.convert("RGBA")
            on_white = Image.new("RGBA", coloured.size, "white")
            return Image.alpha_composite(on_white, coloured).convert("RGB")
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError:  # LAB and the like
        raise _UnsupportedError(f"colours of mode {image.mode} cannot be turned into RGB. Save it as RGB") from None


@contextmanager
def _image_errors(name: str) -> Iterator[None]:
    """Turn any exception into a DataError that names the image: on damaged files, Pillow may raise any type."""
    try:
        yield
    except DataError:
        raise
    except _UnsupportedError as error:
        raise DataError(f"{name}: {error}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = Image.MAX_IMAGE_PIXELS
        raise TooManyPixelsError(f"{name}: more than the {limit:,} pixels allowed. Scale it down") from None
    except Exception as error:
        raise DataError(f"{name}: {_reason(error, name)}") from None


def _reason(error: Exception, name: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file. Check the path"
    if isinstance(error, IsADirectoryError):
        return "a folder, not an image. Give the files in it; to learn from a folder, give no labels"
    if isinstance(error, UnidentifiedImageError):
        known = ", ".join(readable_formats())
        return remedy(name) or f"not an image of a known format ({known}), or damaged. Replace or remove the file"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read ({error.strerror}). Check the file and its permissions"
    return f"damaged or truncated image ({error}). Replace or remove the file"


def _open(item: Path | Encoded) -> Image.Image:
    if isinstance(item, Path) and not stat.S_ISREG(mode := item.stat().st_mode) and not stat.S_ISDIR(mode):
        raise DataError(f"{item}: a pipe or a device, not a file. Remove it")  # reading it might never end
    image = Image.open(io.BytesIO(item.data) if isinstance(item, Encoded) else item, formats=readable_formats())
    if Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        image.close()
        raise Image.DecompressionBombError  # Pillow itself only warns at this size
    return image


def draft_side(size: int, share: float) -> int:
    """Each side, at least, of a JPEG file that is decoded at a lower resolution for the central part of an image."""
    return math.ceil(ENOUGH * size / share)


def _centre(image: Image.Image, share: float, size: int, fit: Fit) -> Image.Image:
    """The central part of an image. Other programs can repeat these steps exactly: the ONNX file states them."""
    side = draft_side(size, share)
    image.draft("RGB", (side, side))  # formats other than JPEG ignore this
    image.load()
    upright = _upright(_rgb(image), image)
    part = upright.crop(central_box(*upright.size, share, fit))
    return _squared(part, (0, 0, *part.size), size, fit, reducing_gap=None)


def _window(image: Image.Image, window: Window, size: int, fit: Fit) -> Image.Image:
    """A random part of an image, decoded as fast as possible: at a half, a quarter ... of its resolution."""
    width, height = image.size
    left, top, right, bottom = window_box(width, height, window, fit)
    image.draft("RGB", (math.ceil(width * size / (right - left)), math.ceil(height * size / (bottom - top))))
    image.load()
    box = window_box(*image.size, window, fit)
    return _upright(_squared(_rgb(image), box, size, fit, reducing_gap=2.0), image)


def _upright(image: Image.Image, origin: Image.Image) -> Image.Image:
    """An image, turned as the camera's orientation of its origin says."""
    turn = _UPRIGHT.get(origin.getexif().get(_ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def _squared(
    image: Image.Image, box: tuple[float, float, float, float], size: int, fit: Fit, *, reducing_gap: float | None
) -> Image.Image:
    """A part of an image, scaled to a square."""
    width, height = (size, size) if fit != "pad" else padded_sides(box[2] - box[0], box[3] - box[1], size)
    part = image.resize((width, height), Image.Resampling.BILINEAR, box=box, reducing_gap=reducing_gap)
    if width == height == size:
        return part
    square = Image.new("RGB", (size, size), GREY)
    square.paste(part, ((size - width) // 2, (size - height) // 2))
    return square


def central_box(width: int, height: int, share: float, fit: Fit) -> tuple[int, int, int, int]:
    """The edges of the central part of an image in whole pixels: left, top, right, bottom.

    The part is a square whose side is a share of the shorter side; or, to pad or stretch it, a share of both sides.

    >>> central_box(500, 375, 0.875, "crop"), central_box(500, 375, 1.0, "pad")
    ((86, 23, 414, 351), (0, 0, 500, 375))
    """
    sides = (min(width, height),) * 2 if fit == "crop" else (width, height)
    w, h = (max(1, math.floor(share * side + 0.5)) for side in sides)
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def padded_sides(width: float, height: float, size: int) -> tuple[int, int]:
    """The width and height of an image that is scaled until its longer side is `size`.

    >>> padded_sides(500, 375, 224)
    (224, 168)
    """
    longer = max(width, height)
    return max(1, math.floor(size * width / longer + 0.5)), max(1, math.floor(size * height / longer + 0.5))


def window_box(width: int, height: int, window: Window, fit: Fit = "crop") -> tuple[float, float, float, float]:
    """The edges of a random part of an image in pixels: left, top, right, bottom.

    To pad or stretch the part, its ratio is relative to that of the image, so that training and evaluation see the same
    proportions.
    """
    if fit == "crop":
        area = window.area * width * height
        w, h = min(width, math.sqrt(area * window.ratio)), min(height, math.sqrt(area / window.ratio))
        w, h = min(w, WIDEST * h), min(h, WIDEST * w)  # the edges of a long image may have made it long
    else:
        w, h = width * math.sqrt(window.area * window.ratio), height * math.sqrt(window.area / window.ratio)
        w, h = min(width, w), min(height, h)
    left, top = (width - w) * window.x, (height - h) * window.y
    return left, top, left + w, top + h
