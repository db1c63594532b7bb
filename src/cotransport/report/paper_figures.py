"""A figure of the paper from runs of its experiments: curves, a panel for each stream."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from cotransport.report.drawing import GRID, draw_lines, label_line_ends
from cotransport.report.estimates import Line
from cotransport.report.paper_tables import OURS, accuracy_name, initial_method, short_titles
from cotransport.report.summaries import StreamSummary
from cotransport.report.tables import LAST
from cotransport.report.text import one_decimal

VARIED = ("coil", "coil-tuned")
"""The methods that a row of COIL's own variations, such as CE+KD+PT, is made of."""
COLUMNS = 2
"""Panels side by side."""


def figure_of(streams: Sequence[StreamSummary], *, before_training: bool = False) -> Figure:
    """The paper's curves.

    before_training : instead, panels for new classes before training, if these were evaluated.
    """
    titles = short_titles(streams)
    curves = [_curves(stream, title) for stream, title in zip(streams, titles, strict=True)]
    initial = [panel for stream in streams for panel in _initial_panels(stream)] if before_training else []
    panels = initial or curves
    lines = max(len(panel.lines) for panel in panels)
    columns, rows = min(COLUMNS, len(panels)), -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(6.0 * columns, max(3.4, 1.0 + 0.18 * lines) * rows), layout="constrained")
    drawn = [(figure.add_subplot(rows, columns, place), panel) for place, panel in enumerate(panels, start=1)]
    for axes, panel in drawn:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set(title=panel.title, xlabel=panel.axis, ylabel=f"{panel.measure} (%)")
        draw_lines(axes, panel.positions, panel.lines)
    for axes, panel in drawn:  # labels fix the layout, so all lines come first
        label_line_ends(figure, axes, panel.positions[-1], panel.lines)
    return figure


@dataclass(frozen=True)
class _Panel:
    """Lines over classes or tasks."""

    title: str
    axis: str
    measure: str
    positions: Sequence[int]
    lines: Sequence[Line]


def _curves(stream: StreamSummary, title: str) -> _Panel:
    return _Panel(
        _with_lead(title, stream), "Classes seen", accuracy_name(stream), stream.classes_seen, stream.accuracy_lines
    )


def _initial_panels(stream: StreamSummary) -> Iterator[_Panel]:
    method = initial_method(stream)
    if method is None:
        return
    tasks = range(2, len(stream.tasks) + 1)
    yield _Panel(
        "New classes before training, among themselves", "Task", "Accuracy", tasks, method.initial_accuracy("new")
    )
    yield _Panel("New classes before training, among all", "Task", "Accuracy", tasks, method.initial_accuracy("all"))


def _with_lead(title: str, stream: StreamSummary) -> str:
    """A panel's title, with the lead of COIL over the next best method after the last task, if there are both.

    Its own variations are no rivals: the best of them is named by itself. A lead is the difference of the accuracies as
    they are printed, so that a reader who subtracts gets the same.
    """
    last = {method.name: round(LAST.estimate(method).mean, 1) for method in stream.competitors}
    own = last.pop(OURS, math.nan)
    variations = {method.name for method in stream.competitors if method.results[0].method in VARIED}
    leads = []
    for is_variation in (False, True):
        others = {
            name: value
            for name, value in last.items()
            if (name in variations) is is_variation and not math.isnan(own - value)
        }
        if others:
            best = max(others, key=others.__getitem__)
            leads.append(f"{_lead(own - others[best])} {best}")
    return f"{title}: {OURS} {', '.join(leads)}" if leads else title


def _lead(points: float) -> str:
    if one_decimal(abs(points)) == one_decimal(0.0):
        return "level with"
    return f"{one_decimal(abs(points))} {'ahead of' if points > 0 else 'behind'}"
