"""Run functions in child processes, which may be killed or fail, and say how they ended."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from cotransport.errors import CotransportError
from cotransport.system.machine import end_with_parent

LONGEST_SECONDS = 120.0
"""A child that takes longer is considered hung."""
HOW = ("done", "refused", "failed")
"""How a child ended, by its exit code."""


class Ended(NamedTuple):
    """How a child ended."""

    how: Literal["done", "refused", "failed", "killed", "hung"]
    """Done; one of the package's own errors; any other error; a signal; or still running."""
    text: str = ""
    """What the function returned, or the error."""


class Kill(NamedTuple):
    """When children are killed, if they still run then."""

    after: float
    """Seconds until the first is killed."""
    others: float = 0.0
    """Further seconds until the others are killed."""
    first: int = 0
    """The number of the first to be killed."""


class _Child(NamedTuple):
    process: int
    reader: int


def in_child(function: Callable[[], object]) -> Ended:
    """Run a function in a forked child."""
    return in_children([function])[0]


def in_children(functions: Sequence[Callable[[], object]], kill: Kill | None = None) -> list[Ended]:
    """Run functions at the same time, each in a forked child.

    kill : end all of them with SIGKILL, at these moments.
    """
    began = time.monotonic()
    children = [_started(function) for function in functions]
    if kill is None:
        return [_ended(child, began + LONGEST_SECONDS, is_planned=False) for child in children]
    moments = [began + kill.after + (0.0 if number == kill.first else kill.others) for number in range(len(children))]
    order = sorted(range(len(children)), key=lambda number: moments[number])
    ended = {number: _ended(children[number], moments[number], is_planned=True) for number in order}
    return [ended[number] for number in range(len(children))]


def _started(function: Callable[[], object]) -> _Child:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        end_with_parent()
        os.close(reader)
        _run(function, writer)
    os.close(writer)
    return _Child(child, reader)


def _ended(child: _Child, end: float, *, is_planned: bool) -> Ended:
    """How a child ended. At time `end` it is killed, as planned or because it hangs."""
    text, still_runs = _read(child.reader, end)
    os.close(child.reader)
    if still_runs:
        os.kill(child.process, signal.SIGKILL)
    status = os.waitpid(child.process, 0)[1]
    if still_runs and not is_planned:
        return Ended("hung", f"more than {LONGEST_SECONDS:.0f} s")
    if os.WIFSIGNALED(status):
        return Ended("killed", text or f"signal {os.WTERMSIG(status)}")
    return Ended(HOW[min(2, os.waitstatus_to_exitcode(status))], text)  # type: ignore[arg-type]  # one of three


def _run(function: Callable[[], object], writer: int) -> None:
    """Run a function and end this process."""
    code, text = 0, ""
    try:
        text = str(function())
    except CotransportError as error:
        code, text = 1, f"{type(error).__name__}: {error}"
    except BaseException:
        code, text = 2, traceback.format_exc()
    os.write(writer, text.encode(errors="replace")[-60_000:])
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
