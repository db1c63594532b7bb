"""The images of a lesson: which are trained on, and which are held out for testing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch

from cotransport.data import (
    DataSet,
    Images,
    Label,
    LabelledImages,
    Source,
    concatenate,
    open_source,
    prefer_folder,
    resize,
)
from cotransport.data.fingerprint import image_digest
from cotransport.data.memory import Memory
from cotransport.data.splits import Splits, hold_out
from cotransport.errors import ConfigError, CotransportWarning, DataError
from cotransport.lessons.options import LessonOptions
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Data, Fit, PredictionSettings
from cotransport.settings.validation import validated

MOST_HELD_OUT = 50
"""Held-out images of each class, at most."""


def open_lesson_source(data: str, image_size: int | None, options: LessonOptions) -> Source:
    """The source of labelled images that a user names. Raises an error if it has no classes."""
    if "image_size" in options.data:
        raise ConfigError(
            "data.image_size: a model's image size never changes. Give it with --image-size when you create the model"
        )
    settings = {**options.data, "source": prefer_folder(data), "image_size": image_size}
    source = open_source(validated(Data, settings, "data"))
    _ = source.classes
    return source


def resized(data: LabelledImages, size: int, fit: Fit) -> LabelledImages:
    """The same images in the size that a network sees."""
    return replace(data, images=resize(data.images, size, fit))


def divide(images: Splits, known: Sequence[Label], held_out: Memory, share: float) -> DataSet:
    """Images to train on and images to hold out.

    Known classes keep the held-out images that they have, and none of these is trained on.
    """
    train, test = images
    is_known = torch.tensor([name in known for name in train.classes])[train.labels]
    more, new = (train.take(torch.nonzero(kind).flatten()) for kind in (is_known, ~is_known))
    if test is None:
        new, test = hold_out(new, share, MOST_HELD_OUT)
    else:
        fresh = [number for number, name in enumerate(test.classes) if name not in known]
        kept = [torch.nonzero(test.labels == number).flatten()[:MOST_HELD_OUT] for number in fresh]
        test = test.take(torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64))
    if not known or not len(more):
        return DataSet(new, test)
    more = _without(more, held_out)
    both = replace(new, images=concatenate([more.images, new.images]), labels=torch.cat([more.labels, new.labels]))
    return DataSet(both, test)


def merge_held_out(before: Snapshot | None, test: LabelledImages, classes: Sequence[Label]) -> Memory:
    """The held-out images of all classes: the model's, and those of this lesson."""
    kept = () if before is None else before.held_out.exemplars
    parts: list[Images] = []
    for number, name in enumerate(classes):
        own: list[Images] = [kept[number]] if number < len(kept) else []
        if name in test.classes:
            own.append(test.images.take(torch.nonzero(test.labels == test.classes.index(name)).flatten()).detached())
        parts.append(concatenate(own) if own else test.images.first(0))
    return Memory(tuple(parts))


def labelled_images(
    snapshot: Snapshot, data: str, options: LessonOptions, *, skip_unknown: bool = False
) -> LabelledImages:
    """Labelled images of a model's classes: a source's test images if it has some, otherwise all of its images.

    skip_unknown : leave images of other classes out, with a warning. Otherwise they are an error.
    """
    known = snapshot.classes
    source = open_lesson_source(data, snapshot.image_size, options)
    unknown = [name for name in source.classes if name not in known]
    if unknown and not (skip_unknown and len(unknown) < len(source.classes)):
        some = ", ".join(str(name) for name in known[:12]) + (", ..." if len(known) > 12 else "")
        raise DataError(f"the class {unknown[0]!r} was never learned. Leave it out. Known: {some}")
    train, test = source.splits(
        validated(PredictionSettings, snapshot.settings.get("prediction", {}), "prediction").fit
    )
    found = train if test is None else test
    if unknown:
        names = ", ".join(str(name) for name in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        which = "1 class is" if len(unknown) == 1 else f"{len(unknown)} classes are"
        message = f"{which} not known to this version and left out: {names}"
        warnings.warn(message, CotransportWarning, stacklevel=2)
        is_known = torch.tensor([name in known for name in found.classes])[found.labels]
        found = found.take(torch.nonzero(is_known).flatten())
    return found.renumbered(known)


def _without(data: LabelledImages, others: Memory) -> LabelledImages:
    """The images of `data` that are not among `others`."""
    excluded = {image_digest(images.item(index)) for images in others.exemplars for index in range(len(images))}
    kept = [image_digest(data.images.item(index)) not in excluded for index in range(len(data))]
    return data.take(torch.nonzero(torch.tensor(kept)).flatten())
