"""Which classes are predicted as which other classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cotransport.experiments.results import Result
from cotransport.metrics import Floats, Integers, confusion_matrix
from cotransport.report.estimates import ratio
from cotransport.report.style import MAX_MAP_CLASSES
from cotransport.report.text import plural


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrix with the names of its rows (true) and columns (predicted)."""

    names: list[str]
    counts: Integers
    task_starts: list[int]
    """The first row of each task; empty if the rows are tasks."""
    is_by_task: bool = False
    """Whether rows and columns are tasks, because there are too many classes."""

    @classmethod
    def total(cls, results: Sequence[Result], classes: list[str], task_starts: list[int]) -> Confusion | None:
        """Sum over the results, after the last task; None if no result has a matrix of all classes."""
        known = [cells for result in results if (cells := result.cells) is not None]
        if not known:
            return None
        cells = np.concatenate(known)
        if len(classes) <= MAX_MAP_CLASSES:
            return cls(classes, confusion_matrix(cells, len(classes)), task_starts)
        of_tasks = cells.copy()
        of_tasks[:, :2] = np.searchsorted(task_starts, cells[:, :2], side="right") - 1
        names = [f"task {number}" for number in range(1, len(task_starts) + 1)]
        return cls(names, confusion_matrix(of_tasks, len(names)), [], is_by_task=True)

    @property
    def shares(self) -> Floats:
        """Each row in percent of its images; NaN in a row without images."""
        images = self.counts.sum(axis=1, keepdims=True)
        return ratio(100.0 * self.counts.astype(np.float64), np.broadcast_to(images, self.counts.shape))

    def most_frequent(self, limit: int) -> list[str]:
        """Descriptions of the most frequent confusions, most frequent first."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        images = self.counts.sum(axis=1)
        cells = [(int(true), int(predicted)) for true, predicted in zip(*np.nonzero(wrong), strict=True)]
        cells.sort(key=lambda cell: (-wrong[cell], images[cell[0]], cell))
        return [self.description(*cell) for cell in cells[:limit]]

    def description(self, true: int, predicted: int) -> str:
        """One cell in words."""
        outcome = "recognised" if true == predicted else f"predicted as {self.names[predicted]}"
        images = plural(int(self.counts[true].sum()), "image")
        return f"{self.names[true]} {outcome}: {self.counts[true, predicted]:,} of {images}"
