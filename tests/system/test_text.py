"""Text from outside, such as names of classes and files, cannot control the terminal."""

from __future__ import annotations

import pytest
from rich.console import Console

from cotransport.system.text import markup, visible

HOSTILE = "cat\x1b[2J\x9b\u202e[red]\udcff"


def test_unprintable_characters_are_escaped() -> None:
    assert visible(HOSTILE) == r"cat\x1b[2J\x9b\u202e[red]\udcff"
    assert visible("Käse 日本語") == "Käse 日本語"
    assert visible("two\nlines") == r"two\nlines"


def test_brackets_are_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=100).print(markup(HOSTILE))
    assert capsys.readouterr().out == r"cat\x1b[2J\x9b\u202e[red]\udcff" + "\n"


def test_lines_of_a_message_stay_lines() -> None:
    assert markup("one\ntwo\x1b") == "one\ntwo\\x1b"
