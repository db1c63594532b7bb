"""The page's charts as plotly's data and layout, in plain dictionaries; colours that follow the theme are the page's.

Plotly reads names as HTML, so every name is escaped; and it fills in `%{...}` in hover templates, so names reach a
hover text as data only.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from cotransport.metrics import Floats
from cotransport.report.aggregate import (
    Among,
    Confusion,
    Estimate,
    Line,
    MethodSummary,
    Sources,
    StreamSummary,
    thinned,
)
from cotransport.report.text import plural, shortened

Chart = dict[str, Any]

NEUTRAL = "#8A939E"
"""For lines that must show on light and on dark paper."""
MARGIN = {"l": 48, "r": 12, "t": 8, "b": 44}
MOST_NAMED_TASKS = 12
MOST_NUMBERED = 15
"""Rows of a matrix up to which its cells show their number."""
MOST_LISTED = 60
"""Class names in a hover text."""


def accuracy_chart(stream: StreamSummary) -> Chart:
    """Accuracy over the number of classes seen: a line for each method, a band for its deviation."""
    lines = [Line(method.name, method.look, method.curve) for method in stream.methods]
    places = [
        (f"% on {plural(seen, 'class')}", f"{'started with' if number == 0 else 'added'}: {_listed(names)}")
        for number, (seen, names) in enumerate(zip(stream.classes_seen, stream.task_classes, strict=True))
    ]
    chart = _line_chart(lines, stream.classes_seen, "classes seen", places)
    chart["layout"]["height"] = 430
    chart["layout"]["yaxis"]["autorangeoptions"] = {"clipmin": 0, "clipmax": 101}
    return chart


def initial_chart(stream: StreamSummary, method: MethodSummary, among: Among) -> Chart:
    """Accuracy on each later task's new classes before they are trained: a line for each way of telling them apart."""
    tasks = list(range(2, len(stream.tasks) + 1))
    places = [
        (f"% on task {task}", f"new: {_listed(names)}")
        for task, names in zip(tasks, stream.task_classes[1:], strict=True)
    ]
    chart = _line_chart(method.initial(among), tasks, "task", places)
    chart["layout"]["height"] = 380
    chart["layout"]["yaxis"]["range"] = [-2, 102]  # the same for both, so that they can be compared
    return chart


def forgetting_chart(stream: StreamSummary, method: MethodSummary) -> Chart:
    """Points lost on each task until the end."""
    estimates = method.forgetting_per_task
    bars = {
        "type": "bar",
        "x": list(range(len(estimates))),
        "y": _numbers(estimate.mean for estimate in estimates),
        "error_y": {
            "type": "data",
            "array": _numbers(estimate.deviation for estimate in estimates),
            "visible": method.seeds > 1,
            "thickness": 1.5,
            "color": NEUTRAL,
        },
        "marker": {"color": method.look.colour},
        "width": 0.6,
        "customdata": [
            f"<b>{estimate.text} points lost</b><br>{_wrapped(name)}"
            for estimate, name in zip(estimates, _task_names(stream)[:-1], strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    layout = {
        "height": 380,
        "margin": MARGIN,
        "xaxis": {**_names_below("task", _task_labels(stream)[:-1]), "range": [-0.6, len(estimates) - 0.4]},
        "yaxis": {"title": {"text": "points lost"}, "rangemode": "tozero"},
    }
    return {"data": [bars], "layout": layout}


def matrix_chart(stream: StreamSummary, method: MethodSummary) -> Chart:
    """Accuracy on each task after each task."""
    matrix, names = method.accuracy_matrix, _task_names(stream)
    hover = [
        [
            None if math.isnan(value) else f"<b>{value:.1f} %</b> after task {after + 1} on<br>{_wrapped(names[on])}"
            for on, value in enumerate(row)
        ]
        for after, row in enumerate(matrix.tolist())
    ]
    tested_on = _names_below("tested on task", _task_labels(stream))
    after_task = _names_beside("after task", [str(number + 1) for number in range(len(names))])
    return _heat_map(matrix, hover, tested_on, after_task)


def confusion_chart(confusion: Confusion) -> Chart:
    """Shares of each true class by predicted class. Pairs that never occur stay empty, which keeps the page small."""
    places = range(len(confusion.names))
    hover = [
        [_wrapped(confusion.in_words(true, taken)) if confusion.counts[true, taken] else None for taken in places]
        for true in places
    ]
    shares = confusion.shares
    shares[confusion.counts == 0] = math.nan
    names = [_escaped(shortened(name, 14)) for name in confusion.names]
    chart = _heat_map(shares, hover, _names_below("predicted", names), _names_beside("true", names))
    chart["layout"]["shapes"] = _task_edges(confusion.starts, confusion.starts, shares)
    chart["layout"]["meta"] = "faint"  # rare confusions would be invisible on a linear scale of colours
    return chart


def transport_chart(sources: Sources) -> Chart:
    """Shares of each new class by the old class they came from."""
    hover = [
        [
            None if math.isnan(share) else _wrapped(sources.in_words(old, new))
            for new, share in enumerate(sources.shares[old].tolist())
        ]
        for old in range(len(sources.old))
    ]
    old, new = ([_escaped(shortened(name, 14)) for name in names] for names in (sources.old, sources.new))
    chart = _heat_map(sources.shares, hover, _names_below("new class", new), _names_beside("old class", old))
    chart["layout"]["shapes"] = _task_edges(sources.old_starts, sources.new_starts, sources.shares)
    chart["layout"]["meta"] = "faint"
    # of fifty old classes each may have a few percent
    chart["layout"]["coloraxis"]["cmax"] = round(float(np.nanmax(sources.shares)), 3)
    return chart


def _line_chart(
    lines: Sequence[Line], places: Sequence[int], places_are: str, hover: Sequence[tuple[str, str]]
) -> Chart:
    """Lines with bands for their deviation. The hover text at a place: what follows the value, and a second line."""
    numbered = list(enumerate(lines))
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": _escaped(shortened(line.name, 40)),
            "legendgroup": str(number),
            "x": list(places),
            "y": _numbers(estimate.mean for estimate in line.estimates),
            "line": {"color": line.look.colour, "dash": line.look.dash[1], "width": 2.2},
            "marker": {"symbol": line.look.marker[1], "size": 8},
            "customdata": [
                _wrapped(f"{line.name}: {estimate.text} {about}", bold=True) + "<br>" + _wrapped(more)
                for estimate, (about, more) in zip(line.estimates, hover, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for number, line in numbered
    ]
    layout = {
        "margin": MARGIN,
        "xaxis": {"title": {"text": places_are}, "tickvals": thinned(places, 12), "showgrid": False},
        "yaxis": {"title": {"text": "accuracy (%)"}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
    }
    bands = [{**_band(line, places), "legendgroup": str(number)} for number, line in numbered if line.has_band]
    return {"data": [*bands, *traces], "layout": layout}


def _band(line: Line, places: Sequence[int]) -> Chart:
    """The outline of mean ± deviation, there and back; places without a deviation lie on the line."""
    known = [(place, e) for place, e in zip(places, line.estimates, strict=True) if not math.isnan(e.mean)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [place for place, _ in known] + [place for place, _ in reversed(known)],
        "y": [_edge(e, 1) for _, e in known] + [_edge(e, -1) for _, e in reversed(known)],
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": line.look.colour,
        "opacity": 0.16,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _edge(estimate: Estimate, side: int) -> float:
    return round(estimate.mean + side * (0.0 if math.isnan(estimate.deviation) else estimate.deviation), 3)


def _heat_map(percent: Floats, hover: list[list[str | None]], x_axis: Chart, y_axis: Chart) -> Chart:
    """Cells from 0 to 100 %, with their numbers where there is room for them."""
    rows, columns = percent.shape
    size = max(rows, columns)
    is_numbered = size <= MOST_NUMBERED
    cells = {
        "type": "heatmap",
        "z": [_numbers(row) for row in percent.tolist()],
        "customdata": hover,
        "texttemplate": "%{z:.0f}" if is_numbered else "",
        "hovertemplate": "%{customdata}<extra></extra>",
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


def _task_edges(row_starts: Sequence[int], column_starts: Sequence[int], cells: Floats) -> list[Chart]:
    """Thin lines between the tasks of a heat map."""
    rows, columns = cells.shape
    ends = {"x0": -0.5, "x1": columns - 0.5, "y0": -0.5, "y1": rows - 0.5}
    line = {"type": "line", "line": {"width": 0.5, "color": NEUTRAL}}
    return [
        {**line, **ends, f"{axis}0": start - 0.5, f"{axis}1": start - 0.5}
        for axis, starts in (("x", column_starts), ("y", row_starts))
        for start in starts[1:]
    ]


def _names_below(title: str, names: Sequence[str]) -> Chart:
    """A horizontal axis of names, tilted where they would not fit a telephone's screen side by side."""
    fits = sum(map(len, names)) <= 40
    return {**_names_beside(title, names), "tickangle": 0 if fits else -40 if len(names) <= 25 else -90}


def _names_beside(title: str, names: Sequence[str]) -> Chart:
    """Names at places 0, 1, ...: an axis of names alone would make equal names one place."""
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
    """For an axis: the number, and the first names where there is room."""
    tasks = enumerate(stream.task_classes, start=1)
    if len(stream.tasks) > MOST_NAMED_TASKS:
        return [str(number) for number, _ in tasks]
    return [_escaped(shortened(f"{number}: {', '.join(names)}", 14)) for number, names in tasks]


def _task_names(stream: StreamSummary) -> list[str]:
    return [f"task {number}: {_listed(names)}" for number, names in enumerate(stream.task_classes, start=1)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _wrapped(text: str, bold: bool = False) -> str:
    lines = [_escaped(line) for line in textwrap.wrap(text, 60)]
    return "<br>".join(f"<b>{line}</b>" if bold else line for line in lines)


def _escaped(text: str) -> str:
    """Plotly knows the entities for angle brackets and ampersands, but shows those for quotes as they are."""
    return escape(text, quote=False)


def _numbers(values: Iterable[float]) -> list[float | None]:
    """For JSON, which knows no NaN."""
    return [None if math.isnan(value) else round(value, 3) for value in values]
