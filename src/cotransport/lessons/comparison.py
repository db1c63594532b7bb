"""How well a model recognises its held-out images, before and after a lesson."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import LabelledImages
from cotransport.data.memory import Memory
from cotransport.errors import ModelError
from cotransport.learner.prediction import Predictor
from cotransport.learner.snapshots import restored
from cotransport.lessons.chance import likely_loss
from cotransport.lessons.confidence import measure_confidence
from cotransport.lessons.images import labelled_images
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.records import (
    ClassAccuracy,
    Confidence,
    Confusion,
    LessonRecord,
    LessonReport,
    changed_images,
    macro_accuracy,
    mean_accuracy,
    parse_report,
)
from cotransport.model.store import ModelStore
from cotransport.networks.calibration import fit_temperature
from cotransport.system.files import AnyPath

MOST_CONFUSIONS = 20
"""Confusions that a report lists, at most."""


class Comparison(NamedTuple):
    """The accuracy of each class before and after a lesson, and what is confused after it."""

    per_class: list[ClassAccuracy]
    confusions: list[Confusion]
    temperature: float
    """The chosen temperature, or the one that suits the held-out images."""
    confidence: Confidence | None
    """At that temperature; None without held-out images."""


def compare(
    before: Predictor | None, after: Predictor, held_out: Memory, temperature: float | None = None
) -> Comparison:
    """Accuracy of each class on its held-out images, by the classifiers before and after a lesson.

    before : it may know other classes; None for a first lesson.
    temperature : the one that the user has chosen; by default, the one that suits the held-out images.
    """
    classes = after.state.classes
    test = held_out.labelled(classes)
    if test is None:
        nothing = [ClassAccuracy(name=name, images=0, before=None, after=None) for name in classes]
        return Comparison(nothing, [], temperature or 1.0, None)
    scores = after.decision(test)
    predicted = scores.argmax(dim=1)
    known = {} if before is None else {name: number for number, name in enumerate(before.state.classes)}
    right, labels_before = (
        predicted == test.labels,
        torch.tensor([known.get(name, -1) for name in classes])[test.labels],
    )
    was_right, old = torch.zeros_like(right), torch.nonzero(labels_before >= 0).flatten()
    if before is not None and len(old):
        was_right[old] = before.decision(test.take(old)).argmax(dim=1) == labels_before[old]
    found: list[ClassAccuracy] = []
    for number, name in enumerate(classes):
        own = test.labels == number
        now, then = right[own], was_right[own]
        is_old = name in known and len(now) > 0
        found.append(
            ClassAccuracy(
                name=name,
                images=len(now),
                before=_percent(then) if is_old else None,
                after=_percent(now),
                lost=int((then & ~now).sum()) if is_old else None,
                gained=int((now & ~then).sum()) if is_old else None,
            )
        )
    temperature = temperature or fit_temperature(scores, test.labels)
    confidence = measure_confidence(F.softmax(scores.double() / temperature, dim=1), test.labels)
    return Comparison(found, _confusions(test, predicted), temperature, confidence)


def _confusions(test: LabelledImages, predicted: Tensor) -> list[Confusion]:
    """The most frequent confusions; of equally frequent ones, the first classes'."""
    pairs = zip(test.labels.tolist(), predicted.tolist(), strict=True)
    counted = Counter(pair for pair in pairs if pair[0] != pair[1])
    most = sorted(counted, key=lambda pair: (-counted[pair], pair))[:MOST_CONFUSIONS]
    return [
        Confusion(name=test.classes[true], predicted=test.classes[wrong], images=counted[true, wrong])
        for true, wrong in most
    ]


def report_of(
    lesson: LessonRecord, chosen: Mapping[str, Any], comparison: Comparison, known: int, seconds: float
) -> LessonReport:
    """The report of a lesson, or of another change of a model.

    known : the number of classes that were known before; they come first.
    """
    per_class = comparison.per_class
    changed = changed_images(per_class[:known])
    old_before = mean_accuracy(per_class[:known], "before")
    old_after = mean_accuracy(per_class[:known], "after")
    return LessonReport(
        lesson=lesson,
        chosen=dict(chosen),
        per_class=per_class,
        accuracy=mean_accuracy(per_class, "after"),
        old_before=old_before,
        old_after=old_after,
        accuracy_lost=None if old_before is None or old_after is None else old_before - old_after,
        times={"seconds": seconds},
        likely_loss=likely_loss(*changed) if changed.images else None,
        macro_accuracy=macro_accuracy(per_class),
        confusions=comparison.confusions,
        confidence=comparison.confidence,
    )


class Evaluation(NamedTuple):
    """The accuracy of each class that has images, and how far the probabilities can be trusted."""

    per_class: list[ClassAccuracy]
    confidence: Confidence
    chosen_on: Confidence | None
    """The answers to the held-out images after the lesson, on which the thresholds for `unknown` are chosen. None if
    the version was saved without a lesson."""


def evaluate(
    folder: AnyPath,
    data: AnyPath | None = None,
    *,
    version: int | None = None,
    options: LessonOptions = LessonOptions(),
) -> Evaluation:
    """Accuracy of each class on its held-out images, or on other data: on its test images if it has some."""
    snapshot = ModelStore(folder).read(version)
    predictor = Predictor(*restored(snapshot, device=options.device))
    if data is not None:
        test = labelled_images(snapshot, str(data), options, skip_unknown=version is not None)
    elif (held_out := snapshot.held_out.labelled(snapshot.classes)) is not None:
        test = held_out
    else:
        raise ModelError(f"{folder}: no images were held out. Give a folder with a subfolder of images per class")
    scores = predictor.decision(test)
    right = scores.argmax(dim=1) == test.labels
    found = [
        ClassAccuracy(name=name, images=len(own), before=None, after=_percent(own))
        for number, name in enumerate(snapshot.classes)
        if len(own := right[test.labels == number])
    ]
    confidence = measure_confidence(predictor.calibrated(scores), test.labels)
    report = parse_report(snapshot.metrics, str(folder)) if snapshot.metrics else None
    return Evaluation(found, confidence, None if report is None else report.confidence)


def _percent(right: Tensor) -> float | None:
    """The share of right answers in percent; None without answers."""
    return 100 * float(right.double().mean()) if len(right) else None
