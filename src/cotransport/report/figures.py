"""Figures for a paper, as PNG and SVG: accuracy, forgetting, transport, accuracy matrix and confusion matrix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from cotransport.experiments.results import Transport
from cotransport.report.confusion import Confusion
from cotransport.report.drawing import (
    MAX_NUMBERED,
    draw_heat_map,
    draw_lines,
    label_line_ends,
    label_ticks,
    line_panels,
    paper_style,
    save_figure,
    separate_tasks,
)
from cotransport.report.estimates import Line
from cotransport.report.origins import Origins
from cotransport.report.summaries import CANDIDATES, Candidates, MethodSummary, StreamSummary

_REPORT_FILES = re.compile(r"(stream\d+-)?(accuracy|forgetting|(matrix|confusion|transport|initial)-.*)\.(png|svg)")


def draw_figures(streams: Sequence[StreamSummary], folder: Path) -> None:
    """Draw all figures of the report into a folder. Figures of an earlier report are removed first."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if _REPORT_FILES.fullmatch(path.name):
            path.unlink()
    with paper_style():
        for number, stream in enumerate(streams, start=1):
            prefix = f"stream{number}-" if len(streams) > 1 else ""
            save_figure(accuracy_figure(stream), folder / f"{prefix}accuracy")
            if len(stream.tasks) > 1:
                save_figure(forgetting_figure(stream), folder / f"{prefix}forgetting")
            for method, name in zip(stream.methods, _file_names(stream.methods), strict=True):
                save_figure(matrix_figure(stream, method), folder / f"{prefix}matrix-{name}")
                if method.confusion is not None:
                    save_figure(confusion_figure(method.name, method.confusion), folder / f"{prefix}confusion-{name}")
                if method.origins is not None and method.origins.has_map:
                    save_figure(transport_figure(method.name, method.origins), folder / f"{prefix}transport-{name}")
                if any(method.initial_accuracy(candidates) for candidates in CANDIDATES):
                    save_figure(initial_figure(method), folder / f"{prefix}initial-{name}")


def accuracy_figure(stream: StreamSummary) -> Figure:
    """Accuracy over the number of classes seen, one line for each method."""
    figure, [axes] = line_panels(len(stream.methods))
    axes.set(xlabel="Classes seen", ylabel=f"{stream.metric.replace('top', 'Top-')} accuracy (%)")
    draw_lines(axes, stream.classes_seen, stream.accuracy_lines)
    lowest, highest = axes.get_ylim()
    axes.set_ylim(max(0, lowest), min(101, highest))
    label_line_ends(figure, axes, stream.classes_seen[-1], stream.accuracy_lines)
    return figure


def forgetting_figure(stream: StreamSummary) -> Figure:
    """Drop from each task's best accuracy to its last, one line for each method."""
    figure, [axes] = line_panels(len(stream.methods))
    axes.set(title="Drop from each task's best accuracy to its last", xlabel="Task", ylabel="Forgetting (points)")
    lines = [Line(method.name, method.style, method.forgetting_per_task) for method in stream.methods]
    draw_lines(axes, range(1, len(stream.tasks)), lines)
    label_line_ends(figure, axes, len(stream.tasks) - 1, lines)
    return figure


def matrix_figure(stream: StreamSummary, method: MethodSummary) -> Figure:
    """Accuracy on each task after each task."""
    tasks = len(stream.tasks)
    side = float(np.clip(0.5 * tasks + 1.2, 2.6, 7.5))
    figure = Figure(figsize=(side + 0.8, side))
    axes = figure.add_subplot()
    draw_heat_map(figure, axes, method.accuracy_matrix, "Accuracy (%)", Normalize(0, 100))
    numbers = [str(number) for number in range(1, tasks + 1)]
    with_names = [f"{number}: {', '.join(names)}" for number, names in zip(numbers, stream.task_classes, strict=True)]
    label_ticks(figure, axes, with_names if tasks <= MAX_NUMBERED else numbers, "x")
    label_ticks(figure, axes, numbers, "y")
    axes.set(title=method.name, xlabel="Tested on task", ylabel="After task")
    return figure


def confusion_figure(method_name: str, confusion: Confusion) -> Figure:
    """Share of each true class by predicted class, after the last task."""
    side = float(np.clip(0.42 * len(confusion.names) + 1.4, 3.2, 9.5))
    figure = Figure(figsize=(side + 0.8, side))
    axes = figure.add_subplot()
    # rare confusions would be invisible on a linear scale
    norm = PowerNorm(0.5, 0, 100)
    draw_heat_map(figure, axes, confusion.shares, "Share of the true class (%)", norm, numbers=confusion.counts)
    label_ticks(figure, axes, confusion.names, "x")
    label_ticks(figure, axes, confusion.names, "y")
    separate_tasks(axes, confusion.task_starts, confusion.task_starts)
    axes.set(title=method_name, xlabel="Predicted", ylabel="True")
    return figure


def transport_figure(method_name: str, origins: Origins) -> Figure:
    """Share of each old class in the first weights of each new class."""
    height, width = np.clip(0.42 * np.array(origins.shares.shape) + 1.4, 3.2, 9.5).tolist()
    figure = Figure(figsize=(width + 0.8, height))
    axes = figure.add_subplot()
    # the shares of fifty old classes are a few percent each, and would be invisible on a linear scale up to 100
    norm = PowerNorm(0.5, 0, float(np.nanmax(origins.shares)))
    draw_heat_map(figure, axes, origins.shares, "Share of the new class (%)", norm)
    label_ticks(figure, axes, origins.new, "x")
    label_ticks(figure, axes, origins.old, "y")
    separate_tasks(axes, origins.old_task_starts, origins.new_task_starts)
    axes.set(title=f"{method_name}: what new classes were built from", xlabel="New class", ylabel="Old class")
    return figure


def draw_plan(transport: Transport, classes: Sequence[str], title: str, path: Path) -> bool:
    """Draw one task's transport as a PNG file. False, and no file, if there are too many classes for a map.

    classes : in order of arrival, the task's own included.
    """
    plan = np.asarray(transport.plan, dtype=np.float64)
    old, new = plan.shape
    origins = Origins(
        old=list(classes[:old]),
        new=list(classes[old : old + new]),
        shares=100 * new * plan,
        effective_sources=[],
        old_task_starts=[0],
        new_task_starts=[0],
    )
    if origins.has_map:
        with paper_style():
            transport_figure(title, origins).savefig(path, dpi=100, bbox_inches="tight")
    return origins.has_map


def initial_figure(method: MethodSummary) -> Figure:
    """Accuracy on each task's new classes before training on them, one line for each initial classifier."""
    titles: dict[Candidates, str] = {"new": "among the new classes", "all": "among all classes seen"}
    figure, panels = line_panels(0, len(titles))
    positions = range(2, len(method.tasks) + 1)
    for axes, (candidates, title) in zip(panels, titles.items(), strict=True):
        axes.set(title=f"{method.name}, {title}", xlabel="Task", ylabel="Accuracy before training (%)", ylim=(0, 100))
        draw_lines(axes, positions, method.initial_accuracy(candidates))
    for axes, candidates in zip(panels, titles, strict=True):  # labels fix the layout, so all lines come first
        label_line_ends(figure, axes, positions[-1], method.initial_accuracy(candidates))
    return figure


def _file_names(methods: Sequence[MethodSummary]) -> list[str]:
    """Plain, distinct file names. A method's name may contain any character, slashes too."""
    names: list[str] = []
    for method in methods:
        plain = re.sub(r"[^a-z0-9]+", "-", method.name.lower()).strip("-")[:60] or "method"
        names.append(next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if n not in names))
    return names
