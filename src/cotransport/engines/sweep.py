"""A sweep: the jobs of one or more recipes, from what is left to run to results and failures."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from cotransport.engines.job import JOBS, Ended, Engine, EngineJob, Resources
from cotransport.engines.progress import JobProgress
from cotransport.errors import ConfigError
from cotransport.experiments import run as experiment
from cotransport.experiments.preparation import runs_of
from cotransport.experiments.recipe import Recipe
from cotransport.settings.safe_yaml import yaml_text
from cotransport.settings.sections import Device
from cotransport.system import signals
from cotransport.system.files import storage_errors, write_text

SECONDS_BETWEEN_UPDATES = 0.5
LAST_BYTES = 4096
"""Size of the end of a log that is searched for the reason of a failure."""
State: TypeAlias = Literal["kept", "waiting", "running", "done", "failed", "stopped"]


@dataclass(frozen=True, eq=False)
class JobState:
    """A job at this moment."""

    name: str
    state: State = "waiting"
    progress: JobProgress | None = None
    """The last known progress."""
    seconds: float = 0.0
    """How long it has been running, or ran."""


@dataclass(frozen=True, eq=False)
class Failure:
    """A job that has failed."""

    name: str
    reason: str
    """The last line of its log, or how it ended."""
    log: Path


Show: TypeAlias = Callable[[Sequence[JobState]], None]


def prepare(
    work: Sequence[tuple[Recipe, Path]], resources: Callable[[Device], Resources], *, resume: bool, overwrite: bool
) -> tuple[list[str], list[EngineJob]]:
    """The names of the runs that are finished, and jobs for the others. Recipes and folders are checked as in `run`.

    work : recipes, each with the folder of its results.
    resources : what a job gets, by the device that its recipe asks for.
    """
    jobs: list[EngineJob] = []
    kept: list[str] = []
    for recipe, out in work:
        if overwrite and recipe.follow is not None and Path(recipe.follow).resolve() == out.resolve():
            raise ConfigError("follow: with several jobs, a run cannot follow itself. Choose another --out")
        left = {one.folder for one in experiment.pending(recipe, out, resume=resume, overwrite=overwrite)}
        prefix = f"{recipe.name}/" if len(work) > 1 else ""
        runs = [one.folder for one in runs_of(recipe)]
        kept += [f"{prefix}{run}" for run in runs if run not in left]
        needs = resources(recipe.device)
        own = [EngineJob(f"{prefix}{run}", out.absolute(), run, needs) for run in runs if run in left]
        jobs += own
        if own:
            _write_recipe(recipe, own[0])
            for job in own:
                job.progress.unlink(missing_ok=True)
    return kept, jobs


def _write_recipe(recipe: Recipe, job: EngineJob) -> None:
    """Write the whole recipe, as the user has changed it, for the processes of its jobs."""
    with storage_errors(job.recipe):
        (job.out / JOBS).mkdir(parents=True, exist_ok=True)
    # values that were not set stay unset, because the data may choose them
    write_text(job.recipe, yaml_text(recipe.model_dump(mode="json", exclude_unset=True)))


def finish(engine: Engine, jobs: Sequence[EngineJob], show: Show, kept: Sequence[str] = ()) -> list[Failure]:
    """Run jobs until all have ended; returns the failures. A signal is passed on, and raised once all have stopped.

    show : is called with the state of all jobs, twice a second.
    kept : names of runs that were finished before, for `show`.
    """
    states = {name: JobState(name, "kept") for name in kept} | {job.name: JobState(job.name) for job in jobs}
    failures: list[Failure] = []
    started: dict[str, float] = {}
    stopping: signal.Signals | None = None
    with signals.deferred(), engine:
        engine.submit(jobs)
        while engine.is_busy:
            show(list(states.values()))
            for ended in engine.wait(SECONDS_BETWEEN_UPDATES):
                last = _updated(ended.job, states[ended.job.name], started)
                states[ended.job.name] = replace(last, state=_state(ended))
                if states[ended.job.name].state == "failed":
                    failures.append(Failure(ended.job.name, _reason(ended), ended.job.log))
            for job in jobs:
                if states[job.name].state in {"waiting", "running"}:
                    states[job.name] = _updated(job, states[job.name], started)
            if stopping is None and (stopping := signals.received()) is not None:
                engine.stop(stopping)
        if stopping is not None:
            for name, state in states.items():
                if state.state in {"waiting", "running"}:
                    states[name] = replace(state, state="stopped")
        show(list(states.values()))
    for job in jobs:
        job.progress.unlink(missing_ok=True)
    if stopping is not None:
        signals.stop()
    return failures


def _updated(job: EngineJob, state: JobState, started: dict[str, float]) -> JobState:
    """The state of a job that has not ended, from its progress file."""
    progress = JobProgress.read(job.progress)
    if progress is None:
        return state
    now = time.monotonic()
    return JobState(job.name, "running", progress, now - started.setdefault(job.name, now))


def _state(ended: Ended) -> State:
    if ended.code == 0:
        return "done"
    return "stopped" if signals.requested() else "failed"  # the signal may have reached the job too


def _reason(ended: Ended) -> str:
    """Why a job failed: what the engine says, or the last line of the job's log, or how its process ended."""
    if ended.reason:
        return ended.reason
    if ended.code is not None and ended.code < 0:
        return f"killed by {signal.Signals(-ended.code).name}. Perhaps there was not enough memory for this many jobs"
    try:
        with ended.job.log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LAST_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        lines = []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("error: ") or f"exit code {ended.code}"
