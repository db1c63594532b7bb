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
    from collections.abc import Callable, Sequence

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
        str | None, typer.Option(help="Methods, by label, name or title, separated by commas.", show_default="all")
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
    parts = None if methods is None else [part.strip() for part in methods.split(",") if part.strip()]
    if parts == []:
        raise RunError(f"--methods: give some of: {', '.join(dict.fromkeys(result.label for result in results))}")
    streams = summarise(results)
    for one in (*(parts or ()), *([] if against is None else [against])):
        if not any(_matching(stream.methods, one) for stream in streams):
            names = ", ".join(dict.fromkeys(method.name for stream in streams for method in stream.methods))
            raise RunError(f"{one!r}: no run of this method. There are: {names}")
    for stream in streams:
        _show(stream, parts, against)


def _matching(methods: Sequence[MethodSummary], wanted: str) -> list[MethodSummary]:
    """The methods with this name in tables, or else this label, or else this title or name in recipes.

    Capital letters do not matter.
    """
    keys: tuple[Callable[[MethodSummary], set[str]], ...] = (
        lambda method: {method.name},
        lambda method: {method.label},
        lambda method: {method.results[0].title, method.results[0].method},
    )
    for key in keys:
        found = [method for method in methods if wanted.casefold() in {name.casefold() for name in key(method)}]
        if found:
            return found
    return []


def _base(stream: StreamSummary, methods: Sequence[MethodSummary], against: str | None) -> MethodSummary | None:
    """The method that others are compared with; None if the stream has no run of it."""
    from cotransport.errors import RunError

    if against is None:
        return next((method for method in methods if not method.is_upper_bound), methods[0])
    found = _matching(stream.methods, against)
    if len(found) > 1:
        names = ", ".join(repr(method.name) for method in found)
        raise RunError(f"--against {against}: several methods have this name. Give one of: {names}")
    return found[0] if found else None


def _show(stream: StreamSummary, wanted: Sequence[str] | None, against: str | None) -> None:
    """Print the curves and measures of a stream's methods, and their differences from one method."""
    from cotransport.report.recipes import augmentation_name
    from cotransport.report.tables import AVERAGE, FORGETTING, LAST

    methods = stream.methods
    if wanted is not None:
        chosen = [method for one in wanted for method in _matching(methods, one)]
        methods = [method for method in methods if method in chosen]
    if not methods:
        return
    base = _base(stream, methods, against)
    if base is not None and base not in methods:
        methods = [method for method in stream.methods if method in methods or method is base]
    out.print(f"[bold]{markup(stream.title)}[/]", soft_wrap=True)
    curves = Table("method", "seeds", *map(str, stream.classes_seen), box=None, header_style="bold")
    headings = ("average", "last", "forgetting", "minutes", "parameters", "augmentation")
    measures = Table("method", *headings, box=None, header_style="bold")
    for method in methods:
        curves.add_row(markup(method.name), str(method.seeds), *(f"{one.mean:.1f}" for one in method.curve))
        cells = [column.estimate(method).text for column in (AVERAGE, LAST, FORGETTING)]
        parameters = method.results[0].parameters
        costs = [f"{method.fastest_seconds / 60:.1f}", "" if parameters is None else f"{parameters / 1e6:.2g} M"]
        measures.add_row(markup(method.name), *cells, *costs, markup(augmentation_name(method.results[0])))
    out.print("accuracy by the number of classes seen", style="dim")
    out.print(curves)
    out.print(measures)
    out.print("minutes: of the fastest seed", style="dim")
    if base is None:
        out.print(f"no run of {markup(against)} on this stream", style="dim")
        return
    others = [method for method in methods if method is not base]
    if others:
        _show_differences(base, others)


def _show_differences(base: MethodSummary, others: list[MethodSummary]) -> None:
    from cotransport.report.comparison import compare as compared

    out.print(f"difference from {markup(base.name)}", style="dim", soft_wrap=True)
    headings = ("average", "95 % interval", "last", "seeds", "p", "chance?")
    table = Table("method", *headings, box=None, header_style="bold")
    for method in others:
        found = compared(method, base)
        if found is None:
            table.add_row(markup(method.name), "", "", "", "0", "", "not paired")
            continue
        differences = [found.average.signed_text, found.interval.text, found.last.signed_text]
        table.add_row(markup(method.name), *differences, str(found.seeds), *_verdict(found.p_over_seeds, found.seeds))
    out.print(table)
    out.print(
        "seeds: those that both have; interval and p (paired t-test): of the difference in average accuracy",
        style="dim",
        soft_wrap=True,
    )


def _verdict(p_value: float, seeds: int) -> tuple[str, str]:
    """A p-value, and what it says of chance."""
    if seeds == 1:
        return "", "one seed"
    if math.isnan(p_value):
        return "", "every seed the same"
    shown = "< 0.01" if p_value < 0.01 else f"{p_value:.2f}"
    return shown, "unlikely" if p_value < SIGNIFICANT else "perhaps"
