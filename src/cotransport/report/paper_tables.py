"""What a table of the paper says, from runs of its experiments: our numbers, the published ones, and what ours cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cotransport.experiments.bundled import FAST, bundled_recipes
from cotransport.experiments.published import PAPER, PAPER_ORACLE, SURVEY, published
from cotransport.experiments.recipe import label_of, load_recipe
from cotransport.experiments.reproductions import Reproduction
from cotransport.report.estimates import Line
from cotransport.report.recipes import augmentation_name, data_set_name, method_settings, setting
from cotransport.report.summaries import CANDIDATES, Candidates, MethodSummary, StreamSummary, in_recipe_order
from cotransport.report.tables import AVERAGE, LAST
from cotransport.report.text import UNDEFINED, one_decimal

OURS = "COIL"
"""The name of the paper's own method."""
PUBLICATIONS = {"paper": PAPER, "survey": SURVEY}
"""Published averages by the word that headings have for them."""
PUBLISHED_NOTE = (
    "“paper” is the number in the paper, and “survey” the one in its authors' later survey (arXiv 2302.03648)."
)
FAST_NOTE = (
    "Our numbers come from the fast recipes. They differ from the paper in the network, the schedule (fewer epochs, "
    "higher learning rates), the augmentation (stronger), class-balanced softmax (WA on CIFAR-100 has plain softmax), "
    "predictions averaged over mirror images and, unless a row says (convex), the loss weights."
)
LOSSES = {
    "convex": "(1 - lambda) CE + lambda KD",
    "additive": "CE + lambda KD",
    "ratio": "CE + lambda / (1 - lambda) KD",
}
"""Rehearsal losses by the setting `combine`. The first is the paper's."""
PUBLISHED_EXEMPLARS = 2000
FEWER_IMAGES = (("data", "validation"), ("data", "test_images"), ("stream", "later_images"))
"""Settings that leave out some training or test images."""
CANDIDATES_IN_WORDS: dict[Candidates, str] = {
    "new": "Among the new classes",
    "all": "Among all classes seen",
}


@dataclass(frozen=True)
class PaperTable:
    """Headings and rows, before they are written in any format."""

    headings: list[str]
    rows: list[list[str]]
    title: str = ""


@dataclass(frozen=True)
class Contents:
    """Tables, and the sentences below them."""

    tables: list[PaperTable]
    notes: list[str]
    costs: PaperTable | None = None
    """What the runs cost: a row for each stream."""


def contents_of(streams: Sequence[StreamSummary], reproduction: Reproduction) -> Contents:
    """The tables and notes of one of the paper's tables or figures."""
    columns = _columns(streams, reproduction.recipes)
    tables = _initial_tables(streams) if reproduction.before_training else []
    measure = _initial_measure() if tables else _measure(streams)
    tables = tables or [_averages(columns)]
    has_published = any(heading.endswith(tuple(PUBLICATIONS)) for table in tables for heading in table.headings)
    notes = [
        measure,
        *([PUBLISHED_NOTE] if has_published else []),
        *([FAST_NOTE] if any(column.recipe.endswith(FAST) for column in columns if column.stream) else []),
        *(_loss_notes(streams) if has_published else []),
        paper_note(reproduction),
        *(_oracle_note(columns) if has_published else []),
    ]
    return Contents(tables, notes, _costs(columns))


def paper_note(reproduction: Reproduction) -> str:
    """What the paper reports, as a note."""
    return f"The paper: {reproduction.paper}"


@dataclass(frozen=True)
class _Column:
    """A stream of the table, by its recipe."""

    title: str
    recipe: str
    stream: StreamSummary | None
    """None if nothing was run."""

    @property
    def is_published(self) -> bool:
        """Whether the stream is that of the published experiments: all of CIFAR-100, with 2,000 exemplars."""
        if self.stream is None:
            return True
        result = self.stream.results[0]
        return (
            data_set_name(result) == "cifar100"
            and len(self.stream.classes) == 100
            and setting(result.recipe, "memory", "total") == PUBLISHED_EXEMPLARS
            and all(setting(result.recipe, *path) is None for path in FEWER_IMAGES)
        )

    def average(self, method: str) -> str:
        """The average accuracy of a method, by its name."""
        found = [one for one in self.stream.methods if one.name == method] if self.stream else []
        return AVERAGE.estimate(found[0]).text if found else UNDEFINED


def _averages(columns: Sequence[_Column]) -> PaperTable:
    """Average accuracies, a row for each method and columns for each stream: ours, and those that are published.

    Streams and methods that were not run have dashes, if numbers of theirs are published.
    """
    methods = _methods(columns)
    headings, cells = ["Method"], [methods]
    for column in columns:
        headings.append(column.title)
        cells.append([column.average(method) for method in methods])
        for source, averages in PUBLICATIONS.items():
            values = [published(averages, column.recipe, method) for method in methods if column.is_published]
            if any(value is not None for value in values):
                headings.append(f"{column.title}, {source}")
                cells.append([UNDEFINED if value is None else f"{value:g}" for value in values])
    return PaperTable(headings, [list(row) for row in zip(*cells, strict=True)])


def _columns(streams: Sequence[StreamSummary], recipes: Sequence[str]) -> list[_Column]:
    """The streams that were run, and those that were not but have published numbers, in the order of the recipes."""
    columns = [
        _Column(title, recipe_name(stream), stream)
        for stream, title in zip(streams, short_titles(streams), strict=True)
    ]
    run = {column.recipe.removesuffix(FAST) for column in columns}
    for recipe in recipes:
        if recipe in PAPER and recipe not in run:
            columns.append(_Column(f"{load_recipe(recipe).stream.tasks} tasks", recipe, None))
    place = {recipe: number for number, recipe in enumerate(recipes)}
    return sorted(columns, key=lambda column: place.get(column.recipe.removesuffix(FAST), len(place)))


def _methods(columns: Sequence[_Column]) -> list[str]:
    """The names of the methods that were run or have published numbers, in the order of the bundled recipes."""
    order: dict[str, None] = {}
    found: dict[str, None] = {}
    for column in sorted(columns, key=lambda column: column.stream is None):
        if column.recipe in bundled_recipes():
            listed = load_recipe(column.recipe).methods
            order |= dict.fromkeys(label_of(one) if one.label else one.title for one in listed)
        if column.stream is not None:
            found |= dict.fromkeys(method.name for method in in_recipe_order(column.stream.methods))
        if column.is_published:
            found |= dict.fromkeys(PAPER.get(column.recipe.removesuffix(FAST), {}))
    places = list(order)
    return sorted(found, key=lambda name: places.index(name) if name in places else len(places))


def _initial_tables(streams: Sequence[StreamSummary]) -> list[PaperTable]:
    """Accuracy on new classes before any training on them: a row for each classifier and a column for each task."""
    tables = []
    for stream in streams:
        method = initial_method(stream)
        if method is None:
            continue
        for candidates in CANDIDATES:
            lines = method.initial_accuracy(candidates)
            tasks = [f"task {number}" for number in range(2, len(stream.tasks) + 1)]
            rows = [[line.name, *(one.text for one in line.estimates), _mean(line)] for line in lines]
            tables.append(PaperTable(["Classifier", *tasks, "mean"], rows, CANDIDATES_IN_WORDS[candidates]))
    return tables


def initial_method(stream: StreamSummary) -> MethodSummary | None:
    """A method whose new classes were evaluated before training; None if there is none.

    Every method starts from weights of the same kind, so one of them is enough.
    """
    return next((method for method in stream.methods if method.initial_accuracy("new")), None)


def _mean(line: Line) -> str:
    return one_decimal(float(np.mean([estimate.mean for estimate in line.estimates])))


def _initial_measure() -> str:
    return (
        "Accuracy on the test images of each task's new classes before any training on them, in percent. ± is the "
        "sample standard deviation over seeds."
    )


def _measure(streams: Sequence[StreamSummary]) -> str:
    kinds = {accuracy_name(stream) for stream in streams} or {"Accuracy"}
    return (
        f"{' or '.join(sorted(kinds))} on all classes seen so far, measured after each task, in percent; mean over the "
        f"tasks. ± is the sample standard deviation over seeds, and {UNDEFINED} means that there is no number."
    )


def accuracy_name(stream: StreamSummary) -> str:
    """The accuracy that counts for a stream."""
    return "Top-5 accuracy" if stream.metric == "top5" else "Accuracy"


def _loss_notes(streams: Sequence[StreamSummary]) -> Iterator[str]:
    """A sentence on each loss of ours that is not the paper's."""
    results = [method.results[0] for stream in streams for method in stream.methods if method.name == OURS]
    found = dict.fromkeys(str((method_settings(result) or {}).get("combine", "convex")) for result in results)
    for combine in found:
        if combine in LOSSES and combine != "convex":
            yield f"Our {OURS} has {LOSSES[combine]} beside the transports, the paper's has {LOSSES['convex']}."


def _oracle_note(columns: Sequence[_Column]) -> list[str]:
    """The paper's Oracle is one accuracy on all classes, so it is compared with ours after the last task."""
    last = [
        f"{LAST.estimate(bound).text} ({column.title})"
        for column in columns
        if column.stream is not None and column.is_published and column.recipe.removesuffix(FAST) in PAPER
        for bound in column.stream.upper_bounds
        if bound.is_upper_bound
    ]
    ours = f" Ours, after the last task: {', '.join(last)}." if last else ""
    return [f"The paper's Oracle is an accuracy on all classes and not an average: {PAPER_ORACLE}.{ours}"]


def _costs(columns: Sequence[_Column]) -> PaperTable:
    """What one method costs in each stream that was run, with the range over methods."""
    rows = []
    for column in columns:
        if column.stream is None:
            continue
        methods = column.stream.competitors
        parameters = [method.results[0].parameters for method in methods]
        rows.append(
            [
                column.title,
                column.recipe,
                _range(method.fastest_seconds / 60 for method in methods),
                _range((one / 1e6 for one in parameters if one is not None), digits=2),
                "; ".join(dict.fromkeys(augmentation_name(method.results[0]) for method in methods)),
                _range(method.seeds for method in methods),
            ]
        )
    return PaperTable(["Stream", "Recipe", "Minutes per method", "Parameters (M)", "Augmentation", "Seeds"], rows)


def _range(values: Iterable[float], digits: int = 0) -> str:
    """The smallest and the largest number.

    >>> _range([12.3, 7.0, 9.9]), _range([0.61, 0.611], digits=2), _range([]), _range([0.2, 0.4])
    ('7 to 12', '0.61', '–', '0.2 to 0.4')
    """
    known = list(values)
    if not known:
        return UNDEFINED
    shown = [f"{value:.{digits}f}" if value >= 1 or digits else f"{value:.1g}" for value in (min(known), max(known))]
    return " to ".join(dict.fromkeys(shown))


def recipe_name(stream: StreamSummary) -> str:
    """The name of the recipe that a stream's results come from."""
    return str(setting(stream.results[0].recipe, "name"))


def short_titles(streams: Sequence[StreamSummary]) -> list[str]:
    """How each stream differs from the others: its tasks, and its data set and classes if these differ."""
    data = [f"{data_set_name(stream.results[0])}, {len(stream.classes)} classes" for stream in streams]
    tasks = [_tasks_in_words(stream.tasks) for stream in streams]
    if len(set(data)) == 1:
        return tasks
    return [f"{name}, {split}" for name, split in zip(data, tasks, strict=True)]


def _tasks_in_words(tasks: Sequence[int]) -> str:
    """A split in few words.

    >>> _tasks_in_words([10, 10]), _tasks_in_words([50, 10, 10]), _tasks_in_words([3, 1, 2])
    ('2 tasks', '50 + 2 x 10', '3 tasks')
    """
    first, *later = tasks
    if later and len(set(later)) == 1 and later[0] != first:
        return f"{first} + {len(later)} x {later[0]}"
    return f"{len(tasks)} tasks"
