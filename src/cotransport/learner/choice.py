"""Which network suits some images: a pretrained one that stays fixed, or one that is trained from scratch.

A trial on a part of the training images decides. Nothing is trained if the pretrained network is good enough.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data import LabelledImages, resize
from cotransport.data.images import evenly_spaced
from cotransport.data.splits import held_out_indices
from cotransport.learner.building import new_network
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
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
SMALLEST_SIDE = 64
"""Smallest side of images that a network for photographs may suit."""
TESTED = 0.2
"""Share of the training images that a trial is tested on."""
FEWEST_TESTED = 20
"""With fewer tested images, a trial would not tell."""
GOOD_ENOUGH = 0.9
"""Share of right answers from which on no other network is tried."""
TRIAL_IMAGES = 40_000
"""Images that the network from scratch sees in a trial, at most, each as often as it is seen."""


class Trial(NamedTuple):
    """The shares of right answers of both networks on the same images."""

    images: int
    fixed: float
    scratch: float | None
    """None if it was not tried."""
    prefers_scratch: bool


def may_suit(data: LabelledImages) -> bool:
    """Whether a pretrained network is installed, and the images are large enough for it."""
    return data.images.size >= SMALLEST_SIDE and is_installed(PRETRAINED)


def try_networks(
    data: LabelledImages,
    fixed: LearnerSettings,
    scratch: LearnerSettings,
    *,
    scratch_side: int,
    features: FeatureCache,
    control: TrainingControl = TrainingControl(),
) -> Trial | None:
    """Try both networks on a part of the images; None if there are too few images to tell.

    data : training images. None of them may be used to test what is learned later.
    fixed, scratch : the settings of both classifiers.
    scratch_side : side of the images that the network from scratch sees.
    features : gets the features of all images, so that they need not be computed again.
    """
    part = _part(data)
    if part is None:
        return None
    train, test = part
    seen = replace(data, images=resize(data.images, PRETRAINED_SIDE, fixed.prediction.fit))
    network = new_network(fixed, TaskData(seen, None, 0, len(data.classes), fixed.loss), None, 0)
    vectors = features.features(place(network, fixed.device), seen.images, fixed.device, progress=control.features)
    right = _discriminant(vectors[train], data.labels[train], vectors[test]) == data.labels[test]
    share = float(right.double().mean())
    if share >= GOOD_ENOUGH:
        return Trial(len(test), share, None, prefers_scratch=False)
    small = replace(data, images=resize(data.images, scratch_side, scratch.prediction.fit))
    seen_once = train[evenly_spaced(len(train), TRIAL_IMAGES)]
    changes = {"epochs": min(scratch.schedule.epochs, TRIAL_IMAGES // len(seen_once)), "seconds_per_task": None}
    short = replace(scratch, schedule=scratch.schedule.model_copy(update=changes))
    state = learned(None, small.take(seen_once), short, control=TrainingControl(listener=control.listener))
    others = Predictor(state, short).decision(small.images.take(test)).argmax(dim=1) == data.labels[test]
    gained, lost = int((others & ~right).sum()), int((right & ~others).sum())
    is_better = gained - lost > math.sqrt(gained + lost)  # more than one deviation of the difference
    return Trial(len(test), share, float(others.double().mean()), prefers_scratch=is_better)


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
