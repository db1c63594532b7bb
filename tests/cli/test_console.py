"""JSON with text from outside, and the hint after a signal."""

from __future__ import annotations

import json
import signal

import pytest

from cotransport.cli.console import print_json, resume_hint
from cotransport.system.signals import Interrupted

HOSTILE = "cat\x1b[2J\x9b\u202e[red]\udcff"


def test_json_is_printable_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    values = {"name": HOSTILE, "Käse": [1, None, 0.5]}
    print_json(values)
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.splitlines())
    assert "Käse" in printed
    assert json.loads(printed) == values
    print_json(values, indent=None)
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal_the_command_that_resumes_is_shown(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, resume_hint("cotransport run '[a]' --resume"):
        raise Interrupted(number)
    assert ended.value.code == code
    expected = f"stopped by {number.name}. To go on from the last checkpoint: cotransport run '[a]' --resume\n"
    assert capsys.readouterr().err == expected


def test_without_a_signal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with resume_hint("cotransport run"):
        pass
    assert capsys.readouterr().err == ""
