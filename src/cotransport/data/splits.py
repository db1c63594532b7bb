"""Training images and test images."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cotransport.data.images import LabelledImages
from cotransport.errors import CotransportWarning

TEST_SPLITS = ("test", "validation", "valid", "val")
"""Names of a folder or split of test images. The first one that exists is used."""
_SEED = 1993


class Splits(NamedTuple):
    """The images of a source. It may have no test images."""

    train: LabelledImages
    test: LabelledImages | None


class DataSet(NamedTuple):
    """Training images and test images, with the same classes."""

    train: LabelledImages
    test: LabelledImages


def hold_out(data: LabelledImages, share: float, at_most: int | None = None) -> DataSet:
    """Hold out a share of each class for testing. The same images are held out at every call.

    at_most : largest number of images of a class that are held out.

    A class with a single image keeps it for training, with a warning.
    """
    single = [data.classes[number] for number in torch.nonzero(data.counts() == 1).flatten().tolist()]
    if single:
        more = f" and {len(single) - 1} more" if len(single) > 1 else ""
        message = f"class {single[0]!r}{more} has one image: it is used for training, and no image is left for testing"
        warnings.warn(message, CotransportWarning, stacklevel=2)
    train, test = held_out_indices(data, share, at_most)
    return DataSet(data.take(train), data.take(test))


def held_out_indices(data: LabelledImages, share: float, at_most: int | None = None) -> tuple[Tensor, Tensor]:
    """The indices of the images to train on, and of those that `hold_out` holds out."""
    random = np.random.RandomState(_SEED)
    kept, held = [], []
    for number in range(len(data.classes)):
        indices = random.permutation(torch.nonzero(data.labels == number).flatten().numpy())
        out = max(0, min(max(1, round(share * len(indices))), len(indices) - 1, at_most or len(indices)))
        held.append(indices[:out])
        kept.append(indices[out:])
    train, test = (torch.from_numpy(np.sort(np.concatenate(parts))) for parts in (kept, held))
    return train, test
