"""Decision boundaries in two dimensions: old classes, trained, and new ones straight after initialisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport import metrics
from cotransport.data import load_data_set, open_source
from cotransport.errors import ConfigError, RunError
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.results import Transport
from cotransport.experiments.run import (
    Run,
    Watcher,
    check_classes,
    classifier_for,
    expected_work,
    suited,
    transport_record,
)
from cotransport.experiments.stream import TaskStream, split_classes
from cotransport.learner.estimator import IncrementalClassifier
from cotransport.methods.retrospection import Transporting
from cotransport.report.figures import paper_style, save
from cotransport.report.style import COLOURS
from cotransport.report.text import one_decimal, one_line, plural, shortened
from cotransport.settings.validation import Settings
from cotransport.training.loop import fabric_for

SCALE = 2.0
"""The head's first scale unless the recipe names one: with a larger one, features settle before weights that happen to
lie close together in two dimensions have moved apart."""
EXTENT, PIXELS = 1.5, 900
EXPLAINED = (
    "Dots are test images. Only their angle counts: features have length 1, dots are strewn over a ring to be seen.\n"
    "Arrows are the classes' weights; a region belongs to the nearest arrow. Percentages: images in their region."
)
GAP = 0.3
"""Radians between two names on the circle, at least."""
RING = 0.9, 1.1
"""Features have length 1; their dots are strewn between these radii, so that they do not hide each other."""


@dataclass(frozen=True, eq=False)
class View:
    """Test images and decision regions on the circle of two-dimensional features."""

    classes: tuple[str, ...]
    features: metrics.Floats
    """Of unit length (n, 2)."""
    labels: metrics.Integers
    weights: metrics.Floats
    """The head's directions (classes, 2)."""

    def accuracy(self, classes: Sequence[int]) -> float:
        """On the images of some classes, in percent, if all classes can be answered; NaN without images."""
        own = np.isin(self.labels, classes)
        return float(100 * np.mean(self.regions(self.features[own]) == self.labels[own])) if own.any() else np.nan

    def accuracy_text(self, number: int) -> str:
        """One class's accuracy for people."""
        return f"{one_decimal(self.accuracy([number]))}\N{NO-BREAK SPACE}%"

    def regions(self, points: metrics.Floats) -> metrics.Integers:
        """The class that the head gives to points (n, 2): the one whose direction is nearest."""
        return np.asarray((points @ self.weights.T).argmax(axis=1))


@dataclass(frozen=True, eq=False)
class Boundary:
    """The two views that the paper's decision-boundary figure sets side by side."""

    old: View
    grown: View
    transport: Transport | None
    """What the new classes were built from, None for a method that draws their weights at random."""


def boundary(recipe: Recipe, watcher: Watcher) -> Boundary:
    """Train the first task in two dimensions, and initialise the second one's classes.

    It takes the recipe's first seed and its first method that transports, or its first method.
    """
    source = open_source(recipe.data)
    recipe = suited(recipe, source)
    flat: dict[str, Settings] = {"backbone": recipe.backbone.model_copy(update={"dimension": 2})}
    if "scale" not in recipe.head.model_fields_set:
        flat["head"] = recipe.head.model_copy(update={"scale": SCALE})
    recipe = recipe.model_copy(update=flat)
    split = split_classes(source.classes, recipe.stream)
    if len(split) < 2:
        raise ConfigError("stream: one task alone has no new classes. Name some with --new, or split into two tasks")
    if len(split[0]) < 2:
        raise ConfigError("one old class alone has no boundary. Name at least two with --old")
    stream = TaskStream(load_data_set(source, recipe.data), split[:2])
    check_classes(stream)
    transporting = [method for method in recipe.methods if isinstance(method, Transporting)]
    one = Run((transporting or recipe.methods)[0], recipe.seeds[0])
    classifier = classifier_for(recipe, one)
    if fabric_for(recipe.device).is_global_zero:
        watcher.planned(1, [])
        watcher.run_begun(one, expected_work(recipe, one.method, stream)[:1])
    classifier.learn(stream[0].train, listener=watcher.figures)
    grown = classifier.initialise(stream[1].train)
    return Boundary(_view(classifier, stream, 0), _view(grown, stream, 1), transport_record(grown))


def draw(found: Boundary, folder: Path) -> Path:
    """Draw both views side by side as `boundary.png` and `boundary.svg`; returns the path of the first."""
    from matplotlib.figure import Figure

    new = len(found.grown.classes) - len(found.old.classes)
    how = "at random" if found.transport is None else "by transport"
    titles = (
        f"{plural(len(found.old.classes), 'old class')}, trained",
        f"and {plural(new, 'new class')} initialised {how}, untrained",
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with paper_style():
            figure = Figure(figsize=(10, 5.2), layout="constrained")
            for axes, view, title in zip(figure.subplots(1, 2), (found.old, found.grown), titles, strict=True):
                _draw_view(axes, view, title)
            figure.supxlabel(EXPLAINED, fontsize=9)
            save(figure, folder / "boundary")
    except OSError as error:
        raise RunError(f"{folder}: the figure cannot be written ({error.strerror}). Choose another --out") from None
    return folder / "boundary.png"


def _view(classifier: IncrementalClassifier, stream: TaskStream, task: int) -> View:
    """The classifier after a task, with the test images of all classes seen."""
    test = stream[task].seen_test
    return View(
        classes=tuple(one_line(str(name)) for name in classifier.state_.classes),
        features=_floats(F.normalize(classifier.features(test))),
        labels=test.labels.numpy(),
        weights=_floats(F.normalize(classifier.state_.network.head.weight.detach())),
    )


def _draw_view(axes: object, view: View, title: str) -> None:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap

    assert isinstance(axes, Axes)
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(view.classes))]
    side = np.linspace(-EXTENT, EXTENT, PIXELS)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    shades = view.regions(points).reshape(PIXELS, PIXELS)
    axes.imshow(
        shades,
        origin="lower",
        extent=(-EXTENT, EXTENT, -EXTENT, EXTENT),
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        alpha=0.22,
        interpolation="nearest",
    )
    across, up = (_radii(view.labels)[:, None] * view.features).T
    axes.scatter(across, up, s=6, c=[colours[label] for label in view.labels], linewidths=0, alpha=0.7)
    own = [view.features[view.labels == number] for number in range(len(colours))]
    places = _apart([mine.mean(axis=0) if len(mine) else view.weights[number] for number, mine in enumerate(own)])
    for number, (name, direction) in enumerate(zip(view.classes, view.weights, strict=True)):
        axes.annotate("", 0.8 * direction, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colours[number]})
        x, y = 1.27 * np.cos(places[number]), 1.27 * np.sin(places[number])
        text = f"{shortened(name.replace('_', ' '), 16)}\n{view.accuracy_text(number)}"
        axes.text(float(x), float(y), text, ha="center", va="center", color=colours[number], weight="bold", fontsize=9)
    axes.set(title=title, xticks=[], yticks=[], xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal")


def _radii(labels: metrics.Integers) -> metrics.Floats:
    """A radius for each dot, the same in both views: evenly strewn over the ring by its number within the class."""
    radii = np.empty(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        radii[own] = RING[0] + (RING[1] - RING[0]) * (np.arange(len(own)) * 0.618 % 1)
    return radii


def _apart(directions: Sequence[metrics.Floats]) -> list[float]:
    """Angles for names on the circle: each at its own direction, or as near to it as earlier names leave room.

    >>> [round(angle, 2) for angle in _apart([np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0])])]
    [0.0, 1.57, 0.3]
    """
    taken: list[float] = []
    for x, y in directions:
        own = float(np.arctan2(y, x))
        tried = [own + turn * side * GAP / 5 for turn in range(60) for side in (1, -1)]
        free = (angle for angle in tried if all(np.cos(angle - other) <= np.cos(GAP) + 1e-9 for other in taken))
        taken.append(next(free, own))
    return taken


def _floats(tensor: Tensor) -> metrics.Floats:
    return np.asarray(tensor.to(torch.float64).cpu().numpy())
