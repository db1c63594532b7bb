"""A fault at every call that changes a file: an error, once or from then on, or the end of the process."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.actions import Action, copy_of
from tests.soak.children import Ended, in_child
from tests.soak.interposer import watch


class Fault(NamedTuple):
    """What happens at a call."""

    error: int
    """The error number that the call fails with; 0 kills the process before the call."""
    lasts: bool
    """Whether all later calls fail too."""

    def __str__(self) -> str:
        if not self.error:
            return "SIGKILL"
        return f"{errno.errorcode[self.error]} {'from then on' if self.lasts else 'once'}"


KILL = Fault(0, lasts=True)
ERRORS = [Fault(error, lasts) for error in (errno.ENOSPC, errno.EIO, errno.EACCES) for lasts in (False, True)]


def reference(action: Action, start: Path, place: Path) -> tuple[Any, int]:
    """The outcome of a command without a fault, and the number of its calls that change files."""
    copy_of(start, place)
    calls = count()

    def counted() -> int:
        watch(place, lambda call, path, done: 0 if done else next(calls) * 0)
        action.act(place)
        return next(calls)

    ended = in_child(counted)
    if ended.how != "done":
        raise RuntimeError(f"{action.name} fails without a fault: {ended.text}")
    return action.outcome(place), int(ended.text)


def with_fault(action: Action, start: Path, place: Path, number: int, fault: Fault) -> Ended:
    """Run a command on a fresh copy. The call with this number, counted from 0, fails."""
    copy_of(start, place)

    def disturbed() -> None:
        watch(place, _hook(number, fault))
        action.act(place)

    return in_child(disturbed)


def _hook(number: int, fault: Fault) -> Any:
    calls = count()

    def hook(_: str, __: Path, done: bool) -> int:
        if done:
            return 0
        reached = next(calls)
        if reached < number or (reached > number and not fault.lasts):
            return 0
        if not fault.error:
            os.kill(os.getpid(), signal.SIGKILL)
        return fault.error

    return hook


def faults(calls: int) -> Iterator[tuple[int, Fault]]:
    """Every fault at every call: first a kill at each, then the errors."""
    for fault in (KILL, *ERRORS):
        for number in range(calls):
            yield number, fault
