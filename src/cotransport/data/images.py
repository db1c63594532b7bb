"""Images as values, in two storages: pixels in memory for small images of one size, encoded items for the rest.

Both are immutable and cheap to take parts of. Neither knows of training: `data.batches` turns them into batches.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cotransport.data.decoding import Encoded, Item, image_size, png
from cotransport.data.workers import Request, decode_batches, default_workers
from cotransport.errors import DataError

Label: TypeAlias = str | int
"""A class's name, as the user gives it."""

IN_MEMORY_SIDE = 64
IN_MEMORY_BYTES = 2 << 30
LARGEST_SIDE = 224
HEADERS = 10_000
"""Images whose headers are read at once, at most: a wrong file is better found now than in training."""
NAMED = 20
"""Wrong images that one error lists."""
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class PixelImages:
    """Small images of one size as one tensor."""

    pixels: Tensor
    """uint8 (n, size, size, 3)."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> int:
        """Side in pixels."""
        return int(self.pixels.shape[1])

    def item(self, index: int) -> Item:
        """One image by itself."""
        return np.asarray(self.pixels[index].numpy(), dtype=np.uint8)

    def take(self, indices: Tensor) -> PixelImages:
        """A copy of the images at these places, independent of this storage."""
        return PixelImages(self.pixels[indices])

    def first(self, count: int) -> PixelImages:
        """The first so many, sharing this storage."""
        return PixelImages(self.pixels[:count])

    def detached(self) -> PixelImages:
        """A copy, independent of where the images came from."""
        return PixelImages(self.pixels.clone())


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images that are decoded each time they are used, to squares of `size` pixels."""

    origins: tuple[Sequence[Item], ...]
    origin: Tensor
    """int64 (n,): which of the origins each image is from,"""
    row: Tensor
    """int64 (n,): and where it stands in it."""
    size: int

    @classmethod
    def of(cls, items: Sequence[Item], size: int) -> EncodedImages:
        """All items of one sequence."""
        rows = torch.arange(len(items))
        return cls((items,), torch.zeros_like(rows), rows, size)

    def __len__(self) -> int:
        return len(self.row)

    def item(self, index: int) -> Item:
        """One image, still encoded."""
        return self.origins[int(self.origin[index])][int(self.row[index])]

    def take(self, indices: Tensor) -> EncodedImages:
        """The images at these places."""
        return EncodedImages(self.origins, self.origin[indices], self.row[indices], self.size)

    def first(self, count: int) -> EncodedImages:
        """The first so many."""
        return EncodedImages(self.origins, self.origin[:count], self.row[:count], self.size)

    def detached(self) -> EncodedImages:
        """The images independent of where they came from: files are read, so that they may go away afterwards."""
        return EncodedImages.of([encoded_copy(self.item(i)) for i in range(len(self))], self.size)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Images by what a fixed embedding has made of them: only for the training of a head, never stored."""

    features: Tensor
    """float (n, d)."""
    size: int = 0

    def __len__(self) -> int:
        return len(self.features)

    def item(self, index: int) -> Item:
        """There is no image to be had."""
        raise NotImplementedError("features are not images")

    def take(self, indices: Tensor) -> Vectors:
        """Those at these places."""
        return Vectors(self.features[indices])

    def first(self, count: int) -> Vectors:
        """The first so many."""
        return Vectors(self.features[:count])

    def detached(self) -> Vectors:
        """These themselves: nothing can change them."""
        return self


Images: TypeAlias = PixelImages | EncodedImages | Vectors


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images with their classes: image i is of class `classes[labels[i]]`."""

    images: Images
    labels: Tensor
    """int64 (n,)."""
    classes: tuple[Label, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor) -> LabelledImages:
        """The images at these places, with all classes."""
        return LabelledImages(self.images.take(indices), self.labels[indices], self.classes)

    def select_classes(self, wanted: Sequence[int]) -> LabelledImages:
        """The images of some classes, numbered anew in the order of `wanted`; images keep their order."""
        number = torch.full((len(self.classes),), -1)
        number[list(wanted)] = torch.arange(len(wanted))
        renumbered = number[self.labels]
        indices = torch.nonzero(renumbered >= 0).flatten()
        names = tuple(self.classes[index] for index in wanted)
        return LabelledImages(self.images.take(indices), renumbered[indices], names)

    def counts(self) -> Tensor:
        """int64 (classes,): the number of images of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes))


def concatenate(parts: Sequence[Images]) -> Images:
    """The images of one or more storages one after the other, in the size of the first that is not empty."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    if len(filled) == 1:
        return filled[0]
    vectors = [part.features for part in filled if isinstance(part, Vectors)]
    if vectors:
        return Vectors(torch.cat(vectors))
    pixels = [part.pixels for part in filled if isinstance(part, PixelImages) and part.size == filled[0].size]
    if len(pixels) == len(filled):
        return PixelImages(torch.cat(pixels))
    encoded = [_encoded(part) for part in filled]
    origins = tuple({id(origin): origin for part in encoded for origin in part.origins}.values())
    place = {id(origin): position for position, origin in enumerate(origins)}
    return EncodedImages(
        origins,
        torch.cat([torch.tensor([place[id(origin)] for origin in part.origins])[part.origin] for part in encoded]),
        torch.cat([part.row for part in encoded]),
        encoded[0].size,
    )


def images_from(items: Sequence[Item], size: int | None) -> Images:
    """Items in the storage that suits them: in memory if they are small, otherwise encoded.

    Without a size, it is the images' own: the median of their shorter sides, 224 at most.
    """
    return images_from_parts([items], size)[0]


def images_from_parts(parts: Sequence[Sequence[Item]], size: int | None) -> list[Images]:
    """Training and test items in the same storage and of the same size: without a size, the first part's own."""
    if size is None:
        size = _natural_size(parts[0])
    if fits_memory(sum(len(items) for items in parts), size):
        return [PixelImages(decode_squares(items, size)) for items in parts]
    for items in parts:
        for index in evenly_spaced(len(items), HEADERS):
            image_size(items[index])
    return [EncodedImages.of(items, size) for items in parts]


def fits_memory(count: int, size: int) -> bool:
    """Whether so many images of a size are kept as pixels."""
    return size <= IN_MEMORY_SIDE and count * size * size * 3 <= IN_MEMORY_BYTES


def resize(images: Images, size: int) -> Images:
    """The same images for a network that sees squares of this size."""
    if images.size == size:
        return images
    if isinstance(images, EncodedImages) and not fits_memory(len(images), size):
        return EncodedImages(images.origins, images.origin, images.row, size)
    return images_from(_Items(images), size)


class _Items(Sequence[Item]):
    """The images of a storage one by one."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are never asked for)
        return self._images.item(index)


def _encoded(images: Images) -> EncodedImages:
    return images if isinstance(images, EncodedImages) else EncodedImages.of(_Items(images), images.size)


def _natural_size(items: Sequence[Item]) -> int:
    if not len(items):
        raise DataError("no images. Give at least one")
    sides = [min(image_size(items[index])) for index in evenly_spaced(len(items), 1000)]
    return min(int(np.median(sides)), LARGEST_SIDE)


def decode_squares(items: Sequence[Item], size: int) -> Tensor:
    """Whole images decoded: uint8 (n, size, size, 3)."""
    start_method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    # other methods start a worker slowly, and not at all from a script without a main guard
    workers = default_workers(len(items)) if start_method == "fork" else 0
    starts = range(0, len(items), _CHUNK)
    chunks: list[list[Request]] = [[(i, 1.0) for i in range(len(items))[start : start + _CHUNK]] for start in starts]
    pixels = torch.empty(len(items), size, size, 3, dtype=torch.uint8)
    errors: list[DataError] = []
    found = decode_batches(items.__getitem__, size, chunks, workers, lambda _, error: errors.append(error))
    for start, chunk in zip(starts, found, strict=True):
        pixels[start : start + _CHUNK] = chunk
    if len(errors) > 1:
        some = "".join(f"\n  {error}" for error in errors[:NAMED])
        raise DataError(f"{len(errors)} images cannot be used{', such as' if len(errors) > NAMED else ''}:{some}")
    if errors:
        raise errors[0]
    return pixels


def evenly_spaced(length: int, at_most: int) -> list[int]:
    """Indices spread evenly over a length, at most so many."""
    return [int(index) for index in np.linspace(0, length - 1, min(length, at_most)).round()]


def encoded_copy(item: Item) -> Encoded:
    """An image by itself: files are read, and arrays, which may be parts of large ones, are encoded without loss."""
    if isinstance(item, np.ndarray):
        return Encoded(png(item), "an image given as an array")
    if isinstance(item, Encoded):
        return item
    try:
        return Encoded(item.read_bytes(), str(item))
    except OSError as error:
        raise DataError(f"{item}: cannot be read ({error.strerror}). Put the file back and learn again") from None
