"""A fault at every call that changes a file: an error, once or from then on, or the end of the process."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.soak.actions import ACTIONS, Action, copy_of
from tests.soak.children import in_child
from tests.soak.interposer import Hook, watch
from tests.soak.judgement import problem_after
from tests.soak.shift import Shift


class Fault(NamedTuple):
    """What happens at a call."""

    error: int
    """The error number that the call fails with; 0 kills the process before the call."""
    lasts: bool
    """Whether all later calls fail too."""

    def __str__(self) -> str:
        if not self.error:
            return "SIGKILL"
        return f"{errno.errorcode[self.error]}-{'from-then-on' if self.lasts else 'once'}"


FAULTS = [
    Fault(0, lasts=True),
    *(Fault(error, lasts) for error in (errno.ENOSPC, errno.EIO, errno.EACCES) for lasts in (False, True)),
]


def soak_faults(shift: Shift) -> Iterator[None]:
    """Try every fault at every call of every command: first one fault at each call, then another one, and so on."""
    place, calls, known = shift.folder / "faulty", shift.prepared.calls, shift.prepared.references
    places = [(action, number) for action in ACTIONS for number in range(calls[action.name])]
    random.Random(0).shuffle(places)
    cases = [
        (action, number, FAULTS[(number + turn) % len(FAULTS)])
        for turn in range(len(FAULTS))
        for action, number in places
    ]
    if not shift.worker:
        for name, number in calls.items():
            shift.journal.plan("faults", _row(name, number), number * len(FAULTS))
    for action, number, fault in shift.own(cases):
        case = f"faults/{action.name}/{number}/{fault}"
        if not shift.wants(case):
            continue
        copy_of(shift.prepared.start, place)

        def disturbed(action: Action = action, number: int = number, fault: Fault = fault) -> None:
            watch(place, _hook(number, fault))
            action.act(place)

        problem = problem_after([in_child(disturbed)], action, place, known[action.name])
        shift.journal.add("faults", _row(action.name, calls[action.name]), case, problem)
        yield


def _row(action: str, calls: int) -> str:
    return f"`{action}`, {calls} calls"


def _hook(number: int, fault: Fault) -> Hook:
    """A hook that disturbs the call with this number, counted from 0."""
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
