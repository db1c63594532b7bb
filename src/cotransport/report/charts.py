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

from cotransport.metrics import Floats
from cotransport.report.groups import Confusion, Estimate, Method, Stream, every
from cotransport.report.text import counted, shortened

Chart = dict[str, Any]

NEUTRAL = "#8A939E"
"""For lines that must show on light and on dark paper."""
MARGIN = {"l": 48, "r": 12, "t": 8, "b": 44}
MOST_NAMED_TASKS = 12
MOST_NUMBERED = 15
"""Rows of a matrix up to which its cells show their number."""
MOST_LISTED = 60
"""Class names in a hover text."""


def accuracy_chart(stream: Stream) -> Chart:
    """Accuracy over the number of classes seen: a line for each method, a band for its deviation."""
    bands = [_band(method, stream.classes_seen) for method in stream.methods if method.seeds > 1]
    added = [
        f"{'started with' if number == 0 else 'added'}: {_listed(names)}"
        for number, names in enumerate(stream.task_classes)
    ]
    lines = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": _escaped(shortened(method.name, 40)),
            "legendgroup": str(number),
            "x": stream.classes_seen,
            "y": _numbers(estimate.mean for estimate in method.curve),
            "line": {"color": method.look.colour, "dash": method.look.dash[1], "width": 2.2},
            "marker": {"symbol": method.look.marker[1], "size": 8},
            "customdata": [
                _wrapped(f"{method.name}: {estimate.text} % on {counted(seen, 'class')}", bold=True)
                + "<br>"
                + _wrapped(new)
                for estimate, seen, new in zip(method.curve, stream.classes_seen, added, strict=True)
            ],
            "hovertemplate": "%{customdata}<extra></extra>",
        }
        for number, method in enumerate(stream.methods)
    ]
    layout = {
        "height": 430,
        "margin": MARGIN,
        "xaxis": {"title": {"text": "classes seen"}, "tickvals": every(stream.classes_seen, 12), "showgrid": False},
        "yaxis": {"title": {"text": "accuracy (%)"}, "autorangeoptions": {"clipmin": 0, "clipmax": 101}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
    }
    return {"data": [*bands, *lines], "layout": layout}


def forgetting_chart(stream: Stream, method: Method) -> Chart:
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


def matrix_chart(stream: Stream, method: Method) -> Chart:
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
    edges = [start - 0.5 for start in confusion.starts[1:]]
    ends = {"x0": -0.5, "x1": len(places) - 0.5, "y0": -0.5, "y1": len(places) - 0.5}
    line = {"type": "line", "line": {"width": 0.5, "color": NEUTRAL}}
    chart["layout"]["shapes"] = [
        {**line, **ends, f"{axis}0": edge, f"{axis}1": edge} for edge in edges for axis in "xy"
    ]
    chart["layout"]["meta"] = "faint"  # rare confusions would be invisible on a linear scale of colours
    return chart


def _band(method: Method, places: Sequence[int]) -> Chart:
    """The outline of mean ± deviation, there and back; places without a deviation lie on the line."""
    known = [(place, e) for place, e in zip(places, method.curve, strict=True) if not math.isnan(e.mean)]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [place for place, _ in known] + [place for place, _ in reversed(known)],
        "y": [_edge(e, 1) for _, e in known] + [_edge(e, -1) for _, e in reversed(known)],
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": method.look.colour,
        "opacity": 0.16,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _edge(estimate: Estimate, side: int) -> float:
    return round(estimate.mean + side * (0.0 if math.isnan(estimate.deviation) else estimate.deviation), 3)


def _heat_map(percent: Floats, hover: list[list[str | None]], x_axis: Chart, y_axis: Chart) -> Chart:
    """A square of cells from 0 to 100 %, with their numbers where there is room for them."""
    size = len(percent)
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
    layout = {
        "height": min(380 + 5 * size, 880),
        "margin": MARGIN,
        "xaxis": {**x_axis, **axis},
        "yaxis": {**y_axis, **axis, "autorange": "reversed", "scaleanchor": "x", "constraintoward": "top"},
        "coloraxis": {"cmin": 0, "cmax": 100, "colorbar": bar, "showscale": not is_numbered},
    }
    return {"data": [cells], "layout": layout}


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


def _task_labels(stream: Stream) -> list[str]:
    """For an axis: the number, and the first names where there is room."""
    tasks = enumerate(stream.task_classes, start=1)
    if len(stream.tasks) > MOST_NAMED_TASKS:
        return [str(number) for number, _ in tasks]
    return [_escaped(shortened(f"{number}: {', '.join(names)}", 14)) for number, names in tasks]


def _task_names(stream: Stream) -> list[str]:
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
