"""SIGINT and SIGTERM: after the first one, a training saves its state; the second one ends the process at once.

Only the command enters `handled`. A program that uses this package as a library keeps its own signal handlers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal has asked the process to stop. Not an `Exception`, so that no handler takes it for a damaged image."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class _State:
    """The signals of this process."""

    received: int | None = None
    """The last signal received."""
    deferred = 0
    """How many `deferred` blocks are open."""
    follower = False
    """Whether this process leaves the decision to another one."""


def requested() -> bool:
    """Whether a signal has asked this process to stop."""
    return _State.received is not None


def received() -> signal.Signals | None:
    """The last signal that asked this process to stop."""
    return None if _State.received is None else signal.Signals(_State.received)


def stop() -> None:
    """Raise `Interrupted` for the signal received. If only another process of the run received one, for SIGTERM."""
    raise Interrupted(_State.received or signal.SIGTERM)


@contextmanager
def deferred() -> Iterator[None]:
    """Inside, the first signal only sets `requested`, which the caller checks when it is ready to stop."""
    _State.deferred += 1
    try:
        yield
    finally:
        _State.deferred -= 1


@contextmanager
def handled(*, follower: bool = False) -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise `Interrupted`, or only set `requested` where they are deferred.

    follower : signals only set `requested`, because the first of several processes decides when all of them stop.
    """
    _State.follower = follower
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, _receive)
    try:
        yield
    finally:
        _State.received = None
        for number, handler in before.items():
            signal.signal(number, handler)


def follow() -> None:
    """From now on, signals only set `requested`, as in `handled` with `follower`."""
    _State.follower = True


def _receive(number: int, frame: FrameType | None) -> None:
    again = requested()
    _State.received = number
    if _State.follower or (_State.deferred and not again):
        return
    if _is_importing(frame):  # an exception would be swallowed, or leave a library half imported
        print(Interrupted(number), file=sys.stderr, flush=True)
        os._exit(Interrupted(number).exit_code)
    raise Interrupted(number)


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported. Nothing is worth saving then."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
