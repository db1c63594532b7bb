"""A table and a figure of the paper from runs of its experiments, with the published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.published import PAPER, PAPER_ORACLE, SURVEY, published
from cotransport.experiments.recipe import label_of, load_recipe
from cotransport.experiments.reproductions import FAST, Reproduction
from cotransport.report.drawing import GRID, draw_lines, label_line_ends, paper_style, save_figure
from cotransport.report.estimates import Line
from cotransport.report.recipes import data_set_name, setting
from cotransport.report.summaries import StreamSummary, in_recipe_order
from cotransport.report.tables import AVERAGE, LAST, escape_latex, escape_markdown
from cotransport.report.templates import own_file, render
from cotransport.report.text import MINUS, UNDEFINED, one_decimal
from cotransport.system.files import write_text

OURS = "COIL"
"""The method whose lead a panel's title states."""
COLUMNS = 2
"""Panels side by side."""
PUBLICATIONS = {"paper": PAPER, "survey": SURVEY}
"""Published averages by the word that headings have for them."""


@dataclass(frozen=True)
class PaperTable:
    """Methods by streams, before it is written in any format."""

    headings: list[str]
    rows: list[list[str]]
    notes: list[str]
    """Sentences below the table."""


def write_reproduction(
    streams: Sequence[StreamSummary], name: str, reproduction: Reproduction, folder: Path
) -> list[Path]:
    """Write the table as HTML, Markdown and LaTeX, and the figure as PNG and SVG; returns the paths.

    name : of the files.
    """
    table = paper_table(streams, reproduction)
    write_text(folder / f"{name}.md", markdown(table))
    write_text(folder / f"{name}.tex", latex(table))
    with paper_style():
        save_figure(figure_of(streams), folder / name)
    svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
    fast = any(recipe_name(stream).endswith(FAST) for stream in streams)
    write_text(folder / f"{name}.html", html_page(table, reproduction.shows, svg, fast=fast))
    return [folder / f"{name}.{suffix}" for suffix in ("html", "md", "tex", "png", "svg")]


def paper_table(streams: Sequence[StreamSummary], reproduction: Reproduction) -> PaperTable:
    """Average accuracies, a row for each method and columns for each stream: ours, and those that are published.

    Streams and methods that were not run have dashes, if numbers of theirs are published.
    """
    columns = _columns(streams, reproduction.recipes)
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
    rows = [list(row) for row in zip(*cells, strict=True)]
    return PaperTable(headings, rows, [f"The paper: {reproduction.paper}", *_oracle_note(columns)])


@dataclass(frozen=True)
class _Column:
    """A stream of the table, by its recipe."""

    title: str
    recipe: str
    stream: StreamSummary | None
    """None if nothing was run."""

    @property
    def is_published(self) -> bool:
        """Whether the stream has the images and classes of the published experiments: all of CIFAR-100."""
        if self.stream is None:
            return True
        return data_set_name(self.stream.results[0]) == "cifar100" and len(self.stream.classes) == 100

    def average(self, method: str) -> str:
        """The average accuracy of a method, by its name."""
        found = [one for one in self.stream.methods if one.name == method] if self.stream else []
        return AVERAGE.estimate(found[0]).text if found else UNDEFINED


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


def _oracle_note(columns: Sequence[_Column]) -> list[str]:
    """The paper's Oracle is one accuracy on all classes, so it is compared with ours after the last task."""
    last = [
        f"{LAST.estimate(bound).text} ({column.title})"
        for column in columns
        if column.stream is not None and column.is_published and column.recipe.removesuffix(FAST) in PAPER
        for bound in column.stream.upper_bounds
    ]
    if not any(column.is_published and column.recipe.removesuffix(FAST) in PAPER for column in columns):
        return []
    ours = f" Ours, after the last task: {', '.join(last)}." if last else ""
    return [f"The paper's Oracle is an accuracy on all classes and not an average: {PAPER_ORACLE}.{ours}"]


def markdown(table: PaperTable) -> str:
    """The table in Markdown."""
    lines = [[escape_markdown(heading) for heading in table.headings], [":--", *["--:"] * (len(table.headings) - 1)]]
    lines += [[escape_markdown(cell) for cell in row] for row in table.rows]
    notes = "".join(f"\n{escape_markdown(note)}\n" for note in table.notes)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + notes


def latex(table: PaperTable) -> str:
    """The table as a LaTeX tabular for the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        texts = [escape_latex(cell).replace(MINUS, "$-$").replace("±", r"$\pm$") for cell in cells]
        return " & ".join("--" if text == UNDEFINED else text for text in texts) + r" \\"

    rows = "\n".join(map(line, table.rows))
    notes = "".join(f"% {note}\n" for note in table.notes)
    alignment = "l" + "r" * (len(table.headings) - 1)
    return (
        f"% needs \\usepackage{{booktabs}}\n{notes}"
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{line(table.headings)}\n\\midrule\n{rows}\n\\bottomrule\n"
        "\\end{tabular}\n"
    )


def html_page(table: PaperTable, title: str, svg: str, *, fast: bool) -> str:
    """A page with the figure and the table.

    fast : the recipes are the fast ones, which the page says.
    """
    picture = Markup(svg[svg.index("<svg") :])  # matplotlib has escaped all names
    css = own_file("page.css")
    return render("reproduction.html.j2", title=title, table=table, picture=picture, fast=fast, css=css)


def figure_of(streams: Sequence[StreamSummary]) -> Figure:
    """The paper's curves, a panel for each stream, and one for new classes before training where it was measured."""
    panels = [
        panel for stream, title in zip(streams, short_titles(streams), strict=True) for panel in _panels(stream, title)
    ]
    lines = max(len(panel.lines) for panel in panels)
    columns, rows = min(COLUMNS, len(panels)), -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(6.0 * columns, max(3.4, 1.0 + 0.18 * lines) * rows), layout="constrained")
    drawn = [(figure.add_subplot(rows, columns, place), panel) for place, panel in enumerate(panels, start=1)]
    for axes, panel in drawn:
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set(title=panel.title, xlabel=panel.axis, ylabel="Accuracy (%)")
        draw_lines(axes, panel.positions, panel.lines)
    for axes, panel in drawn:  # labels fix the layout, so all lines come first
        label_line_ends(figure, axes, panel.positions[-1], panel.lines)
    return figure


@dataclass(frozen=True)
class _Panel:
    """Lines over classes or tasks."""

    title: str
    axis: str
    positions: Sequence[int]
    lines: Sequence[Line]


def _panels(stream: StreamSummary, title: str) -> list[_Panel]:
    found = [_Panel(_with_lead(title, stream), "Classes seen", stream.classes_seen, stream.accuracy_lines)]
    for method in stream.methods:
        lines = method.initial_accuracy("new")
        if lines:
            what = f"{method.name}: new classes before training"
            found.append(_Panel(what, "Task", range(2, len(stream.tasks) + 1), lines))
            break  # every method starts from weights of the same kind
    return found


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


def _with_lead(title: str, stream: StreamSummary) -> str:
    """A panel's title, with the lead of COIL over the next best method after the last task, if there are both."""
    last = {method.name: LAST.estimate(method).mean for method in stream.competitors}
    others = {name: value for name, value in last.items() if name != OURS and not math.isnan(value)}
    if not others or math.isnan(last.get(OURS, math.nan)):
        return title
    best = max(others, key=others.__getitem__)
    lead = last[OURS] - others[best]
    return f"{title}: {OURS} {one_decimal(abs(lead))} {'ahead of' if lead >= 0 else 'behind'} {best}"


def recipe_name(stream: StreamSummary) -> str:
    """The name of the recipe that a stream's results come from."""
    return str(setting(stream.results[0].recipe, "name"))
