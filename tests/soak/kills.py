"""SIGKILL at random moments, in one process and in two."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from tests.soak.actions import Action, copy_of
from tests.soak.children import Kill, in_children
from tests.soak.judgement import problem_after
from tests.soak.preparation import KILLED
from tests.soak.shift import Shift

LONGEST_SERIES = 3
"""How many times a command is killed, repeated and killed again before its folder is examined."""
LATER_SECONDS = 0.3
"""The second of two processes is killed at most so much later than the first."""


def soak_kills(shift: Shift) -> Iterator[None]:
    """Kill every command again and again, each at moments that cover its whole time."""
    for series in count(shift.worker, shift.workers) if shift.only is None else [int(shift.only.rpartition("/")[2])]:
        for action in KILLED:
            if shift.wants(f"kills/{action.name}/{series}"):
                copy_of(shift.prepared.start, shift.folder / "killed")
                _kill_and_judge(action, series, shift)
                yield


def _kill_and_judge(action: Action, series: int, shift: Shift) -> None:
    """Kill a command up to a few times, then examine its folder and repeat the command to its end."""
    expected, seconds = shift.prepared.references[action.name], shift.prepared.seconds[action.name]
    place, moments = shift.folder / "killed", random.Random(f"{action.name} {series}")
    for kills in range(1, 1 + LONGEST_SERIES):
        kill = Kill(moments.uniform(0.001, 1.05 * seconds), moments.uniform(0, LATER_SECONDS), moments.randrange(2))
        ended = in_children(action.processes(place), kill)
        was_killed = any(one.how == "killed" for one in ended)
        if was_killed and kills < LONGEST_SERIES and moments.random() < 0.5:
            shift.journal.add("kills", f"`{action.name}`", "", None)
            continue
        if was_killed:  # the other of two processes may have lost its partner
            ended = [one for one in ended if one.how == "hung"]
        problem = problem_after(ended, action, place, expected)
        if problem is not None:
            problem = f"{problem}\n{kills} kills, the last: {kill}; the command takes {seconds:.2f} s"
        shift.journal.add("kills", f"`{action.name}`", f"kills/{action.name}/{series}", problem, tried=int(was_killed))
        return
