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
    from cotransport.experiments.reproductions import Reproduction
    from cotransport.experiments.results import Result

app = typer.Typer()
BOUNDARY = "boundary"
MOST_DIGITS = 20
"""Of a number in a list. Seeds are far shorter, and Python refuses to read very long numbers."""


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
        known = ", ".join(REPRODUCTIONS)
        raise typer.BadParameter(
            f"{name!r} is not known{nearest(name, REPRODUCTIONS)} Choose one of: {known}", param_hint="NAME"
        )
    if overwrite and (resume or earlier or no_run):
        raise typer.BadParameter("--overwrite cannot be combined with --resume, --from or --no-run")
    if name == BOUNDARY and (resume or overwrite or seeds or methods or earlier or no_run or engine or jobs):
        raise typer.BadParameter("boundary always trains one network: it takes only --fast, --data, --set and --out")
    wanted = None if methods is None else _parts(methods)
    if wanted == []:
        raise typer.BadParameter("give some methods, separated by commas", param_hint="--methods")
    recipes = recipes_of(name, fast=fast, seeds=_numbers(seeds), methods=wanted, data=data, overrides=overrides or ())
    folder = folder or Path("runs") / f"reproduce-{name}{'-fast' if fast else ''}"
    if name == BOUNDARY and dry_run:
        _show_plan(recipes, [[]], tasks=1)
    elif name == BOUNDARY:
        _draw_boundary(recipes[0], REPRODUCTIONS[name], folder)
    elif dry_run:
        _show_plan(recipes, _finished(recipes, folder, earlier))
    elif no_run:
        _show_finished(name, recipes, _keep(recipes, folder, earlier), folder)
    else:
        parallel = parallel_for(engine, jobs, recipes)
        if earlier:
            _keep(recipes, folder, earlier)
        _run(name, recipes, folder, parallel, resume=resume, overwrite=overwrite)


def _draw_boundary(recipe: Recipe, reproduction: Reproduction, folder: Path) -> None:
    from cotransport.report.boundary import EXPLANATION
    from cotransport.report.paper_tables import Contents, paper_note
    from cotransport.report.reproduction import write_page

    drawn = draw_boundary_of(recipe, folder)
    if drawn is not None:
        figure, classes = drawn
        contents = Contents([classes], [f"{EXPLANATION} Recipe: {recipe.name}.", paper_note(reproduction)])
        _show_files([write_page(folder, figure.stem, reproduction.shows, contents)])


def _finished(recipes: Sequence[Recipe], folder: Path, places: Sequence[Path] | None) -> list[list[Result]]:
    """The finished runs of each recipe, in its folder and in other places. A note if these have none."""
    from cotransport.experiments.adoption import adopted
    from cotransport.experiments.results import find_results, with_other_results

    others = find_results(*places) if places else []
    finished = [adopted(recipe, [*with_other_results((), folder / recipe.name), *others]) for recipe in recipes]
    if others and not any(adopted(recipe, others) for recipe in recipes):
        names = " ".join(str(place) for place in places or ())
        out.print(
            f"--from {markup(names)}: none of the {len(others)} results has the settings of {markup(recipes[0].name)} "
            "or the other recipes. Give the --fast, --seeds and --set that these runs were made with",
            style="yellow",
            soft_wrap=True,
        )
    return finished


def _keep(recipes: Sequence[Recipe], folder: Path, places: Sequence[Path] | None) -> list[list[Result]]:
    """The finished runs of each recipe. Those from other places are saved, as if they had been run in the folder."""
    from cotransport.experiments.adoption import keep

    finished = _finished(recipes, folder, places)
    for recipe, results in zip(recipes, finished, strict=True):
        keep(results, folder / recipe.name)
    return finished


def _show_finished(name: str, recipes: Sequence[Recipe], finished: Sequence[Sequence[Result]], folder: Path) -> None:
    """Write the table and figure of finished runs, and say which runs are missing."""
    from cotransport.errors import RunError

    results = [result for own in finished for result in own]
    if not results:
        raise RunError(
            f"--no-run: no run of {name} with these settings is finished. Leave the option out to start the runs, or "
            "name finished ones with --from. If they are of the fast recipes, add --fast"
        )
    missing = _missing(recipes, finished)
    _show_files(_write(name, results, folder, missing))
    if missing:
        out.print(missing, style="dim", soft_wrap=True)


def _missing(recipes: Sequence[Recipe], finished: Sequence[Sequence[Result]]) -> str:
    """A sentence on the runs that are not finished; empty if all are."""
    from cotransport.experiments.preparation import runs_of

    parts = []
    for recipe, results in zip(recipes, finished, strict=True):
        found = {result.folder for result in results}
        seeds: dict[str, list[int]] = {}
        for one in runs_of(recipe):
            if one.folder not in found:
                seeds.setdefault(one.label, []).append(one.seed)
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for label, own in seeds.items():
            by_seeds.setdefault(tuple(own), []).append(label)
        groups = []
        for numbers, labels in by_seeds.items():
            plural = "s" if len(numbers) > 1 else ""
            some = f"seed{plural} {', '.join(map(str, numbers))} of " if len(numbers) < len(recipe.seeds) else ""
            groups.append(f"{some}{', '.join(labels)}")
        if groups:
            parts.append(f"{recipe.name}: {'; '.join(groups)}")
    return f"Not run yet: {'. '.join(parts)}." if parts else ""


def _write(name: str, results: Sequence[Result], folder: Path, missing: str = "") -> list[Path]:
    """Write the table, the figure and a report on all runs; returns the files to look at."""
    from cotransport.experiments.reproductions import REPRODUCTIONS
    from cotransport.report import write_report
    from cotransport.report.reproduction import write_reproduction

    report = write_report(results, folder)
    return [*write_reproduction(report.streams, name, REPRODUCTIONS[name], folder, missing), report.page]


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


def _show_plan(recipes: Sequence[Recipe], finished: Sequence[Sequence[Result]], tasks: int | None = None) -> None:
    """What would be run, what is finished, and how long the rest would take."""
    from cotransport.experiments.estimate import expected_seconds
    from cotransport.experiments.preparation import runs_of
    from cotransport.training.display import duration

    table = Table("recipe", "methods", "seeds", "runs", "finished", "estimate", box=None, header_style="bold")
    total = 0.0
    for recipe, results in zip(recipes, finished, strict=True):
        runs, found = runs_of(recipe), {result.folder for result in results}
        left = [one for one in runs if one.folder not in found]
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
    if not all(part.isdecimal() and len(part) <= MOST_DIGITS for part in _parts(text)) or not _parts(text):
        raise typer.BadParameter("give whole numbers separated by commas, such as 1,2,3", param_hint="--seeds")
    return [int(part) for part in _parts(text)]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
