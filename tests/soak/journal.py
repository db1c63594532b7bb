"""What each worker has tried, line by line, and the table that is made of it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "soak.json"
"""The counts, from which `docs/tables.py` makes the table in the documentation."""
PARTS = ("faults", "power", "kills", "inputs")
LONGEST_TEXT = 4000
"""Letters of a problem that are kept."""


class Journal:
    """A file with one line for each thing that was tried."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def plan(self, part: str, what: str, count: int) -> None:
        """Note how many cases there are."""
        self._write(part=part, what=what, planned=count)

    def add(self, part: str, what: str, case: str, problem: str | None, tried: int = 1) -> None:
        """Count a case, or several without a problem."""
        wrong = {} if problem is None else {"wrong": {"case": case, "problem": problem[-LONGEST_TEXT:]}}
        self._write(part=part, what=what, tried=tried, **wrong)

    def _write(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")


@dataclass
class Row:
    """The counts of one kind of case."""

    part: str
    what: str
    planned: int | None = None
    """The number of all cases, where there is one."""
    tried: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)


def rows(journals: Iterable[Path]) -> list[Row]:
    """The counts in some journals, in the order of the parts."""
    found: dict[tuple[str, str], Row] = {}
    for path in journals:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                values = json.loads(line)
            except ValueError:  # the last line of a worker that was killed
                continue
            row = found.setdefault((values["part"], values["what"]), Row(values["part"], values["what"]))
            row.planned = values.get("planned", row.planned)
            row.tried += values.get("tried", 0)
            if "wrong" in values:
                row.failures.append(values["wrong"])
    return sorted(found.values(), key=lambda row: PARTS.index(row.part))


def described(minutes: float, workers: int, folder: Path) -> dict[str, Any]:
    """Where and how a soak runs."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    commit = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    kind = subprocess.run(
        ["stat", "--file-system", "--format=%T", folder], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "commit": commit,
        "minutes": minutes,
        "workers": workers,
        "started": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores of {_processor()}, Linux {platform.release().split('-')[0]}, {kind}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def write_results(about: dict[str, Any], found: Iterable[Row], seconds: float) -> None:
    """Write the counts, with every failure."""
    values = {**about, "seconds": round(seconds), "rows": [vars(row) for row in found]}
    beside = RESULTS.with_suffix(".part")
    beside.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    beside.replace(RESULTS)
