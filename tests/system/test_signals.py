from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotransport.system import signals
from cotransport.system.signals import Interrupted


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_raises_and_sets_the_exit_code(number: int, code: int) -> None:
    with pytest.raises(Interrupted) as stopped, signals.handled():
        os.kill(os.getpid(), number)
    assert stopped.value.exit_code == code
    assert not signals.requested()


def test_an_interruption_is_not_an_exception() -> None:
    with pytest.raises(Interrupted), signals.handled():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:
            pytest.fail("a handler of damaged images would have caught it")


def test_only_the_first_signal_is_deferred() -> None:
    with signals.handled():
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            assert signals.requested()
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted) as stopped:
            signals.stop()
        assert stopped.value.exit_code == 130


def test_handlers_are_restored_afterwards() -> None:
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with signals.handled():
        assert [signal.getsignal(number) for number in signals.SIGNALS] != before
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


def test_a_follower_only_records_signals() -> None:
    with signals.handled(follower=True):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert signals.requested()
    with pytest.raises(Interrupted), signals.handled():
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_during_an_import_ends_the_process_at_once(tmp_path: Path) -> None:
    """Libraries swallow exceptions while they are imported, or are left half imported."""
    (tmp_path / "stubborn.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    pass\n"
    )
    script = "from cotransport.system import signals\nwith signals.handled():\n    import stubborn\nprint('imported')"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped by SIGINT\n")
