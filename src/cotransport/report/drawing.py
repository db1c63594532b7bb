"""Parts that figures are drawn from: the style, lines with labels at their ends, and heat maps."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names

from cotransport.metrics import Floats, Integers
from cotransport.report.estimates import Line
from cotransport.report.style import evenly_spaced
from cotransport.report.text import one_decimal, shorten

INK, GRID, SEPARATOR = "#22272E", "#E3E6EA", "#9AA3AD"
FONTS = ("DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Arabic", "Noto Sans Devanagari")
MAX_NUMBERED = 20
"""Cells show their numbers in matrices of at most this many rows and columns."""
MAX_LINE_TICKS = 12
"""At most this many positions below lines have a tick."""
MAX_TICKS = 100
"""At most this many names are written along an axis."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Set matplotlib's fonts and colours for as long as figures are drawn."""
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
        # characters that no installed font has are drawn as boxes; a warning would not help the user
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG and as SVG. The path has no suffix."""
    figure.savefig(path.with_name(f"{path.name}.png"), dpi=200, bbox_inches="tight")
    figure.savefig(path.with_name(f"{path.name}.svg"), bbox_inches="tight", metadata={"Date": None})


def line_panels(lines: int, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, high enough for the labels of a number of lines."""
    figure = Figure(figsize=(6.0 * panels, max(3.4, 1.0 + 0.18 * lines)), layout="constrained")
    panel_axes = [figure.add_subplot(1, panels, panel + 1) for panel in range(panels)]
    for axes in panel_axes:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, panel_axes


def draw_lines(axes: Axes, positions: Sequence[int], lines: Sequence[Line]) -> None:
    """Draw lines through the means, with a band of one standard deviation."""
    for line in lines:
        mean = np.array([estimate.mean for estimate in line.estimates])
        deviation = np.array([estimate.deviation for estimate in line.estimates])
        style = line.style
        axes.fill_between(positions, mean - deviation, mean + deviation, color=style.colour, alpha=0.15, linewidth=0)
        axes.plot(
            positions,
            mean,
            color=style.colour,
            linestyle=style.dash[0],
            marker=style.marker[0],
            markersize=5.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linewidth=1.6,
            clip_on=False,
            zorder=3,
        )
    axes.set_xticks(sorted(evenly_spaced(positions[::-1], MAX_LINE_TICKS)))  # the last position has a tick


def label_line_ends(figure: Figure, axes: Axes, last: int, lines: Sequence[Line]) -> None:
    """Write each line's name and last value beside its end, without overlap."""
    ends = [(line.estimates[-1].mean, line) for line in lines if not np.isnan(line.estimates[-1].mean)]
    ends.sort(key=lambda end: end[0])
    figure.draw_without_rendering()  # fixes the layout, and with it the height of a line of text
    bottom, top = axes.get_ylim()
    line_height = 11 / 72 * figure.dpi * (top - bottom) / axes.get_window_extent().height
    heights = _spread([end for end, _ in ends], line_height, top)
    for (end, line), height in zip(ends, heights, strict=True):
        axes.annotate(
            f"{line.name}  {one_decimal(end)}",
            xy=(last, end),
            xytext=(1.05, height),
            textcoords=axes.get_yaxis_transform(),
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": line.style.colour,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 2,
                "shrinkB": 4,
            },
        )


def draw_heat_map(
    figure: Figure, axes: Axes, percentages: Floats, meaning: str, norm: Normalize, numbers: Integers | None = None
) -> None:
    """Draw a heat map. The cells of a small one show `numbers`, or else the percentages."""
    rows, columns = percentages.shape
    image = axes.imshow(
        np.ma.masked_invalid(percentages),
        cmap="Blues",
        norm=norm,
        interpolation="nearest",
        aspect="equal" if rows == columns else "auto",
    )
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.03, label=meaning)
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if max(rows, columns) > MAX_NUMBERED:
        return
    for (row, column), share in np.ndenumerate(percentages):
        if np.isnan(share) or (numbers is not None and numbers[row, column] == 0):
            continue
        text = f"{share:.0f}" if numbers is None else f"{numbers[row, column]:,}"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=7.5, color="white" if norm(share) > 0.55 else INK
        )


def separate_tasks(axes: Axes, row_starts: Sequence[int], column_starts: Sequence[int]) -> None:
    """Draw thin lines between the tasks of a heat map."""
    for start in row_starts[1:]:
        axes.axhline(start - 0.5, color=SEPARATOR, linewidth=0.5)
    for start in column_starts[1:]:
        axes.axvline(start - 0.5, color=SEPARATOR, linewidth=0.5)


def label_ticks(figure: Figure, axes: Axes, names: Sequence[str], axis: Literal["x", "y"]) -> None:
    """Write names along an axis, in smaller letters if there are many."""
    size = float(np.clip(380 / len(names), 4, 8.5))
    ticks = evenly_spaced(range(len(names)), MAX_TICKS)
    labels = [shorten(names[tick], 18) for tick in ticks]
    if axis == "y":
        axes.set_yticks(ticks, labels, fontsize=size)
    else:
        width = 0.75 * 72 * figure.get_figwidth() / len(names)
        is_vertical = max(map(len, labels)) * 0.62 * size > width
        axes.set_xticks(ticks, labels, fontsize=size, rotation=90 if is_vertical else 0)


def _spread(wanted: Sequence[float], gap: float, top: float) -> list[float]:
    """Rising positions, at least a gap apart and not above the top. Close ones form a group around their mean."""
    groups: list[list[float]] = []
    for position in wanted:
        groups.append([position])
        while len(groups) > 1 and _extent(groups[-1], gap, top)[0] < _extent(groups[-2], gap, top)[1] + gap:
            last = groups.pop()
            groups[-1] += last
    return [_extent(group, gap, top)[0] + gap * i for group in groups for i in range(len(group))]


def _extent(group: Sequence[float], gap: float, top: float) -> tuple[float, float]:
    """Lowest and highest position of a group whose members are a gap apart."""
    half = gap * (len(group) - 1) / 2
    centre = min(float(np.mean(group)), top - half)
    return centre - half, centre + half
