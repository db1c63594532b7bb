"""A table and a figure of the paper as files: HTML, Markdown, LaTeX, PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup

from cotransport.experiments.reproductions import Reproduction
from cotransport.report.drawing import paper_style, save_figure
from cotransport.report.paper_figures import figure_of
from cotransport.report.paper_tables import Contents, PaperTable, contents_of
from cotransport.report.summaries import StreamSummary
from cotransport.report.tables import escape_latex, escape_markdown
from cotransport.report.templates import own_file, render
from cotransport.report.text import MINUS, UNDEFINED
from cotransport.system.files import write_text


def write_reproduction(
    streams: Sequence[StreamSummary], name: str, reproduction: Reproduction, folder: Path, missing: str = ""
) -> list[Path]:
    """Write the tables as HTML, Markdown and LaTeX, and the figure as PNG and SVG; returns the paths.

    name : of the files.
    missing : a sentence on the runs that are not finished.
    """
    contents = contents_of(streams, reproduction)
    if missing:
        contents = replace(contents, notes=[missing, *contents.notes])
    write_text(folder / f"{name}.md", f"# {escape_markdown(reproduction.shows)}\n\n{markdown(contents)}")
    write_text(folder / f"{name}.tex", f"% {reproduction.shows}\n{latex(contents)}")
    with paper_style():
        save_figure(figure_of(streams, before_training=reproduction.before_training), folder / name)
    write_page(folder, name, reproduction.shows, contents)
    return [folder / f"{name}.{suffix}" for suffix in ("html", "md", "tex", "png", "svg")]


def write_page(folder: Path, name: str, title: str, contents: Contents | None = None) -> Path:
    """Write a page with the figure `name.svg` of a folder, and with tables if there are any; returns its path."""
    svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
    picture = Markup(svg[svg.index("<svg") :])  # matplotlib has escaped all names
    page = folder / f"{name}.html"
    css = own_file("page.css")
    write_text(page, render("reproduction.html.j2", title=title, contents=contents, picture=picture, css=css))
    return page


def markdown(contents: Contents) -> str:
    """The tables and notes in Markdown."""
    parts = [_markdown_table(table) for table in contents.tables]
    parts += [f"{escape_markdown(note)}\n" for note in contents.notes]
    return "\n".join(parts if contents.costs is None else [*parts, _markdown_table(contents.costs)])


def _markdown_table(table: PaperTable) -> str:
    lines = [[escape_markdown(heading) for heading in table.headings], [":--", *["--:"] * (len(table.headings) - 1)]]
    lines += [[escape_markdown(cell) for cell in row] for row in table.rows]
    title = f"{escape_markdown(table.title)}:\n\n" if table.title else ""
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(contents: Contents) -> str:
    """The tables as LaTeX tabulars for the package booktabs."""
    notes = "".join(f"% {note}\n" for note in contents.notes)
    tables = "\n".join(_latex_table(table) for table in (*contents.tables, contents.costs) if table is not None)
    return f"% needs \\usepackage{{booktabs}}\n{notes}{tables}"


def _latex_table(table: PaperTable) -> str:
    def line(cells: Sequence[str]) -> str:
        texts = [escape_latex(cell).replace(MINUS, "$-$").replace("±", r"$\pm$") for cell in cells]
        return " & ".join("--" if text == UNDEFINED else text for text in texts) + r" \\"

    rows = "\n".join(map(line, table.rows))
    title = f"% {table.title}\n" if table.title else ""
    alignment = "l" + "r" * (len(table.headings) - 1)
    return (
        f"{title}\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{line(table.headings)}\n\\midrule\n{rows}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )
