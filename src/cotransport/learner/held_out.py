"""Images that are held out: never trained on, to measure what is learned and to calibrate probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from cotransport.data import DataSet, Images, Label, LabelledImages, concatenate, resize
from cotransport.data.fingerprint import image_digest
from cotransport.data.memory import Memory
from cotransport.data.splits import Splits, hold_out
from cotransport.errors import CotransportWarning, DataError
from cotransport.settings.sections import Fit

MOST_HELD_OUT = 50
"""Held-out images of each class, at most."""


def without_kept(images: Splits, known: Sequence[Label], *memories: Memory) -> Splits:
    """The images of a lesson without those that the model already keeps for another class.

    Such an image has two names. It must not be trained on under the second one while it tests the first.
    """
    kept = {
        image_digest(own.item(index)): known[number]
        for memory in memories
        for number, own in enumerate(memory.exemplars)
        for index in range(len(own))
    }
    if not kept:
        return images
    found: dict[tuple[Label, Label], int] = {}
    parts = [part and _without_kept(part, kept, found) for part in images]
    train = parts[0]
    assert train is not None
    for (name, other), count in found.items():
        if not len(train.select_classes([train.classes.index(name)])):
            raise DataError(f"the class {name!r} has only images that are known as {other!r}. Give it others")
        which = "1 image is" if count == 1 else f"{count:,} images are"
        message = (
            f"{name}: {which} left out, because the model keeps the same as {other}. It can only find copies of images "
            "that it keeps, so check the others too"
        )
        warnings.warn(message, CotransportWarning, stacklevel=4)
    return Splits(train, parts[1])


def _without_kept(
    data: LabelledImages,
    kept: Mapping[bytes, Label],
    found: dict[tuple[Label, Label], int],
) -> LabelledImages:
    """The images without those that are kept for another class; these are counted in `found`."""
    places: list[int] = []
    for place, label in enumerate(data.labels.tolist()):
        name = data.classes[label]
        other = kept.get(image_digest(data.images.item(place)))
        if other is None or other == name:
            places.append(place)
        else:
            found[name, other] = found.get((name, other), 0) + 1
    return data if len(places) == len(data) else data.take(torch.tensor(places, dtype=torch.int64))


def divide(images: Splits, known: Sequence[Label], held_out: Memory, share: float) -> DataSet:
    """Images to train on and images to hold out.

    share : of each new class; 0 to hold nothing out.

    Known classes keep the held-out images that they have, and none of these is trained on.
    """
    train, test = images
    is_known = torch.tensor([name in known for name in train.classes])[train.labels]
    more, new = (train.take(torch.nonzero(kind).flatten()) for kind in (is_known, ~is_known))
    if not share:
        test = new.take(torch.empty(0, dtype=torch.int64))
    elif test is None:
        new, test = hold_out(new, share, MOST_HELD_OUT)
    else:
        fresh = [number for number, name in enumerate(test.classes) if name not in known]
        kept = [torch.nonzero(test.labels == number).flatten()[:MOST_HELD_OUT] for number in fresh]
        test = test.take(torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64))
    if not known or not len(more):
        return DataSet(new, test)
    more = _without(more, held_out)
    if not len(more) and not len(new):
        raise DataError("all of these images are held out already, so none is left to train on. Give others")
    both = replace(new, images=concatenate([more.images, new.images]), labels=torch.cat([more.labels, new.labels]))
    return DataSet(both, test)


def merge_held_out(kept: Memory, test: LabelledImages, classes: Sequence[Label]) -> Memory:
    """The held-out images of all classes: those that are kept already, and those of this lesson."""
    before = kept.exemplars
    parts: list[Images] = []
    for number, name in enumerate(classes):
        own: list[Images] = [before[number]] if number < len(before) else []
        if name in test.classes:
            own.append(test.images.take(torch.nonzero(test.labels == test.classes.index(name)).flatten()).detached())
        parts.append(concatenate(own) if own else test.images.first(0))
    return Memory(tuple(parts))


def resized(data: LabelledImages, size: int, fit: Fit) -> LabelledImages:
    """The same images in the size that a network sees."""
    return replace(data, images=resize(data.images, size, fit))


def _without(data: LabelledImages, others: Memory) -> LabelledImages:
    """The images of `data` that are not among `others`."""
    excluded = {image_digest(images.item(index)) for images in others.exemplars for index in range(len(images))}
    kept = [image_digest(data.images.item(index)) not in excluded for index in range(len(data))]
    return data.take(torch.nonzero(torch.tensor(kept)).flatten())
