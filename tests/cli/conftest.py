"""The command as a fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.helpers import Command, call


@pytest.fixture
def cotransport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in an empty folder, on a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *words: call(monkeypatch, capsys, *words)
