"""A table and a figure of the paper from runs of its experiments, with the published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.published import PAPER, SURVEY, published
from cotransport.experiments.recipe import label_of, load_recipe
from cotransport.report.drawing import GRID, draw_lines, label_line_ends, paper_style, save_figure
from cotransport.report.estimates import Line
from cotransport.report.recipes import data_set_name, setting
from cotransport.report.summaries import MethodSummary, StreamSummary, in_recipe_order
from cotransport.report.tables import AVERAGE, LAST, escape_latex, escape_markdown
from cotransport.report.templates import own_file, render
from cotransport.report.text import MINUS, UNDEFINED, one_decimal
from cotransport.system.files import write_text

OURS = "COIL"
"""The method whose lead a panel's title states."""
COLUMNS = 2
"""Panels side by side."""


@dataclass(frozen=True)
class PaperTable:
    """Methods by streams, before it is written in any format."""

    headings: list[str]
    rows: list[list[str]]


def write_reproduction(streams: Sequence[StreamSummary], name: str, title: str, folder: Path) -> list[Path]:
    """Write the table as HTML, Markdown and LaTeX, and the figure as PNG and SVG; returns the paths."""
    table = paper_table(streams)
    write_text(folder / f"{name}.md", markdown(table))
    write_text(folder / f"{name}.tex", latex(table))
    with paper_style():
        save_figure(figure_of(streams), folder / name)
    write_text(folder / f"{name}.html", html_page(table, title, (folder / f"{name}.svg").read_text(encoding="utf-8")))
    return [folder / f"{name}.{suffix}" for suffix in ("html", "md", "tex", "png", "svg")]


def paper_table(streams: Sequence[StreamSummary]) -> PaperTable:
    """Average accuracies, a row for each method and columns for each stream: ours, and those that are published."""
    methods = list(dict.fromkeys(method.name for stream in streams for method in _in_paper_order(stream)))
    headings, columns = ["Method"], [methods]
    for stream, title in zip(streams, short_titles(streams), strict=True):
        found = {method.name: method for method in stream.methods}
        headings.append(title)
        columns.append([AVERAGE.estimate(found[name]).text if name in found else UNDEFINED for name in methods])
        for source, averages in (("paper", PAPER), ("survey", SURVEY)):
            values = [published(averages, recipe_name(stream), name) for name in methods if _is_published(stream)]
            if any(value is not None for value in values):
                headings.append(f"{title}, {source}")
                columns.append([UNDEFINED if value is None else f"{value:.2f}" for value in values])
    return PaperTable(headings, [list(row) for row in zip(*columns, strict=True)])


def _is_published(stream: StreamSummary) -> bool:
    """Whether a stream has the images and classes of the published experiments: all of CIFAR-100."""
    return data_set_name(stream.results[0]) == "cifar100" and len(stream.classes) == 100


def markdown(table: PaperTable) -> str:
    """The table in Markdown."""
    lines = [[escape_markdown(heading) for heading in table.headings], [":--", *["--:"] * (len(table.headings) - 1)]]
    lines += [[escape_markdown(cell) for cell in row] for row in table.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(table: PaperTable) -> str:
    """The table as a LaTeX tabular for the package booktabs."""

    def line(cells: Sequence[str]) -> str:
        texts = [escape_latex(cell).replace(MINUS, "$-$").replace("±", r"$\pm$") for cell in cells]
        return " & ".join("--" if text == UNDEFINED else text for text in texts) + r" \\"

    rows = "\n".join(map(line, table.rows))
    alignment = "l" + "r" * (len(table.headings) - 1)
    return (
        "% needs \\usepackage{booktabs}\n"
        f"\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{line(table.headings)}\n\\midrule\n{rows}\n\\bottomrule\n"
        "\\end{tabular}\n"
    )


def html_page(table: PaperTable, title: str, svg: str) -> str:
    """A page with the figure and the table."""
    picture = Markup(svg[svg.index("<svg") :])  # matplotlib has escaped all names
    return render("reproduction.html.j2", title=title, table=table, picture=picture, css=own_file("page.css"))


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
    lead = one_decimal(last[OURS] - others[best])
    return f"{title}: {OURS} {lead if lead.startswith(MINUS) else f'+{lead}'} over {best}"


def _in_paper_order(stream: StreamSummary) -> list[MethodSummary]:
    """The methods in the order of their bundled recipe, of which only a part may have been run at a time."""
    name = recipe_name(stream)
    labels = [label_of(method) for method in load_recipe(name).methods] if name in bundled_recipes() else []
    ordered = in_recipe_order(stream.methods)
    return sorted(ordered, key=lambda method: labels.index(method.label) if method.label in labels else len(labels))


def recipe_name(stream: StreamSummary) -> str:
    """The name of the recipe that a stream's results come from."""
    return str(setting(stream.results[0].recipe, "name"))
