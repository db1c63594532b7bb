"""The subcommand `reproduce`: a table or figure of the paper by its name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cotransport.cli.console import FLAG, is_first_process, out, resume_command, resume_hint
from cotransport.cli.experiments import DataSource, Overrides, Overwrite, Resume, draw_boundary_of
from cotransport.cli.jobs import EngineOption, JobsOption, Parallel, parallel_for, raise_failures, run_jobs
from cotransport.cli.output import listening, progress_console, with_output_options
from cotransport.system.text import markup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cotransport.experiments.recipe import Recipe
    from cotransport.experiments.results import Result

app = typer.Typer()
BOUNDARY = "boundary"


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport reproduce[/]  what there is\n\n"
    "[bold]cotransport reproduce table1 --fast --dry-run[/]  what would be run, and for how long\n\n"
    "[bold]cotransport reproduce ablation --fast --seeds 1,2,3[/]  the parts of COIL, in six hours\n\n"
    "[bold]cotransport reproduce cub --fast --methods COIL,bic --resume[/]  two methods, from where it stopped\n\n"
    "[bold]cotransport reproduce table1 --fast --from results --no-run[/]  from archived "
    "results, without running anything"
)
@with_output_options
def reproduce(
    name: Annotated[str | None, typer.Argument(help="The table or figure.", show_default="list them")] = None,
    fast: Annotated[
        bool, typer.Option("--fast", metavar=FLAG, help="The settings for a laptop, instead of the paper's.")
    ] = False,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas.", show_default="the recipes'")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods or labels, separated by commas.", show_default="the recipes'")
    ] = None,
    data: DataSource = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where results go.", show_default="runs/reproduce-NAME, with -fast")
    ] = None,
    overrides: Overrides = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    earlier: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Take finished runs from this folder or archive of results. Can be repeated.",
        ),
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", metavar=FLAG, help="Run nothing: write the table or figure from finished runs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=FLAG, help="Show what would be run, with an estimate of the time.")
    ] = False,
    engine: EngineOption = None,
    jobs: JobsOption = None,
) -> None:
    """Run the experiments behind a table or figure of the paper, and write it. Finished runs are not run again."""
    from cotransport.experiments.reproductions import REPRODUCTIONS, recipes_of
    from cotransport.settings.validation import nearest

    if name is None:
        _list()
        return
    if name not in REPRODUCTIONS:
        raise typer.BadParameter(f"{name!r} is not known{nearest(name, REPRODUCTIONS)}", param_hint="NAME")
    if overwrite and (resume or earlier or no_run):
        raise typer.BadParameter("--overwrite cannot be combined with --resume, --from or --no-run")
    if name == BOUNDARY and (resume or overwrite or seeds or methods or earlier or no_run or engine or jobs):
        raise typer.BadParameter("boundary always trains one network: it takes only --fast, --data, --set and --out")
    wanted = None if methods is None else _parts(methods)
    if wanted == []:
        raise typer.BadParameter("give some methods, separated by commas", param_hint="--methods")
    recipes = recipes_of(name, fast=fast, seeds=_numbers(seeds), methods=wanted, data=data, overrides=overrides or ())
    folder = folder or Path("runs") / f"reproduce-{name}{'-fast' if fast else ''}"
    if earlier:
        _adopt(recipes, earlier, folder)
    if dry_run:
        _show_plan(recipes, folder, tasks=1 if name == BOUNDARY else None)
    elif name == BOUNDARY:
        _draw_boundary(recipes[0], REPRODUCTIONS[name].shows, folder)
    elif no_run:
        from cotransport.errors import RunError
        from cotransport.experiments.results import with_other_results

        finished = [result for recipe in recipes for result in with_other_results((), folder / recipe.name)]
        if not finished:
            raise RunError(f"--no-run: nothing of {name} is finished. Leave the option out, or give runs with --from")
        _show_files(_write(name, finished, folder))
    else:
        parallel = parallel_for(engine, jobs, recipes)
        _run(name, recipes, folder, parallel, resume=resume, overwrite=overwrite)


def _draw_boundary(recipe: Recipe, title: str, folder: Path) -> None:
    from cotransport.report.reproduction import write_page

    figure = draw_boundary_of(recipe, folder)
    if figure is not None:
        _show_files([write_page(folder, figure.stem, title)])


def _adopt(recipes: Sequence[Recipe], places: Sequence[Path], folder: Path) -> None:
    from cotransport.experiments.adoption import adopt
    from cotransport.experiments.results import find_results

    results = find_results(*places)
    for recipe in recipes:
        adopt(recipe, results, folder / recipe.name)


def _write(name: str, results: Sequence[Result], folder: Path) -> list[Path]:
    """Write the table, the figure and a report on all runs; returns the files to look at."""
    from cotransport.experiments.reproductions import REPRODUCTIONS
    from cotransport.report import write_report
    from cotransport.report.reproduction import write_reproduction

    report = write_report(results, folder)
    return [*write_reproduction(report.streams, name, REPRODUCTIONS[name], folder), report.page]


def _show_files(paths: Sequence[Path]) -> None:
    for path in paths:
        out.print(f"{path.suffix[1:]}: [bold]{markup(path)}[/]", soft_wrap=True)


def _run(
    name: str, recipes: Sequence[Recipe], folder: Path, parallel: Parallel | None, *, resume: bool, overwrite: bool
) -> None:
    from cotransport.experiments import run as experiment
    from cotransport.experiments.results import with_other_results
    from cotransport.experiments.run_folders import check_no_unfinished_run
    from cotransport.loggers import loggers_for

    if not (resume or overwrite):
        for recipe in recipes:  # before hours of training
            check_no_unfinished_run(recipe, folder / recipe.name)
    results: list[Result] = []
    if parallel is not None:
        work = [(recipe, folder / recipe.name) for recipe in recipes]
        with resume_hint(resume_command()):
            failures = run_jobs(parallel, work, resume=resume, overwrite=overwrite)
        results = [result for _, own in work for result in with_other_results((), own)]
        if results:
            _show_files(_write(name, results, folder))
        raise_failures(failures)
        return
    with resume_hint(resume_command()):
        is_first = is_first_process(recipes[0].device)
        for number, recipe in enumerate(recipes, start=1):
            own = folder / recipe.name
            if is_first:
                progress_console().print(f"[bold]{recipe.name}[/] ({number} of {len(recipes)})")
            with listening() as listener:
                found = experiment.run(
                    recipe,
                    own,
                    resume=resume,
                    overwrite=overwrite,
                    listener=listener,
                    callbacks=loggers_for(recipe.logging),
                )
            results += with_other_results(found, own)
            if is_first:  # after each recipe: the next one may take hours
                paths = _write(name, results, folder)
    if is_first:
        _show_files(paths)


def _list() -> None:
    from cotransport.experiments.bundled import FAST, bundled_recipes
    from cotransport.experiments.reproductions import REPRODUCTIONS

    known = bundled_recipes()
    table = Table("name", "what it shows", "recipes", "--fast", box=None, header_style="bold")
    for name, one in REPRODUCTIONS.items():
        has_fast = all(f"{recipe}{FAST}" in known for recipe in one.recipes)
        table.add_row(name, one.shows, ", ".join(one.recipes), "yes" if has_fast else "")
    out.print(table)


def _show_plan(recipes: Sequence[Recipe], folder: Path, tasks: int | None) -> None:
    """What would be run, what is finished, and how long the rest would take."""
    from cotransport.experiments.estimate import expected_seconds
    from cotransport.experiments.preparation import runs_of
    from cotransport.experiments.results import RESULT
    from cotransport.training.display import duration

    table = Table("recipe", "methods", "seeds", "runs", "finished", "estimate", box=None, header_style="bold")
    total = 0.0
    for recipe in recipes:
        runs = runs_of(recipe)
        left = [one for one in runs if not (folder / recipe.name / one.folder / RESULT).exists()]
        seconds = expected_seconds(recipe, left, tasks)
        total += seconds
        cells = [
            str(len(recipe.methods)),
            ", ".join(map(str, recipe.seeds)),
            str(len(runs)),
            str(len(runs) - len(left)),
        ]
        table.add_row(recipe.name, *cells, duration(seconds))
    out.print(table)
    out.print(f"about {duration(total)} of training on this machine, one run after the other", style="dim")


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if not all(part.isdecimal() for part in _parts(text)) or not _parts(text):
        raise typer.BadParameter("give whole numbers separated by commas, such as 1,2,3", param_hint="--seeds")
    return [int(part) for part in _parts(text)]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
