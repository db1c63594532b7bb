"""Watch the calls of this process that change files, make them fail, or end the process there."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).with_name("interpose.c")
LIBRARY = "SOAK_LIBRARY"
"""Environment variable with the path of the compiled library, once it is loaded."""
Hook = Callable[[str, Path, bool], int]
"""Gets the name of a call, its path, and whether it has been done. Before a call, it returns 0 to let it happen, or the
error number that it fails with."""
_TYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
_kept: list[object] = []


def restart_with_library() -> None:
    """Start this program again with the library loaded, unless it already is."""
    if LIBRARY not in os.environ:
        environment = with_library(Path(tempfile.mkdtemp(prefix="soak-")))
        os.execve(sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]], environment)


def with_library(folder: Path) -> dict[str, str]:
    """The environment of a program that has the library loaded, which is compiled into a folder."""
    library = folder / "interpose.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return {**os.environ, LIBRARY: str(library), "LD_PRELOAD": str(library)}


def watch(folder: Path, hook: Hook) -> None:
    """Call a hook for every call on a path below a folder, from now on."""

    def called(call: bytes, path: bytes, done: int) -> int:
        return hook(call.decode(), Path(os.fsdecode(path)), bool(done))

    callback = _TYPE(called)
    _kept.append(callback)
    ctypes.CDLL(os.environ[LIBRARY]).watch(os.fsencode(folder), callback)
