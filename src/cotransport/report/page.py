"""The report's page: one HTML file that loads no other file and needs no network.

This module prepares plain values for the templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cotransport.report import charts, wording
from cotransport.report.charts import Chart
from cotransport.report.confusion import Confusion
from cotransport.report.origins import Origins
from cotransport.report.recipes import uses_validation_images
from cotransport.report.summaries import CANDIDATES, MethodSummary, StreamSummary
from cotransport.report.tables import AUGMENTATION, COLUMNS, Cell, summary_table
from cotransport.report.templates import render_with_charts
from cotransport.report.text import UNDEFINED
from cotransport.settings.safe_yaml import yaml_text

Values: TypeAlias = Mapping[str, Any]
"""Plain values for a template."""

SHOWN_CONFUSIONS = 8
"""Number of confusions in the list."""
SHOWN_SOURCES = 3
"""Number of old classes that are named for each new class."""
MAX_BESIDE = 25
"""A map of at most this many classes fits beside its list."""


def render_page(streams: Sequence[StreamSummary]) -> str:
    """The whole page as HTML."""
    ids = [f"stream{number}" for number in range(1, len(streams) + 1)]
    named = list(zip(ids, streams, strict=True))
    return render_with_charts(
        "page.html.j2",
        {name: chart for id_, stream in named for name, chart in _charts(id_, stream)},
        streams=[_stream_values(id_, stream) for id_, stream in named],
    )


def _charts(id_: str, stream: StreamSummary) -> Iterator[tuple[str, Chart]]:
    """Every chart of a stream with its identifier. The templates have an element with the same identifier."""
    yield f"{id_}-accuracy", charts.accuracy_chart(stream)
    for number, method in enumerate(stream.methods, start=1):
        prefix = _method_id(id_, number)
        yield f"{prefix}-matrix", charts.matrix_chart(stream, method)
        if len(stream.tasks) > 1:
            yield f"{prefix}-forgetting", charts.forgetting_chart(stream, method)
        if method.confusion is not None:
            yield f"{prefix}-confusion", charts.confusion_chart(method.confusion)
        if method.origins is not None and method.origins.has_map:
            yield f"{prefix}-transport", charts.transport_chart(method.origins)
        for candidates in CANDIDATES:
            if method.initial_accuracy(candidates):
                yield f"{prefix}-initial-{candidates}", charts.initial_chart(stream, method, candidates)


def _method_id(stream_id: str, number: int) -> str:
    return f"{stream_id}-method{number}"


def _stream_values(id_: str, stream: StreamSummary) -> Values:
    content = summary_table(stream)
    return {
        "id": id_,
        "title": stream.title,
        "finding": wording.finding(stream),
        "facts": wording.facts(stream),
        "recipes": _recipes(stream),
        "metric": stream.metric,
        "uses_validation_images": uses_validation_images(stream.results[0]),
        "has_bands": any(method.seeds > 1 for method in stream.methods),
        "headings": content.headings,
        "meanings": [
            *((column.heading, column.meaning) for column in COLUMNS),
            (AUGMENTATION, "random changes to training images: the policy, and what was changed in it"),
        ],
        "undefined": UNDEFINED,
        "upper_bounds": [method.name for method in stream.upper_bounds],
        "methods": [
            _method_values(_method_id(id_, number), stream, method, cells)
            for number, (method, cells) in enumerate(content.rows, start=1)
        ],
    }


def _method_values(id_: str, stream: StreamSummary, method: MethodSummary, cells: Sequence[Cell]) -> Values:
    return {
        "id": id_,
        "name": method.name,
        "colour": method.style.colour,
        "seeds": method.seeds,
        "cells": [(cell.text, cell.is_best) for cell in cells],
        "is_selected": method is stream.competitors[0],
        "has_forgetting": len(stream.tasks) > 1,
        "confusion": method.confusion and _confusion_values(method.confusion),
        "origins": method.origins and _origin_values(method.origins),
        "initial": [candidates for candidates in CANDIDATES if method.initial_accuracy(candidates)],
    }


def _confusion_values(confusion: Confusion) -> Values:
    return {
        "is_by_task": confusion.is_by_task,
        "is_wide": len(confusion.names) > MAX_BESIDE,
        "has_task_lines": len(confusion.task_starts) > 1,
        "most_frequent": confusion.most_frequent(SHOWN_CONFUSIONS),
    }


def _origin_values(origins: Origins) -> Values:
    return {
        "has_map": origins.has_map,
        "has_gaps": len(origins.old_task_starts) > 1,
        "is_wide": max(origins.shares.shape) > MAX_BESIDE,
        "is_folded": len(origins.new) > MAX_BESIDE,
        "shown_sources": SHOWN_SOURCES,
        "rows": [
            (
                name,
                origins.largest_shares(new, SHOWN_SOURCES) or UNDEFINED,
                f"{origins.effective_sources[new].text} of {origins.possible_sources(new)}",
            )
            for new, name in enumerate(origins.new)
        ],
    }


def _recipes(stream: StreamSummary) -> list[tuple[str, list[str]]]:
    """Each recipe as YAML, with the names of the methods that ran with it."""
    methods: dict[str, dict[str, None]] = {}
    for method in stream.methods:
        for result in method.results:
            text = yaml_text(result.recipe)
            methods.setdefault(text, {})[method.name] = None
    return [(text, list(names)) for text, names in methods.items()]
