"""How well a model recognises its held-out images, before and after a lesson."""

from __future__ import annotations

from pathlib import Path

import torch

from cotransport.data import LabelledImages
from cotransport.data.memory import Memory
from cotransport.errors import ModelError
from cotransport.learner.prediction import Predictor
from cotransport.learner.snapshots import restored
from cotransport.lessons.images import labelled_images
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.records import ClassAccuracy
from cotransport.model.store import ModelStore


def compare(before: Predictor | None, after: Predictor, held_out: Memory) -> list[ClassAccuracy]:
    """Accuracy of each class on its held-out images, by the classifiers before and after a lesson.

    before : it may know fewer classes; None for a first lesson.
    """
    classes = after.state.classes
    test = held_out.labelled(classes)
    counts = [0] * len(classes) if test is None else test.counts().tolist()
    new_values = _accuracies(after, test, len(classes))
    old_values: list[float | None] = [None] * len(classes)
    if before is not None and test is not None:
        known = len(before.state.classes)
        old_values[:known] = _accuracies(before, test.take(torch.nonzero(test.labels < known).flatten()), known)
    return [
        ClassAccuracy(name=name, images=counts[number], before=old_values[number], after=new_values[number])
        for number, name in enumerate(classes)
    ]


def evaluate(
    folder: Path, data: str | None = None, *, version: int | None = None, options: LessonOptions = LessonOptions()
) -> list[ClassAccuracy]:
    """Accuracy of each class on its held-out images, or on other data: on its test images if it has some."""
    snapshot = ModelStore(folder).read(version)
    predictor = Predictor(*restored(snapshot, device=options.device))
    if data is not None:
        test = labelled_images(snapshot, data, options)
    elif (held_out := snapshot.held_out.labelled(snapshot.classes)) is not None:
        test = held_out
    else:
        raise ModelError(f"{folder}: no images were held out. Give a folder with a subfolder of images per class")
    counts = test.counts().tolist()
    accuracies = _accuracies(predictor, test, len(snapshot.classes))
    return [
        ClassAccuracy(name=name, images=counts[number], before=None, after=accuracies[number])
        for number, name in enumerate(snapshot.classes)
        if counts[number]
    ]


def _accuracies(predictor: Predictor, test: LabelledImages | None, classes: int) -> list[float | None]:
    """Accuracy of each class in percent; None for a class without images."""
    if test is None or not len(test):
        return [None] * classes
    correct = predictor.decision(test).argmax(dim=1) == test.labels
    return [
        100 * float(own.double().mean()) if len(own := correct[test.labels == number]) else None
        for number in range(classes)
    ]
