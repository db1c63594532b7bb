"""The figure of decision boundaries: both views side by side, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cotransport import metrics
from cotransport.errors import RunError
from cotransport.experiments.boundary import Boundary, View
from cotransport.report.drawing import paper_style, save_figure
from cotransport.report.paper_tables import PaperTable
from cotransport.report.style import COLOURS
from cotransport.report.text import one_decimal, one_line, plural, shorten

EXTENT, PIXELS = 1.5, 900
EXPLANATION = (
    "Dots are test images. Only their angle counts: features have length 1, and dots are spread over a ring.\n"
    "Arrows are the classes' weights; a region belongs to the nearest arrow. Percentages: images in their region."
)
GAP = 0.3
"""Radians between two names on the circle, at least."""
RING = 0.9, 1.1
"""Features have length 1. Their dots are spread between these radii, so that they do not hide each other."""


def draw_boundary(found: Boundary, folder: Path) -> Path:
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
            figure.supxlabel(EXPLANATION, fontsize=9)
            save_figure(figure, folder / "boundary")
    except OSError as error:
        raise RunError(f"{folder}: the figure cannot be written ({error.strerror}). Choose another --out") from None
    return folder / "boundary.png"


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
        text = f"{shorten(one_line(name).replace('_', ' '), 16)}\n{accuracy_text(view, number)}"
        axes.text(float(x), float(y), text, ha="center", va="center", color=colours[number], weight="bold", fontsize=9)
    axes.set(title=title, xticks=[], yticks=[], xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal")


def classes_table(found: Boundary) -> PaperTable:
    """The accuracy of every class before and after the new ones come, and what the new ones were built from."""
    old = len(found.old.classes)
    origins = [] if found.transport is None else found.transport.origins
    rows = []
    for number, name in enumerate(found.grown.classes):
        own = origins[number - old].sources if origins and number >= old else []
        shares = ", ".join(f"{source.name} {source.share:.2f}" for source in own)
        before = accuracy_text(found.old, number) if number < old else "new"
        rows.append([name, before, accuracy_text(found.grown, number), shares])
    return PaperTable(["class", "accuracy before", "with new classes", "built from"], rows, "Classes")


def _radii(labels: metrics.Integers) -> metrics.Floats:
    """A radius for each dot, the same in both views: evenly spread over the ring by its number within the class."""
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


def accuracy_text(view: View, number: int) -> str:
    """The accuracy on one class, for people."""
    return f"{one_decimal(view.accuracy([number]))}\N{NO-BREAK SPACE}%"
