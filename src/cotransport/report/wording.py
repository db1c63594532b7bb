"""The page's sentences: what was found, and what was run, in words derived from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from cotransport.experiments.results import Result
from cotransport.report.recipes import setting
from cotransport.report.summaries import MethodSummary, StreamSummary
from cotransport.report.tables import AVERAGE, FORGETTING
from cotransport.report.text import one_decimal, one_line, plural

DEVICES = {"cpu": "CPU", "cuda": "GPU (CUDA)", "mps": "GPU (Apple)"}

NOTABLE = 1.0
"""Points of forgetting from which a method is named for it."""


def finding(stream: StreamSummary) -> list[str]:
    """The key finding, a sentence each: the best method, how far it is from the bound, and who forgets most."""
    known = [method for method in stream.competitors if not math.isnan(_average(method))]
    if not known:
        return ["No accuracy was recorded."]
    sentences = [_lead(stream, known)]
    sentences += [_bound(bound, known[0]) for bound in stream.upper_bounds if not math.isnan(_average(bound))]
    if len(stream.tasks) > 1:
        sentences += _forgetting(known)
    return sentences


def facts(stream: StreamSummary) -> list[tuple[str, str]]:
    """What was run: headings and values. Where results differ, all values; what no result tells is left out."""
    results = stream.results
    told = [
        ("Data", _values(_data, results)),
        ("Classes", _values(lambda result: _classes(stream, result), results)),
        ("Backbone", _values(_backbone, results)),
        ("Training", _values(_training, results)),
        ("Memory", _values(_memory, results)),
        ("Seeds", _seeds(stream)),
        ("Device", _values(_device, results)),
        ("Software", _values(_software, results)),
    ]
    return [(heading, value) for heading, value in told if value]


def _lead(stream: StreamSummary, known: Sequence[MethodSummary]) -> str:
    best = known[0]
    tasks, classes = plural(len(stream.tasks), "task"), plural(len(stream.classes), "class")
    span = f"on average over {tasks}" if len(stream.tasks) > 1 else f"on {classes}, all learned at once"
    start = f"{best.name} reaches {_percent(_average(best))} {span}"
    if len(known) == 1:
        return f"{start}."
    second = known[1]
    lead = _gap(best, second)
    spread = max((d for d in (_deviation(best), _deviation(second)) if not math.isnan(d)), default=math.nan)
    if lead == 0:
        return f"{start}, level with {second.name}."
    doubt = ", a lead within the spread between seeds" if lead <= spread else ""
    if math.isnan(spread):
        doubt = ", with one seed each"
    return f"{start}, {_points(lead)} ahead of {second.name}{doubt}."


def _bound(bound: MethodSummary, best: MethodSummary) -> str:
    gap = _gap(bound, best)
    start = f"{bound.name}, trained on the data of all tasks, reaches {_percent(_average(bound))}"
    return f"{start}: {_points(gap)} more." if gap > 0 else f"{start}."


def _forgetting(known: Sequence[MethodSummary]) -> list[str]:
    """What the best method forgets, and which method forgets most."""
    every = {method.name: FORGETTING.estimate(method).mean for method in known}
    lost = {name: points for name, points in every.items() if not math.isnan(points)}
    best = known[0].name
    if best not in lost or max(lost.values()) < NOTABLE:
        return []
    most = max(lost, key=lost.__getitem__)
    amount = "nothing" if lost[best] < 0.05 else _points(lost[best])
    rank = ", the most of all" if best == most and len(lost) > 1 else ""
    others = "" if best == most else f"; {most} forgets most, {_points(lost[most])}"
    return [f"{best} forgets {amount} of what it had learned{rank}{others}."]


def _average(method: MethodSummary) -> float:
    return AVERAGE.estimate(method).mean


def _gap(better: MethodSummary, worse: MethodSummary) -> float:
    """Difference of the averages as they are printed, so that a reader who subtracts gets the same."""
    return round(_average(better), 1) - round(_average(worse), 1)


def _deviation(method: MethodSummary) -> float:
    return AVERAGE.estimate(method).deviation


def _percent(value: float) -> str:
    return f"{one_decimal(value)}\N{NO-BREAK SPACE}%"


def _points(value: float) -> str:
    return f"{one_decimal(value)} {'point' if one_decimal(value) == '1.0' else 'points'}"


def _values(describe: Callable[[Result], str], results: Sequence[Result]) -> str:
    """The different descriptions, in order of appearance."""
    return "; or: ".join(filter(None, dict.fromkeys(one_line(describe(result)) for result in results)))


def _data(result: Result) -> str:
    source, size = setting(result.recipe, "data", "source"), setting(result.recipe, "data", "image_size")
    validation = setting(result.recipe, "data", "validation")
    return _joined(
        source,
        size and f"images of {size} × {size} pixels",
        validation and f"evaluated on the share {validation} of the training images, not on the test images",
    )


def _classes(stream: StreamSummary, result: Result) -> str:
    order = (
        "in the source's order" if result.class_order_seed is None else f"shuffled with seed {result.class_order_seed}"
    )
    return f"{plural(len(stream.classes), 'class')} {_split(stream.tasks)}, {order}"


def _split(tasks: Sequence[int]) -> str:
    """How the classes arrive.

    >>> _split([2, 2, 2]), _split([50, 10, 10]), _split([3, 1, 2])
    ('in 3 tasks of 2', 'in 3 tasks: 50, then 10 each', 'in 3 tasks: 3, 1, 2')
    """
    if len(tasks) == 1:
        return "in 1 task"
    if len(set(tasks)) == 1:
        return f"in {len(tasks)} tasks of {tasks[0]}"
    later = (
        f"{tasks[0]}, then {tasks[1]} each"
        if len(set(tasks[1:])) == 1 and len(tasks) > 2
        else ", ".join(map(str, tasks))
    )
    return f"in {len(tasks)} tasks: {later}"


def _backbone(result: Result) -> str:
    stem = setting(result.recipe, "backbone", "stem")
    name = setting(result.recipe, "backbone", "name")
    return _joined(name, stem not in (None, "auto") and f"{stem} stem")


def _epochs(result: Result, planned: int | None) -> str | None:
    """The epochs that were trained, or those that were planned where there is no record."""
    trained = sorted({step.epochs for step in result.steps if step.epochs is not None})
    if len(trained) > 1:
        return f"{trained[0]} to {trained[-1]} epochs per task"
    epochs = trained[0] if trained else planned
    return f"{plural(epochs, 'epoch')} per task" if epochs else None


def _training(result: Result) -> str:
    schedule = setting(result.recipe, "schedule")
    told = schedule if isinstance(schedule, Mapping) else {}
    rate, shape, seconds = told.get("learning_rate"), told.get("shape"), told.get("seconds_per_task")
    return _joined(
        _epochs(result, told.get("epochs")),
        seconds and f"{seconds:g} s per task",
        told.get("batch_size") and f"batches of {told['batch_size']}",
        rate and f"learning rate {rate}" + (f" ({shape})" if shape else ""),
    )


def _memory(result: Result) -> str:
    total, per_class = setting(result.recipe, "memory", "total"), setting(result.recipe, "memory", "per_class")
    if total is None and per_class is None:
        return ""
    if not (total or per_class):
        return "no exemplars of old classes"
    amount, share = (total, "in all") if total else (per_class, "per class")
    return f"{plural(amount, 'exemplar')} {share}"


def _seeds(stream: StreamSummary) -> str:
    seeds = ", ".join(str(seed) for seed in sorted({result.seed for result in stream.results}))
    return _joined(seeds, stream.duplicates and f"without {plural(stream.duplicates, 'repetition')} of the same run")


def _device(result: Result) -> str:
    told, processes = result.environment, setting(result.recipe, "device", "processes")
    threads = told.get("threads")
    return _joined(
        DEVICES.get(str(told.get("device")), told.get("device")),
        threads and plural(threads, "thread"),
        processes not in (None, 1) and f"{processes} processes",
        told.get("platform"),
    )


def _software(result: Result) -> str:
    told = result.environment
    names = {"cotransport": "cotransport", "torch": "torch", "python": "Python", "commit": "commit"}
    return _joined(*(told.get(key) and f"{name} {told[key]}" for key, name in names.items()))


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part)
