"""Results put in order for reading: the streams; on each stream the methods; of each method the mean over its seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

import numpy as np

from cotransport.experiments.results import Result, TaskResult, Transport
from cotransport.metrics import Floats, Integers
from cotransport.report.style import BOUND_LOOK, CHANCE_LOOK, LineStyle, line_styles
from cotransport.report.text import in_percent, one_decimal, one_line, plural, shortened

Among: TypeAlias = Literal["new", "all"]
"""The classes that can be answered: a task's own, or all that were seen."""
Way: TypeAlias = Literal["pt", "ncm", "random"]

BOUND = "oracle"
"""The method that trains on the data of all tasks: what there is to reach, not a competitor."""

WITHOUT_EFFECT = (
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
    "follow.",
)
"""Settings in which runs may differ and still be repetitions of each other."""

MOST_CLASSES = 200
"""With more classes than this, classes are not set against classes: the cell of a pair would be a pixel."""

WAYS: dict[Way, str] = {"pt": "prospective transport", "ncm": "nearest class mean", "random": "random weights"}
"""How new classes can be told apart before they are trained."""
WAY_LOOKS = dict(zip(WAYS, line_styles(WAYS).values(), strict=True))


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds and sample standard deviation. NaN where undefined, as the deviation of a single seed is."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate:
        """The estimate from each seed's value, leaving out undefined ones.

        >>> Estimate.of([1.0, None, 3.0])
        Estimate(mean=2.0, deviation=1.4142135623730951)
        >>> Estimate.of([5.0])
        Estimate(mean=5.0, deviation=nan)
        """
        known = [value for value in values if value is not None and np.isfinite(value)]
        return cls(
            mean=float(np.mean(known)) if known else float("nan"),
            deviation=float(np.std(known, ddof=1)) if len(known) > 1 else float("nan"),
        )

    @property
    def text(self) -> str:
        """Mean ± deviation with one decimal.

        >>> Estimate(65.52, 0.26).text, Estimate(65.52, float("nan")).text
        ('65.5 ± 0.3', '65.5')
        """
        mean = one_decimal(self.mean)
        return mean if math.isnan(self.deviation) else f"{mean} ± {one_decimal(self.deviation)}"


@dataclass(frozen=True)
class Line:
    """What a line in a figure or chart shows: an estimate at each place."""

    name: str
    look: LineStyle
    estimates: list[Estimate]

    @property
    def has_band(self) -> bool:
        """Whether there is a deviation to show."""
        return not all(math.isnan(estimate.deviation) for estimate in self.estimates)


@dataclass(frozen=True, eq=False)
class Confusion:
    """Counts with the names of their rows (true) and columns (predicted), and where a new task's rows begin."""

    names: list[str]
    counts: Integers
    starts: list[int]

    @property
    def shares(self) -> Floats:
        """Each row in percent of its images; NaN in a row without images."""
        images = self.counts.sum(axis=1, keepdims=True)
        return _ratio(100.0 * self.counts.astype(np.float64), np.broadcast_to(images, self.counts.shape))

    def hardest(self, most: int) -> list[str]:
        """The most frequent confusions in words, the most frequent first."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        images = self.counts.sum(axis=1)
        pairs = [(int(true), int(taken)) for true, taken in zip(*np.nonzero(wrong), strict=True)]
        pairs.sort(key=lambda pair: (-wrong[pair], images[pair[0]], pair))
        return [self.in_words(*pair) for pair in pairs[:most]]

    def in_words(self, true: int, taken: int) -> str:
        """One cell as a phrase."""
        what = "recognised" if true == taken else f"taken for {self.names[taken]}"
        images = plural(int(self.counts[true].sum()), "image")
        return f"{self.names[true]} {what}: {self.counts[true, taken]:,} of {images}"


@dataclass(frozen=True, eq=False)
class Sources:
    """What the first weights of new classes were mixed from, with the names of old (rows) and new classes (columns)."""

    old: list[str]
    new: list[str]
    shares: Floats
    """In percent of each new class, mean over seeds; NaN where the old class had not been learned yet."""
    effective: list[Estimate]
    """For each new class, the number of old classes behind it."""
    old_starts: list[int]
    """Where the rows of another task begin,"""
    new_starts: list[int]
    """and where its columns do."""

    @property
    def is_drawn(self) -> bool:
        """Whether there is room for a map. One between tasks would tell nothing: a plan takes as much of each row."""
        return max(len(self.old), len(self.new)) <= MOST_CLASSES

    def known(self, new: int) -> int:
        """How many old classes the new class could be mixed from."""
        return int((~np.isnan(self.shares[:, new])).sum())

    def largest(self, new: int, most: int) -> str:
        """The old classes with the largest shares in a new class, in words."""
        own = self.shares[:, new]
        first = [old for old in largest_first(own)[:most] if own[old] > 0]
        return ", ".join(f"{self.old[old]}\N{NO-BREAK SPACE}{own[old] / 100:.2f}" for old in first)

    def in_words(self, old: int, new: int) -> str:
        """One cell as a phrase."""
        return f"{self.new[new]}: {in_percent(self.shares[old, new])} from {self.old[old]}"


@dataclass(frozen=True, eq=False)
class MethodSummary:
    """All seeds of one method, with one set of settings, on one stream."""

    label: str
    """As in the results, for machines."""
    name: str
    """For people, and different from the names of all other methods on the stream."""
    look: LineStyle
    classes: list[str]
    tasks: list[int]
    results: list[Result]

    @property
    def is_bound(self) -> bool:
        """Whether the method is there to show what could be reached."""
        return self.results[0].method == BOUND

    @property
    def seeds(self) -> int:
        """How many seeds there are."""
        return len(self.results)

    @property
    def starts(self) -> list[int]:
        """How many classes there are before each task's."""
        return [int(start) for start in np.cumsum([0, *self.tasks[:-1]])]

    @cached_property
    def curve(self) -> list[Estimate]:
        """Accuracy after each task."""
        return _estimates([result.curve for result in self.results], len(self.tasks))

    @cached_property
    def forgetting_per_task(self) -> list[Estimate]:
        """Points lost on each task but the last."""
        return _estimates([result.forgetting_per_task for result in self.results], len(self.tasks) - 1)

    @cached_property
    def accuracy_matrix(self) -> Floats:
        """Mean over seeds. Row i, column j: accuracy on task j after task i, NaN where undefined."""
        tasks = len(self.tasks)
        of_seeds = np.full((self.seeds, tasks, tasks), np.nan)
        for own, result in zip(of_seeds, self.results, strict=True):
            matrix = result.accuracy_matrix[:tasks, :tasks]
            own[: matrix.shape[0], : matrix.shape[1]] = matrix
        return _mean_of_known(of_seeds)

    @cached_property
    def confusion(self) -> Confusion | None:
        """Sum over seeds after the last task; None where no result has it."""
        size = len(self.classes)
        recorded = [
            np.asarray(result.confusion, dtype=np.int64) for result in self.results if len(result.confusion) == size
        ]
        if not recorded:
            return None
        counts = np.sum(recorded, axis=0)
        if size <= MOST_CLASSES:
            return Confusion(self.classes, counts, self.starts)
        between_tasks = np.add.reduceat(np.add.reduceat(counts, self.starts, axis=0), self.starts, axis=1)
        return Confusion([f"task {task + 1}" for task in range(len(self.tasks))], between_tasks, [])

    def transports(self, result: Result) -> Iterator[tuple[int, Transport, Floats]]:
        """A seed's transports with the task's number from 0, and each old class's share (rows) of each new class."""
        steps = zip(result.steps, self.starts, self.tasks, strict=False)  # a seed may have stopped early
        for task, (step, old, new) in enumerate(steps):
            transport = step.transport
            if task == 0 or transport is None or len(transport.origins) != new:
                continue
            if [len(row) for row in transport.plan] == [new] * old:
                yield task, transport, new * np.asarray(transport.plan, dtype=np.float64)

    @cached_property
    def sources(self) -> Sources | None:
        """What new classes were mixed from; None where no result has it."""
        size = len(self.classes)
        of_seeds = np.full((self.seeds, size, size), np.nan)
        effective: list[list[float | None]] = [[None] * size for _ in self.results]
        for seed, result in enumerate(self.results):
            for task, transport, shares in self.transports(result):
                old, seen = self.starts[task], self.starts[task] + self.tasks[task]
                of_seeds[seed, :old, old:seen] = 100 * shares
                effective[seed][old:seen] = [origin.effective_sources for origin in transport.origins]
        if np.isnan(of_seeds).all():
            return None
        first, last = self.starts[1], self.starts[-1]
        return Sources(
            old=self.classes[:last],
            new=self.classes[first:],
            shares=_mean_of_known(of_seeds)[:last, first:],
            effective=_estimates(effective, size)[first:],
            old_starts=self.starts[:-1],
            new_starts=[start - first for start in self.starts[1:]],
        )

    def initial(self, among: Among) -> list[Line]:
        """Accuracy on the new classes of the second and each later task before they are trained, and by chance."""
        later = len(self.tasks) - 1
        lines = [
            Line(
                WAYS[way],
                look,
                _estimates(
                    [[_initial(step, way, among) for step in result.steps[1:]] for result in self.results], later
                ),
            )
            for way, look in WAY_LOOKS.items()
        ]
        known = [line for line in lines if not all(math.isnan(estimate.mean) for estimate in line.estimates)]
        if known and among == "new":
            known.append(Line("chance", CHANCE_LOOK, [Estimate.of([100 / new]) for new in self.tasks[1:]]))
        return known


@dataclass(frozen=True, eq=False)
class StreamSummary:
    """Classes of a data set in one order and split, evaluated in one way, and the methods that were run on it."""

    title: str
    classes: list[str]
    tasks: list[int]
    metric: str
    methods: list[MethodSummary]
    """Best average first."""
    repeated: int
    """Results left out because the same run is there already."""

    @property
    def results(self) -> list[Result]:
        """Every result that counts."""
        return [result for method in self.methods for result in method.results]

    @property
    def competitors(self) -> list[MethodSummary]:
        """The methods to compare: all but the bound, unless there is nothing else."""
        return [method for method in self.methods if not method.is_bound] or self.methods

    @property
    def classes_seen(self) -> list[int]:
        """Number of classes seen after each task."""
        return [int(seen) for seen in np.cumsum(self.tasks)]

    @property
    def task_classes(self) -> list[list[str]]:
        """The names of each task's classes."""
        return [self.classes[seen - size : seen] for seen, size in zip(self.classes_seen, self.tasks, strict=True)]


def grouped(results: Sequence[Result]) -> list[StreamSummary]:
    """The streams in order of appearance. A method looks the same on all of them."""
    by_stream: dict[object, list[Result]] = {}
    for result in results:
        by_stream.setdefault(_stream_key(result), []).append(result)
    titles = _distinct([_title(group[0]) for group in by_stream.values()])
    runs = [_runs(group) for group in by_stream.values()]
    look_of = line_styles(sorted({name for named in runs for name, own in named.items() if own[0].method != BOUND}))
    return [
        _stream(title, group, named, look_of)
        for title, group, named in zip(titles, by_stream.values(), runs, strict=True)
    ]


def source_name(result: Result) -> str:
    """The data set's name: the last part of a folder's path or of a hub id."""
    return one_line(PurePath(str(setting(result.recipe, "data", "source") or "")).name) or "data"


def on_validation(result: Result) -> bool:
    """Whether a share of the training images was evaluated on, and not the test images."""
    return setting(result.recipe, "data", "validation") is not None


def setting(recipe: Mapping[str, Any], *path: str) -> object:
    """A recipe's value, None where it or a section above it is missing."""
    value: object = recipe
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def largest_first(values: Floats) -> list[int]:
    """The places of values from the largest on, equal ones in their own order, undefined ones last.

    >>> largest_first(np.array([0.2, np.nan, 0.6, 0.2]))
    [2, 0, 3, 1]
    """
    return [int(place) for place in np.argsort(-values, kind="stable")]


def thinned(places: Sequence[int], most: int) -> list[int]:
    """Every so many of the places, so that at most so many are left.

    >>> thinned(range(10), most=4)
    [0, 3, 6, 9]
    """
    return list(places[:: -(-len(places) // most)])


def _stream(
    title: str, results: Sequence[Result], runs: Mapping[str, list[Result]], look_of: Mapping[str, LineStyle]
) -> StreamSummary:
    classes, tasks = [one_line(name) for name in results[0].classes], results[0].tasks
    methods = [
        MethodSummary(own[0].label, name, look_of.get(name, BOUND_LOOK), classes, tasks, own)
        for name, own in runs.items()
    ]
    return StreamSummary(
        title=title,
        classes=classes,
        tasks=tasks,
        metric=results[0].metric,
        methods=sorted(methods, key=_best_average_first),
        repeated=len(results) - sum(method.seeds for method in methods),
    )


def _runs(results: Sequence[Result]) -> dict[str, list[Result]]:
    """A stream's results by the method's name, each run once. A label with other settings is another method."""
    by_settings: dict[tuple[str, str], dict[object, Result]] = {}
    for result in results:
        key = (result.label, json.dumps(_settings(result), sort_keys=True))
        # the same seed on another device may end differently: only the same figures are the same run
        by_settings.setdefault(key, {}).setdefault((result.seed, repr(result.curve)), result)
    groups = [list(seeds.values()) for seeds in by_settings.values()]
    names = [_name(group[0], [other[0] for other in groups if other[0].label == group[0].label]) for group in groups]
    return dict(zip(_distinct(names), groups, strict=True))


def _name(result: Result, namesakes: Sequence[Result]) -> str:
    """The label as people write it, with the settings that set it apart from others of the same label."""
    name = result.title if result.label == result.method else result.label
    settings = [_settings(namesake) for namesake in namesakes]
    differing = [key for key in sorted(set().union(*settings)) if len({repr(own.get(key)) for own in settings}) > 1]
    own = _settings(result)
    apart = ", ".join(f"{key.rpartition('.')[2]} {shortened(str(own.get(key)), 24)}" for key in differing[:3])
    return one_line(f"{name} ({apart})" if apart else name)


def _settings(result: Result) -> dict[str, Any]:
    """The settings that shape the result, by dotted path."""
    methods = setting(result.recipe, "methods")
    own = [
        method
        for method in (methods if isinstance(methods, list) else [])
        if isinstance(method, Mapping) and (method.get("label") or method.get("name")) == result.label
    ]
    flat = dict(_flattened({**result.recipe, "method": own[0] if own else None}, ""))
    return {key: value for key, value in flat.items() if not f"{key}.".startswith(WITHOUT_EFFECT)}


def _flattened(value: object, path: str) -> Iterable[tuple[str, object]]:
    if not isinstance(value, Mapping):
        return [(path, value)]
    return [pair for key, inner in value.items() for pair in _flattened(inner, f"{path}.{key}" if path else str(key))]


def _stream_key(result: Result) -> object:
    validation = setting(result.recipe, "data", "validation")
    return source_name(result), repr(validation), result.metric, tuple(result.classes), tuple(result.tasks)


def _title(result: Result) -> str:
    size = f"{plural(len(result.classes), 'class')} in {plural(len(result.tasks), 'task')}"
    return f"{source_name(result)}: {size}{', validation' if on_validation(result) else ''}"


def _distinct(names: Sequence[str]) -> list[str]:
    """The names with a number after every repetition."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        seen[name] += 1
        distinct.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return distinct


def _best_average_first(method: MethodSummary) -> tuple[bool, float, str]:
    average = Estimate.of(result.average_incremental_accuracy for result in method.results).mean
    return np.isnan(average), -average, method.name


def _estimates(of_seeds: Sequence[Sequence[float | None]], length: int) -> list[Estimate]:
    """An estimate for each place; a seed that stopped early leaves its later places undefined."""
    return [Estimate.of(values[place] for values in of_seeds if place < len(values)) for place in range(length)]


def _initial(step: TaskResult, way: Way, among: Among) -> float | None:
    accuracy = (step.initial or {}).get(way)
    if accuracy is None:
        return None
    return accuracy.among_new if among == "new" else accuracy.among_all


def _mean_of_known(of_seeds: Floats) -> Floats:
    """Mean over the first axis, leaving out what is undefined."""
    known = ~np.isnan(of_seeds)
    return _ratio(np.where(known, of_seeds, 0).sum(axis=0), known.sum(axis=0))


def _ratio(part: Floats, whole: Integers) -> Floats:
    """Division that is NaN where there is nothing to divide by."""
    ratio = np.full(part.shape, np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
