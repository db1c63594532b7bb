"""Small sweeps in real processes, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.helpers import comparable, run_digits

SWEEP = (
    "stream={step: 2, subset: 5}",
    "schedule.epochs=16",
    "methods=[replay, coil]",
    "device={accelerator: cpu, checkpoint_seconds: 0}",
)
"""Two methods on three tasks, with a checkpoint after every step."""
RUNS = ("replay-seed1", "coil-seed1")
LONGEST_SECONDS = 120.0


def words(*more: str, out: Path) -> list[str]:
    """The command line of the sweep."""
    settings = [word for setting in SWEEP for word in ("--set", setting)]
    return [sys.executable, "-m", "cotransport", "run", "digits", *settings, "--out", str(out), *more]


def in_this_process(out: Path) -> dict[str, dict[str, Any]]:
    """The results of the sweep without an engine."""
    run_digits(*SWEEP, out=out)
    return results(out)


def results(out: Path) -> dict[str, dict[str, Any]]:
    """All results in a folder, without times."""
    found = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in out.glob("*/result.json")}
    return {name: comparable(values) for name, values in found.items()}


def wait_for_a_job(out: Path, process: subprocess.Popen[str]) -> None:
    """Wait until some job trains."""
    wait_for(lambda: any((out / run / "unfinished" / "job.json").exists() for run in RUNS), process)


def wait_for_jobs(out: Path, process: subprocess.Popen[str]) -> None:
    """Wait until all jobs train."""
    wait_for(lambda: all((out / run / "unfinished" / "job.json").exists() for run in RUNS), process)


def wait_for(condition: Any, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a condition holds, as long as a process runs."""
    end = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def stopped(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Send a signal to a process; its exit code and what it has printed."""
    process.send_signal(number)
    printed, _ = process.communicate(timeout=LONGEST_SECONDS)
    return process.returncode, printed


def started(*more: str, out: Path, **environment: str) -> subprocess.Popen[str]:
    """The sweep in a process of its own."""
    return subprocess.Popen(
        words(*more, out=out),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "160", **environment},
    )


def finished(*more: str, out: Path, **environment: str) -> tuple[int, str]:
    """The sweep until its end: exit code and what it has printed."""
    process = started(*more, out=out, **environment)
    try:
        printed, _ = process.communicate(timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired:  # its jobs end with it
        process.kill()
        pytest.fail(f"still running: {process.communicate()}")
    return process.returncode, printed
