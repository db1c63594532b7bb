"""The evaluation of a learner after a task: accuracies, confusion matrix, and what new classes were built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport import metrics
from cotransport.data import LabelledImages
from cotransport.experiments.results import Accuracies, InitialAccuracy, Origin, SourceShare, Transport
from cotransport.experiments.stream import Task
from cotransport.learner.learning import initialised
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.methods import make_method
from cotransport.transport import class_centres, effective_sources

SOURCES = 5
"""Old classes that a result names for each new class. The transport plan has all of them."""


def evaluate(
    predictor: Predictor,
    test: LabelledImages,
    task_sizes: Sequence[int],
    metric: Literal["top1", "top5"] = "top1",
) -> tuple[Accuracies, metrics.Integers]:
    """Accuracies and the confusion matrix of a learner, on the test images of all classes seen."""
    scores = predictor.scores(test)
    deciding = predictor.deciding(scores).numpy()
    labels = test.labels.numpy()
    hits = metrics.top_k_hits(deciding, labels, 1 if metric == "top1" else 5)
    accuracies = Accuracies(
        classes_seen=len(test.classes),
        top1=_top_k(deciding, labels, 1),
        top5=_top_k(deciding, labels, 5),
        head_top1=_top_k(scores.head.numpy(), labels, 1),
        ncm_top1=None if scores.ncm is None else _top_k(scores.ncm.numpy(), labels, 1),
        per_task=[none_if_nan(value) for value in metrics.accuracy_per_task(hits, labels, task_sizes)],
    )
    return accuracies, metrics.confusion_matrix(deciding.argmax(axis=1), labels, len(test.classes))


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
    built = zip(state.built_from().items(), effective_sources(state.plan).tolist(), strict=True)
    origins = [
        Origin(
            name=str(name),
            sources=[SourceShare(name=str(old), share=share) for old, share in list(shares.items())[:SOURCES]],
            effective_sources=number,
        )
        for (name, shares), number in built
    ]
    return Transport(plan=[[round(mass, 8) for mass in row] for row in state.plan.tolist()], origins=origins)


def none_if_nan(value: float) -> float | None:
    """None in place of NaN, which JSON does not have."""
    return None if np.isnan(value) else value


def _top_k(scores: np.ndarray, labels: metrics.Integers, k: int) -> float | None:
    return none_if_nan(metrics.top_k_accuracy(scores, labels, k))
