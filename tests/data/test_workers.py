from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from cotransport.data.workers import FEW, decode_batches, default_workers


def test_few_images_are_decoded_without_workers() -> None:
    assert default_workers(FEW - 1) == 0
    assert 1 <= default_workers(FEW) <= 4


def test_a_daemon_uses_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert default_workers(FEW) == 0


def test_workers_ignore_the_signals_of_a_terminal() -> None:
    def ignored(_: int) -> np.ndarray:
        return np.full((4, 4, 3), signal.getsignal(signal.SIGINT) is signal.SIG_IGN, np.uint8)

    for workers in (0, 1):
        (squares,) = decode_batches(ignored, 4, [[(0, 1.0)]], workers)
        assert bool(squares.all()) == (workers == 1)


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="this system has no alarms")
def test_workers_do_not_outlive_their_parent_process() -> None:
    """The parent ends while the iterator is still alive. Python then sends SIGTERM and waits for all workers."""
    script = """
import numpy as np
from cotransport.data import workers
workers.PATIENCE = 1
squares = workers.decode_batches(lambda index: np.zeros((4, 4, 3), np.uint8), 4, [[(i, 1.0)] for i in range(99)], 1)
next(squares)
raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 7
