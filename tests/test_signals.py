from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from cotransport import signals
from cotransport.data.workers import decoded
from cotransport.signals import Interrupted


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
        (squares,) = decoded(ignored, 4, [[(0, 1.0)]], workers)
        assert bool(squares.all()) == (workers == 1)
