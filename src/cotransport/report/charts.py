"""The page's charts as plotly's data and layout, in plain dictionaries; colours that follow the theme are the page's.

Plotly reads names as HTML, so every name is escaped; and it fills in `%{...}` in hover templates, so names reach a
hover text as data only.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from cotransport.metrics import Floats
from cotransport.report.groups import Confusion, Estimate, Method, Stream, shortened
from cotransport.report.tables import Cell

Chart = dict[str, Any]

MOST_NAMED_TASKS = 12
MOST_NUMBERED_CLASSES = 15
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
            "name": html.escape(shortened(method.name, 40)),
            "legendgroup": str(number),
            "x": stream.classes_seen,
            "y": _numbers(estimate.mean for estimate in method.curve),
            "line": {"color": method.look.colour, "dash": method.look.dash[1], "width": 2.2},
            "marker": {"symbol": method.look.marker[1], "size": 8},
            "customdata": [
                _wrapped(f"{method.name}: {Cell(estimate, False).text} % on {seen} classes", bold=True)
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
        "margin": {"l": 52, "r": 16, "t": 8, "b": 48},
        "xaxis": {"title": {"text": "classes seen"}, "tickvals": _thinned(stream.classes_seen, 12), "showgrid": False},
        "yaxis": {"title": {"text": "accuracy (%)"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "hovermode": "closest",
    }
    return {"data": [*bands, *lines], "layout": layout}


def forgetting_chart(stream: Stream, method: Method) -> Chart:
    """Points lost on each task until the end."""
    estimates = method.forgetting_per_task
    places = list(range(len(estimates)))
    bars = {
        "type": "bar",
        "x": places,
        "y": _numbers(estimate.mean for estimate in estimates),
        "error_y": {"type": "data", "array": _numbers(estimate.deviation for estimate in estimates), "thickness": 1},
        "marker": {"color": method.look.colour},
        "width": 0.6,
        "customdata": [
            f"{Cell(estimate, False).text} points lost<br>{_wrapped(name)}"
            for estimate, name in zip(estimates, _task_names(stream), strict=False)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    layout = {
        "height": 380,
        "margin": {"l": 48, "r": 8, "t": 8, "b": 40},
        "xaxis": {"title": {"text": "task"}, **_ticks(_task_labels(stream)[:-1]), "range": [-0.6, len(places) - 0.4]},
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
    labels = _task_labels(stream)
    cells = _heat_map(matrix, hover, "%{z:.0f}" if len(matrix) <= MOST_NAMED_TASKS else "")
    after = [str(number + 1) for number in range(len(labels))]
    return {
        "data": [cells],
        "layout": _square(
            "tested on task", _ticks(labels), "after task", _ticks(after), 380, bool(cells["texttemplate"])
        ),
    }


def confusion_chart(confusion: Confusion) -> Chart:
    """Shares of each true class by predicted class. Pairs that never occur stay empty, which keeps the page small."""
    places = range(len(confusion.names))
    hover = [
        [_wrapped(confusion.in_words(true, taken)) if confusion.counts[true, taken] else None for taken in places]
        for true in places
    ]
    shares = confusion.shares
    shares[confusion.counts == 0] = math.nan
    cells = _heat_map(shares, hover, "%{z:.0f}" if len(places) <= MOST_NUMBERED_CLASSES else "")
    ticks = _ticks([html.escape(shortened(name, 14)) for name in confusion.names])
    layout = _square(
        "predicted", ticks, "true", ticks, min(420 + 5 * max(0, len(places) - 15), 860), bool(cells["texttemplate"])
    )
    edges = [start - 0.5 for start in confusion.starts[1:]]
    ends = {"x0": -0.5, "x1": len(places) - 0.5, "y0": -0.5, "y1": len(places) - 0.5}
    line = {"type": "line", "line": {"width": 0.5, "color": "#8A939E"}}
    layout["meta"] = "faint"  # rare confusions would be invisible on a linear scale of colours
    layout["shapes"] = [{**line, **ends, f"{axis}0": edge, f"{axis}1": edge} for edge in edges for axis in "xy"]
    return {"data": [cells], "layout": layout}


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


def _heat_map(percent: Floats, hover: list[list[str | None]], text: str) -> Chart:
    return {
        "type": "heatmap",
        "z": [_numbers(row) for row in percent.tolist()],
        "customdata": hover,
        "texttemplate": text,
        "hovertemplate": "%{customdata}<extra></extra>",
        "hoverongaps": False,
        "coloraxis": "coloraxis",
        "xgap": 1 if len(percent) <= 30 else 0,
        "ygap": 1 if len(percent) <= 30 else 0,
    }


def _square(x_title: str, x_ticks: Chart, y_title: str, y_ticks: Chart, height: int, numbered: bool) -> Chart:
    bar = {"thickness": 10, "len": 1, "outlinewidth": 0, "ticksuffix": " %", "xpad": 4}
    axis = {"showgrid": False, "zeroline": False, "constrain": "domain"}
    return {
        "height": height,
        "margin": {"l": 48, "r": 8, "t": 8, "b": 40},
        "xaxis": {"title": {"text": x_title}, **axis, **x_ticks},
        "yaxis": {"title": {"text": y_title}, **axis, **y_ticks, "autorange": "reversed", "scaleanchor": "x"},
        "coloraxis": {"cmin": 0, "cmax": 100, "colorbar": bar, "showscale": not numbered},
    }


def _ticks(labels: Sequence[str]) -> Chart:
    """Names at places 0, 1, ...: names alone would make equal names one place."""
    size = 12 if len(labels) <= 25 else 10 if len(labels) <= 50 else 7
    return {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": list(labels),
        "tickfont": {"size": size},
        "automargin": True,
    }


def _task_labels(stream: Stream) -> list[str]:
    """For an axis: the number, and the first names where there is room."""
    tasks = enumerate(stream.task_classes, start=1)
    if len(stream.tasks) > MOST_NAMED_TASKS:
        return [str(number) for number, _ in tasks]
    return [html.escape(shortened(f"{number}: {', '.join(names)}", 16)) for number, names in tasks]


def _task_names(stream: Stream) -> list[str]:
    return [f"task {number}: {_listed(names)}" for number, names in enumerate(stream.task_classes, start=1)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _wrapped(text: str, bold: bool = False) -> str:
    lines = [html.escape(line) for line in textwrap.wrap(text, 60)]
    return "<br>".join(f"<b>{line}</b>" if bold else line for line in lines)


def _numbers(values: Any) -> list[float | None]:  # noqa: ANN401
    """For JSON, which knows no NaN."""
    return [None if math.isnan(value) else round(value, 3) for value in values]


def _thinned(places: Sequence[int], most: int) -> list[int]:
    return list(places[:: -(-len(places) // most)])
