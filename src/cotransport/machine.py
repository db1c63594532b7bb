"""What this process may use of the machine. It knows nothing of torch."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Cores that this process may use: a container or a scheduler often allows fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota(_QUOTA, cores)))


def _quota(file: Path, cores: int) -> int:
    """Whole cores that a control group allows, all of them where there is no limit."""
    try:
        allowed, period = file.read_text().split()
        return cores if allowed == "max" else round(int(allowed) / int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return cores
