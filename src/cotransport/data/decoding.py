"""From a file or encoded bytes to a square of RGB pixels. All of Pillow's peculiarities are dealt with here."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from cotransport.errors import DataError

Pixels: TypeAlias = npt.NDArray[np.uint8]
Item: TypeAlias = Path | bytes | Pixels
"""One image: a file, the bytes of one, or its pixels (height, width, 3)."""

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp"})
LARGEST_AREA = 100_000_000
"""Pixels; a larger image is refused as a decompression bomb."""


class Window(NamedTuple):
    """A part of an image in relative terms: its share of the area, its aspect ratio, and its place from 0 to 1."""

    area: float
    ratio: float
    x: float
    y: float


def image_size(item: Item) -> tuple[int, int]:
    """Width and height, from the header alone where there is one."""
    if isinstance(item, np.ndarray):
        return int(item.shape[1]), int(item.shape[0])
    with _opened(item) as image:
        width, height = image.size
    return width, height


def decode(item: Item, size: int, crop: Window | float = 1.0) -> Pixels:
    """The image, or the part `crop` of it, as (size, size, 3) pixels; a number is the central square's share of the shorter side.

    Grey and palette images become RGB; transparent parts are laid on white; 16-bit values are scaled to 8 bits; the camera's
    orientation is applied.
    """
    if isinstance(item, np.ndarray):
        return _squared(Image.fromarray(item), size, crop)
    with _opened(item) as image:
        width, height = image.size
        box = _box(width, height, crop)
        if image.format == "JPEG":  # decode at a half, a quarter ... of the resolution where that is enough
            image.draft(
                "RGB",
                (math.ceil(width * size / (box[2] - box[0])), math.ceil(height * size / (box[3] - box[1]))),
            )
        try:
            image.load()
            orientation = image.getexif().get(0x0112, 1)
            square = _squared(as_rgb(image, _named(item)), size, crop)
        except DataError:
            raise
        except Exception as error:  # Pillow's decoders raise almost anything on damaged files
            raise DataError(
                f"{_named(item)}: damaged or truncated image ({error}). Replace or remove the file"
            ) from None
    return square if orientation == 1 else _turned(square, orientation)


def as_rgb(image: Image.Image, name: str) -> Image.Image:
    """Any mode that Pillow opens, as RGB."""
    if image.mode.startswith("I"):  # 16-bit grey, which Pillow would clip at 255
        values = np.asarray(image, dtype=np.int64)
        return Image.fromarray((np.clip(values, 0, 65535) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise DataError(f"{name}: floating-point image without a known range. Save it with 8 or 16 bits per channel")
    if image.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in image.info:
        coloured = image.convert("RGBA")
        on_white = Image.new("RGBA", coloured.size, "white")
        return Image.alpha_composite(on_white, coloured).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _opened(item: Path | bytes) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of what is checked below
            image = Image.open(io.BytesIO(item) if isinstance(item, bytes) else item)
    except FileNotFoundError:
        raise DataError(f"{_named(item)}: no such file") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        reason = "not an image that can be read" if isinstance(error, UnidentifiedImageError) else str(error)
        raise DataError(f"{_named(item)}: {reason}. Replace or remove the file") from None
    width, height = image.size
    if width * height > LARGEST_AREA:
        image.close()
        raise DataError(
            f"{_named(item)}: {width} x {height} pixels are more than the {LARGEST_AREA:,} allowed. Scale it down"
        )
    return image


def _squared(image: Image.Image, size: int, crop: Window | float) -> Pixels:
    box = _box(*image.size, crop)
    if image.size != (size, size) or box != (0, 0, size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=2.0)
    return np.array(image, dtype=np.uint8)


def _box(width: int, height: int, crop: Window | float) -> tuple[float, float, float, float]:
    """The window in pixels."""
    if isinstance(crop, Window):
        area = crop.area * width * height
        w, h = min(width, math.sqrt(area * crop.ratio)), min(height, math.sqrt(area / crop.ratio))
        left, top = (width - w) * crop.x, (height - h) * crop.y
    else:
        w = h = crop * min(width, height)
        left, top = (width - w) / 2, (height - h) / 2
    return left, top, left + w, top + h


def _turned(square: Pixels, orientation: int) -> Pixels:
    image = Image.fromarray(square)
    image.getexif()[0x0112] = orientation
    return np.array(ImageOps.exif_transpose(image), dtype=np.uint8)


def _named(item: Path | bytes) -> str:
    return str(item) if isinstance(item, Path) else f"encoded image of {len(item)} bytes"
