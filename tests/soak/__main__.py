"""`python -m tests.soak`: inject faults into every command for SOAK_MINUTES, and write the counts to results.md."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.soak.interposer import restart_with_library, watch

restart_with_library()

import torch  # noqa: E402 (after the restart)

from tests.soak.actions import ACTIONS, Action, copy_of, make_start  # noqa: E402
from tests.soak.children import in_child  # noqa: E402
from tests.soak.faults import faults, reference, with_fault  # noqa: E402
from tests.soak.inputs import KINDS, try_inputs  # noqa: E402
from tests.soak.judgement import Tally, problem_after  # noqa: E402
from tests.soak.power import Recorder  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.md")
SHARES = {"faults": 0.45, "kills": 0.25, "power": 0.15, "inputs": 0.15}
"""Shares of the time."""


def main() -> int:
    """Run all parts, or those that are named."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    minutes, names = float(os.environ.get("SOAK_MINUTES", "60")), sys.argv[1:] or list(SHARES)
    parts = {"faults": soak_faults, "kills": soak_kills, "power": soak_power, "inputs": soak_inputs}
    total = sum(SHARES[name] for name in names)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        start = Path(folder) / "start"
        ended = in_child(lambda: make_start(start))
        if ended.how != "done":
            raise SystemExit(ended.text)
        tallies = [
            tally for name in names for tally in parts[name](start, Path(folder), 60 * minutes * SHARES[name] / total)
        ]
    for tally in tallies:
        for wrong in tally.wrong:
            print(f"WRONG {tally.what}: {wrong}", file=sys.stderr)
    write_results(tallies, minutes)
    return int(any(tally.wrong for tally in tallies))


def soak_faults(start: Path, folder: Path, seconds: float) -> Iterator[Tally]:
    """A kill, or an error, at every call that changes a file."""
    place = folder / "faulty"
    for action, budget in shared(ACTIONS, seconds):
        expected, calls = reference(action, start, place)
        tally, end = Tally(f"`{action.name}`: kill or error at each of {calls} calls"), time.monotonic() + budget
        planned = list(faults(calls))
        if len(planned) > 200:  # in an order that covers all calls and faults evenly if the time ends early
            random.Random(0).shuffle(planned)
        for number, fault in planned:
            if time.monotonic() > end:
                break
            ended = with_fault(action, start, place, number, fault)
            tally.add(f"call {number}, {fault}", problem_after(ended, action, place, expected))
        show(tally, len(planned))
        yield tally


def soak_kills(start: Path, folder: Path, seconds: float) -> Iterator[Tally]:
    """SIGKILL at random moments. The killed command is repeated, and killed again."""
    place, moments = folder / "killed", random.Random(0)
    for action, budget in shared(ACTIONS, seconds):
        copy_of(start, place)
        began = time.monotonic()
        in_child(lambda: action.act(place))  # noqa: B023 (called at once)
        took, expected = time.monotonic() - began, action.outcome(place)
        tally, end = Tally(f"`{action.name}`: SIGKILL at random moments"), time.monotonic() + budget
        copy_of(start, place)
        while time.monotonic() < end:
            ended = in_child(lambda: action.act(place), kill_after=moments.uniform(0.001, 1.2 * took))  # noqa: B023
            if ended.how == "killed" and moments.random() < 0.5:  # killed again before it is judged
                tally.tried += 1
                continue
            tally.add(f"after {tally.tried}", problem_after(ended, action, place, expected))
            copy_of(start, place)
        show(tally)
        yield tally


def soak_power(start: Path, folder: Path, seconds: float) -> Iterator[Tally]:
    """Power cuts at every moment when the state of the disk may differ."""
    place, states = folder / "recorded", folder / "states"
    for action, budget in shared([action for action in ACTIONS if action.name != "run"], seconds):
        copy_of(start, place)
        shutil.rmtree(states, ignore_errors=True)

        def recorded(action: Action = action) -> int:
            recorder = Recorder(place, states)
            watch(place, recorder.hook)
            action.act(place)
            return recorder.count

        ended = in_child(recorded)
        if ended.how != "done":
            raise SystemExit(f"{action.name}: {ended.how} {ended.text}")
        expected, end = action.outcome(place), time.monotonic() + budget
        tally = Tally(f"`{action.name}`: power cut at each of {ended.text} states of the disk")
        for number in range(int(ended.text)):
            if time.monotonic() > end:
                break
            copy_of(states / f"{number:05d}" / place.name, place)
            tally.add(f"state {number}", problem_after(ended, action, place, expected))
        show(tally, int(ended.text))
        yield tally


def soak_inputs(start: Path, folder: Path, seconds: float) -> Iterator[Tally]:
    """Generated images, recipes and model folders."""
    for kind, budget in shared(KINDS, seconds):
        tally = Tally(f"generated {kind}")
        try_inputs(kind, start / "work", folder / "inputs", time.monotonic() + budget, tally)
        show(tally)
        yield tally


def shared(things: Iterable[object], seconds: float) -> Iterator[tuple[object, float]]:
    """Each thing with the time it may take. Time that one does not need goes to the others."""
    left, end = list(things), time.monotonic() + seconds
    while left:
        yield left[0], max(1.0, (end - time.monotonic()) / len(left))
        del left[0]


def show(tally: Tally, planned: int | None = None) -> None:
    """Print a line."""
    of = f" of {planned}" if planned is not None else ""
    print(f"{tally.what}: {tally.tried}{of}, wrong: {len(tally.wrong)}", flush=True)


def write_results(tallies: list[Tally], minutes: float) -> None:
    """Write the counts as a table."""
    described = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    rows = [f"| {tally.what} | {tally.tried:,} | {len(tally.wrong)} |" for tally in tallies]
    total = f"| all | {sum(tally.tried for tally in tallies):,} | {sum(len(tally.wrong) for tally in tallies)} |"
    caption = f"*`SOAK_MINUTES={minutes:g} make soak`, commit {commit}, {os.cpu_count()} cores.*"
    lines = ["# Soak test", "", "| what | tried | wrong |", "|---|---|---|", *rows, total, "", caption, ""]
    RESULTS.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
