"""Cores and memory of this process. It knows nothing of torch."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_KEPT = 1 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
_SIGNAL_AT_PARENTS_DEATH = 1  # of Linux's prctl


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


def keep_freed_memory() -> None:
    """Let glibc keep up to a gibibyte of freed memory for the next use, where the C library is glibc.

    Otherwise the large tensors of each training step on the CPU are given back to the system and asked for again, and
    every page of them costs a fault: about a tenth of the fast net's time.
    """
    libc = _libc()
    if libc is None:
        return
    # only if the first is accepted: less trimming alone would switch off what glibc does by itself
    if libc.mallopt(_MMAP_THRESHOLD, _KEPT) or libc.mallopt(_MMAP_THRESHOLD, 32 << 20):
        libc.mallopt(_TRIM_THRESHOLD, _KEPT)


def end_with_parent() -> None:
    """Let Linux end this process when the one that has started it ends, however it does."""
    libc = _libc()
    if libc is not None:
        libc.prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)


def _libc() -> ctypes.CDLL | None:
    """The C library, where it is glibc."""
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None
