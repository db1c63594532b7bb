"""Whether a folder is whole after a fault, and whether the command then completes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.actions import Action
from tests.soak.children import Ended, in_child


@dataclass
class Tally:
    """How many faults were tried, and what went wrong."""

    what: str
    tried: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, place: str, problem: str | None) -> None:
        """Count a fault."""
        self.tried += 1
        if problem is not None:
            self.wrong.append(f"{place}: {problem}")


def problem_after(ended: Ended, action: Action, place: Path, expected: Any) -> str | None:
    """What is wrong after a command with a fault; None if nothing is.

    expected : the outcome of the command without a fault.
    """
    if ended.how in {"failed", "hung"}:
        return f"the command {ended.how}: {ended.text}"
    settled = in_child(lambda: _settle(action, place, expected))
    return None if settled.how == "done" else f"afterwards ({settled.how}): {settled.text}"


def _settle(action: Action, place: Path, expected: Any) -> None:
    """Check a folder, and repeat the command unless it has been completed."""
    action.check(place)
    if action.outcome(place) == expected:
        return
    action.act(place)
    action.check(place)
    found = action.outcome(place)
    if found != expected:
        raise AssertionError(f"another outcome: {_difference(found, expected)}")


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    names = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
    return ", ".join(f"{name} ({'extra' if name not in expected else 'differs'})" for name in sorted(names))
