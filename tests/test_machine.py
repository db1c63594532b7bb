from pathlib import Path

import pytest

from cotransport.machine import _quota


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 0), ("nonsense", 8), ("1 0", 8)],
)
def test_a_control_groups_limit(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert _quota(tmp_path / "cpu.max", 8) == cores


def test_without_control_groups(tmp_path: Path) -> None:
    assert _quota(tmp_path / "cpu.max", 8) == 8
