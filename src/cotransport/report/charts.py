"""The page's charts: data and layout for plotly as plain dictionaries. The page adds the colours of its theme.

Plotly reads names as HTML, so every name is escaped. It also replaces `%{...}` in hover templates, so names are passed
to a hover text as data only.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, TypeAlias

import numpy as np

from cotransport.metrics import Floats
from cotransport.report.confusion import Confusion
from cotransport.report.estimates import Estimate, Line
from cotransport.report.origins import Origins
from cotransport.report.style import evenly_spaced
from cotransport.report.summaries import Candidates, MethodSummary, StreamSummary
from cotransport.report.text import plural, shorten

Chart: TypeAlias = dict[str, Any]

NEUTRAL = "#8A939E"
"""Colour of lines that must be visible on a light and on a dark background."""
MARGIN = {"l": 48, "r": 12, "t": 8, "b": 44}
HOVER = "%{customdata}<extra></extra>"
"""Hover template that shows the prepared text alone."""
MAX_NAMED_TASKS = 12
"""The axis shows class names beside the task numbers for at most this many tasks."""
MAX_NUMBERED = 15
"""Cells show their numbers in matrices of at most this many rows and columns."""
MAX_LISTED = 60
"""At most this many class names in a hover text."""


def accuracy_chart(stream: StreamSummary) -> Chart:
    """Accuracy over the number of classes seen: one line for each method, and a band for its deviation."""
    hover = [
        (f"% on {plural(seen, 'class')}", f"{'started with' if task == 0 else 'added'}: {_name_list(names)}")
        for task, (seen, names) in enumerate(zip(stream.classes_seen, stream.task_classes, strict=True))
    ]
    chart = line_chart(stream.accuracy_lines, stream.classes_seen, "classes seen", hover)
    chart["layout"]["height"] = 430
    chart["layout"]["yaxis"]["autorangeoptions"] = {"clipmin": 0, "clipmax": 101}
    return chart


def initial_chart(stream: StreamSummary, method: MethodSummary, candidates: Candidates) -> Chart:
    """Accuracy on each task's new classes before training on them, one line for each initial classifier."""
    tasks = list(range(2, len(stream.tasks) + 1))
    hover = [
        (f"% on task {task}", f"new: {_name_list(names)}")
        for task, names in zip(tasks, stream.task_classes[1:], strict=True)
    ]
    chart = line_chart(method.initial_accuracy(candidates), tasks, "task", hover)
    chart["layout"]["height"] = 380
    chart["layout"]["yaxis"]["range"] = [-2, 102]  # one range for both charts, so that they can be compared
    return chart


def forgetting_chart(stream: StreamSummary, method: MethodSummary) -> Chart:
    """Drop from each task's best accuracy to its last."""
    estimates = method.forgetting_per_task
    bars = {
        "type": "bar",
        "x": list(range(len(estimates))),
        "y": json_numbers(estimate.mean for estimate in estimates),
        "error_y": {
            "type": "data",
            "array": json_numbers(estimate.deviation for estimate in estimates),
            "visible": method.seeds > 1,
            "thickness": 1.5,
            "color": NEUTRAL,
        },
        "marker": {"color": method.style.colour},
        "width": 0.6,
        "customdata": [
            f"<b>{estimate.text} points lost</b><br>{wrap(name)}"
            for estimate, name in zip(estimates, _task_names(stream)[:-1], strict=True)
        ],
        "hovertemplate": HOVER,
    }
    layout = {
        "height": 380,
        "margin": MARGIN,
        "xaxis": {**horizontal_names("task", _task_labels(stream)[:-1]), "range": [-0.6, len(estimates) - 0.4]},
        "yaxis": {"title": {"text": "points lost"}, "rangemode": "tozero"},
    }
    return {"data": [bars], "layout": layout}


def matrix_chart(stream: StreamSummary, method: MethodSummary) -> Chart:
    """Accuracy on each task after each task."""
    matrix, names = method.accuracy_matrix, _task_names(stream)
    hover = [
        [
            None if math.isnan(value) else f"<b>{value:.1f} %</b> after task {after + 1} on<br>{wrap(names[on])}"
            for on, value in enumerate(row)
        ]
        for after, row in enumerate(matrix.tolist())
    ]
    tested_on = horizontal_names("tested on task", _task_labels(stream))
    after_task = vertical_names("after task", [str(number + 1) for number in range(len(names))])
    return heat_map(matrix, hover, tested_on, after_task)


def confusion_chart(confusion: Confusion) -> Chart:
    """Share of each true class by predicted class. Cells without images stay empty, which keeps the page small."""
    indices = range(len(confusion.names))
    hover = [
        [
            wrap(confusion.description(true, predicted)) if confusion.counts[true, predicted] else None
            for predicted in indices
        ]
        for true in indices
    ]
    shares = confusion.shares
    shares[confusion.counts == 0] = math.nan
    names = [escape_name(shorten(name, 14)) for name in confusion.names]
    chart = heat_map(shares, hover, horizontal_names("predicted", names), vertical_names("true", names))
    chart["layout"]["shapes"] = _task_separators(confusion.task_starts, confusion.task_starts, shares)
    chart["layout"]["meta"] = "faint"  # rare confusions would be invisible on a linear scale of colours
    return chart


def transport_chart(origins: Origins) -> Chart:
    """Share of each old class in the first weights of each new class."""
    hover = [
        [
            None if math.isnan(share) else wrap(origins.description(old, new))
            for new, share in enumerate(origins.shares[old].tolist())
        ]
        for old in range(len(origins.old))
    ]
    old, new = ([escape_name(shorten(name, 14)) for name in names] for names in (origins.old, origins.new))
    chart = heat_map(origins.shares, hover, horizontal_names("new class", new), vertical_names("old class", old))
    chart["layout"]["shapes"] = _task_separators(origins.old_task_starts, origins.new_task_starts, origins.shares)
    chart["layout"]["meta"] = "faint"
    # the shares of fifty old classes are a few percent each, and would be invisible on a scale up to 100
    chart["layout"]["coloraxis"]["cmax"] = round(float(np.nanmax(origins.shares)), 3)
    return chart


def line_chart(lines: Sequence[Line], x: Sequence[int], x_title: str, hover: Sequence[tuple[str, str]]) -> Chart:
    """Lines with bands for their deviation. Hover: for each x, the text after the value, and a second line of text."""
    numbered = list(enumerate(lines))
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": escape_name(shorten(line.name, 40)),
            "legendgroup": str(number),
            "x": list(x),
            "y": json_numbers(estimate.mean for estimate in line.estimates),
            "line": {"color": line.style.colour, "dash": line.style.dash[1], "width": 2.2},
            "marker": {"symbol": line.style.marker[1], "size": 8},
            "customdata": [
                wrap(f"{line.name}: {estimate.text} {after_value}", bold=True) + "<br>" + wrap(second_line)
                for estimate, (after_value, second_line) in zip(line.estimates, hover, strict=True)
            ],
            "hovertemplate": HOVER,
        }
        for number, line in numbered
    ]
    layout = {
        "margin": MARGIN,
        "xaxis": {"title": {"text": x_title}, "tickvals": evenly_spaced(x, 12), "showgrid": False},
        "yaxis": {"title": {"text": "accuracy (%)"}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
    }
    bands = [{**_band(line, x), "legendgroup": str(number)} for number, line in numbered if line.has_band]
    return {"data": [*bands, *traces], "layout": layout}


def _band(line: Line, x: Sequence[int]) -> Chart:
    """The closed outline of mean ± deviation. Without a deviation, the outline is on the line."""
    known = [(position, e) for position, e in zip(x, line.estimates, strict=True) if not math.isnan(e.mean)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [position for position, _ in known] + [position for position, _ in reversed(known)],
        "y": [_edge(e, 1) for _, e in known] + [_edge(e, -1) for _, e in reversed(known)],
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": line.style.colour,
        "opacity": 0.16,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _edge(estimate: Estimate, side: int) -> float:
    return round(estimate.mean + side * (0.0 if math.isnan(estimate.deviation) else estimate.deviation), 3)


def heat_map(percentages: Floats, hover: list[list[str | None]], x_axis: Chart, y_axis: Chart) -> Chart:
    """Cells from 0 to 100 %. The cells of a small map show their numbers."""
    rows, columns = percentages.shape
    size = max(rows, columns)
    is_numbered = size <= MAX_NUMBERED
    cells = {
        "type": "heatmap",
        "z": [json_numbers(row) for row in percentages.tolist()],
        "customdata": hover,
        "texttemplate": "%{z:.0f}" if is_numbered else "",
        "hovertemplate": HOVER,
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "xgap": 1 if size <= 30 else 0,
        "ygap": 1 if size <= 30 else 0,
    }
    axis = {"showgrid": False, "zeroline": False, "constrain": "domain"}
    bar = {"thickness": 10, "outlinewidth": 0, "ticksuffix": " %", "xpad": 4}
    square = {"scaleanchor": "x", "constraintoward": "top"} if rows == columns else {}
    layout = {
        "height": min(380 + 5 * rows, 880),
        "margin": MARGIN,
        "xaxis": {**x_axis, **axis},
        "yaxis": {**y_axis, **axis, "autorange": "reversed", **square},
        "coloraxis": {"cmin": 0, "cmax": 100, "colorbar": bar, "showscale": not is_numbered},
    }
    return {"data": [cells], "layout": layout}


def _task_separators(row_starts: Sequence[int], column_starts: Sequence[int], cells: Floats) -> list[Chart]:
    """Thin lines between the tasks of a heat map."""
    rows, columns = cells.shape
    ends = {"x0": -0.5, "x1": columns - 0.5, "y0": -0.5, "y1": rows - 0.5}
    line = {"type": "line", "line": {"width": 0.5, "color": NEUTRAL}}
    return [
        {**line, **ends, f"{axis}0": start - 0.5, f"{axis}1": start - 0.5}
        for axis, starts in (("x", column_starts), ("y", row_starts))
        for start in starts[1:]
    ]


def horizontal_names(title: str, names: Sequence[str]) -> Chart:
    """A horizontal axis of names. They are tilted if they are too long for a phone's screen."""
    fits = sum(map(len, names)) <= 40
    return {**vertical_names(title, names), "tickangle": 0 if fits else -40 if len(names) <= 25 else -90}


def vertical_names(title: str, names: Sequence[str]) -> Chart:
    """A vertical axis of names at the positions 0, 1, ...: on an axis of names alone, equal names would be one row."""
    return {
        "title": {"text": title, "standoff": 12},
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "tickfont": {"size": 12 if len(names) <= 25 else 10 if len(names) <= 50 else 7},
        "ticklabeloverflow": "allow",
        "automargin": True,
    }


def _task_labels(stream: StreamSummary) -> list[str]:
    """Labels for an axis: the task's number, and its first class names if there are few tasks."""
    tasks = enumerate(stream.task_classes, start=1)
    if len(stream.tasks) > MAX_NAMED_TASKS:
        return [str(number) for number, _ in tasks]
    return [escape_name(shorten(f"{number}: {', '.join(names)}", 14)) for number, names in tasks]


def _task_names(stream: StreamSummary) -> list[str]:
    return [f"task {number}: {_name_list(names)}" for number, names in enumerate(stream.task_classes, start=1)]


def _name_list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def wrap(text: str, bold: bool = False) -> str:
    """Escaped text in lines of at most 60 characters."""
    lines = [escape_name(line) for line in textwrap.wrap(text, 60)]
    return "<br>".join(f"<b>{line}</b>" if bold else line for line in lines)


def escape_name(text: str) -> str:
    """Plotly decodes the entities of angle brackets and ampersands, but not those of quotes."""
    return escape(text, quote=False)


def json_numbers(values: Iterable[float]) -> list[float | None]:
    """NaN becomes None, because JSON has no NaN."""
    return [None if math.isnan(value) else round(value, 3) for value in values]
