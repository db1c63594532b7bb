"""Images as values, in two storages: pixels in memory for small images, encoded items for all others.

Both are immutable, and taking a part of them is cheap. They know nothing of training: `data.batches` makes batches of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cotransport.data.decoding import Encoded, Item, png
from cotransport.data.labels import Label
from cotransport.errors import DataError


@dataclass(frozen=True, eq=False)
class PixelImages:
    """Small images of the same size, in one tensor."""

    pixels: Tensor
    """uint8 (n, size, size, 3)."""

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> int:
        """Side in pixels."""
        return int(self.pixels.shape[1])

    def item(self, index: int) -> Item:
        """One image."""
        return np.asarray(self.pixels[index].numpy(), dtype=np.uint8)

    def take(self, indices: Tensor) -> PixelImages:
        """A copy of the images at these indices."""
        return PixelImages(self.pixels[indices])

    def first(self, count: int) -> PixelImages:
        """The first `count` images. They share this tensor, so nothing is copied."""
        return PixelImages(self.pixels[:count])

    def detached(self) -> PixelImages:
        """A copy that does not depend on the array that the images came from."""
        return PixelImages(self.pixels.clone())


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Images that are decoded to squares each time they are used."""

    origins: tuple[Sequence[Item], ...]
    """The sequences that the images are part of."""
    origin: Tensor
    """int64 (n,): the index in `origins` of each image's sequence."""
    row: Tensor
    """int64 (n,): the index of each image in its sequence."""
    size: int
    """Side of the squares, in pixels."""

    @classmethod
    def of(cls, items: Sequence[Item], size: int) -> EncodedImages:
        """All images of one sequence."""
        rows = torch.arange(len(items))
        return cls((items,), torch.zeros_like(rows), rows, size)

    def __len__(self) -> int:
        return len(self.row)

    def item(self, index: int) -> Item:
        """One image, still encoded."""
        return self.origins[int(self.origin[index])][int(self.row[index])]

    def take(self, indices: Tensor) -> EncodedImages:
        """The images at these indices."""
        return EncodedImages(self.origins, self.origin[indices], self.row[indices], self.size)

    def first(self, count: int) -> EncodedImages:
        """The first `count` images."""
        return EncodedImages(self.origins, self.origin[:count], self.row[:count], self.size)

    def detached(self) -> EncodedImages:
        """A copy that does not depend on where the images came from. Files are read, and may be deleted afterwards."""
        return EncodedImages.of([encoded_copy(self.item(i)) for i in range(len(self))], self.size)


@dataclass(frozen=True, eq=False)
class Vectors:
    """Features of images, computed by a frozen backbone. Only for the training of a head; never saved."""

    features: Tensor
    """float (n, d)."""
    size: int = 0
    """Not used: features have no size in pixels."""

    def __len__(self) -> int:
        return len(self.features)

    def item(self, index: int) -> Item:
        """Not possible: features cannot be turned into images."""
        raise NotImplementedError("features are not images")

    def take(self, indices: Tensor) -> Vectors:
        """The features at these indices."""
        return Vectors(self.features[indices])

    def first(self, count: int) -> Vectors:
        """The first `count` features."""
        return Vectors(self.features[:count])

    def detached(self) -> Vectors:
        """The same object, because nothing can change it."""
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
        """The images at these indices. The classes stay the same, even if some have no images."""
        return LabelledImages(self.images.take(indices), self.labels[indices], self.classes)

    def select_classes(self, wanted: Sequence[int]) -> LabelledImages:
        """The images of the classes with these numbers, renumbered in this order. The images keep their order."""
        indices = torch.nonzero(torch.isin(self.labels, torch.tensor(wanted, dtype=torch.int64))).flatten()
        return self.take(indices).renumbered(tuple(self.classes[number] for number in wanted))

    def first_of_each_class(self, count: int) -> LabelledImages:
        """The first `count` images of each class, or all if it has fewer. The images keep their order."""
        kept = [torch.nonzero(self.labels == number).flatten()[:count] for number in range(len(self.classes))]
        return self.take(torch.cat(kept).sort().values)

    def renumbered(self, classes: tuple[Label, ...]) -> LabelledImages:
        """The same images, with labels that are positions in `classes`.

        A class that has images must be in `classes`, otherwise it is a DataError.
        """
        position = {name: number for number, name in enumerate(classes)}
        numbers = torch.tensor([position.get(name, -1) for name in self.classes], dtype=torch.int64)
        labels = numbers[self.labels]
        if bool((labels < 0).any()):
            missing = self.classes[int(self.labels[labels < 0][0])]
            raise DataError(f"the class {missing!r} has images, but is not among the classes. Leave it out")
        return LabelledImages(self.images, labels, classes)

    def counts(self) -> Tensor:
        """int64 (classes,): the number of images of each class."""
        return torch.bincount(self.labels, minlength=len(self.classes))


def concatenate(parts: Sequence[Images]) -> Images:
    """The images of several storages, one after the other. Their size is that of the first that is not empty."""
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


def evenly_spaced(length: int, at_most: int) -> list[int]:
    """At most `at_most` evenly spaced indices from 0 to length - 1."""
    return [int(index) for index in np.linspace(0, length - 1, min(length, at_most)).round()]


def encoded_copy(item: Item) -> Encoded:
    """An independent copy of an image: files are read, and arrays, which may be views, are encoded without loss."""
    if isinstance(item, np.ndarray):
        return Encoded(png(item), "an image given as an array")
    if isinstance(item, Encoded):
        return item
    try:
        return Encoded(item.read_bytes(), str(item))
    except OSError as error:
        raise DataError(f"{item}: cannot be read ({error.strerror}). Put the file back and learn again") from None


class Items(Sequence[Item]):
    """The images of a storage as a sequence."""

    def __init__(self, images: Images) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are not used)
        return self._images.item(index)


def _encoded(images: Images) -> EncodedImages:
    return images if isinstance(images, EncodedImages) else EncodedImages.of(Items(images), images.size)
