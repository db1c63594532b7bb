"""Figures for a paper: curves, forgetting, transport, accuracy and confusion matrices, as PNG and SVG."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names

from cotransport.metrics import Floats, Integers
from cotransport.report.aggregate import Among, Line, MethodSummary, StreamSummary, thinned
from cotransport.report.text import one_decimal, shortened

INK, GRID = "#22272E", "#E3E6EA"
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Arabic", "Noto Sans Devanagari")
MOST_NUMBERED = 20
"""Rows of a matrix up to which its cells show their number."""
MOST_TICKS = 100
"""Names along an axis; of more than this, only some are written."""
_OURS = re.compile(r"(stream\d+-)?(accuracy|forgetting|(matrix|confusion|transport|initial)-.*)\.(png|svg)")


def draw(streams: Sequence[StreamSummary], folder: Path) -> None:
    """Draw every figure of the report into a folder, and remove those of an earlier report that had more of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            path.unlink()
    with paper_style():
        for number, stream in enumerate(streams, start=1):
            prefix = f"stream{number}-" if len(streams) > 1 else ""
            save(accuracy_figure(stream), folder / f"{prefix}accuracy")
            if len(stream.tasks) > 1:
                save(forgetting_figure(stream), folder / f"{prefix}forgetting")
            for method, name in zip(stream.methods, _file_names(stream.methods), strict=True):
                save(matrix_figure(stream, method), folder / f"{prefix}matrix-{name}")
                if method.confusion is not None:
                    save(confusion_figure(method), folder / f"{prefix}confusion-{name}")
                if method.sources is not None and method.sources.is_drawn:
                    save(transport_figure(method), folder / f"{prefix}transport-{name}")
                if method.initial("new") or method.initial("all"):
                    save(initial_figure(method), folder / f"{prefix}initial-{name}")


def accuracy_figure(stream: StreamSummary) -> Figure:
    """Accuracy over the number of classes seen, a line for each method."""
    figure, [axes] = _line_axes(len(stream.methods))
    axes.set(xlabel="Classes seen", ylabel=f"{stream.metric.replace('top', 'Top-')} accuracy (%)")
    lines = [Line(method.name, method.look, method.curve) for method in stream.methods]
    _draw_lines(axes, stream.classes_seen, lines)
    lowest, highest = axes.get_ylim()
    axes.set_ylim(max(0, lowest), min(101, highest))
    _label_ends(figure, axes, stream.classes_seen[-1], lines)
    return figure


def forgetting_figure(stream: StreamSummary) -> Figure:
    """Points lost on each task until the end, a line for each method."""
    figure, [axes] = _line_axes(len(stream.methods))
    axes.set(xlabel="Task", ylabel="Forgetting (points)")
    lines = [Line(method.name, method.look, method.forgetting_per_task) for method in stream.methods]
    _draw_lines(axes, range(1, len(stream.tasks)), lines)
    _label_ends(figure, axes, len(stream.tasks) - 1, lines)
    return figure


def matrix_figure(stream: StreamSummary, method: MethodSummary) -> Figure:
    """Accuracy on each task after each task."""
    tasks = len(stream.tasks)
    side = float(np.clip(0.5 * tasks + 1.2, 2.6, 7.5))
    figure = Figure(figsize=(side + 0.8, side))
    axes = figure.add_subplot()
    _draw_cells(figure, axes, method.accuracy_matrix, "Accuracy (%)", Normalize(0, 100))
    names = [f"{i}: {', '.join(names)}" for i, names in enumerate(stream.task_classes, start=1)]
    _name_ticks(figure, axes, names if tasks <= MOST_NUMBERED else [str(i + 1) for i in range(tasks)], "x")
    _name_ticks(figure, axes, [str(i + 1) for i in range(tasks)], "y")
    axes.set(title=method.name, xlabel="Tested on task", ylabel="After task")
    return figure


def confusion_figure(method: MethodSummary) -> Figure:
    """Shares of each true class by predicted class, after the last task."""
    confusion = method.confusion
    assert confusion is not None
    side = float(np.clip(0.42 * len(confusion.names) + 1.4, 3.2, 9.5))
    figure = Figure(figsize=(side + 0.8, side))
    axes = figure.add_subplot()
    # rare confusions would be invisible on a linear scale
    norm = PowerNorm(0.5, 0, 100)
    _draw_cells(figure, axes, confusion.shares, "Share of the true class (%)", norm, numbers=confusion.counts)
    _name_ticks(figure, axes, confusion.names, "x")
    _name_ticks(figure, axes, confusion.names, "y")
    _part_tasks(axes, confusion.starts, confusion.starts)
    axes.set(title=method.name, xlabel="Predicted", ylabel="True")
    return figure


def transport_figure(method: MethodSummary) -> Figure:
    """Shares of each new class's first weights by the old class that they came from."""
    sources = method.sources
    assert sources is not None
    height, width = np.clip(0.42 * np.array(sources.shares.shape) + 1.4, 3.2, 9.5).tolist()
    figure = Figure(figsize=(width + 0.8, height))
    axes = figure.add_subplot()
    # of fifty old classes each may have a few percent
    norm = PowerNorm(0.5, 0, float(np.nanmax(sources.shares)))
    _draw_cells(figure, axes, sources.shares, "Share of the new class (%)", norm)
    _name_ticks(figure, axes, sources.new, "x")
    _name_ticks(figure, axes, sources.old, "y")
    _part_tasks(axes, sources.old_starts, sources.new_starts)
    axes.set(title=f"{method.name}: what new classes were built from", xlabel="New class", ylabel="Old class")
    return figure


def initial_figure(method: MethodSummary) -> Figure:
    """Accuracy on each later task's new classes before they are trained, a line for each way of telling them apart."""
    panels: dict[Among, str] = {"new": "among the new classes", "all": "among all classes seen"}
    figure, both = _line_axes(0, len(panels))
    places = range(2, len(method.tasks) + 1)
    for axes, (among, title) in zip(both, panels.items(), strict=True):
        axes.set(title=f"{method.name}, {title}", xlabel="Task", ylabel="Accuracy before training (%)", ylim=(0, 100))
        _draw_lines(axes, places, method.initial(among))
    for axes, among in zip(both, panels, strict=True):
        _label_ends(figure, axes, places[-1], method.initial(among))
    return figure


@contextmanager
def paper_style() -> Iterator[None]:
    """Fonts and colours of all figures, for as long as they are drawn."""
    installed = set(get_font_names())
    style: dict[Any, Any] = {
        "font.family": [font for font in FONTS if font in installed],
        "font.size": 9,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "svg.hashsalt": "cotransport",  # the same results give the same file
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # a script that no installed font has is drawn as boxes, which is all that can be done about it here
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and as SVG beside it; the path is without an ending."""
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=200, bbox_inches="tight")
    figure.savefig(path.with_name(f"{path.name}.svg"), bbox_inches="tight", metadata={"Date": None})


def _file_names(methods: Sequence[MethodSummary]) -> list[str]:
    """Plain, distinct names for files; a label may hold anything, slashes too."""
    names: list[str] = []
    for method in methods:
        plain = re.sub(r"[^a-z0-9]+", "-", method.name.lower()).strip("-")[:60] or "method"
        names.append(next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 1000))) if n not in names))
    return names


def _line_axes(lines: int, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Panels side by side, high enough for the labels of so many lines."""
    figure = Figure(figsize=(6.0 * panels, max(3.4, 1.0 + 0.18 * lines)), layout="constrained")
    every_axes = [figure.add_subplot(1, panels, panel + 1) for panel in range(panels)]
    for axes in every_axes:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, every_axes


def _draw_lines(axes: Axes, places: Sequence[int], lines: Sequence[Line]) -> None:
    for line in lines:
        mean = np.array([estimate.mean for estimate in line.estimates])
        deviation = np.array([estimate.deviation for estimate in line.estimates])
        look = line.look
        axes.fill_between(places, mean - deviation, mean + deviation, color=look.colour, alpha=0.15, linewidth=0)
        axes.plot(
            places,
            mean,
            color=look.colour,
            linestyle=look.dash[0],
            marker=look.marker[0],
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linewidth=1.6,
            clip_on=False,
            zorder=3,
        )
    axes.set_xticks(thinned(places, 20))


def _label_ends(figure: Figure, axes: Axes, last: int, lines: Sequence[Line]) -> None:
    """Write each line's name and last value beside its end, without overlap."""
    ends = [(line.estimates[-1].mean, line) for line in lines if not np.isnan(line.estimates[-1].mean)]
    ends.sort(key=lambda end: end[0])
    figure.draw_without_rendering()  # settles the layout, and with it the height of a line of text
    bottom, top = axes.get_ylim()
    line_height = 11 / 72 * figure.dpi * (top - bottom) / axes.get_window_extent().height
    places = _spread([end for end, _ in ends], line_height, top)
    for (end, line), place in zip(ends, places, strict=True):
        axes.annotate(
            f"{line.name}  {one_decimal(end)}",
            xy=(last, end),
            xytext=(1.05, place),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": line.look.colour,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 2,
                "shrinkB": 4,
            },
        )


def _spread(wanted: Sequence[float], gap: float, top: float) -> list[float]:
    """Places in rising order, a gap apart and not above the top, each crowd centred where its members want to be."""
    crowds: list[list[float]] = []
    for place in wanted:
        crowds.append([place])
        while len(crowds) > 1 and _reach(crowds[-1], gap, top)[0] < _reach(crowds[-2], gap, top)[1] + gap:
            last = crowds.pop()
            crowds[-1] += last
    return [_reach(crowd, gap, top)[0] + gap * i for crowd in crowds for i in range(len(crowd))]


def _reach(crowd: Sequence[float], gap: float, top: float) -> tuple[float, float]:
    """Lowest and highest place of a crowd that is spread around its centre."""
    half = gap * (len(crowd) - 1) / 2
    centre = min(float(np.mean(crowd)), top - half)
    return centre - half, centre + half


def _draw_cells(
    figure: Figure, axes: Axes, percent: Floats, meaning: str, norm: Normalize, numbers: Integers | None = None
) -> None:
    """A heat map; small ones show numbers in their cells, by default the percentages."""
    rows, columns = percent.shape
    image = axes.imshow(
        np.ma.masked_invalid(percent),
        cmap="Blues",
        norm=norm,
        interpolation="nearest",
        aspect="equal" if rows == columns else "auto",
    )
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.03, label=meaning)
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if max(rows, columns) > MOST_NUMBERED:
        return
    for (row, column), share in np.ndenumerate(percent):
        if np.isnan(share) or (numbers is not None and numbers[row, column] == 0):
            continue
        text = f"{share:.0f}" if numbers is None else f"{numbers[row, column]:,}"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=7.5, color="white" if norm(share) > 0.55 else INK
        )


def _part_tasks(axes: Axes, row_starts: Sequence[int], column_starts: Sequence[int]) -> None:
    """Thin lines between the tasks of a heat map."""
    for start in row_starts[1:]:
        axes.axhline(start - 0.5, color="#9AA3AD", linewidth=0.5)
    for start in column_starts[1:]:
        axes.axvline(start - 0.5, color="#9AA3AD", linewidth=0.5)


def _name_ticks(figure: Figure, axes: Axes, names: Sequence[str], which: str) -> None:
    """Names along an axis, smaller the more there are."""
    size = float(np.clip(380 / len(names), 4, 8.5))
    ticks = thinned(range(len(names)), MOST_TICKS)
    labels = [shortened(names[tick], 18) for tick in ticks]
    if which == "y":
        axes.set_yticks(ticks, labels, fontsize=size)
    else:
        room = 0.75 * 72 * figure.get_figwidth() / len(names)
        upright = max(map(len, labels)) * 0.62 * size > room
        axes.set_xticks(ticks, labels, fontsize=size, rotation=90 if upright else 0)
