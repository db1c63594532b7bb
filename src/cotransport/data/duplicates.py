"""Images that come more than once in a lesson. A copy must not be trained on while its twin is held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cotransport.data import Images, LabelledImages, PixelImages
from cotransport.data.decoding import Encoded, Item, whole_image
from cotransport.data.fingerprint import image_digest
from cotransport.data.loading import raise_image_errors
from cotransport.data.splits import Splits
from cotransport.data.workers import decode_slices, default_workers, in_chunks
from cotransport.errors import CotransportWarning, DataError

SIDE = 64
"""Side of the squares by which copies of encoded images are found, before the whole images are compared."""
MOST_DECODED = 20_000
"""From more images than this, encoded ones are compared by their bytes, which is faster."""
NAMED = 3
"""Pairs of images, at most, that a warning names."""
_CHUNK = 256


def without_copies(images: Splits, on_progress: Callable[[int, int], None] = lambda done, files: None) -> Splits:
    """The same images, each once. A copy of a test image is left out of the training images.

    Warns of images that are in two classes. The first one is kept.

    on_progress : called with the number of images that were seen, and the number of all images.
    """
    total, done = sum(len(part) for part in images if part is not None), 0
    by_pixels = total <= MOST_DECODED
    on_progress(0, total)
    seen: dict[bytes, list[_Place]] = {}
    contradictions: list[tuple[str, str]] = []
    copies = 0
    parts: list[LabelledImages | None] = []
    for part in (images.test, images.train):
        if part is None:
            parts.append(None)
            continue
        kept: list[int] = []
        for index, digest in enumerate(_digests(part.images, by_pixels=by_pixels)):
            done += 1
            if done % _CHUNK == 0 or done == total:
                on_progress(done, total)
            place, alike = _Place(part, index), seen.setdefault(digest, [])
            twin = next((one for one in alike if one.is_same(place)), None)
            if twin is None:
                alike.append(place)
                kept.append(index)
                continue
            copies += 1
            if twin.label != place.label:
                contradictions.append((twin.name, place.name))
        parts.append(part if len(kept) == len(part) else part.take(torch.tensor(kept, dtype=torch.int64)))
    _warn(copies, contradictions)
    test, train = parts
    assert train is not None
    _check_classes(train, images.train)
    return Splits(train, test)


@dataclass(frozen=True)
class _Place:
    """An image among others."""

    data: LabelledImages
    index: int

    @property
    def label(self) -> int:
        return int(self.data.labels[self.index])

    @property
    def name(self) -> str:
        item = self._item
        if isinstance(item, Path):
            return str(item)
        return item.name if isinstance(item, Encoded) else f"image {self.index}"

    @property
    def _item(self) -> Item:
        return self.data.images.item(self.index)

    def is_same(self, other: _Place) -> bool:
        """Whether the whole images have the same pixels."""
        try:
            return np.array_equal(whole_image(self._item), whole_image(other._item))
        except DataError:
            return False


def _digests(images: Images, *, by_pixels: bool) -> Iterator[bytes]:
    """A digest of each image that its copies share.

    by_pixels : whether encoded images are decoded, so that copies in other formats are found too. An error then lists
        those that cannot be decoded, after the last digest.
    """
    if isinstance(images, PixelImages) or not by_pixels:
        yield from (image_digest(images.item(index)) for index in range(len(images)))
        return
    chunks, workers = in_chunks(len(images), _CHUNK), default_workers(len(images))
    errors: list[DataError] = []
    for _, squares in decode_slices(images.item, SIDE, chunks, 1.0, workers, lambda _, error: errors.append(error)):
        yield from (image_digest(square) for square in squares.numpy())
    raise_image_errors(errors)


def _warn(copies: int, contradictions: Sequence[tuple[str, str]]) -> None:
    if contradictions:
        pairs = "; ".join(f"{one} and {other}" for one, other in contradictions[:NAMED])
        more = f" (and {len(contradictions) - NAMED} more)" if len(contradictions) > NAMED else ""
        warnings.warn(
            f"the same image is in two classes, and only the first copy is used: {pairs}{more}. Remove the wrong one",
            CotransportWarning,
            stacklevel=4,
        )
    if copies > len(contradictions):
        count = copies - len(contradictions)
        which = "image is a copy of another one and is" if count == 1 else "images are copies of others and are"
        warnings.warn(f"{count:,} {which} left out", CotransportWarning, stacklevel=4)


def _check_classes(train: LabelledImages, before: LabelledImages) -> None:
    """Raise an error if a class has nothing but copies of another class's images."""
    for number, name in enumerate(train.classes):
        if not int(train.counts()[number]) and int(before.counts()[number]):
            raise DataError(
                f"the class {name!r} has only images that another class or the test images have too. Give it images "
                "of its own"
            )
