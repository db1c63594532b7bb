from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from cotransport.data.workers import decode_batches
from cotransport.system import signals
from cotransport.system.signals import Interrupted


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_what_is_going_on(number: int, code: int) -> None:
    with pytest.raises(Interrupted) as stopped, signals.handled():
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code == code
    assert not signals.requested()


def test_it_is_not_taken_for_an_error() -> None:
    with pytest.raises(Interrupted), signals.handled():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            pytest.fail("somebody took it for a damaged image")


def test_where_it_is_deferred_it_waits_once() -> None:
    with signals.handled():
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.requested()
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGINT)  # the user is in a hurry
        with pytest.raises(Interrupted) as stopped:
            signals.stop()
        assert stopped.value.exit_code == 130


def test_handlers_are_those_of_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.handled():
        assert [signal.getsignal(number) for number in signals.SIGNALS] != before
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


def test_a_follower_only_takes_note() -> None:
    with signals.handled(follower=True):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert signals.requested()
    with pytest.raises(Interrupted), signals.handled():
        os.kill(os.getpid(), signal.SIGINT)


def test_workers_leave_signals_to_who_has_started_them() -> None:
    def ignored(_: int) -> np.ndarray:
        return np.full((4, 4, 3), signal.getsignal(signal.SIGINT) is signal.SIG_IGN, np.uint8)

    for workers in (0, 1):
        (squares,) = decode_batches(ignored, 4, [[(0, 1.0)]], workers)
        assert bool(squares.all()) == (workers == 1)


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="this system has no alarms")
def test_workers_do_not_outlive_who_has_started_them() -> None:
    """An error that keeps the iterator alive, at whose end Python waits for all workers to follow SIGTERM."""
    script = """
import numpy as np
from cotransport.data import workers
workers.PATIENCE = 1
squares = workers.decoded(lambda index: np.zeros((4, 4, 3), np.uint8), 4, [[(i, 1.0)] for i in range(99)], 1)
next(squares)
raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 7
