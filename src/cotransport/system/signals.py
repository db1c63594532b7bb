"""A polite end: the first SIGINT or SIGTERM lets a training save what it has, the second does not wait.

Nothing here is active before `handled` is entered, which the command does; a program of the user's own keeps its ways.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Asked to stop by a signal. Not an `Exception`, so that nobody takes it for a damaged image."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class _Asked:
    """What signals have asked for in this process."""

    number: int | None = None
    deferred = 0
    follower = False


def requested() -> bool:
    """Whether a signal has asked this process to stop as soon as it can."""
    return _Asked.number is not None


def stop() -> None:
    """Do what was asked for; also in a process that has not been asked itself, but one of its companions."""
    raise Interrupted(_Asked.number or signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, a first signal is only noted: who defers looks at `requested` now and then."""
    _Asked.deferred += 1
    try:
        yield
    finally:
        _Asked.deferred -= 1


@contextmanager
def handled(*, follower: bool = False) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise `Interrupted`, or are noted where they are deferred.

    follower : they are only noted, because the first of several processes decides when all of them end.
    """
    _Asked.follower = follower
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, _take_note)
    try:
        yield
    finally:
        _Asked.number = None
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_to_parent(seconds: int) -> None:
    """Leave the end to the process that started this one, but do not outlive SIGTERM for more than some seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(seconds))  # whose own signal ends it


def _take_note(number: int, frame: FrameType | None) -> None:
    again = requested()
    _Asked.number = number
    if not _Asked.follower and (again or not _Asked.deferred):
        raise Interrupted(number)
