import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotransport.system import machine


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity")
def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5, 7})
    assert 1 <= machine.available_cores() <= 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {5})
    assert machine.available_cores() == 1


@pytest.mark.parametrize(
    ("largest", "accepted"),
    [
        (1 << 40, [("mmap", 1 << 30), ("trim", 1 << 30)]),
        (32 << 20, [("mmap", 32 << 20), ("trim", 1 << 30)]),
        (0, []),  # less trimming alone would be slower than the default
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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can end a process with its parent")
def test_a_process_ends_with_its_parent() -> None:
    child = "import time; from cotransport.system.machine import end_with_parent as f; f(); print('ready', flush=True)"
    child += "; time.sleep(20); print('still running')"
    parent = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b""  # the child keeps the pipe open until it ends


def test_memory_is_what_the_container_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    free = machine.available_memory()
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("600\n")
    if free is None:
        assert machine.available_memory() is None
    else:
        assert free > 1000
        assert machine.available_memory() == pytest.approx(free, rel=0.5)
    (tmp_path / "memory.max").write_text("1000\n")
    assert machine.available_memory() == 400
