"""Whether a folder is whole after a fault, and whether the command then completes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.actions import Action, copy_of
from tests.soak.children import Ended, in_child


class Reference(NamedTuple):
    """A command without a fault."""

    before: dict[str, Any]
    """The facts before the command."""
    after: dict[str, Any]
    """The facts after it."""
    outcome: dict[str, Any]
    """The content of the folder after it."""


def reference(action: Action, start: Path, place: Path) -> Reference:
    """Run a command without a fault on a fresh copy."""
    copy_of(start, place)
    found = place.with_suffix(".json")

    def run() -> None:
        before = action.check(place)
        action.act(place)
        found.write_text(json.dumps([before, action.check(place), action.outcome(place)]))

    ended = in_child(run)
    if ended.how != "done":
        raise RuntimeError(f"{action.name} fails without a fault: {ended.text}")
    return Reference(*json.loads(found.read_text()))


def problem_after(ended: Sequence[Ended], action: Action, place: Path, expected: Reference) -> str | None:
    """What is wrong after a command with a fault; None if nothing is."""
    for one in ended:
        if one.how in {"failed", "hung"}:
            return f"the command {one.how}: {one.text}"
    settled = in_child(lambda: _settle(action, place, expected))
    return None if settled.how == "done" else f"afterwards ({settled.how}): {settled.text}"


def _settle(action: Action, place: Path, expected: Reference) -> None:
    """Check a folder, and repeat the command unless it has been completed."""
    _check_between(action.check(place), expected)
    if action.outcome(place) == expected.outcome:
        return
    action.act(place)
    _check_between(action.check(place), expected)
    found = action.outcome(place)
    if found != expected.outcome:
        raise AssertionError(f"another outcome: {_difference(found, expected.outcome)}")


def _check_between(facts: dict[str, Any], expected: Reference) -> None:
    """Raise an error unless each fact is as before the command or as after it, and what both have is there."""
    known = [{name: one.get(name) for name in facts} for one in (expected.before, expected.after)]
    changed = [name for name, value in facts.items() if value not in (known[0][name], known[1][name])]
    lost = (expected.before.keys() & expected.after.keys()) - facts.keys()
    if changed or lost:
        raise AssertionError(f"neither as before nor as after: changed {changed}, lost {sorted(lost)}")


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    words = dict.fromkeys(expected.keys() - found.keys(), "missing")
    words |= dict.fromkeys(found.keys() - expected.keys(), "extra")
    words |= {name: "differs" for name in found.keys() & expected.keys() if found[name] != expected[name]}
    return ", ".join(f"{name} ({words[name]})" for name in sorted(words))
