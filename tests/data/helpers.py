"""Images that can be recognised by their grey value, and ways to look at what was loaded."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from cotransport.data import DataSet, EncodedImages, Images, LabelledImages, PixelImages, load_data_set, open_source
from cotransport.data.decoding import Encoded, decode
from cotransport.settings.sections import Data


def grey(value: int, side: int = 4) -> npt.NDArray[np.uint8]:
    """A grey image of one value."""
    return np.full((side, side, 3), value, dtype=np.uint8)


def png(pixels: npt.NDArray[np.uint8], name: str) -> Encoded:
    """An image as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return Encoded(buffer.getvalue(), name)


def grey_png(value: int, side: int = 4) -> Encoded:
    """A grey image of one value as the bytes of a PNG file."""
    return png(grey(value, side), f"grey {value}")


def write(path: Path, value: int = 0, size: tuple[int, int] = (8, 8)) -> Path:
    """Write a grey image of one value to a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3).save(path)
    return path


def pixel_images(values: Sequence[int], side: int = 4) -> PixelImages:
    """Grey images in memory."""
    pixels = np.stack([grey(value, side) for value in values]) if values else np.empty((0, side, side, 3), np.uint8)
    return PixelImages(torch.from_numpy(pixels))


def encoded_images(values: Sequence[int], side: int = 4) -> EncodedImages:
    """Grey images as PNG files."""
    return EncodedImages.of([grey_png(value, side) for value in values], side)


def values_of(images: Images) -> list[int]:
    """The values of grey images, in order."""
    return [int(decode(images.item(i), images.size).mean()) for i in range(len(images))]


def by_class(data: LabelledImages) -> dict[str | int, list[int]]:
    """The values of each class's grey images, in order."""
    pairs = list(zip(data.labels.tolist(), values_of(data.images), strict=True))
    return {name: [value for label, value in pairs if label == number] for number, name in enumerate(data.classes)}


def load(folder: Path | str, **options: Any) -> DataSet:
    """The training and test images of a source."""
    settings = Data(source=str(folder), **options)
    return load_data_set(open_source(settings), settings)


def numbered(count: int) -> LabelledImages:
    """Images in memory. The pixels encode the number of each image, which is also its label."""
    numbers = torch.arange(count)
    colours = torch.stack([numbers % 256, numbers // 256, torch.full_like(numbers, 7)], dim=1).to(torch.uint8)
    pixels = colours[:, None, None, :].expand(count, 2, 2, 3).contiguous()
    return LabelledImages(PixelImages(pixels), numbers, tuple(range(count)))


def photos(count: int, size: int = 6) -> LabelledImages:
    """Encoded images of noise. They have different shapes, all larger than `size`."""
    random = np.random.RandomState(0)
    items = [png(random.randint(0, 256, (9 + i % 4, 12 - i % 3, 3), dtype=np.uint8), f"{i}.png") for i in range(count)]
    return LabelledImages(EncodedImages.of(items, size), torch.arange(count), tuple(range(count)))
