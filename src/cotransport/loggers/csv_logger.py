"""A log as one CSV file, to which a resumed run appends."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TypeAlias

from cotransport.experiments.callback import StartedRun
from cotransport.loggers.base import Logger, log_folder
from cotransport.system.files import storage_errors, write_text

STEP = "step"
_Row: TypeAlias = dict[str, str]


class CsvLogger(Logger):
    """Writes `logs/metrics.csv`, with a column for each number and a row for each epoch, task and run."""

    keeps_images = keeps_files = False

    def __init__(self, run: StartedRun) -> None:
        self._path = log_folder(run) / "metrics.csv"
        self._columns: list[str] = [STEP]
        self._earlier: list[_Row] | None = []
        if self._path.exists():
            with storage_errors(self._path), self._path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                self._earlier = [row for row in reader if (row.get(STEP) or "").isdecimal()]
                self._columns = list(reader.fieldnames or [STEP])

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Append a row. Rows of work that was lost in an interruption, and is now repeated, are removed first."""
        row = {STEP: str(step), **{name: repr(value) for name, value in values.items()}}
        new = [name for name in row if name not in self._columns]
        if self._earlier is None and not new:
            with storage_errors(self._path), self._path.open("a", encoding="utf-8", newline="") as file:
                csv.DictWriter(file, self._columns).writerow(row)
            return
        if self._earlier is None:
            with storage_errors(self._path), self._path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        else:
            rows, self._earlier = [one for one in self._earlier if _place(one) < _place(row)], None
        self._columns += new
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        writer.writeheader()
        writer.writerows([*rows, row])
        write_text(self._path, text.getvalue())


def _place(row: _Row) -> tuple[int, int]:
    """Where a row belongs: an epoch's numbers come before the test after it, at the same step."""
    group = next((name.partition("/")[0] for name, value in row.items() if name != STEP and value), "")
    return int(row[STEP]), ("train", "test", "run").index(group) if group in {"train", "test", "run"} else -1
