"""Listeners of the progress of learning."""

from __future__ import annotations

from cotransport.training.listener import Listener, NullListener
from tests.training.test_display import progress


def test_the_null_listener_hears_everything_and_does_nothing() -> None:
    listener: Listener = NullListener()
    listener.planned(2, ["coil-seed1"])
    listener.note("a trial")
    listener.trial(progress(1))
    listener.reading(3, 10)
    listener.features(3, 10)
    listener.details("seed: 1")
    listener.job_started("coil, seed 1", ["2 classes"], [1.0, 2.0], 0)
    listener.training(progress(1))
    listener.task_done("90 %", "2 s")
    assert vars(listener) == {}
