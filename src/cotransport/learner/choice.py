"""Which network suits some images: a pretrained one, frozen or fine-tuned, or one that is trained from scratch.

A trial on a part of the training images decides. Nothing is trained if the frozen network is good enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from cotransport.data import LabelledImages, resize
from cotransport.data.images import evenly_spaced
from cotransport.data.splits import held_out_indices
from cotransport.learner.building import new_network
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import is_grey
from cotransport.methods.analytic import Analytic
from cotransport.networks.efficientnet_lite import is_installed
from cotransport.networks.heads import DiscriminantHead
from cotransport.training.feature_cache import FeatureCache
from cotransport.training.inference import place
from cotransport.training.loop import TrainingControl
from cotransport.training.task_data import TaskData

PRETRAINED = "efficientnet-lite0"
PRETRAINED_SIDE = 224
"""Side of the images that the pretrained network was trained on. It recognises smaller ones worse."""
SMALLEST_SIDE, SMALLEST_TRIED = 64, 24
"""Smallest side of images that a network for photographs usually suits, and of colour images that it may suit."""
FEW = 5_000
"""Small images are tried if there are no more than this: they are enlarged, and their features take long."""
TESTED = 0.2
"""Share of the training images that a trial is tested on."""
FEWEST_TESTED = 20
"""With fewer tested images, a trial would not tell."""
GOOD_ENOUGH = 0.9
"""Share of right answers from which on no other network is tried."""
TRIAL_IMAGES = 40_000
"""Images that a trained network sees in a trial, at most, counted in every epoch."""
Way: TypeAlias = Literal["frozen", "fine-tuned", "from scratch"]
"""A way to get a network: a pretrained one as it is, a pretrained one that is trained further, or a new one."""


class Candidate(NamedTuple):
    """A network that is trained in a trial."""

    settings: LearnerSettings
    side: int
    """Side of the images that it sees."""


class Trial(NamedTuple):
    """The result of a trial."""

    images: int
    """Number of images that were tested."""
    shares: Mapping[Way, float]
    """The share of right answers in each way that was tried, on the same images."""
    best: Way
    """The way to choose."""


def may_suit(data: LabelledImages) -> bool:
    """Whether a pretrained network is installed, and the images are large enough for it, or few and in colour."""
    side = data.images.size
    if side < SMALLEST_TRIED or not is_installed(PRETRAINED):
        return False
    return side >= SMALLEST_SIDE or (len(data) <= FEW and not is_grey(data))


def try_networks(
    data: LabelledImages,
    frozen: LearnerSettings,
    others: Mapping[Way, Candidate],
    *,
    features: FeatureCache,
    control: TrainingControl = TrainingControl(),
) -> Trial | None:
    """Try networks on a part of the images; None if there are too few images to tell.

    data : training images. None of them may be used to test what is learned later.
    frozen : the settings of the classifier on the frozen network.
    others : networks that are trained if the frozen one is not good enough.
    features : gets the features of all images, so that they need not be computed again.
    """
    part = _part(data)
    if part is None:
        return None
    train, test = part
    seen = replace(data, images=resize(data.images, PRETRAINED_SIDE, frozen.prediction.fit))
    network = new_network(frozen, TaskData(seen, None, 0, len(data.classes), frozen.loss), None, 0)
    vectors = features.features(place(network, frozen.device), seen.images, frozen.device, progress=control.features)
    right: dict[Way, Tensor] = {}
    right["frozen"] = _discriminant(vectors[train], data.labels[train], vectors[test]) == data.labels[test]
    if _share(right["frozen"]) < GOOD_ENOUGH:
        for way, candidate in others.items():
            right[way] = _trained_answers(data, train, test, candidate, control) == data.labels[test]
    return Trial(len(test), {way: _share(own) for way, own in right.items()}, best_way(right))


def best_way(right: Mapping[Way, Tensor]) -> Way:
    """The way to choose: the frozen network, unless another is better by a standard deviation of the difference.

    right : which of the same images each network recognises.
    """

    def is_better(way: Way) -> bool:
        gained, lost = (int((one & ~other).sum()) for one, other in permutations((right[way], right["frozen"])))
        return gained - lost > math.sqrt(gained + lost)

    return max(filter(is_better, right), key=lambda way: _share(right[way]), default="frozen")


def _trained_answers(
    data: LabelledImages, train: Tensor, test: Tensor, candidate: Candidate, control: TrainingControl
) -> Tensor:
    """The classes that a network predicts for some images after a short training on others."""
    settings, side = candidate
    images = replace(data, images=resize(data.images, side, settings.prediction.fit))
    chosen = train[evenly_spaced(len(train), TRIAL_IMAGES)]
    changes = {"epochs": min(settings.schedule.epochs, TRIAL_IMAGES // len(chosen)), "seconds_per_task": None}
    short = replace(settings, schedule=settings.schedule.model_copy(update=changes))
    state = learned(None, images.take(chosen), short, control=TrainingControl(listener=control.listener))
    return Predictor(state, short).decision(images.images.take(test)).argmax(dim=1)


def _share(right: Tensor) -> float:
    return float(right.double().mean())


def _part(data: LabelledImages) -> tuple[Tensor, Tensor] | None:
    """The indices of images to train on and to test on; None if there are too few, or a class has only one."""
    if int(data.counts().min()) < 2:
        return None
    train, test = held_out_indices(data, TESTED)
    return None if len(test) < FEWEST_TESTED else (train, test)


def _discriminant(features: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """The classes that a discriminant of these features predicts for others."""
    method = Analytic()
    head = DiscriminantHead(features.shape[1], method.power)
    head.grow(int(labels.max()) + 1)
    head.observe(features, labels)
    head.solve(method.shrinkage)
    with torch.no_grad():
        predicted: Tensor = head(others).argmax(dim=1)
    return predicted
