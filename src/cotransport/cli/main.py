"""The command: verbs over the library's nouns. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from cotransport.cli import models as model_commands
from cotransport.cli.console import FLAG, err, markup, out, told_how_to_go_on
from cotransport.errors import CotransportError, CotransportWarning
from cotransport.system import signals
from cotransport.system.machine import end_with_parent
from cotransport.version import __version__

if TYPE_CHECKING:
    from cotransport.experiments.boundary import Boundary
    from cotransport.experiments.run import Plan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Class-incremental image classification by co-transport.\n\n"
    "Begin with [bold]cotransport run[/]: it learns handwritten digits, two classes at a time, and writes a report. "
    "Your own classifier begins with [bold]cotransport learn[/].",
)
app.add_typer(model_commands.app)


def main() -> None:
    """Run the command; a user's mistake ends in one message and exit code 2, never in a stack trace."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # it takes all the arguments and needs two
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who has started us
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (for as long as we live)
    first = _is_first_process()
    if not first:
        if os.environ.get("LOCAL_RANK", "0") not in {"", "0"}:  # it was started by another process of ours
            end_with_parent()
        err.quiet = out.quiet = True  # all of them come to the same error
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # nor need all say that the first one is gone
    try:
        with signals.handled(follower=not first):
            app()
    except CotransportError as error:
        err.print(f"[bold red]error:[/] {markup(error)}", soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:  # a full disk, a folder that may not be written to
        err.print(f"[bold red]error:[/] {markup(error)}", soft_wrap=True)
        sys.exit(1)
    except signals.Interrupted as stopped:
        err.print(f"[bold]{stopped}[/]")
        sys.exit(stopped.exit_code)
    except RuntimeError as error:
        if _lost_worker(error):
            told = "a process that decodes images was ended from outside, perhaps for want of memory"
            err.print(f"[bold red]error:[/] {told}. Free some, and repeat the command", soft_wrap=True)
        elif first or not _lost_connection(error):
            raise
        sys.exit(1)


def _lost_connection(error: RuntimeError) -> bool:
    """Whether a process has lost its companions, who have said why."""
    return type(error).__module__ == "torch.distributed" or "Connection closed" in str(error)


def _lost_worker(error: RuntimeError) -> bool:
    """Whether torch says, wherever we are, that one of its workers is gone."""
    return "DataLoader worker" in str(error)


def _is_first_process() -> bool:
    """Whether this is the process that speaks; Lightning numbers those that it starts in their environment."""
    return all(os.environ.get(rank, "0") in {"", "0"} for rank in ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Warnings of ours as one line; those of libraries are for developers (python -W)."""
    if issubclass(category, CotransportWarning):
        err.print(f"[yellow]note:[/] {markup(message)}", soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"cotransport {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Class-incremental image classification by co-transport."""


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport run[/]  the digits, in about two minutes\n\n"
    "[bold]cotransport run cifar100-b0-10 --dry-run[/]  what would be run\n\n"
    "[bold]cotransport run digits --set schedule.epochs=5 --set 'seeds=[1,2,3]'[/]  other settings, three seeds\n\n"
    "[bold]cotransport run digits --set 'methods=\\[bic, wa]' --set methods.wa.rt_weight=1[/]  two methods, one "
    "changed (see [bold]methods[/])\n\n"
    "[bold]cotransport run my-recipe.yaml --data photos --out runs/photos[/]  your own recipe and images"
)
def run(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A bundled recipe's name (see `recipes`) or a YAML file.")
    ] = "digits",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, for example schedule.epochs=5. Repeatable."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Images to use instead: a folder, or a Hugging Face data set's path or id.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Where results go.", show_default="runs/RECIPE")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar=FLAG, help="Go on with an unfinished experiment.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar=FLAG, help="Throw earlier runs of this recipe away.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=FLAG, help="Show the plan and stop; no image is read.")
    ] = False,
) -> None:
    """Run an experiment and write its report."""
    from cotransport.cli.progress import ConsoleWatcher
    from cotransport.experiments import run as experiment
    from cotransport.experiments.recipe import load_recipe
    from cotransport.report import write_report
    from cotransport.training.loop import fabric_for, make_fabric

    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite exclude each other")
    chosen = load_recipe(recipe, overrides or (), data)
    if dry_run:
        make_fabric(chosen.device)  # an error if this machine has no such device
        _show_plan(experiment.plan(chosen))
        return
    folder = folder or Path("runs") / chosen.name
    again = [word for word in sys.argv[1:] if word not in {"--overwrite", "--resume"}]
    with told_how_to_go_on(shlex.join(["cotransport", *again, "--resume"])):
        first = fabric_for(chosen.device).is_global_zero
        with ConsoleWatcher(out if first else Console(quiet=True), chosen.metric) as watcher:
            experiment.run(chosen, folder, resume=resume, overwrite=overwrite, watcher=watcher)
    if first:
        page = write_report([folder])
        _show_summary(folder)
        out.print(f"report: [bold]{markup(page)}[/]", soft_wrap=True)


@app.command()
def recipes() -> None:
    """List the bundled recipes."""
    from cotransport.experiments.bundled import bundled_descriptions

    table = Table("recipe", "what it runs", box=None, header_style="bold")
    for name, description in bundled_descriptions().items():
        table.add_row(name, description)
    out.print(table)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport methods[/]  all methods\n\n"
    "[bold]cotransport methods bic[/]  the settings of one, for [bold]run --set methods.bic.KEY=VALUE[/]"
)
def methods(
    name: Annotated[str | None, typer.Argument(help="A method's name.", show_default="all methods")] = None,
) -> None:
    """List the methods, or one method's settings."""
    from cotransport.methods import known_methods, make_method
    from cotransport.settings.validation import descriptions

    if name is None:
        table = Table("method", "", "what it does", box=None, header_style="bold")
        for known, kind in known_methods().items():
            table.add_row(known, kind.title, markup((kind.__doc__ or "").partition("\n")[0]))
    else:
        method = make_method(name)
        table = Table("setting", "default", "what it is", box=None, header_style="bold")
        for field, description in descriptions(type(method)).items():
            table.add_row(field, markup(getattr(method, field)), markup(description))
    out.print(table)


@app.command(epilog="Example: [bold]cotransport report runs/digits[/]")
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="DIR...")],
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where the report goes.", show_default="the first DIR")
    ] = None,
) -> None:
    """Write tables, figures and a page from the results in folders."""
    from cotransport.report import write_report

    out.print(f"report: [bold]{markup(write_report(folders, folder))}[/]", soft_wrap=True)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport visualize[/]  the digits 0, 1 and 2, and what is made of 3 and 4\n\n"
    "[bold]cotransport visualize cifar100-boundary[/]  the classes of the paper's figure\n\n"
    "[bold]cotransport visualize --data photos --old cat,dog --new tiger,wolf[/]  your own images"
)
def visualize(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A bundled recipe's name (see `recipes`) or a YAML file.")
    ] = "digits-boundary",
    old: Annotated[
        str | None, typer.Option(help="Old classes, with commas between.", show_default="the recipe's first task")
    ] = None,
    new: Annotated[
        str | None, typer.Option(help="New classes, with commas between.", show_default="the recipe's second task")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Images to use instead: a folder, or a Hugging Face data set's path or id.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, for example schedule.epochs=5. Repeatable."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Where it goes.", show_default="runs/RECIPE")] = None,
) -> None:
    """Draw the decision boundaries of old classes, and of new ones before they are trained.

    The network gets a two-dimensional embedding and learns the old classes; the new ones are transported from them.
    """
    from cotransport.cli.progress import ConsoleWatcher
    from cotransport.experiments import boundary
    from cotransport.experiments.recipe import load_recipe
    from cotransport.training.loop import fabric_for

    if (old is None) != (new is None):
        raise typer.BadParameter("--old and --new go together")
    named = []
    if old is not None and new is not None:
        tasks = [[name.strip() for name in names.split(",") if name.strip()] for names in (old, new)]
        named = [f"stream={json.dumps({'classes': tasks}, ensure_ascii=False)}"]
    chosen = load_recipe(recipe, [*named, *(overrides or ())], data)
    first = fabric_for(chosen.device).is_global_zero
    with ConsoleWatcher(out if first else Console(quiet=True)) as watcher:
        found = boundary.boundary(chosen, watcher)
    if first:
        _show_boundary(found)
        path = boundary.draw(found, folder or Path("runs") / chosen.name)
        out.print(f"figure: [bold]{markup(path)}[/]", soft_wrap=True)


def _show_boundary(found: Boundary) -> None:
    """Accuracy of every class, and what the new ones were built from."""
    columns = ("class", "accuracy before", "with new classes", "built from")
    table = Table(*columns, box=None, header_style="bold")
    old = len(found.old.classes)
    origins = [] if found.transport is None else found.transport.origins
    for number, name in enumerate(found.grown.classes):
        own = origins[number - old].sources if origins and number >= old else []
        shares = ", ".join(f"{source.name} {source.share:.2f}" for source in own)
        before = found.old.accuracy_text(number) if number < old else "new"
        table.add_row(markup(name), before, found.grown.accuracy_text(number), markup(shares))
    out.print(table)


def _show_summary(folder: Path) -> None:
    import csv

    with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    table = Table("method", "seeds", "average", "last", "forgetting", box=None, header_style="bold")
    for row in rows:
        columns = ("average_incremental_accuracy", "last_accuracy", "forgetting")
        cells = [_estimate(row[f"{column}_mean"], row[f"{column}_std"]) for column in columns]
        table.add_row(markup(row["name"]), row["seeds"], *cells)
    out.print(table)


def _estimate(mean: str, deviation: str) -> str:
    if not mean:
        return "–"
    return f"{float(mean):.1f}" + (f" ± {float(deviation):.1f}" if deviation else "")


def _show_plan(plan: Plan) -> None:
    from cotransport.experiments.recipe import label_of

    recipe = plan.recipe
    names = ", ".join(label_of(method) for method in recipe.methods)
    seconds = recipe.schedule.seconds_per_task
    length = f"{recipe.schedule.epochs} epochs" if seconds is None else f"{seconds:g} s"
    if recipe.follow is not None:
        length = f"the epochs recorded in {markup(recipe.follow)}"
    out.print(
        f"[bold]{markup(recipe.name)}[/]: {len(plan.split)} tasks, {sum(map(len, plan.split))} classes of "
        f"{markup(recipe.data.source)}, {recipe.backbone.name}, {length} a task in batches of "
        f"{recipe.schedule.batch_size}\nmethods: {markup(names)}; seeds: {', '.join(map(str, recipe.seeds))}"
    )
    table = Table("task", "classes", "names", box=None, header_style="bold")
    columns: dict[tuple[str, ...], list[str]] = {}  # the methods that keep so many exemplars
    for method in recipe.methods:
        columns.setdefault(tuple(plan.exemplars(method)), []).append(label_of(method))
    for labels in columns.values():
        some = labels[0] if len(labels) == 1 else f"{len(labels)} methods"
        table.add_column(f"exemplars\n{markup('all methods' if len(columns) == 1 else some)}", justify="right")
    for number, task in enumerate(plan.split):
        cells = [exemplars[number] for exemplars in columns]
        listed = ", ".join(plan.classes[label] for label in task)
        table.add_row(str(number + 1), str(len(task)), markup(listed), *cells)
    out.print(table)
    out.print("exemplars are those kept of each class after the task", style="dim")
