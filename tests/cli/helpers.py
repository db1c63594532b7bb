"""The command, called in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from cotransport.cli.main import main

Command: TypeAlias = Callable[..., tuple[int, str]]
"""Takes the words of a command; returns its exit code and everything that it has printed."""


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The command in this process: its exit code and everything that it has printed."""
    monkeypatch.setattr(sys, "argv", ["cotransport", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def start(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    script = [sys.executable, "-m", "cotransport", *words]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
