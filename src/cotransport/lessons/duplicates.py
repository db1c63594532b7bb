"""Images that come more than once in a lesson. A copy must not be trained on while its twin is held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from cotransport.data import Images, LabelledImages, PixelImages
from cotransport.data.decoding import Encoded, Item
from cotransport.data.fingerprint import image_digest
from cotransport.data.splits import Splits
from cotransport.data.workers import decode_slices, default_workers, in_chunks
from cotransport.errors import CotransportWarning, DataError

SIDE = 64
"""Side of the squares in which encoded images are compared."""
MOST_DECODED = 20_000
"""From more images than this, encoded ones are compared by their bytes, which is faster."""
NAMED = 3
"""Pairs of images, at most, that a warning names."""
_CHUNK = 256


def without_copies(images: Splits) -> Splits:
    """The same images, each once. A copy of a test image is left out of the training images.

    Warns of images that stand under two classes. The first one is kept.
    """
    seen: dict[bytes, tuple[int, str]] = {}
    contradictions: list[tuple[str, str]] = []
    copies = 0
    parts: list[LabelledImages | None] = []
    for part in (images.test, images.train):
        if part is None:
            parts.append(None)
            continue
        kept: list[int] = []
        for index, digest in enumerate(_digests(part.images)):
            label = int(part.labels[index])
            if digest not in seen:
                seen[digest] = label, _name(part.images, index)
                kept.append(index)
                continue
            copies += 1
            if seen[digest][0] != label:
                contradictions.append((seen[digest][1], _name(part.images, index)))
        parts.append(part if len(kept) == len(part) else part.take(torch.tensor(kept)))
    _warn(copies, contradictions)
    test, train = parts
    assert train is not None
    _check_classes(train, images.train)
    return Splits(train, test)


def _digests(images: Images) -> Sequence[bytes]:
    """A digest of each image's pixels; of its bytes, if there are too many to decode."""
    if isinstance(images, PixelImages) or len(images) > MOST_DECODED:
        return [image_digest(images.item(index)) for index in range(len(images))]
    found: list[bytes] = []
    chunks, workers = in_chunks(len(images), _CHUNK), default_workers(len(images))
    unreadable: set[int] = set()
    for rows, squares in decode_slices(images.item, SIDE, chunks, 1.0, workers, lambda index, _: unreadable.add(index)):
        for place, square in zip(range(rows.start, rows.stop), squares.numpy(), strict=True):
            found.append(str(place).encode() if place in unreadable else image_digest(square))  # reported elsewhere
    return found


def _name(images: Images, index: int) -> str:
    item: Item = images.item(index)
    if isinstance(item, Path):
        return str(item)
    return item.name if isinstance(item, Encoded) else f"image {index}"


def _warn(copies: int, contradictions: Sequence[tuple[str, str]]) -> None:
    if contradictions:
        pairs = "; ".join(f"{one} and {other}" for one, other in contradictions[:NAMED])
        more = f" (and {len(contradictions) - NAMED} more)" if len(contradictions) > NAMED else ""
        warnings.warn(
            f"the same image stands under two classes, and only the first is used: {pairs}{more}. Remove the wrong one",
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
