"""A job and its process, and what an engine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cotransport.engines.progress import JobProgress
from cotransport.experiments.environment import COMMAND, own_command
from cotransport.settings.sections import Device
from cotransport.system.machine import MOST_CORES, PARENT

JOBS = "jobs"
"""Folder in the folder of an experiment: the recipe that its jobs run, and each job's log and progress."""
PASSED_ON = ("OMP_NUM_THREADS", "COTRANSPORT_DATA")
"""Environment variables that a job's process takes over from the command, on any machine. It has none of Slurm's: in an
array job, they would make Lightning expect Slurm to start all processes that train together."""


@dataclass(frozen=True)
class Resources:
    """What a job needs."""

    cpus: int = 1
    """Cores, for all of its processes."""
    gpus: int = 0


def resources_of(device: Device) -> Resources:
    """What a job asks a cluster for: a core for each thread, and a GPU for each process, if the settings name one."""
    gpus = device.processes if device.accelerator in {"cuda", "gpu"} else 0
    return Resources(cpus=device.processes * (device.threads or 1), gpus=gpus)


def _passed_on() -> dict[str, str]:
    values = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return values | {COMMAND: os.environ.get(COMMAND) or own_command()}


@dataclass(frozen=True, eq=False)
class EngineJob:
    """One run of a recipe, as a process of its own. All paths are absolute."""

    name: str
    """The name that people see: the run's, with the recipe's if there are several."""
    out: Path
    """The folder of the experiment."""
    run: str
    """The name of the run's folder in it."""
    resources: Resources = Resources()
    folder: Path = field(default_factory=Path.cwd)
    """The folder that the process runs in. The recipe's paths may be relative to it."""
    variables: Mapping[str, str] = field(default_factory=_passed_on)
    """Environment variables of the process."""

    @property
    def recipe(self) -> Path:
        """The file with the recipe, which all jobs of an experiment share."""
        return self.out / JOBS / "recipe.yaml"

    @property
    def log(self) -> Path:
        """Everything that the process prints."""
        return self.out / JOBS / f"{self.run}.log"

    @property
    def progress(self) -> Path:
        """The file with the job's progress, while it runs."""
        return progress_file(self.out, self.run)

    def start(self, **variables: str) -> subprocess.Popen[bytes]:
        """Start the process. It has a session of its own, so that Ctrl-C in a terminal reaches only its parent.

        variables : more environment variables.
        """
        JobProgress().write(self.progress)
        words = ["run", str(self.recipe), "--out", str(self.out), "--job", self.run, "--resume"]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith((*PASSED_ON, "SLURM_"))}
        own = {MOST_CORES: str(self.resources.cpus), PARENT: str(os.getpid())}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "cotransport", *words],
                cwd=self.folder,
                env={**inherited, **self.variables, **own, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def progress_file(out: Path, run: str) -> Path:
    """The file with the progress of one of the runs in a folder."""
    return out / JOBS / f"{run}.json"


@dataclass(frozen=True, eq=False)
class Ended:
    """A job that has ended."""

    job: EngineJob
    code: int | None
    """The exit code of its process; None if the engine lost it."""
    reason: str = ""
    """What the engine knows about why it ended."""


class Engine(AbstractContextManager["Engine"], Protocol):
    """Starts jobs somewhere and reports when they end. Leaving the context ends all jobs at once."""

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or runs."""

    def submit(self, jobs: Sequence[EngineJob]) -> None:
        """Take on jobs. They start when there is room for them."""

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most this long. Returns the jobs that have ended since the last call."""

    def stop(self, number: signal.Signals) -> None:
        """Start no more jobs, and tell those that run to save their state and end. Does not wait for them."""
