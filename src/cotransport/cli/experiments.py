"""The subcommands for experiments: run, recipes, methods, report, visualize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from cotransport.cli.console import FLAG, is_first_process, out, resume_command, resume_hint
from cotransport.cli.jobs import (
    EngineOption,
    JobOption,
    JobsOption,
    ask_to_stop_with_parent,
    parallel_for,
    raise_failures,
    run_as_job,
    run_jobs,
)
from cotransport.cli.model_pages import is_model, report_model
from cotransport.cli.output import listening, with_output_options
from cotransport.errors import ConfigError, RunError
from cotransport.system.text import markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotransport.engines import Failure
    from cotransport.experiments.dry_run import DryRun
    from cotransport.experiments.recipe import Recipe
    from cotransport.report.paper_tables import PaperTable
    from cotransport.report.summaries import StreamSummary

app = typer.Typer()
RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A bundled recipe's name (see `recipes`) or a YAML file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as schedule.epochs=5. Can be repeated."),
]
DataSource = Annotated[
    str | None, typer.Option("--data", help="Other images: a folder, or a Hugging Face data set (path or id).")
]
Resume = Annotated[bool, typer.Option("--resume", metavar=FLAG, help="Resume unfinished runs.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", metavar=FLAG, help="Discard earlier runs of the same methods and seeds.")
]
OutFolder = Annotated[Path | None, typer.Option("--out", help="Where results go.", show_default="runs/RECIPE")]


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport run[/]  the digits, in about two minutes\n\n"
    "[bold]cotransport run cifar100-b0-10 --dry-run[/]  what would be run\n\n"
    "[bold]cotransport run digits --set schedule.epochs=5 --set 'seeds=[1,2,3]'[/]  other settings, three seeds\n\n"
    "[bold]cotransport run digits --set 'methods=\\[bic, wa]' --set methods.wa.rt_weight=1[/]  two methods, one of "
    "them with another setting (see [bold]methods[/])\n\n"
    "[bold]cotransport run digits --jobs auto[/]  several methods at a time\n\n"
    "[bold]cotransport run my-recipe.yaml --data photos --out runs/photos[/]  your own recipe and images"
)
@with_output_options
def run(
    recipe: RecipeName = "digits",
    overrides: Overrides = None,
    data: DataSource = None,
    folder: OutFolder = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=FLAG, help="Show what would be run and stop; no image is read.")
    ] = False,
    engine: EngineOption = None,
    jobs: JobsOption = None,
    job: JobOption = None,
) -> None:
    """Run an experiment and write its report."""
    if job is not None:
        ask_to_stop_with_parent()
    from cotransport.experiments.recipe import load_recipe

    if resume and overwrite:
        raise typer.BadParameter("--resume and --overwrite are mutually exclusive")
    chosen = load_recipe(recipe, overrides or (), data)
    if dry_run:
        from cotransport.experiments.dry_run import dry_run as plan
        from cotransport.training.processes import check_device

        check_device(chosen.device)
        _show_dry_run(plan(chosen))
        return
    from cotransport.experiments import run as experiment
    from cotransport.experiments.results import with_other_results
    from cotransport.loggers import loggers_for
    from cotransport.report import write_report

    loggers = loggers_for(chosen.logging)
    folder = folder or Path("runs") / chosen.name
    if job is not None:
        run_as_job(chosen, folder, job)
        return
    parallel = parallel_for(engine, jobs, [chosen])
    failures: list[Failure] = []
    with resume_hint(resume_command()):
        if parallel is not None:
            failures = run_jobs(parallel, [(chosen, folder)], resume=resume, overwrite=overwrite)
            is_first, results = True, []
        else:
            is_first = is_first_process(chosen.device)
            with listening() as listener:
                results = experiment.run(
                    chosen, folder, resume=resume, overwrite=overwrite, listener=listener, callbacks=loggers
                )
    if is_first and (results := with_other_results(results, folder)):
        report = write_report(results, folder)
        _show_summary(report.streams)
        out.print(f"report: [bold]{markup(report.page)}[/]", soft_wrap=True)
    raise_failures(failures)


@app.command()
def recipes() -> None:
    """List the bundled recipes by topic."""
    from cotransport.experiments.bundled import FAST, bundled_groups, bundled_recipes

    width = max(map(len, bundled_recipes()))
    for title, group in bundled_groups().items():
        out.print(f"[bold]{title}[/]")
        table = Table(Column(no_wrap=True, width=width), box=None, show_header=False)  # names are copied whole
        for name, summary in group.items():
            base = group.get(name.removesuffix(FAST), summary)
            is_repeated = base is not summary and base.shows == summary.shows
            table.add_row(name, "the same, fast" if is_repeated else summary.shows, summary.takes)
        out.print(table)
    out.print(
        "Recipes that have a -fast version, and those on ImageNet, use the paper's network and schedule. Times are for "
        "one seed on one thread unless stated otherwise; those of the paper's schedule are estimates",
        style="dim",
        soft_wrap=True,
    )


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
    from cotransport.settings.validation import choices, descriptions

    if name is None:
        table = Table("method", "", "what it does", box=None, header_style="bold")
        for known, kind in known_methods().items():
            table.add_row(known, kind.title, markup((kind.__doc__ or "").partition("\n")[0]))
    else:
        method = make_method(name)
        values = method.dumped()
        table = Table("setting", "default", "values", "what it is", box=None, header_style="bold")
        for field, description in descriptions(type(method)).items():
            allowed = " | ".join(choices(type(method), field))
            table.add_row(field, markup(_as_yaml(values[field])), markup(allowed), markup(description))
    out.print(table)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport report runs/digits[/]  tables, figures and a page about runs\n\n"
    "[bold]cotransport report model[/]  a page about a model, model-report.html"
)
def report(
    places: Annotated[
        list[Path],
        typer.Argument(help="Folders with runs, or archives of results; or a model's folder.", metavar="PATH..."),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="The folder for the report. For a model, it can also be a file name that ends in .html.",
            show_default="the first folder, or one beside the first archive, or beside the model",
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(help="Also write all results, without confusion matrices and plans, into this JSON file."),
    ] = None,
) -> None:
    """Write tables, figures and a page from the results of runs, or a page about a model.

    The page about a model shows what it knows, what each lesson taught and cost, what it confuses, and how far its
    answers can be trusted.
    """
    from cotransport.experiments.results import Archive, find_results
    from cotransport.report import write_report

    if any(is_model(place) for place in places):
        if len(places) > 1 or archive is not None:
            raise ConfigError("report: a model gets a page of its own. Give only its folder, without --archive")
        report_model(places[0], folder)
        return
    try:
        results = find_results(*places)
    except RunError as error:
        raise RunError(f"{error}. For a page about a model, give the folder that `cotransport learn` made") from None
    if archive is not None:
        Archive.of(results).save(archive)
    written = write_report(results, folder or _report_folder(places[0]))
    out.print(f"report: [bold]{markup(written.page)}[/]", soft_wrap=True)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport visualize[/]  the digits 0, 1 and 2, and what 3 and 4 are built from\n\n"
    "[bold]cotransport visualize cifar100-boundary-fast[/]  the classes of the paper's figure\n\n"
    "[bold]cotransport visualize --data photos --old cat,dog --new tiger,wolf[/]  your own images"
)
def visualize(
    recipe: RecipeName = "digits-boundary",
    old: Annotated[
        str | None, typer.Option(help="Old classes, separated by commas.", show_default="the recipe's first task")
    ] = None,
    new: Annotated[
        str | None, typer.Option(help="New classes, separated by commas.", show_default="the recipe's second task")
    ] = None,
    data: DataSource = None,
    overrides: Overrides = None,
    folder: OutFolder = None,
) -> None:
    """Draw the decision boundaries of old classes, and of new classes before they are trained.

    A network with two-dimensional features learns the old classes. New classes get transported weights.
    """
    from cotransport.experiments.recipe import load_recipe

    if (old is None) != (new is None):
        raise typer.BadParameter("--old and --new go together")
    named = []
    if old is not None and new is not None:
        tasks = [[name.strip() for name in names.split(",") if name.strip()] for names in (old, new)]
        named = [f"stream={json.dumps({'classes': tasks}, ensure_ascii=False)}"]
    chosen = load_recipe(recipe, [*named, *(overrides or ())], data)
    draw_boundary_of(chosen, folder or Path("runs") / chosen.name)


def draw_boundary_of(recipe: Recipe, folder: Path) -> tuple[Path, PaperTable] | None:
    """Train a recipe in two dimensions, and draw and print its decision boundaries.

    Returns the path of the figure and the table of its classes; None in a process that draws nothing.
    """
    from cotransport.experiments.boundary import boundary
    from cotransport.report.boundary import classes_table, draw_boundary

    is_first = is_first_process(recipe.device)
    with listening() as listener:
        found = boundary(recipe, listener)
    if not is_first:
        return None
    classes = classes_table(found)
    table = Table(*classes.headings, box=None, header_style="bold")
    for row in classes.rows:
        table.add_row(*(markup(cell.replace("\N{NO-BREAK SPACE}", " ")) for cell in row))
    out.print(table)
    figure = draw_boundary(found, folder)
    out.print(f"figure: [bold]{markup(figure)}[/]", soft_wrap=True)
    return figure, classes


def _report_folder(place: Path) -> Path:
    """Where the report on a folder or an archive goes: into the folder, or into one beside the archive."""
    return place.with_name(f"{place.stem}-report") if place.is_file() else place


def _as_yaml(value: object) -> str:
    """A value as it is written in a recipe."""
    return value if isinstance(value, str) else json.dumps(value)


def _show_summary(streams: Sequence[StreamSummary]) -> None:
    from cotransport.report.tables import AVERAGE, FORGETTING, LAST

    table = Table("method", "seeds", "average", "last", "forgetting", box=None, header_style="bold")
    for method in (method for stream in streams for method in stream.methods):
        cells = [column.estimate(method).text for column in (AVERAGE, LAST, FORGETTING)]
        table.add_row(markup(method.name), str(method.seeds), *cells)
    out.print(table)


def _show_dry_run(plan: DryRun) -> None:
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
    columns: dict[tuple[str, ...], list[str]] = {}  # methods that keep the same number of exemplars share a column
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
    out.print("exemplars: images of each class that are kept after the task", style="dim")
