"""Load images into the storage that suits them: small ones as pixels in memory, all others encoded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cotransport.data.decoding import Item, image_size
from cotransport.data.images import EncodedImages, Images, Items, PixelImages, evenly_spaced
from cotransport.data.workers import decode_slices, default_workers, in_chunks
from cotransport.errors import DataError
from cotransport.settings.sections import Fit

IN_MEMORY_SIDE = 64
"""Largest side, in pixels, of images that are kept in memory."""
IN_MEMORY_BYTES = 2 << 30
"""Most memory that the pixels of a data set may take. Larger data sets stay encoded."""
LARGEST_SIDE = 224
"""Largest image size that is chosen where the user chooses none."""
HEADERS = 10_000
"""Most encoded images whose headers are checked when they are loaded, to find wrong files before the training."""
NAMED = 20
"""Most wrong images that one error lists."""
_CHUNK = 256


def images_from(items: Sequence[Item], size: int | None, fit: Fit = "crop") -> Images:
    """Images in the storage that suits them: in memory if they are small, otherwise encoded.

    size : side of the squares, in pixels. By default, the median of the images' shorter sides, at most 224.
    fit : how images that are kept in memory become squares.
    """
    return images_from_parts([items], size, fit)[0]


def images_from_parts(
    parts: Sequence[Sequence[Item]], size: int | None, fit: Fit = "crop", *, in_memory: bool | None = None
) -> list[Images]:
    """Training and test images in the same kind of storage and of the same size, by default that of the first part.

    in_memory : whether they are kept in memory as pixels. By default, if they are small.
    """
    if size is None:
        size = natural_size(parts[0])
    if in_memory is None:
        in_memory = fits_memory(sum(len(items) for items in parts), size)
    if in_memory:
        return [PixelImages(decode_squares(items, size, fit)) for items in parts]
    _sizes(parts, HEADERS)
    return [EncodedImages.of(items, size) for items in parts]


def fits_memory(count: int, size: int) -> bool:
    """Whether `count` images of this size are kept in memory as pixels."""
    return size <= IN_MEMORY_SIDE and count * size * size * 3 <= IN_MEMORY_BYTES


def resize(images: Images, size: int, fit: Fit = "crop") -> Images:
    """The same images for a network that sees squares of this size.

    fit : how images that are kept in memory from now on become squares.
    """
    if images.size == size:
        return images
    if isinstance(images, EncodedImages) and not fits_memory(len(images), size):
        return EncodedImages(images.origins, images.origin, images.row, size)
    return images_from(Items(images), size, fit)


def decode_squares(items: Sequence[Item], size: int, fit: Fit = "crop") -> Tensor:
    """All images as squares: uint8 (n, size, size, 3). An error lists the wrong images."""
    workers = 0 if _are_small(items) else default_workers(len(items))
    pixels = torch.empty(len(items), size, size, 3, dtype=torch.uint8)
    errors: list[DataError] = []
    chunks = in_chunks(len(items), _CHUNK)
    for rows, squares in decode_slices(
        items.__getitem__, size, chunks, 1.0, workers, lambda _, error: errors.append(error), fit
    ):
        pixels[rows] = squares
    raise_image_errors(errors)
    return pixels


def raise_image_errors(errors: Sequence[DataError]) -> None:
    """Raise one error for all images that cannot be used, if there are some."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        some = "".join(f"\n  {error}" for error in errors[:NAMED])
        raise DataError(f"{len(errors)} images cannot be used{', such as' if len(errors) > NAMED else ''}:{some}")


def _sizes(parts: Sequence[Sequence[Item]], count: int) -> list[tuple[int, int]]:
    """The sizes of some images of each part, from their headers. One error lists those that cannot be read."""
    sizes: list[tuple[int, int]] = []
    errors: list[DataError] = []
    for items in parts:
        for index in evenly_spaced(len(items), count):
            try:
                sizes.append(image_size(items[index]))
            except DataError as error:
                errors.append(error)
    raise_image_errors(errors)
    return sizes


def outside_centre(images: Images) -> float:
    """The share of an average image that lies outside its central square; 0 for images that are squares already."""
    if not isinstance(images, EncodedImages):
        return 0.0
    sizes = [image_size(images.item(index)) for index in evenly_spaced(len(images), HEADERS // 10)]
    return float(np.mean([1 - min(size) / max(size) for size in sizes]))


def _are_small(items: Sequence[Item]) -> bool:
    """Whether most of the work is Python's, not Pillow's: several threads would decode such images slower than one."""
    try:
        return all(max(image_size(items[index])) <= IN_MEMORY_SIDE for index in evenly_spaced(len(items), 10))
    except DataError:  # reported when all are decoded
        return False


def natural_size(items: Sequence[Item]) -> int:
    """The median of the images' shorter sides, at most `LARGEST_SIDE`."""
    if not len(items):
        raise DataError("no images. Give at least one")
    sides = [min(size) for size in _sizes([items], 1000)]
    return min(int(np.median(sides)), LARGEST_SIDE)
