"""Run functions in child processes, which may be killed or fail, and say how they ended."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from typing import Literal, NamedTuple

from cotransport.errors import CotransportError

LONGEST_SECONDS = 120.0
"""A child that takes longer is considered hung."""


class Ended(NamedTuple):
    """How a child ended."""

    how: Literal["done", "refused", "failed", "killed", "hung"]
    """Done; one of the package's own errors; any other error; a signal; or still running."""
    text: str = ""
    """What the function returned, or the error."""


def in_child(function: Callable[[], object], *, kill_after: float | None = None) -> Ended:
    """Run a function in a forked child.

    kill_after : seconds until the child is killed, if it still runs then.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run(function, writer)
    os.close(writer)
    text, hung = _read(reader, time.monotonic() + (kill_after or LONGEST_SECONDS))
    os.close(reader)
    if hung:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if hung and kill_after is None:
        return Ended("hung", f"more than {LONGEST_SECONDS:.0f} s")
    if os.WIFSIGNALED(status):
        return Ended("killed", text)
    how: tuple[Literal["done"], Literal["refused"], Literal["failed"]] = ("done", "refused", "failed")
    return Ended(how[min(2, os.waitstatus_to_exitcode(status))], text)


def _run(function: Callable[[], object], writer: int) -> None:
    """Run a function and end this process."""
    code, text = 0, ""
    try:
        text = str(function())
    except CotransportError as error:
        code, text = 1, f"{type(error).__name__}: {error}"
    except BaseException:
        code, text = 2, traceback.format_exc()
    os.write(writer, text.encode(errors="replace")[:60_000])
    os._exit(code)


def _read(reader: int, end: float) -> tuple[str, bool]:
    """What a child wrote until it closed its end of the pipe, and whether it was still running at time `end`."""
    found = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return found.decode(errors="replace"), True
        chunk = os.read(reader, 65536)
        if not chunk:
            return found.decode(errors="replace"), False
        found += chunk
