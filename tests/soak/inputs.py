"""Generated images, recipes, model folders and requests. Only the package's own errors may follow.

Each input is made from its seed. It may take a limited time and a limited amount of memory. If a process dies or hangs,
the input that it was working on counts as a failure, and another process goes on with the next one.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from cotransport.errors import CotransportError
from cotransport.system.machine import end_with_parent
from tests.soak.generated import use_image, use_model, use_recipe
from tests.soak.journal import Journal
from tests.soak.requests import Requests
from tests.soak.shift import Shift

LONGEST_SECONDS = 20.0
"""Time of the processor that one input may take."""
HUNG_SECONDS = 120.0
"""Time that one input may take on a busy machine."""
MOST_MEMORY = 1 << 30
"""Bytes by which one input may raise the largest size of its process."""
TOGETHER = {"images": 1000, "recipes": 200, "requests": 300, "model folders": 50}
"""Inputs of each kind that one process works on."""
Use = Callable[[random.Random], None]


def soak_inputs(kind: str, shift: Shift) -> Iterator[None]:
    """Generate inputs of a kind and use them, without end."""
    seed = shift.worker if shift.only is None else int(shift.only.rpartition("/")[2])
    while True:
        seed = _in_one_process(kind, seed, shift)
        yield
        if shift.only is not None:
            return


def _in_one_process(kind: str, first: int, shift: Shift) -> int:
    """Use some inputs in a forked process and watch it; returns the next seed."""
    shared = mmap.mmap(-1, 16)
    shared[:] = struct.pack("qd", first, time.monotonic())
    child = os.fork()
    if not child:
        end_with_parent()
        _use_all(kind, first, shift, shared)
        os._exit(0)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        seed, began = struct.unpack("qd", shared[:])
        if ended:
            if status:
                _note(shift.journal, kind, seed, f"the process ended with status {status}")
            return int(seed) + shift.workers
        if time.monotonic() - began > HUNG_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            _note(shift.journal, kind, seed, f"took more than {HUNG_SECONDS:.0f} s")
            return int(seed) + shift.workers
        time.sleep(0.02)


def _note(journal: Journal, kind: str, seed: int, problem: str | None, tried: int = 1) -> None:
    journal.add("inputs", kind, f"inputs/{kind}/{seed}", problem, tried)


def _use_all(kind: str, first: int, shift: Shift, shared: mmap.mmap) -> None:
    """Use inputs until there were enough or the time ends. The seed in progress is in shared memory."""
    seed, fine = first, 0
    count = TOGETHER[kind] if shift.only is None else 1
    with _user(kind, shift) as use:
        for number in range(count):
            seed = first + number * shift.workers
            shared[:] = struct.pack("qd", seed, time.monotonic())
            problem = _problem(use, seed)
            if problem is None:
                fine += 1
            else:
                _note(shift.journal, kind, seed, problem)
            if shift.is_over:
                break
    _note(shift.journal, kind, seed, None, tried=fine)


@contextlib.contextmanager
def _user(kind: str, shift: Shift) -> Iterator[Use]:
    """The function that makes and uses an input of a kind."""
    folder = shift.folder / kind
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if kind == "images":
        yield use_image
    elif kind == "recipes":
        yield partial(use_recipe, folder)
    elif kind == "model folders":
        yield partial(use_model, folder, shift.prepared.start / "work")
    else:
        with Requests(shutil.copytree(shift.prepared.start / "work", folder / "model")) as requests:
            yield requests.send


def _problem(use: Use, seed: int) -> str | None:
    """What is wrong after an input; None if nothing is."""
    before, began = _largest_size(), time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            use(random.Random(seed))
    except CotransportError:
        pass
    except Exception:
        return traceback.format_exc()
    grown, took = _largest_size() - before, time.process_time() - began
    if took > LONGEST_SECONDS:
        return f"took {took:.0f} s"
    return f"took {grown >> 20} MiB of memory" if grown > MOST_MEMORY else None


def _largest_size() -> int:
    """The largest size of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
