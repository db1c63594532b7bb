"""Decision boundaries in two dimensions: of old classes after training, and of new ones right after initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport import metrics
from cotransport.data import load_data_set, open_source
from cotransport.errors import ConfigError
from cotransport.experiments.evaluation import transport_record
from cotransport.experiments.preparation import Run, check_classes, expected_work, learner_settings, with_augmentation
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.results import Transport
from cotransport.experiments.stream import TaskStream, split_classes
from cotransport.learner.learning import initialised, learned
from cotransport.learner.prediction import Predictor
from cotransport.settings.validation import Settings
from cotransport.training.listener import Listener, NullListener
from cotransport.training.loop import TrainingControl
from cotransport.training.processes import processes_for

SCALE = 2.0
"""The head's initial scale, unless the recipe sets one. In two dimensions, weights start close together. With a larger
scale, the features stop changing before the weights have moved apart."""


@dataclass(frozen=True, eq=False)
class View:
    """Test images and decision regions on the circle of two-dimensional features."""

    classes: tuple[str, ...]
    features: metrics.Floats
    """Features (n, 2), of unit length."""
    labels: metrics.Integers
    weights: metrics.Floats
    """The head's weights (classes, 2), of unit length."""

    def accuracy(self, classes: Sequence[int]) -> float:
        """Accuracy in percent on the images of some classes, with all classes as answers; NaN without images."""
        own = np.isin(self.labels, classes)
        return float(100 * np.mean(self.regions(self.features[own]) == self.labels[own])) if own.any() else np.nan

    def regions(self, points: metrics.Floats) -> metrics.Integers:
        """The class of each point (n, 2): the one whose weights have the nearest direction."""
        return np.asarray((points @ self.weights.T).argmax(axis=1))


@dataclass(frozen=True, eq=False)
class Boundary:
    """The two views that the paper's decision-boundary figure shows side by side."""

    old: View
    grown: View
    transport: Transport | None
    """What the new classes were built from; None if their weights are random."""


def boundary(recipe: Recipe, listener: Listener) -> Boundary:
    """Train the first task in two dimensions, and initialise the second task's classes.

    It uses the recipe's first seed, and its first method that transports; if none does, its first method.
    """
    source = open_source(recipe.data)
    recipe = _in_two_dimensions(with_augmentation(recipe, source))
    split = split_classes(source.classes, recipe.stream)
    if len(split) < 2:
        raise ConfigError("stream: one task alone has no new classes. Name some with --new, or split into two tasks")
    if len(split[0]) < 2:
        raise ConfigError("one old class alone has no boundary. Name at least two with --old")
    stream = TaskStream(
        load_data_set(source, recipe.data, recipe.prediction.fit), split[:2], recipe.stream.later_images
    )
    check_classes(stream)
    method = next((method for method in recipe.methods if method.transports), recipe.methods[0])
    one = Run(method, recipe.seeds[0])
    settings = learner_settings(recipe, one)
    listener = listener if processes_for(recipe.device).is_first else NullListener()
    listener.planned(1, [])
    listener.job_started(f"{one.label}, seed {one.seed}", [], expected_work(recipe, method, stream)[:1], 0)
    old = learned(None, stream[0].train, settings, control=TrainingControl(listener=listener.training))
    grown = initialised(old, stream[1].train, settings)
    before, after = (_view(Predictor(state, settings), stream, task) for task, state in enumerate((old, grown)))
    return Boundary(before, after, transport_record(grown))


def _in_two_dimensions(recipe: Recipe) -> Recipe:
    changes: dict[str, Settings] = {"backbone": recipe.backbone.model_copy(update={"dimension": 2})}
    if "scale" not in recipe.head.model_fields_set:
        changes["head"] = recipe.head.model_copy(update={"scale": SCALE})
    return recipe.model_copy(update=changes)


def _view(predictor: Predictor, stream: TaskStream, task: int) -> View:
    """The learner after a task, with the test images of all classes seen."""
    test = stream[task].seen_test
    return View(
        classes=tuple(str(name) for name in predictor.state.classes),
        features=_floats(F.normalize(predictor.features(test))),
        labels=test.labels.numpy(),
        weights=_floats(F.normalize(predictor.state.network.head.weight.detach())),
    )


def _floats(tensor: Tensor) -> metrics.Floats:
    return np.asarray(tensor.to(torch.float64).cpu().numpy())
