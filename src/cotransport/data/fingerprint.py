"""A fingerprint of images and labels, to recognise a data set wherever it is stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from cotransport.data.decoding import Item
from cotransport.data.images import LabelledImages, PixelImages, encoded_copy, evenly_spaced
from cotransport.data.streaming import stream_of
from cotransport.errors import DataError

SAMPLED = 1000
"""Most encoded images whose content is part of a fingerprint."""
REPORTED = 1000
"""Files between two reports of progress."""


def fingerprint(
    parts: Iterable[LabelledImages | None], on_progress: Callable[[int, int], None] = lambda done, files: None
) -> str:
    """A hash of the images and labels. File names and dates do not matter.

    Of images that are not in memory, it contains the sizes of all files, and the content of at most 1,000 evenly spaced
    ones. Of a stream, it contains the first images.

    on_progress : called with the number of files of a part that were seen, and the number of all its files.
    """
    digest = hashlib.sha256()
    for part in filter(None, parts):
        digest.update(json.dumps([part.images.size, part.classes]).encode())
        digest.update(part.labels.numpy().tobytes())
        if isinstance(part.images, PixelImages):
            digest.update(part.images.pixels.numpy().tobytes())
            continue
        stream = stream_of(part.images)
        if stream is not None:
            for item in stream.first:
                digest.update(encoded_copy(item).data)
            continue
        if len(part) and isinstance(part.images.item(0), Path):
            sizes = []
            for index in range(len(part)):
                sizes.append(_byte_count(part.images.item(index)))
                if len(sizes) % REPORTED == 0 or len(sizes) == len(part):
                    on_progress(len(sizes), len(part))
            digest.update(json.dumps(sizes).encode())
        for index in evenly_spaced(len(part), SAMPLED):
            digest.update(encoded_copy(part.images.item(index)).data)
    return digest.hexdigest()


def image_digest(item: Item) -> bytes:
    """A digest that equal images share: of an array's shape and pixels, or of a file's bytes."""
    if isinstance(item, np.ndarray):
        return hashlib.sha256(repr(item.shape).encode() + item.tobytes()).digest()
    return hashlib.sha256(encoded_copy(item).data).digest()


def _byte_count(item: Item) -> int:
    if not isinstance(item, Path):
        return len(encoded_copy(item).data)
    try:
        return item.stat().st_size
    except OSError as error:
        raise DataError(f"{item}: cannot be read ({error.strerror}). Put the file back") from None
