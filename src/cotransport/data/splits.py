"""Images to learn from and images to be tested on."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from cotransport.data.decoding import Item
from cotransport.data.images import Label, LabelledImages, PixelImages, encoded_copy, evenly_spaced
from cotransport.errors import CotransportWarning, DataError

TEST_SPLITS = ("test", "validation", "valid", "val")
"""What test images are called, the best name first."""
LOOKED_AT = 1000
"""Images whose bytes a fingerprint goes by, at most, where they are not in memory."""
_SEED = 1993


class Splits(NamedTuple):
    """Training images, and test images where the source has its own."""

    train: LabelledImages
    test: LabelledImages | None


class DataSet(NamedTuple):
    """Images to learn from and images to be tested on, with the same classes."""

    train: LabelledImages
    test: LabelledImages


def hold_out(data: LabelledImages, share: float, at_most: int | None = None) -> DataSet:
    """A share of each class held out, the same at every call; a class of one image keeps it for training.

    at_most : so many of a class are held out, if the share would be more.
    """
    random = np.random.RandomState(_SEED)
    kept, held, single = [], [], list[Label]()
    for number, name in enumerate(data.classes):
        indices = random.permutation(torch.nonzero(data.labels == number).flatten().numpy())
        if len(indices) == 1:
            single.append(name)
        out = max(0, min(max(1, round(share * len(indices))), len(indices) - 1, at_most or len(indices)))
        held.append(indices[:out])
        kept.append(indices[out:])
    if single:
        more = f" and {len(single) - 1} more" if len(single) > 1 else ""
        message = f"class {single[0]!r}{more} has one image: it is trained on, and there is none to test with"
        warnings.warn(message, CotransportWarning, stacklevel=2)
    train, test = (torch.from_numpy(np.sort(np.concatenate(parts))) for parts in (kept, held))
    return DataSet(data.take(train), data.take(test))


def fingerprint(parts: Iterable[LabelledImages | None]) -> str:
    """By which the same images and labels are recognised, wherever they are and whenever they were written.

    Of images that are not in memory all files' sizes count, and the contents of an evenly spread thousand.
    """
    digest = hashlib.sha256()
    for part in filter(None, parts):
        digest.update(json.dumps([part.images.size, part.classes]).encode())
        digest.update(part.labels.numpy().tobytes())
        if isinstance(part.images, PixelImages):
            digest.update(part.images.pixels.numpy().tobytes())
            continue
        if len(part) and isinstance(part.images.item(0), Path):
            sizes = [_bytes(part.images.item(place)) for place in range(len(part))]
            digest.update(json.dumps(sizes).encode())
        for place in evenly_spaced(len(part), LOOKED_AT):
            digest.update(encoded_copy(part.images.item(place)).data)
    return digest.hexdigest()


def _bytes(item: Item) -> int:
    if not isinstance(item, Path):
        return len(encoded_copy(item).data)
    try:
        return item.stat().st_size
    except OSError as error:
        raise DataError(f"{item}: cannot be read ({error.strerror}). Put the file back") from None


def check_distinct(names: Iterable[Label], where: str) -> tuple[Label, ...]:
    """Names of classes as they are, if no two are the same."""
    counts = Counter(names := tuple(names))
    for name, count in counts.items():
        if count > 1:
            raise DataError(f"{where}: {count} classes are named {name!r}. Give every class a name of its own")
    return names
