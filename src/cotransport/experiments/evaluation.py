"""The evaluation of a learner after a task: accuracies, confusion matrix, and what new classes were built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport import metrics
from cotransport.data import LabelledImages
from cotransport.experiments.results import (
    MANY_CLASSES,
    Accuracies,
    InitialAccuracy,
    Origin,
    SourceShare,
    Transport,
)
from cotransport.experiments.stream import Task
from cotransport.learner.learning import initialised
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.methods import make_method
from cotransport.transport import class_centres, effective_sources, sources

ACCURACIES = ("top1", "top5", "head_top1", "ncm_top1")
LARGEST_SCORES = 2**26
"""Largest number of scores (images times classes) that are kept at a time."""
SOURCES = 5
"""Old classes that a result names for each new class. The transport plan has all of them."""


def evaluate(
    predictor: Predictor,
    test: LabelledImages,
    task_sizes: Sequence[int],
    metric: Literal["top1", "top5"] = "top1",
) -> tuple[Accuracies, metrics.Integers]:
    """Accuracies and the cells of the confusion matrix, on the test images of all classes seen.

    With very many classes, the scores of all images would not fit into memory, so the images are evaluated in parts.
    """
    size = max(1, LARGEST_SCORES // len(test.classes))
    parts = [test] if len(test) <= size else [test.take(rows) for rows in torch.split(torch.arange(len(test)), size)]
    found = [_evaluated(predictor, part) for part in parts]
    hits = {name: np.concatenate([part.hits[name] for part in found]) for name in found[0].hits}
    labels = test.labels.numpy()
    accuracies = Accuracies(
        classes_seen=len(test.classes),
        **{name: none_if_nan(metrics.percentage(hits[name])) if name in hits else None for name in ACCURACIES},
        per_task=[none_if_nan(value) for value in metrics.accuracy_per_task(hits[metric], labels, task_sizes)],
        test_images=len(test),
    )
    return accuracies, metrics.confusion_cells(np.concatenate([part.predicted for part in found]), labels)


class _Evaluated(NamedTuple):
    """The answers for some images."""

    predicted: metrics.Integers
    hits: dict[str, metrics.Hits]
    """For each accuracy, whether each image counts as recognised."""


def _evaluated(predictor: Predictor, images: LabelledImages) -> _Evaluated:
    scores, labels = predictor.scores(images), images.labels.numpy()
    deciding, head = predictor.deciding(scores).numpy(), scores.head.numpy()
    hits = {
        "top1": metrics.top_k_hits(deciding, labels, 1),
        "top5": metrics.top_k_hits(deciding, labels, 5),
        "head_top1": metrics.top_k_hits(head, labels, 1),
    }
    if scores.ncm is not None:
        hits["ncm_top1"] = metrics.top_k_hits(scores.ncm.numpy(), labels, 1)
    return _Evaluated(deciding.argmax(axis=1), hits)


def initial_accuracy(
    state: State, settings: LearnerSettings, task: Task
) -> dict[Literal["pt", "ncm", "random"], InitialAccuracy] | None:
    """Accuracy on a task's new classes before they are trained; None if the method does not transport.

    The nearest class mean (`ncm`) uses class centres of all new images and of exemplars, computed as at prediction.
    """
    own = initialised(state, task.train, settings)
    if own.plan is None:
        return None
    predictor, known = Predictor(own, settings), len(state.classes)
    test = task.seen_test.select_classes(range(known, len(task.seen_test.classes)))
    without_transport = replace(settings, method=make_method("replay"))
    random = Predictor(initialised(state, task.train, without_transport), without_transport)
    exemplars = state.memory.labelled(own.classes)
    assert exemplars is not None  # without any, nothing could have been transported
    centres = class_centres(
        torch.cat([predictor.features(exemplars), predictor.features(task.train)]),
        torch.cat([exemplars.labels, task.train.labels + known]),
        len(own.classes),
    )
    scores: dict[Literal["pt", "ncm", "random"], Tensor] = {
        "pt": predictor.scores(test).head,
        "ncm": F.linear(F.normalize(predictor.features(test)), centres),
        "random": random.scores(test).head,
    }
    labels = test.labels.numpy()
    return {
        way: InitialAccuracy(
            among_new=_top_k(values[:, known:].numpy(), labels, 1),
            among_all=_top_k(values.numpy(), labels + known, 1),
        )
        for way, values in scores.items()
    }


def transport_record(state: State) -> Transport | None:
    """What the newest classes were built from; None if they were not transported."""
    if state.plan is None:
        return None
    old = len(state.plan)
    shares = sources(state.plan).T.contiguous()  # (new classes, old classes)
    largest = [_largest(row, SOURCES).tolist() for row in shares]
    numbers = effective_sources(state.plan).tolist()
    origins = [
        Origin(
            name=str(name),
            sources=[
                SourceShare(name=str(state.classes[place]), share=shares[new, place].item()) for place in largest[new]
            ],
            effective_sources=numbers[new],
        )
        for new, name in enumerate(state.classes[old:])
    ]
    plan = [] if len(state.classes) > MANY_CLASSES else state.plan.tolist()
    return Transport(plan=[[round(mass, 8) for mass in row] for row in plan], origins=origins)


def _largest(values: Tensor, count: int) -> Tensor:
    """Indices of the largest values (n,) in descending order; ties go to the lower index. Not all values are sorted."""
    smallest = values.topk(min(count, len(values))).values[-1]
    candidates = torch.nonzero(values >= smallest).flatten()
    return candidates[values[candidates].sort(descending=True, stable=True).indices[:count]]


def none_if_nan(value: float) -> float | None:
    """None in place of NaN, which JSON does not have."""
    return None if np.isnan(value) else value


def _top_k(scores: np.ndarray, labels: metrics.Integers, k: int) -> float | None:
    return none_if_nan(metrics.top_k_accuracy(scores, labels, k))
