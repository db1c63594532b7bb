"""Power cuts: a command is repeated on everything that the disk may hold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.soak.actions import Action, copy_of
from tests.soak.children import in_child
from tests.soak.judgement import Reference, problem_after
from tests.soak.preparation import CUT
from tests.soak.shift import Shift


def soak_power(shift: Shift) -> Iterator[None]:
    """Cut the power of every command at every moment when the state of the disk may differ, and after its end."""
    place = shift.folder / "cut"
    cases = [(action, number) for action in CUT for number in range(len(shift.prepared.states[action.name]))]
    random.Random(0).shuffle(cases)
    if not shift.worker:
        for action in CUT:
            shift.journal.plan("power", f"`{action.name}`", len(shift.prepared.states[action.name]))
    for action, number in shift.own(cases):
        case = f"power/{action.name}/{number}"
        if not shift.wants(case):
            continue
        states, expected = shift.prepared.states[action.name], shift.prepared.references[action.name]
        copy_of(states[number], place)
        is_last = number == len(states) - 1
        problem = _lost(action, place, expected) if is_last else problem_after([], action, place, expected)
        shift.journal.add("power", f"`{action.name}`", case, problem)
        yield


def _lost(action: Action, place: Path, expected: Reference) -> str | None:
    """What a command that had ended has lost; None if nothing is."""

    def look() -> None:
        facts = action.check(place)
        if facts != expected.after:
            raise AssertionError(f"the command had ended, but {expected.after.keys() - facts.keys()} is lost")

    ended = in_child(look)
    return None if ended.how == "done" else ended.text
