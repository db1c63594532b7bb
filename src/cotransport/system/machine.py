"""Cores and memory of this process. It knows nothing of torch."""

from __future__ import annotations

import ctypes
import signal

_KEPT = 1 << 30
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_SIGNAL_AT_PARENTS_DEATH = 1  # an option of Linux's prctl


def available_cores() -> int:
    """The number of cores that this process may use: CPU affinity and the limits of a container count."""
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


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent process ends, for whatever reason."""
    libc = _glibc()
    if libc is not None:
        libc.prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    try:
        return ctypes.CDLL("libc.so.6")
    except OSError:
        return None
