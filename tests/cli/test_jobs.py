"""The options --engine and --jobs, and the table of all jobs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cotransport.cli.jobs import EngineName, JobTable, parallel_for, raise_failures
from cotransport.cli.log_file import LogFile
from cotransport.engines import Failure, JobState
from cotransport.engines.progress import JobProgress
from cotransport.errors import ConfigError, JobError
from cotransport.settings.sections import Device
from cotransport.system.machine import PARENT
from tests.cli.helpers import Command, start
from tests.experiments.helpers import quick_recipe

TRAINING = JobProgress(
    phase="training", task=2, tasks=5, epoch=3, epochs=20, result="88.7 % on 2 classes", learned=1, seconds_left=75
)


def test_one_job_at_a_time_runs_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotransport.engines.local.available_cores", lambda: 2)
    monkeypatch.setattr("cotransport.system.machine.available_cores", lambda: 2)
    two, one = [quick_recipe("methods=[replay, coil]")], [quick_recipe("methods=[replay]")]
    assert parallel_for(None, None, two) is None
    assert parallel_for(EngineName.local, "1", two) is None
    assert parallel_for(EngineName.local, None, one) is None
    for engine, jobs in ((EngineName.local, None), (None, "auto"), (None, "2")):
        chosen = parallel_for(engine, jobs, two)
        assert chosen is not None
        assert chosen.resources(Device()).cpus == 1
    assert parallel_for(None, "5", two).resources(Device()).cpus == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_jobs(jobs: str, cotransport: Command) -> None:
    code, printed = cotransport("run", "digits", "--jobs", jobs)
    assert (code, "a whole number of at least 1, or auto" in printed) == (2, True)


def test_several_jobs_and_several_machines_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"--jobs: .*device\.nodes"):
        parallel_for(None, "2", [quick_recipe("device.nodes=2")])
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="torchrun"):
        parallel_for(None, "2", [quick_recipe()])


def test_the_table_on_a_terminal() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    states = [
        JobState("wa-seed1", "kept"),
        JobState("coil-seed1", "running", TRAINING),
        JobState("bic-seed1", "failed", TRAINING),
        JobState("icarl-seed1"),
    ]
    with JobTable(screen) as table:
        table.show(states)
    lines = [" ".join(line.split()) for line in screen.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert "coil-seed1 training 2/5 3/20 88.7 % on 2 classes 1 min 15 s" in lines
    assert "bic-seed1 failed 2/5 88.7 % on 2 classes" in lines
    assert "icarl-seed1 waiting" in lines
    assert "1 of 4 done" in lines


def test_lines_without_a_terminal_and_in_the_log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, log = Console(file=io.StringIO(), width=120), LogFile(tmp_path / "log")
    monkeypatch.setattr("cotransport.cli.jobs.err.log_file", log)
    with JobTable(screen, log) as table:
        table.show([JobState("wa-seed1", "kept"), JobState("coil-seed1")])
        for state in ("running", "running", "done"):
            table.show([JobState("wa-seed1", "kept"), JobState("coil-seed1", state, TRAINING, 61.0)])  # type: ignore[arg-type]
    lines = [
        "wa-seed1: finished before and kept",
        "coil-seed1: started",
        "coil-seed1: task 1/5: 88.7 % on 2 classes",
        "coil-seed1: done after 1 min 1 s",
    ]
    assert screen.file.getvalue().splitlines() == lines  # type: ignore[attr-defined]
    log.close()
    assert [line.partition(" ")[2] for line in (tmp_path / "log").read_text().splitlines()] == lines


def test_a_job_whose_parent_has_ended_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT, "1")
    words = ("run", "digits", "--out", str(tmp_path / "here"), "--job", "coil-seed1", "--resume")
    ended = start(*words, folder=tmp_path)
    assert (ended.returncode, "stopped by SIGTERM" in ended.stderr) == (143, True)
    assert not (tmp_path / "here").exists()


def test_failures_are_one_error() -> None:
    raise_failures([])
    failures = [Failure("coil-seed1", "no luck", Path("jobs/coil-seed1.log")), Failure("wa-seed1", "none", Path("w"))]
    with pytest.raises(JobError, match=r"2 jobs failed(.|\n)*coil-seed1: no luck\n    log: jobs/coil-seed1.log"):
        raise_failures(failures)
