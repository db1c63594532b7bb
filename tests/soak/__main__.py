"""`python -m tests.soak [PART]... [CASE]`: inject faults into every command for SOAK_MINUTES, and write the counts.

PART : one of `faults`, `power`, `kills`, `inputs/images` and the other inputs; by default, all.
CASE : a single case to repeat, as the results name it, such as `faults/learn/37/EIO-once`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.soak.interposer import LIBRARY, restart_with_library

restart_with_library()

from cotransport.system.machine import end_with_parent  # noqa: E402 (after the restart)
from tests.soak.faults import soak_faults  # noqa: E402
from tests.soak.inputs import TOGETHER, soak_inputs  # noqa: E402
from tests.soak.journal import Journal, described, rows, write_results  # noqa: E402
from tests.soak.kills import soak_kills  # noqa: E402
from tests.soak.power import soak_power  # noqa: E402
from tests.soak.preparation import Prepared, prepare  # noqa: E402
from tests.soak.shift import Shift  # noqa: E402
from tests.soak.warm import make_start_and_import  # noqa: E402

RUNS: dict[str, Callable[[Shift], Iterator[None]]] = {
    "faults": soak_faults,
    "power": soak_power,
    "kills": soak_kills,
    **{f"inputs/{kind}": partial(soak_inputs, kind) for kind in TOGETHER},
}
SHARES = {
    "faults": 0.62,
    "power": 0.05,
    "kills": 0.19,
    "inputs/images": 0.02,
    "inputs/recipes": 0.03,
    "inputs/requests": 0.04,
    "inputs/model folders": 0.05,
}
"""Shares of the time. That of a part without further cases goes to the others."""
EVERY_SECONDS = 10.0
"""How often the counts are written."""


def main(words: list[str]) -> int:
    """Run all parts, or those that are named, or a single case."""
    warnings.simplefilter("ignore")
    case = next((word for word in words if word.count("/") > 1), None)
    parts = [name for name in RUNS if not words or any(f"{word}/".startswith(f"{name}/") for word in words)]
    minutes = float(os.environ.get("SOAK_MINUTES", "60"))
    workers = 1 if case else int(os.environ.get("SOAK_WORKERS", os.cpu_count() or 1))
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        about, began = described(minutes, workers, folder), time.monotonic()
        make_start_and_import(folder / "start")
        prepared = prepare(folder / "start", folder, parts)
        children = [
            _start_worker(number, workers, parts, prepared, began + 60 * minutes, case) for number in range(workers)
        ]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        journals = [folder / f"{number}.jsonl" for number in range(workers)]
        statuses: list[int] = []
        try:
            while len(statuses) < workers:
                time.sleep(0.2 if case else EVERY_SECONDS)
                ended = [os.waitpid(child, os.WNOHANG) for child in children]
                children = [child for child, (found, _) in zip(children, ended, strict=True) if not found]
                statuses += [status for found, status in ended if found]
                if case is None:
                    write_results(about, rows(journals), time.monotonic() - began)
        except KeyboardInterrupt:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        found = rows(journals)
    shutil.rmtree(Path(os.environ[LIBRARY]).parent)
    for row in found:
        of = "" if row.planned is None else f" of {row.planned:,}"
        print(f"{row.part}: {row.what}: {row.tried:,}{of}, failed: {len(row.failures)}", flush=True)
        for failure in row.failures:
            print(f"FAILED {failure['case']}: {failure['problem']}", flush=True)
    return int(any(statuses) or any(row.failures for row in found))


def _start_worker(number: int, workers: int, parts: list[str], prepared: Prepared, end: float, case: str | None) -> int:
    """Start a process that works on its share of every part; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        end_with_parent()
        folder = prepared.start.parent
        own = folder / str(number)
        own.mkdir()
        shift = Shift(number, workers, prepared, own, Journal(folder / f"{number}.jsonl"), end, case)
        _take_turns({part: RUNS[part](shift) for part in parts}, shift)
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


def _take_turns(parts: dict[str, Iterator[None]], shift: Shift) -> None:
    """Go on with the part that has had the least of its share of the time, until the time is over."""
    used = dict.fromkeys(parts, 0.0)
    while parts and not shift.is_over:
        part = min(parts, key=lambda name: used[name] / SHARES[name])
        began = time.monotonic()
        try:
            next(parts[part])
        except StopIteration:
            del parts[part]
        used[part] += time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
