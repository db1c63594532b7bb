"""The subcommand `compare`: runs side by side, and whether their differences are larger than chance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cotransport.cli.console import out
from cotransport.system.text import markup

if TYPE_CHECKING:
    from cotransport.report.summaries import MethodSummary, StreamSummary

app = typer.Typer()
SIGNIFICANT = 0.05
"""A p-value below this counts as more than chance."""


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport compare runs/digits[/]  all methods of a run\n\n"
    "[bold]cotransport compare runs/monday runs/tuesday --methods coil,wa[/]  two methods in two folders\n\n"
    "[bold]cotransport compare results/cifar100-b0-10-fast.json --against CE+KD[/]  differences from one method"
)
def compare(
    places: Annotated[list[Path], typer.Argument(help="Folders with runs, or archives of results.", metavar="PATH")],
    methods: Annotated[
        str | None, typer.Option(help="Methods, by label or name, separated by commas.", show_default="all")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="The method to compare with.", metavar="LABEL", show_default="the best on average"),
    ] = None,
) -> None:
    """Lay runs side by side: curves, averages, forgetting, time, and differences from one of them."""
    from cotransport.errors import RunError
    from cotransport.experiments.results import find_results
    from cotransport.report.aggregate import summarise

    results = find_results(*places)
    known = list(dict.fromkeys(result.label for result in results))
    titles = {result.title: result.label for result in results}
    parts = known if methods is None else [part.strip() for part in methods.split(",") if part.strip()]
    if not parts:
        raise RunError(f"--methods: give some of: {', '.join(known)}")
    wanted = [titles.get(part, part) if part not in known else part for part in parts]
    against = against if against is None or against in known else titles.get(against, against)
    for label in (*wanted, *([] if against is None else [against])):
        if label not in known:
            raise RunError(f"{label!r}: no run of this method. There are: {', '.join(known)}")
    chosen = [result for result in results if result.label in {*wanted, against}]
    for stream in summarise(chosen):
        _show(stream, against)


def _show(stream: StreamSummary, against: str | None) -> None:
    """Print the curves and measures of a stream's methods, and their differences from one method."""
    from cotransport.report.tables import AVERAGE, FORGETTING, LAST, TIME

    out.print(f"[bold]{markup(stream.title)}[/]", soft_wrap=True)
    curves = Table("method", "seeds", *map(str, stream.classes_seen), box=None, header_style="bold")
    measures = Table("method", "average", "last", "forgetting", "minutes", box=None, header_style="bold")
    for method in stream.methods:
        curves.add_row(markup(method.name), str(method.seeds), *(f"{one.mean:.1f}" for one in method.curve))
        cells = [column.estimate(method).text for column in (AVERAGE, LAST, FORGETTING)]
        measures.add_row(markup(method.name), *cells, f"{TIME.estimate(method).mean / 60:.1f}")
    out.print("accuracy by the number of classes seen", style="dim")
    out.print(curves)
    out.print(measures)
    base = next((method for method in stream.methods if against in {method.label, method.name}), None)
    if base is None and against is not None:
        out.print(f"no run of {markup(against)} on this stream", style="dim")
        return
    base = base or stream.competitors[0]
    others = [method for method in stream.methods if method is not base]
    if others:
        _show_differences(base, others)


def _show_differences(base: MethodSummary, others: list[MethodSummary]) -> None:
    from cotransport.report.comparison import compare as compared

    out.print(f"difference from {markup(base.name)}", style="dim", soft_wrap=True)
    table = Table("method", "average", "last", "seeds", "", box=None, header_style="bold")
    for method in others:
        found = compared(method, base)
        if found is None:
            table.add_row(markup(method.name), "", "", "0", "no seed in common")
            continue
        shared = {result.seed for result in method.results} & {result.seed for result in base.results}
        verdict = _verdict(found.p_over_seeds, len(shared))
        cells = [found.average.signed_text, found.last.signed_text, str(len(shared)), verdict]
        table.add_row(markup(method.name), *cells)
    out.print(table)
    out.print("seeds: those that both have; p: paired t-test of their average accuracies", style="dim")


def _verdict(p_value: float, seeds: int) -> str:
    """What a p-value says, in words."""
    if seeds == 1:
        return "one seed: cannot be tested"
    if math.isnan(p_value):
        return "the same difference with every seed"
    shown = "p < 0.01" if p_value < 0.01 else f"p = {p_value:.2f}"
    return f"{'unlikely to be chance' if p_value < SIGNIFICANT else 'may be chance'}, {shown}"
