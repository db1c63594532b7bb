"""Small classifiers that learn the images of `blobs` well, and their settings."""

from __future__ import annotations

from typing import TypeAlias

from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages
from cotransport.learner.settings import LearnerSettings
from cotransport.settings.sections import Budget, Schedule
from cotransport.system.randomness import seeded
from tests import conftest

Tasks: TypeAlias = tuple[LabelledImages, LabelledImages]
ENOUGH = Schedule(epochs=6, batch_size=16, learning_rate=0.1)
"""A schedule in which the classes of `blobs` are learned."""


def classifier(method: object = "replay", backbone: object = "resnet8", **settings: object) -> IncrementalClassifier:
    """A small classifier, with enough epochs and exemplars."""
    made = conftest.classifier(method, **({"schedule": ENOUGH, "memory": Budget(total=2000)} | settings))
    return made.set_params(backbone=backbone)  # type: ignore[no-any-return]


def learner_settings(method: object = "replay", backbone: object = "resnet8", **settings: object) -> LearnerSettings:
    """The settings of a small classifier."""
    return LearnerSettings.validate(classifier(method, backbone, **settings).get_params(deep=False))


def module(seed: int = 0) -> nn.Module:
    """A user's own backbone for images of 8 x 8 pixels."""
    with seeded(seed):
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU())
