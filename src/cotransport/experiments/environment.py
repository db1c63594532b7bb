"""The software, the machine and the command that a result was computed with."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cotransport.training.processes import Processes
from cotransport.version import __version__

COMMAND = "COTRANSPORT_COMMAND"
"""Environment variable of a job's process: the command that the user gave, which started the job."""


def own_command() -> str:
    """The command of this process."""
    return shlex.join(["cotransport", *sys.argv[1:]])


def environment(processes: Processes) -> dict[str, Any]:
    """Versions, device, threads and the command, at this moment."""
    return {
        "cotransport": __version__,
        "commit": _commit(),
        "command": os.environ.get(COMMAND) or own_command(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "device": str(processes.device),
        "precision": processes.precision,
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    """The processor's name; empty if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    """The commit of the Git checkout that this package runs from; None if there is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
