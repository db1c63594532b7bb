"""The page's sentences about the results: what was found, and what was run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence

from cotransport.experiments.results import Result
from cotransport.report.aggregate import relevant_settings
from cotransport.report.comparison import compare
from cotransport.report.estimates import Estimate
from cotransport.report.recipes import setting
from cotransport.report.summaries import MethodSummary, StreamSummary, in_recipe_order
from cotransport.report.tables import AVERAGE, FORGETTING
from cotransport.report.text import one_decimal, one_line, plural

DEVICES = {"cpu": "CPU", "cuda": "GPU (CUDA)", "mps": "GPU (Apple)"}

NOTABLE_FORGETTING = 1.0
"""Forgetting below this many percentage points is not mentioned."""


def finding(stream: StreamSummary) -> list[str]:
    """The findings in sentences: what the transports change, the best method, the upper bound, what is forgotten."""
    known = [method for method in stream.competitors if not math.isnan(_average(method))]
    if not known:
        return ["No accuracy was recorded."]
    sentences = [*_transports(known), _best_method(stream, known)]
    sentences += [_upper_bound(bound, known[0]) for bound in stream.upper_bounds if not math.isnan(_average(bound))]
    if len(stream.tasks) > 1:
        sentences += _forgetting(known)
    return sentences


def facts(stream: StreamSummary) -> list[tuple[str, str]]:
    """What was run, as headings and values. A fact that no result has is left out."""
    results = stream.results
    values = [
        ("Data", _describe(_data, results)),
        ("Classes", _describe(lambda result: _classes(stream, result), results)),
        ("Backbone network", _describe(_backbone, results)),
        ("Training", _describe(_training, results)),
        ("Memory", _describe(_memory, results)),
        ("Seeds", _seeds(stream)),
        ("Device", _describe(_device, results)),
        ("Software", _describe(_software, results)),
    ]
    return [(heading, value) for heading, value in values if value]


def _best_method(stream: StreamSummary, known: Sequence[MethodSummary]) -> str:
    best = known[0]
    tasks, classes = plural(len(stream.tasks), "task"), plural(len(stream.classes), "class")
    where = f"on average over {tasks}" if len(stream.tasks) > 1 else f"on {classes}, all learned at once"
    start = f"{best.name} reaches {_percent(_average(best))} accuracy {where}"
    if len(known) == 1:
        return f"{start}."
    second = known[1]
    lead = _gap(best, second)
    if lead == 0:
        return f"{start}, the same as {second.name}."
    deviations = [AVERAGE.estimate(method).deviation for method in (best, second)]
    deviation = max((value for value in deviations if not math.isnan(value)), default=math.nan)
    doubt = ", a lead within the standard deviation over seeds" if lead <= deviation else ""
    if math.isnan(deviation):
        doubt = ", with one seed each"
    return f"{start}, {_points(lead)} ahead of {second.name}{doubt}."


SWITCHES = ("method.prospective_init", "method.pt_weight", "method.rt_weight")
"""The settings that switch the transports off, all at 0."""


def _transports(known: Sequence[MethodSummary]) -> list[str]:
    """What co-transport changes, if a method ran with its transports and, otherwise the same, without them."""
    by_other_settings: dict[str, dict[bool, MethodSummary]] = {}
    for method in in_recipe_order(known):
        values = relevant_settings(method.results[0])
        switches = [bool(values.get(key)) for key in SWITCHES]
        if all(key in values for key in SWITCHES) and len(set(switches)) == 1:
            other = {key: value for key, value in values.items() if key not in {*SWITCHES, "method.label"}}
            pair = by_other_settings.setdefault(json.dumps(other, sort_keys=True, default=str), {})
            pair.setdefault(switches[0], method)
    for pair in by_other_settings.values():
        if len(pair) == 2 and (found := compare(pair[True], pair[False])) is not None:
            return _change(pair[True], pair[False], found.average)
    return []


def _change(full: MethodSummary, without: MethodSummary, change: Estimate) -> list[str]:
    """What the transports change, from the runs whose seeds both methods have."""
    own, other = ({result.seed: result for result in method.results} for method in (full, without))
    seeds = [seed for seed in own if seed in other]
    averages = [
        Estimate.of(results[seed].average_incremental_accuracy for seed in seeds).mean for results in (own, other)
    ]
    if len(seeds) == 1:  # as a reader would subtract
        change = Estimate.of([round(averages[0], 1) - round(averages[1], 1)])
    doubt = "one seed, so it may be chance" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return [
        f"Co-transport changes the average accuracy by {change.signed_text} points ({doubt}).",
        f"{full.name} reaches {_percent(averages[0])}, and {_percent(averages[1])} without its transports "
        f"({without.name}).",
    ]


def _upper_bound(bound: MethodSummary, best: MethodSummary) -> str:
    gap = _gap(bound, best)
    start = f"{bound.name}, trained on the images of all tasks, reaches {_percent(_average(bound))}"
    return f"{start}: {_points(gap)} more." if gap > 0 else f"{start}."


def _forgetting(known: Sequence[MethodSummary]) -> list[str]:
    """What the best method forgets, and which method forgets most."""
    means = {method.name: FORGETTING.estimate(method).mean for method in known}
    lost = {name: points for name, points in means.items() if not math.isnan(points)}
    best = known[0].name
    if best not in lost or max(lost.values()) < NOTABLE_FORGETTING:
        return []
    most = max(lost, key=lost.__getitem__)
    amount = "nothing" if lost[best] < 0.05 else _points(lost[best])
    rank = ", the most of all" if best == most and len(lost) > 1 else ""
    other = "" if best == most else f"; {most} forgets most, {_points(lost[most])}"
    meaning = "Forgetting is the mean drop from a task's best accuracy to its last, in percentage points."
    return [f"{best} forgets {amount}{rank}{other}.", meaning]


def _average(method: MethodSummary) -> float:
    return AVERAGE.estimate(method).mean


def _gap(better: MethodSummary, worse: MethodSummary) -> float:
    """Difference of the averages as they are printed, so that a reader who subtracts gets the same."""
    return round(_average(better), 1) - round(_average(worse), 1)


def _percent(value: float) -> str:
    return f"{one_decimal(value)}\N{NO-BREAK SPACE}%"


def _points(value: float) -> str:
    return f"{one_decimal(value)} {'point' if one_decimal(value) == '1.0' else 'points'}"


def _describe(describe: Callable[[Result], str], results: Sequence[Result]) -> str:
    """The description of the results; if they differ, all different descriptions in order of appearance."""
    return "; in other runs: ".join(filter(None, dict.fromkeys(one_line(describe(result)) for result in results)))


def _data(result: Result) -> str:
    source, size = setting(result.recipe, "data", "source"), setting(result.recipe, "data", "image_size")
    validation = setting(result.recipe, "data", "validation")
    return _join(
        source,
        size and f"images of {size} × {size} pixels",
        validation and f"evaluated on held-out training images (share {validation}), not on the test images",
    )


def _classes(stream: StreamSummary, result: Result) -> str:
    seed = result.class_order_seed
    order = "in the data set's order" if seed is None else f"order shuffled with seed {seed}"
    return f"{plural(len(stream.classes), 'class')} {_split(stream.tasks)}, {order}"


def _split(tasks: Sequence[int]) -> str:
    """How the classes are divided into tasks.

    >>> _split([2, 2, 2]), _split([50, 10, 10]), _split([3, 1, 2])
    ('in 3 tasks of 2', 'in 3 tasks: 50, then 10 each', 'in 3 tasks: 3, 1, 2')
    """
    if len(tasks) == 1:
        return "in 1 task"
    if len(set(tasks)) == 1:
        return f"in {len(tasks)} tasks of {tasks[0]}"
    first, *later = tasks
    sizes = f"{first}, then {later[0]} each" if len(set(later)) == 1 and len(later) > 1 else ", ".join(map(str, tasks))
    return f"in {len(tasks)} tasks: {sizes}"


def _backbone(result: Result) -> str:
    stem = setting(result.recipe, "backbone", "stem")
    name = setting(result.recipe, "backbone", "name")
    return _join(name, stem not in (None, "auto") and f"{stem} stem")


def _epochs(result: Result, planned: int | None) -> str | None:
    """The number of epochs that were trained, or that were planned if the result has no record."""
    trained = sorted({step.epochs for step in result.steps if step.epochs is not None})
    if len(trained) > 1:
        return f"{trained[0]} to {trained[-1]} epochs per task"
    epochs = trained[0] if trained else planned
    return f"{plural(epochs, 'epoch')} per task" if epochs else None


def _training(result: Result) -> str:
    section = setting(result.recipe, "schedule")
    schedule = section if isinstance(section, Mapping) else {}
    rate, shape, seconds = schedule.get("learning_rate"), schedule.get("shape"), schedule.get("seconds_per_task")
    return _join(
        _epochs(result, schedule.get("epochs")),
        seconds and f"{seconds:g} s per task",
        schedule.get("batch_size") and f"batches of {schedule['batch_size']}",
        rate and f"learning rate {rate}" + (f" ({shape})" if shape else ""),
    )


def _memory(result: Result) -> str:
    total, per_class = setting(result.recipe, "memory", "total"), setting(result.recipe, "memory", "per_class")
    if total is None and per_class is None:
        return ""
    if not (total or per_class):
        return "no stored images of old classes"
    limit, scope = (total, "in total") if total else (per_class, "per class")
    return f"at most {plural(limit, 'stored image')} of old classes (exemplars) {scope}"


def _seeds(stream: StreamSummary) -> str:
    seeds = ", ".join(str(seed) for seed in sorted({result.seed for result in stream.results}))
    return _join(seeds, stream.duplicates and f"without {plural(stream.duplicates, 'duplicate')} of the same run")


def _device(result: Result) -> str:
    environment, processes = result.environment, setting(result.recipe, "device", "processes")
    threads, precision = environment.get("threads"), environment.get("precision")
    return _join(
        environment.get("processor") if environment.get("device") == "cpu" else None,
        DEVICES.get(str(environment.get("device")), environment.get("device")),
        precision not in (None, "32-true") and f"precision {precision}",
        threads and plural(threads, "thread"),
        processes not in (None, 1) and f"{processes} processes",
        environment.get("platform"),
    )


def _software(result: Result) -> str:
    environment = result.environment
    names = {"cotransport": "cotransport", "torch": "torch", "python": "Python", "commit": "commit"}
    return _join(*(environment.get(key) and f"{name} {environment[key]}" for key, name in names.items()))


def _join(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)
