"""The table of averages as CSV, Markdown and LaTeX, and what is behind it as CSV."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cotransport.experiments.results import Result, TaskResult
from cotransport.report.estimates import Estimate
from cotransport.report.origins import descending_order, task_transports
from cotransport.report.style import MAX_MAP_CLASSES
from cotransport.report.summaries import MethodSummary, StreamSummary
from cotransport.report.text import MINUS, one_decimal

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
class Column:
    """One figure of a result."""

    key: str
    heading: str
    meaning: str
    value: Callable[[Result], float | None]
    better: int
    """1 if more is better, -1 if less is, 0 if it is no contest."""

    def estimate(self, method: MethodSummary) -> Estimate:
        """Mean and deviation over a method's seeds."""
        return Estimate.of(self.value(result) for result in method.results)


def _last(figure: Callable[[TaskResult], float | None]) -> Callable[[Result], float | None]:
    return lambda result: figure(result.steps[-1]) if result.steps else None


TIME = Column(
    "training_seconds",
    "Training time",
    "over all tasks, without evaluation",
    lambda result: sum(step.train_seconds for step in result.steps),
    better=0,
)
AVERAGE = Column(
    "average_incremental_accuracy",
    "Average accuracy",
    "accuracy on all classes seen so far, in percent, measured after each task; mean over the tasks",
    lambda result: result.average_incremental_accuracy,
    better=1,
)
FORGETTING = Column(
    "forgetting",
    "Forgetting",
    "fall of each earlier task from its best accuracy to its last, in points; mean over the tasks; less is better",
    lambda result: result.forgetting,
    better=-1,
)
COLUMNS = (
    AVERAGE,
    Column(
        "last_accuracy",
        "Last accuracy",
        "accuracy on all classes after the last task",
        lambda result: result.last_accuracy,
        better=1,
    ),
    Column(
        "last_ncm_accuracy",
        "Nearest mean",
        "top-1 accuracy after the last task if each image goes to the nearest class mean; needs stored exemplars",
        _last(lambda step: step.ncm_top1),
        better=1,
    ),
    Column(
        "last_head_accuracy",
        "Head",
        "top-1 accuracy after the last task if the trained classifier layer decides",
        _last(lambda step: step.head_top1),
        better=1,
    ),
    FORGETTING,
    Column(
        "backward_transfer",
        "Backward transfer",
        "change of each earlier task since it was just learned, in points; mean over the tasks; negative is a loss",
        lambda result: result.backward_transfer,
        better=1,
    ),
    TIME,
)


MOST_SOURCES = 20
"""Old classes written for each new class if there are more than MAX_MAP_CLASSES classes."""
SEED = ("stream", "label", "name", "seed")
"""The first columns where each seed has rows of its own."""


@dataclass(frozen=True)
class Cell:
    """One figure as people read it."""

    estimate: Estimate
    is_best: bool


@dataclass(frozen=True)
class Table:
    """A stream's table of averages, ready to be set in any format."""

    headings: list[str]
    rows: list[tuple[MethodSummary, list[Cell]]]


def table(stream: StreamSummary) -> Table:
    """The figures of all methods; training time in the unit that suits the longest."""
    longest = max((value for value in _means(TIME, stream.methods) if not math.isnan(value)), default=0.0)
    seconds, unit = next((s, u) for s, u in ((3600, "h"), (60, "min"), (1, "s")) if longest >= 2 * s or s == 1)
    rows = []
    best = {column.key: _best(column, stream) for column in COLUMNS}
    for method in stream.methods:
        cells = []
        for column in COLUMNS:
            estimate = column.estimate(method)
            is_best = method in stream.competitors and one_decimal(estimate.mean) == best[column.key]
            if column is TIME:
                estimate = Estimate(estimate.mean / seconds, estimate.deviation / seconds)
            cells.append(Cell(estimate, is_best))
        rows.append((method, cells))
    return Table([f"{c.heading} ({unit})" if c is TIME else c.heading for c in COLUMNS], rows)


def summary_csv(streams: Sequence[StreamSummary]) -> str:
    """A row for each method on each stream, plain numbers, empty where undefined."""
    keys = [f"{column.key}_{part}" for column in COLUMNS for part in ("mean", "std")]
    rows: list[list[object]] = [["stream", "label", "name", "method", "metric", "classes", "tasks", "seeds", *keys]]
    for stream in streams:
        for method in stream.methods:
            estimates = [column.estimate(method) for column in COLUMNS]
            figures = [_plain(value) for estimate in estimates for value in (estimate.mean, estimate.deviation)]
            about = [stream.title, method.label, method.name, method.results[0].method, stream.metric]
            rows.append([*about, len(stream.classes), len(stream.tasks), method.seeds, *figures])
    return _csv(rows)


def curves_csv(streams: Sequence[StreamSummary]) -> str:
    """A row for each method, seed and step."""
    figures = ("top1", "top5", "head_top1", "ncm_top1", "train_seconds", "images_per_second")
    rows: list[list[object]] = [[*SEED, "step", "classes_seen", "accuracy", *figures]]
    for about, _, result in _seeds(streams):
        for number, (step, accuracy) in enumerate(zip(result.steps, result.curve, strict=True), start=1):
            values = [_plain(value) for value in (accuracy, *(getattr(step, figure) for figure in figures))]
            rows.append([*about, number, step.classes_seen, *values])
    return _csv(rows)


def initial_csv(streams: Sequence[StreamSummary]) -> str:
    """A row for each method, seed, task and way of telling its new classes apart before training; else no text."""
    rows: list[list[object]] = [[*SEED, "task", "classes_seen", "way", "among_new", "among_all"]]
    for about, _, result in _seeds(streams):
        for number, step in enumerate(result.steps, start=1):
            for way, accuracy in (step.initial or {}).items():
                values = [_plain(value) for value in (accuracy.among_new, accuracy.among_all)]
                rows.append([*about, number, step.classes_seen, way, *values])
    return _csv(rows) if len(rows) > 1 else ""


def transport_csv(streams: Sequence[StreamSummary]) -> str:
    """A row for each method, seed, new class and old class, the share from 0 to 1; no text where there is none.

    Largest share first. Of very many classes only the first sources: all of a thousand would be half a million rows.
    """
    rows: list[list[object]] = [[*SEED, "task", "new_class", "old_class", "share"]]
    for about, method, result in _seeds(streams):
        most = None if len(method.classes) <= MAX_MAP_CLASSES else MOST_SOURCES
        for task, first, shares, _ in task_transports(result, method.tasks):
            for new, own in enumerate(shares.T, start=first):
                rows += [
                    [*about, task + 1, method.classes[new], method.classes[old], _plain(own[old])]
                    for old in descending_order(own)[:most]
                ]
    return _csv(rows) if len(rows) > 1 else ""


def summary_markdown(streams: Sequence[StreamSummary]) -> str:
    """A table for each stream."""
    return "\n".join(_markdown(stream) for stream in streams)


def summary_latex(streams: Sequence[StreamSummary]) -> str:
    """A tabular for each stream, for the package booktabs."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex(stream) for stream in streams)


def escaped_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~$^])", r"\\\1", html.escape(text, quote=False))


def escaped_latex(text: str) -> str:
    r"""Text that LaTeX shows as it is.

    >>> print(escaped_latex("a_b & 50%"))
    a\_b \& 50\%
    """
    return "".join(LATEX.get(char, char) for char in text)


def _markdown(stream: StreamSummary) -> str:
    content = table(stream)
    lines = [["Method", "Seeds", *content.headings], [":--", *["--:"] * (len(content.headings) + 1)]]
    for method, cells in content.rows:
        figures = [f"**{cell.estimate.text}**" if cell.is_best else cell.estimate.text for cell in cells]
        lines.append([escaped_markdown(method.name), str(method.seeds), *figures])
    rows = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"### {escaped_markdown(stream.title)}\n\n{rows}"


def _latex(stream: StreamSummary) -> str:
    content = table(stream)
    head = ["Method", "Seeds", *(escaped_latex(heading) for heading in content.headings)]
    rows = [[escaped_latex(method.name), str(method.seeds), *map(_latex_cell, cells)] for method, cells in content.rows]
    return "\n".join(
        [
            f"% {stream.title}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _latex_cell(cell: Cell) -> str:
    if math.isnan(cell.estimate.mean):
        return "--"
    text = cell.estimate.text.replace(MINUS, "$-$").replace("±", r"$\pm$")
    return rf"\textbf{{{text}}}" if cell.is_best else text


def _seeds(streams: Sequence[StreamSummary]) -> Iterator[tuple[list[object], MethodSummary, Result]]:
    """Every result, after what tells it apart: the values of the columns SEED."""
    for stream in streams:
        for method in stream.methods:
            for result in method.results:
                yield [stream.title, method.label, method.name, result.seed], method, result


def _means(column: Column, methods: Sequence[MethodSummary]) -> list[float]:
    return [column.estimate(method).mean for method in methods]


def _best(column: Column, stream: StreamSummary) -> str | None:
    """The best figure as it is printed, so that what looks equal is equal; None where nothing competes."""
    known = [value for value in _means(column, stream.competitors) if not math.isnan(value)]
    if column.better == 0 or len(known) < 2:
        return None
    return one_decimal(max(known, key=lambda value: column.better * value))


def _plain(value: float | None) -> float | str:
    return "" if value is None or math.isnan(value) else round(value, 6)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
