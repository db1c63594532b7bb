"""The summary table as CSV, Markdown and LaTeX, and the numbers behind it as CSV."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from cotransport.experiments.results import Result, TaskResult
from cotransport.report.estimates import Estimate
from cotransport.report.origins import descending_order, task_transports
from cotransport.report.recipes import augmentation_name
from cotransport.report.style import MAX_MAP_CLASSES
from cotransport.report.summaries import MethodSummary, StreamSummary
from cotransport.report.text import MINUS, UNDEFINED, one_decimal


@dataclass(frozen=True)
class Column:
    """A column of the summary table: one number of a result."""

    key: str
    """Name in `summary.csv`."""
    heading: str
    meaning: str
    value: Callable[[Result], float | None]
    better: int
    """1 if more is better, -1 if less is better, 0 if methods are not compared by it."""

    def estimate(self, method: MethodSummary) -> Estimate:
        """Mean and standard deviation over a method's seeds."""
        return Estimate.of(self.value(result) for result in method.results)


def _after_last_task(value: Callable[[TaskResult], float | None]) -> Callable[[Result], float | None]:
    return lambda result: value(result.steps[-1]) if result.steps else None


AVERAGE = Column(
    "average_incremental_accuracy",
    "Average accuracy",
    "accuracy on all classes seen so far, measured after each task, in percent; mean over the tasks",
    lambda result: result.average_incremental_accuracy,
    better=1,
)
LAST = Column(
    "last_accuracy",
    "Last accuracy",
    "accuracy on all classes after the last task, in percent",
    lambda result: result.last_accuracy,
    better=1,
)
FORGETTING = Column(
    "forgetting",
    "Forgetting",
    "drop from a task's best accuracy to its last, in percentage points; mean over all tasks but the last; "
    "less is better",
    lambda result: result.forgetting,
    better=-1,
)
TIME = Column(
    "training_seconds",
    "Training time",
    "over all tasks, without evaluation",
    lambda result: sum(step.train_seconds for step in result.steps),
    better=0,
)
COLUMNS = (
    AVERAGE,
    LAST,
    Column(
        "last_ncm_accuracy",
        "Nearest mean",
        "top-1 accuracy after the last task if each image gets the class whose mean feature is nearest; "
        "needs stored images (exemplars)",
        _after_last_task(lambda step: step.ncm_top1),
        better=1,
    ),
    Column(
        "last_head_accuracy",
        "Head",
        "top-1 accuracy after the last task if the trained classifier layer (the head) predicts",
        _after_last_task(lambda step: step.head_top1),
        better=1,
    ),
    FORGETTING,
    Column(
        "backward_transfer",
        "Backward transfer",
        "change from a task's accuracy just after it was learned to its last, in percentage points; "
        "mean over all tasks but the last; negative is a loss",
        lambda result: result.backward_transfer,
        better=1,
    ),
    TIME,
    Column(
        "parameters_millions",
        "Parameters (M)",
        "trained weights of the network after the last task, in millions",
        lambda result: None if result.parameters is None else result.parameters / 1e6,
        better=0,
    ),
)
AUGMENTATION = "Augmentation"
"""Heading of the last column: the random changes to training images."""
TIME_UNITS = (("h", 3600), ("min", 60), ("s", 1))
"""Units with their seconds, longest first."""
MAX_SOURCES = 20
"""Number of old classes that are written for each new class if there are more than MAX_MAP_CLASSES classes."""
RUN_COLUMNS = ("stream", "label", "name", "seed")
"""The first columns of a table with rows for each seed."""
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{char: f"\\{char}" for char in "_%&#${}"},
}


@dataclass(frozen=True)
class Cell:
    """One value of the summary table."""

    text: str
    is_best: bool = False


@dataclass(frozen=True)
class SummaryTable:
    """A stream's summary table, before it is written in any format."""

    headings: list[str]
    rows: list[tuple[MethodSummary, list[Cell]]]


def summary_table(stream: StreamSummary) -> SummaryTable:
    """The values of all methods. The training time has the unit that suits the longest one."""
    longest = max(_known_means(TIME, stream.methods), default=0.0)
    unit, seconds = next((unit, seconds) for unit, seconds in TIME_UNITS if longest >= 2 * seconds or seconds == 1)
    best = {column.key: _best(column, stream) for column in COLUMNS}
    rows = []
    for method in stream.methods:
        cells = []
        for column in COLUMNS:
            estimate = column.estimate(method)
            is_best = method in stream.competitors and one_decimal(estimate.mean) == best[column.key]
            if column is TIME:
                estimate = Estimate(estimate.mean / seconds, estimate.deviation / seconds)
            cells.append(Cell(estimate.text, is_best))
        rows.append((method, [*cells, Cell(augmentation_name(method.results[0]))]))
    headings = [f"{column.heading} ({unit})" if column is TIME else column.heading for column in COLUMNS]
    return SummaryTable([*headings, AUGMENTATION], rows)


def summary_csv(streams: Sequence[StreamSummary]) -> str:
    """One row for each method on each stream; a cell is empty if its value is undefined."""
    columns = [
        *("stream", "label", "name", "method", "metric", "classes", "tasks", "seeds"),
        *(f"{column.key}_{part}" for column in COLUMNS for part in ("mean", "std")),
        "augmentation",
    ]
    rows: list[list[object]] = []
    for stream in streams:
        for method in stream.methods:
            names = [stream.title, method.label, method.name, method.results[0].method, stream.metric]
            estimates = [column.estimate(method) for column in COLUMNS]
            values = [_round(value) for estimate in estimates for value in (estimate.mean, estimate.deviation)]
            sizes = [len(stream.classes), len(stream.tasks), method.seeds]
            rows.append([*names, *sizes, *values, augmentation_name(method.results[0])])
    return _csv(columns, rows)


def curves_csv(streams: Sequence[StreamSummary]) -> str:
    """One row for each method, seed and step."""
    keys = ("top1", "top5", "head_top1", "ncm_top1", "train_seconds", "images_per_second")
    rows: list[list[object]] = []
    for run, _, result in _runs(streams):
        for number, (step, accuracy) in enumerate(zip(result.steps, result.curve, strict=True), start=1):
            values = [_round(value) for value in (accuracy, *(getattr(step, key) for key in keys))]
            rows.append([*run, number, step.classes_seen, *values])
    return _csv([*RUN_COLUMNS, "step", "classes_seen", "accuracy", *keys], rows)


def initial_csv(streams: Sequence[StreamSummary]) -> str:
    """One row for each method, seed, task and classifier of its new classes before training; empty if none is known."""
    rows: list[list[object]] = []
    for run, _, result in _runs(streams):
        for number, step in enumerate(result.steps, start=1):
            for classifier, accuracy in (step.initial or {}).items():
                values = [_round(value) for value in (accuracy.among_new, accuracy.among_all)]
                rows.append([*run, number, step.classes_seen, classifier, *values])
    return _csv([*RUN_COLUMNS, "task", "classes_seen", "way", "among_new", "among_all"], rows) if rows else ""


def transport_csv(streams: Sequence[StreamSummary]) -> str:
    """One row for each method, seed, new class and old class, with the share from 0 to 1; empty if none is known.

    The largest share comes first. With very many classes, only the largest shares are written: a thousand classes
    would give half a million rows.
    """
    rows: list[list[object]] = []
    for run, method, result in _runs(streams):
        limit = None if len(method.classes) <= MAX_MAP_CLASSES else MAX_SOURCES
        for task, first, task_shares, _ in task_transports(result, method.tasks):
            for new, shares in enumerate(task_shares.T, start=first):
                rows += [
                    [*run, task + 1, method.classes[new], method.classes[old], _round(shares[old])]
                    for old in descending_order(shares)[:limit]
                ]
    return _csv([*RUN_COLUMNS, "task", "new_class", "old_class", "share"], rows) if rows else ""


def summary_markdown(streams: Sequence[StreamSummary]) -> str:
    """One table for each stream."""
    return "\n".join(_markdown(stream) for stream in streams)


def summary_latex(streams: Sequence[StreamSummary]) -> str:
    """One tabular for each stream, for the package booktabs."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex(stream) for stream in streams)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows unchanged."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~$^])", r"\\\1", html.escape(text, quote=False))


def escape_latex(text: str) -> str:
    r"""Text that LaTeX shows unchanged. By hand: pandas does not escape < > | ", which older font encodings change.

    >>> print(escape_latex("a_b & 50%"))
    a\_b \& 50\%
    """
    return "".join(LATEX.get(char, char) for char in text)


def _markdown(stream: StreamSummary) -> str:
    """By hand: pandas would need one more package, tabulate, and would pad the cells."""
    content = summary_table(stream)
    lines = [["Method", "Seeds", *content.headings], [":--", *["--:"] * (len(content.headings) + 1)]]
    for method, cells in content.rows:
        values = [f"**{cell.text}**" if cell.is_best else escape_markdown(cell.text) for cell in cells]
        lines.append([escape_markdown(method.name), str(method.seeds), *values])
    rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"### {escape_markdown(stream.title)}\n\n{rows}"


def _latex(stream: StreamSummary) -> str:
    content = summary_table(stream)
    columns = ["Method", "Seeds", *(escape_latex(heading) for heading in content.headings)]
    rows = [[escape_latex(method.name), str(method.seeds), *map(_latex_cell, cells)] for method, cells in content.rows]
    alignment = "l" + "r" * (len(columns) - 1)
    tabular = pd.DataFrame(rows, columns=columns).to_latex(index=False, escape=False, column_format=alignment)
    return f"% {stream.title}\n{tabular}"


def _latex_cell(cell: Cell) -> str:
    if cell.text == UNDEFINED:
        return "--"
    text = escape_latex(cell.text).replace(MINUS, "$-$").replace("±", r"$\pm$")
    return rf"\textbf{{{text}}}" if cell.is_best else text


def _runs(streams: Sequence[StreamSummary]) -> Iterator[tuple[list[object], MethodSummary, Result]]:
    """Every result, with the values of RUN_COLUMNS and the method."""
    for stream in streams:
        for method in stream.methods:
            for result in method.results:
                yield [stream.title, method.label, method.name, result.seed], method, result


def _known_means(column: Column, methods: Sequence[MethodSummary]) -> list[float]:
    means = [column.estimate(method).mean for method in methods]
    return [mean for mean in means if not math.isnan(mean)]


def _best(column: Column, stream: StreamSummary) -> str | None:
    """The best value as it is printed, so that values that look equal are equal; None if nothing is compared."""
    known = _known_means(column, stream.competitors)
    if column.better == 0 or len(known) < 2:
        return None
    return one_decimal(max(known, key=lambda mean: column.better * mean))


def _round(value: float | None) -> float | None:
    """By hand: pandas multiplies and divides by a power of ten, which may give another last digit."""
    return None if value is None else round(value, 6)


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text: str = pd.DataFrame(rows, columns=columns).to_csv(index=False, lineterminator="\n")
    return text
