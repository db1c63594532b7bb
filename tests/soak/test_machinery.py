"""The soak itself: it would find a writer that is not careful."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.interposer import with_library

pytestmark = [
    pytest.mark.killed,
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="compiles a library for Linux"),
]
ROOT = Path(__file__).resolve().parents[2]
CARELESS = """
def write(path, sync=True):
    new = path.with_name("new")
    new.write_text("content")
    if sync:
        descriptor = os.open(new, os.O_RDONLY)
        os.fsync(descriptor)
    os.replace(new, path)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return with_library(tmp_path)


def run(script: str, folder: Path, environment: dict[str, str]) -> str:
    """What a script prints in which calls are watched. `root` is a new folder."""
    root = folder / "root"
    root.mkdir()
    start = "import errno, os, shutil, sys\nfrom pathlib import Path\nfrom tests.soak.disk import Recorder\n"
    start += "from tests.soak.interposer import watch\nroot = Path(sys.argv[1])\n"
    words = [sys.executable, "-c", start + CARELESS + script, str(root)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def test_every_call_is_seen_and_can_fail(tmp_path: Path, environment: dict[str, str]) -> None:
    script = """
def hook(call, path, done):
    if not done:
        print(call, path.name, flush=True)
    return errno.EIO if call == "rename" else 0
watch(root, hook)
(root / "a").mkdir()
try:
    write(root / "b")
except OSError as error:
    print(error.strerror)
shutil.copyfile(root / "new", root / "c")
shutil.rmtree(root / "a")
"""
    lines = run(script, tmp_path, environment).splitlines()
    assert lines[:5] == ["mkdir a", "open new", "write new", "fsync new", "rename b"]
    assert lines[5] == "Input/output error"
    assert lines[6:8] == ["open c", "write c"]
    assert lines[-1] == "rmdir a"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for this processor")
def test_a_rename_by_safetensors_can_fail(tmp_path: Path, environment: dict[str, str]) -> None:
    script = """
from safetensors.numpy import save_file
import numpy
watch(root, lambda call, path, done: errno.EIO if call == "rename" else 0)
try:
    save_file({"a": numpy.zeros(3)}, root / "a.safetensors")
except Exception as error:
    print(error)
print(sorted(path.name for path in root.iterdir()))
"""
    lines = run(script, tmp_path, environment).splitlines()
    assert "Input/output error" in lines[0]
    assert lines[1] == "[]"


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_that_was_not_synced_may_be_empty(sync: bool, tmp_path: Path, environment: dict[str, str]) -> None:
    script = f"""
recorder = Recorder(root, root.with_name("states"))
watch(root, recorder.hook)
write(root / "a", {sync})
recorder.finish()
"""
    run(script, tmp_path, environment)
    contents = {path.read_text() for path in tmp_path.glob("states/*/root/a")}
    assert contents == ({"content"} if sync else {""})
    (last,) = sorted((tmp_path / "states").iterdir())[-1:]
    assert list(last.rglob("a")) == [], "its name was not synced"
