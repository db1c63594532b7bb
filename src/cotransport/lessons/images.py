"""The labelled images that a user names for a lesson or an evaluation."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from cotransport.data import LabelledImages, Source, prefer_folder
from cotransport.data.folders import ImageFolder
from cotransport.data.sources import open_whole_source
from cotransport.errors import ConfigError, CotransportWarning, DataError
from cotransport.learner.lesson_settings import fit_of
from cotransport.lessons.options import LessonOptions
from cotransport.model.folder import MANIFEST
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Data
from cotransport.settings.validation import validated


def open_lesson_source(data: str, image_size: int | None, options: LessonOptions) -> Source:
    """The source of labelled images that a user names. Raises an error if it has no classes."""
    if "image_size" in options.data:
        raise ConfigError(
            "data.image_size: a model's image size never changes",
            hint="Give it with --image-size when you create the model",
        )
    if (Path(data) / MANIFEST).is_file():
        raise ConfigError(f"{data}: a model, not images. The command takes the model first: learn MODEL DATA")
    settings = {**options.data, "source": prefer_folder(data), "image_size": image_size}
    source = open_whole_source(validated(Data, settings, "data"))
    _ = source.classes
    return source


def labelled_images(
    snapshot: Snapshot, data: str, options: LessonOptions, *, skip_unknown: bool = False
) -> LabelledImages:
    """Labelled images of a model's classes: a source's test images if it has some, otherwise all of its images.

    skip_unknown : leave images of other classes out, with a warning. Otherwise they are an error.
    """
    known = snapshot.classes
    source = open_lesson_source(data, snapshot.image_size, options)
    unknown = [name for name in source.classes if name not in known]
    if unknown and isinstance(source, ImageFolder):
        source.training_files()  # raises an error if the folder is the one above the classes
    if unknown and not (skip_unknown and len(unknown) < len(source.classes)):
        some = ", ".join(str(name) for name in known[:12]) + (", ..." if len(known) > 12 else "")
        raise DataError(f"the class {unknown[0]!r} was never learned. Leave it out. Known: {some}")
    train, test = source.splits(fit_of(snapshot.settings))
    found = train if test is None else test
    if unknown:
        names = ", ".join(str(name) for name in unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        which = "1 class is" if len(unknown) == 1 else f"{len(unknown)} classes are"
        message = f"{which} not known to this version and left out: {names}"
        warnings.warn(message, CotransportWarning, stacklevel=2)
        is_known = torch.tensor([name in known for name in found.classes])[found.labels]
        found = found.take(torch.nonzero(is_known).flatten())
    return found.renumbered(known)
