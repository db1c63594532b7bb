"""Several runs at a time: the options --engine and --jobs, and a live table of all jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from cotransport.cli.console import err, out
from cotransport.cli.output import listening, progress_console
from cotransport.errors import ConfigError, JobError
from cotransport.system import signals
from cotransport.system.machine import PARENT, end_with_parent
from cotransport.system.text import markup

if TYPE_CHECKING:
    from cotransport.cli.log_file import LogFile
    from cotransport.engines import Engine, Failure, JobState, Resources
    from cotransport.experiments.recipe import Recipe
    from cotransport.settings.sections import Device

AUTO = "auto"
SECONDS_FOR_EARLIER = 120.0
"""Time for an earlier process of the same job to save its state and end."""
STYLES = {"done": "green", "failed": "bold red", "stopped": "yellow", "waiting": "dim", "kept": "dim"}
"""Colours of the states; the others have none."""


class EngineName(str, Enum):
    """Where jobs run."""

    local = "local"
    ray = "ray"
    slurm = "slurm"


EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        "--engine",
        help="Where to run several runs at a time: on this machine, on a Ray cluster (or an embedded Ray), or through "
        "Slurm.",
        show_default="local",
    ),
]
JobsOption = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Number of runs at a time, each in a process with its share of the cores. 1 runs them one after the other "
        "in this process; auto allows as many as cores, memory and GPUs do.",
        show_default="1; with --engine, auto",
    ),
]
JobOption = Annotated[str | None, typer.Option("--job", hidden=True)]
"""One run by the name of its folder: this process is a job that an engine started."""


@dataclass(frozen=True)
class Parallel:
    """How several runs at a time are started."""

    engine: Engine
    resources: Callable[[Device], Resources]
    """What a job gets, by the device that its recipe asks for."""


def parallel_for(engine: EngineName | None, jobs: str | None, recipes: Sequence[Recipe]) -> Parallel | None:
    """How the runs of these recipes are started; None if they run in this process, one after the other."""
    number = _number_of_jobs(jobs, AUTO if engine else "1")
    if engine in {None, EngineName.local} and number == 1:
        return None
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 or any(recipe.device.nodes > 1 for recipe in recipes):
        raise ConfigError(
            "--jobs: runs on several machines are trained one after the other. Leave out --engine and --jobs, or set "
            "device.nodes to 1 and do not start the command with torchrun"
        )
    from cotransport.engines.job import resources_of

    if engine is EngineName.ray:
        from cotransport.engines.ray_cluster import RayEngine

        return Parallel(RayEngine(number), resources_of)
    if engine is EngineName.slurm:
        from cotransport.engines.slurm import SlurmEngine

        return Parallel(SlurmEngine(number), resources_of)
    return _local(number, recipes)


def _local(number: int | None, recipes: Sequence[Recipe]) -> Parallel | None:
    from cotransport.engines import Resources
    from cotransport.engines.local import LocalEngine, gpu_groups, jobs_at_a_time, uses_gpu
    from cotransport.system.machine import available_cores

    if number is None:
        number = jobs_at_a_time(recipes)
    if number == 1:
        return None
    with_gpu = [recipe.device for recipe in recipes if uses_gpu(recipe.device)]
    gpus = gpu_groups(max(device.processes for device in with_gpu)) if with_gpu else []
    share = Resources(max(1, available_cores() // number))
    return Parallel(LocalEngine(number, gpus), lambda _: share)


def _number_of_jobs(jobs: str | None, default: str) -> int | None:
    """The number of jobs at a time; None for `auto`."""
    text = jobs or default
    if text == AUTO:
        return None
    if not text.isdecimal() or int(text) == 0:
        raise typer.BadParameter("give a whole number of at least 1, or auto", param_hint="--jobs")
    return int(text)


def run_jobs(
    parallel: Parallel, work: Sequence[tuple[Recipe, Path]], *, resume: bool, overwrite: bool
) -> list[Failure]:
    """Run what is left of recipes, each with its folder, and show a table of all jobs. Returns the failures."""
    from cotransport.engines import finish, prepare

    kept, jobs = prepare(work, parallel.resources, resume=resume, overwrite=overwrite)
    with JobTable(progress_console(), out.log_file) as table:
        return finish(parallel.engine, jobs, table.show, kept) if jobs else table.nothing_left(kept)


def ask_to_stop_with_parent() -> None:
    """Let this process save its state and end if the process that started it as a job ends."""
    if out.quiet:  # the first of several processes decides for all
        return
    end_with_parent(signal.SIGTERM)
    parent = str(os.getppid())
    if os.environ.get(PARENT, parent) != parent:  # it has ended already
        raise signals.Interrupted(signal.SIGTERM)


def run_as_job(recipe: Recipe, folder: Path, run: str) -> None:
    """Finish one of a recipe's runs, in a process that an engine has started. No report is written."""
    from cotransport.engines.job import progress_file
    from cotransport.engines.progress import ProgressFile
    from cotransport.experiments import run as experiment
    from cotransport.experiments.run_folders import wait_until_free
    from cotransport.loggers import loggers_for

    loggers = loggers_for(recipe.logging)
    with listening() as listener:
        # an earlier process of this job may still be saving its state
        wait_until_free(folder / run, SECONDS_FOR_EARLIER)
        progress = ProgressFile(listener, progress_file(folder, run))
        experiment.run(recipe, folder, resume=True, only=run, listener=progress, callbacks=loggers)


def raise_failures(failures: Sequence[Failure]) -> None:
    """Raise an error that names all failures and their logs, if there are any."""
    if failures:
        which = "1 job" if len(failures) == 1 else f"{len(failures)} jobs"
        lines = [f"{failure.name}: {failure.reason}\n    log: {failure.log}" for failure in failures]
        raise JobError(
            f"{which} failed. Finished runs are kept. Solve the problem; --resume then runs the rest\n  "
            + "\n  ".join(lines)
        )


class JobTable:
    """Shows all jobs: as a live table on a terminal; elsewhere, as a line for each event.

    log : gets the same lines.
    """

    def __init__(self, console: Console, log: LogFile | None = None) -> None:
        self._console, self._log = console, log
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._before: dict[str, JobState] = {}

    def __enter__(self) -> JobTable:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def nothing_left(self, kept: Sequence[str]) -> list[Failure]:
        """All runs were finished before. There is no failure."""
        self._say(f"finished before and kept: {markup(', '.join(kept))}")
        self._say("nothing is left to run")
        return []

    def show(self, states: Sequence[JobState]) -> None:
        """Show the states of all jobs."""
        for state in states:
            for line in _news(self._before.get(state.name), state):
                self._say(line, only_log=self._live is not None)
            self._before[state.name] = state
        if self._live:
            self._live.update(_table(states), refresh=True)

    def _say(self, line: str, *, only_log: bool = False) -> None:
        if not only_log:
            self._console.print(line, soft_wrap=True)
        if self._log is not None:
            err.write_log(line, soft_wrap=True)


def _news(before: JobState | None, state: JobState) -> list[str]:
    """What has happened to a job, one line for each event."""
    from cotransport.training.display import duration

    lines: list[str] = []
    name, progress = f"[bold]{markup(state.name)}[/]", state.progress
    earlier = before.state if before else "waiting"
    if state.state == "kept" and before is None:
        lines.append(f"{name}: finished before and kept")
    if state.state != "waiting" and earlier == "waiting" and state.state != "kept":
        lines.append(f"{name}: started")
    learned = before.progress.learned if before and before.progress else 0
    if progress and progress.learned > learned and progress.result:
        lines.append(f"{name}: task {progress.learned}/{progress.tasks}: {markup(progress.result)}")
    if state.state in {"done", "failed", "stopped"} and earlier != state.state:
        lines.append(f"{name}: {state.state} after {duration(state.seconds)}")
    return lines


def _table(states: Sequence[JobState]) -> Table:
    from cotransport.training.display import duration

    done = sum(state.state in {"done", "kept"} for state in states)
    table = Table("run", "state", "task", "epoch", "accuracy", "time left", box=None, header_style="bold")
    table.caption, table.caption_justify = f"{done} of {len(states)} done", "left"
    for state in states:
        progress = state.progress
        style = STYLES.get(state.state, "")
        if progress is None:
            table.add_row(markup(state.name), state.state, style=style)
            continue
        is_running = state.state == "running"
        table.add_row(
            markup(state.name),
            f"[{style}]{state.state}[/]" if style else progress.phase,
            f"{progress.task}/{progress.tasks}" if progress.tasks else "",
            f"{progress.epoch}/{progress.epochs}" if progress.epochs and is_running else "",
            markup(progress.result),
            duration(progress.seconds_left) if is_running and progress.seconds_left is not None else "",
        )
    return table
