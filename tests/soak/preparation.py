"""What all workers share: the start of every case, and every command without a fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.soak.actions import ACTIONS, FIRST, IN_TWO_PROCESSES, Action, copy_of
from tests.soak.children import in_child, in_children
from tests.soak.disk import Recorder
from tests.soak.interposer import watch
from tests.soak.judgement import Reference, reference

CUT = (*ACTIONS, FIRST)
"""The commands whose power is cut."""
KILLED = (*ACTIONS, *IN_TWO_PROCESSES)
"""The commands that are killed."""


@dataclass
class Prepared:
    """Every command without a fault, by name."""

    start: Path
    """The folder that every case starts from a copy of."""
    references: dict[str, Reference] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Time that a command takes."""
    calls: dict[str, int] = field(default_factory=dict)
    """Number of a command's calls that change files."""
    states: dict[str, list[Path]] = field(default_factory=dict)
    """What a disk may hold if the power is cut. The last one is what it holds at least when the command has ended."""


def prepare(start: Path, folder: Path, parts: list[str]) -> Prepared:
    """Run every command that the parts need, without a fault."""
    found, place = Prepared(start), folder / "place"
    wanted = {"faults": ACTIONS, "power": CUT, "kills": KILLED}
    for action in {one.name: one for part in parts for one in wanted.get(part, ())}.values():
        found.references[action.name] = reference(action, start, place)
        if "kills" in parts:
            copy_of(start, place)
            began = time.monotonic()
            in_children(action.processes(place))
            found.seconds[action.name] = time.monotonic() - began
        if "faults" in parts and action in ACTIONS:
            found.calls[action.name] = _calls(action, copy_of(start, place))
        if "power" in parts and action in CUT:
            states = folder / f"states of {action.name}"
            number = _recorded(action, copy_of(start, place), states)
            found.states[action.name] = [states / f"{one:05d}" / place.name for one in range(number)]
    return found


def _calls(action: Action, place: Path) -> int:
    """The number of a command's calls that change files."""
    calls = count()

    def counted() -> int:
        watch(place, lambda call, path, done: 0 if done else next(calls) * 0)
        action.act(place)
        return next(calls)

    return _number(action, counted)


def _recorded(action: Action, place: Path, states: Path) -> int:
    """Lay out what a disk may hold; returns the number of states."""

    def recorded() -> int:
        recorder = Recorder(place, states)
        watch(place, recorder.hook)
        action.act(place)
        return recorder.finish()

    return _number(action, recorded)


def _number(action: Action, function: Callable[[], int]) -> int:
    """What a function returns in a child."""
    ended = in_child(function)
    if ended.how != "done":
        raise RuntimeError(f"{action.name} fails without a fault: {ended.text}")
    return int(ended.text)
