"""Cores and memory of this process. It knows nothing of torch."""

from __future__ import annotations

import ctypes
import signal
from contextlib import suppress
from pathlib import Path

_KEPT = 1 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_SIGNAL_AT_PARENTS_DEATH = 1  # an option of Linux's prctl
_CGROUP = Path("/sys/fs/cgroup")

PARENT = "COTRANSPORT_PARENT"
"""Environment variable of a job's process: the id of the process that started it."""
MOST_CORES = "LOKY_MAX_CPU_COUNT"
"""Environment variable of joblib: the largest number of cores that a process may use."""


def available_cores() -> int:
    """The number of cores that this process may use: CPU affinity, the limits of a container and MOST_CORES count."""
    import joblib  # not at the top: it takes a sixth of a second to import

    return int(joblib.cpu_count())


def keep_freed_memory() -> None:
    """Let glibc keep up to 1 GiB of freed memory for reuse. Other C libraries are left alone.

    By default, glibc returns the large tensors of each training step to the system and requests them again in the next
    step. On the CPU, the page faults cost about a tenth of the fast net's time.
    """
    libc = _glibc()
    if libc is None:
        return
    # trimming is changed only if the first option is accepted: on its own it would switch off glibc's own adaptation
    if libc.mallopt(_MMAP_THRESHOLD, _KEPT) or libc.mallopt(_MMAP_THRESHOLD, 32 << 20):
        libc.mallopt(_TRIM_THRESHOLD, _KEPT)


def available_memory() -> int | None:
    """Bytes of memory that new processes can use, according to Linux and the container's limit; None if unknown."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))))
    with suppress(OSError, ValueError):  # "max" stands for no limit
        limit, used = (int((_CGROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        found.append(limit - used)
    return min(found, default=None)


def end_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Ask Linux to send this process a signal when its parent process ends, for whatever reason."""
    libc = _glibc()
    if libc is not None:
        libc.prctl(_SIGNAL_AT_PARENTS_DEATH, by)


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None
