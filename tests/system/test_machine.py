import subprocess
import sys
from pathlib import Path

import pytest

from cotransport.system import machine
from cotransport.system.machine import _quota


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("1000 100000", 0), ("nonsense", 8), ("1 0", 8)],
)
def test_a_control_groups_limit(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert _quota(tmp_path / "cpu.max", 8) == cores


def test_without_control_groups(tmp_path: Path) -> None:
    assert _quota(tmp_path / "cpu.max", 8) == 8


@pytest.mark.parametrize(
    ("largest", "accepted"),
    [
        (1 << 40, [("mmap", 1 << 30), ("trim", 1 << 30)]),
        (32 << 20, [("mmap", 32 << 20), ("trim", 1 << 30)]),
        (0, []),  # less trimming alone would be slower than nothing
    ],
)
def test_freed_memory_is_kept(monkeypatch: pytest.MonkeyPatch, largest: int, accepted: list[tuple[str, int]]) -> None:
    called: list[tuple[str, int]] = []

    class Library:
        def mallopt(self, parameter: int, value: int) -> int:
            name = {-3: "mmap", -1: "trim"}[parameter]
            if name == "mmap" and value > largest:
                return 0
            called.append((name, value))
            return 1

    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: Library())
    machine.keep_freed_memory()
    assert called == accepted


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(machine.ctypes, "CDLL", missing)
    machine.keep_freed_memory()
    machine.end_with_parent()


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux only")
def test_a_process_ends_with_its_parent() -> None:
    child = "import time; from cotransport.system.machine import end_with_parent as f; f(); print('ready', flush=True)"
    child += "; time.sleep(20); print('still there')"
    parent = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # the child has it open until it ends
