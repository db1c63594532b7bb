"""Groups results: by stream, then by method, so that the seeds of a method can be averaged."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cotransport.experiments.recipe import with_new_settings
from cotransport.experiments.results import Result
from cotransport.report.estimates import Estimate
from cotransport.report.recipes import data_set_name, method_settings, setting, uses_validation_images
from cotransport.report.style import UPPER_BOUND_STYLE, LineStyle, line_styles
from cotransport.report.summaries import UPPER_BOUND, MethodSummary, StreamSummary
from cotransport.report.text import one_line, plural, shorten

IGNORED_SETTINGS = (
    "name.",
    "seeds.",
    "methods.",
    "logging.",
    "description.",
    "device.accelerator.",
    "device.processes.",
    "device.nodes.",
    "device.threads.",
    "device.workers.",
    "device.checkpoint_seconds.",
    "data.follow_links.",
    "data.streaming.",
    "initial_accuracy.",
    "follow.",
)
"""Runs that differ only in these settings are repetitions of one another."""


def summarise(results: Sequence[Result]) -> list[StreamSummary]:
    """A summary of each stream, in order of appearance. A method has the same style on all streams."""
    by_stream: dict[object, list[Result]] = {}
    for result in results:
        by_stream.setdefault(_stream_key(result), []).append(result)
    titles = _distinct_names([_title(group[0]) for group in by_stream.values()])
    runs_by_method = [_group_by_method(group) for group in by_stream.values()]
    competitors = {
        name for methods in runs_by_method for name, runs in methods.items() if runs[0].method != UPPER_BOUND
    }
    styles = line_styles(sorted(competitors))
    return [
        _summarise_stream(title, group, methods, styles)
        for title, group, methods in zip(titles, by_stream.values(), runs_by_method, strict=True)
    ]


def _summarise_stream(
    title: str, results: Sequence[Result], runs_by_method: Mapping[str, list[Result]], styles: Mapping[str, LineStyle]
) -> StreamSummary:
    classes, tasks = [one_line(name) for name in results[0].classes], results[0].tasks
    methods = [
        MethodSummary(runs[0].label, name, styles.get(name, UPPER_BOUND_STYLE), classes, tasks, runs)
        for name, runs in runs_by_method.items()
    ]
    return StreamSummary(
        title=title,
        classes=classes,
        tasks=tasks,
        metric=results[0].metric,
        methods=sorted(methods, key=_best_average_first),
        duplicates=len(results) - sum(method.seeds for method in methods),
    )


def _group_by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    """A stream's results by method, without duplicates. The same label with other settings is another method."""
    by_settings: dict[tuple[str, str], dict[object, Result]] = {}
    for result in results:
        key = (result.label, json.dumps(relevant_settings(result), sort_keys=True))
        # one seed may give other numbers on another device, so a duplicate has the same seed and the same numbers
        by_settings.setdefault(key, {}).setdefault((result.seed, repr(result.curve)), result)
    groups = [list(seeds.values()) for seeds in by_settings.values()]
    names = [
        _method_name(group[0], [other[0] for other in groups if other[0].label == group[0].label]) for group in groups
    ]
    return dict(zip(_distinct_names(names), groups, strict=True))


def _method_name(result: Result, same_label: Sequence[Result]) -> str:
    """The method's name for people, with the settings in which results of the same label differ."""
    name = result.title if result.label == result.method else result.label
    settings = [relevant_settings(other) for other in same_label]
    keys = sorted(set().union(*settings))
    differing = [key for key in keys if len({repr(values.get(key)) for values in settings}) > 1]
    values = relevant_settings(result)
    suffix = ", ".join(f"{key.rpartition('.')[2]} {shorten(str(values.get(key)), 24)}" for key in differing[:3])
    return one_line(f"{name} ({suffix})" if suffix else name)


def relevant_settings(result: Result) -> dict[str, Any]:
    """The settings that affect the result, by dotted path. Those that are newer than the result have their defaults."""
    flat = dict(_flatten(with_new_settings({**result.recipe, "method": method_settings(result)}), ""))
    return {key: value for key, value in flat.items() if not f"{key}.".startswith(IGNORED_SETTINGS)}


def _flatten(value: object, path: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return [(path, value)]
    return [pair for key, inner in value.items() for pair in _flatten(inner, f"{path}.{key}" if path else str(key))]


def _stream_key(result: Result) -> object:
    """Results with the same key can be compared."""
    validation = setting(result.recipe, "data", "validation")
    images = setting(result.recipe, "stream", "later_images")
    sample = setting(result.recipe, "data", "test_images")
    split = tuple(result.classes), tuple(result.tasks)
    return data_set_name(result), repr(validation), repr(images), repr(sample), result.metric, *split


def _title(result: Result) -> str:
    size = f"{plural(len(result.classes), 'class')} in {plural(len(result.tasks), 'task')}"
    images = setting(result.recipe, "stream", "later_images")
    few = f", {plural(images, 'image')} of each later class" if images else ""
    sample = setting(result.recipe, "data", "test_images")
    tested = f", tested on a sample of {plural(sample, 'image')}" if sample else ""
    return f"{data_set_name(result)}: {size}{few}{', validation' if uses_validation_images(result) else ''}{tested}"


def _distinct_names(names: Sequence[str]) -> list[str]:
    """The names, with a number after each repetition."""
    count: Counter[str] = Counter()
    distinct = []
    for name in names:
        count[name] += 1
        distinct.append(name if count[name] == 1 else f"{name} ({count[name]})")
    return distinct


def _best_average_first(method: MethodSummary) -> tuple[bool, float, str]:
    average = Estimate.of(result.average_incremental_accuracy for result in method.results).mean
    return np.isnan(average), -average, method.name
