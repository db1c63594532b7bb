"""Which old classes the first weights of new classes were built from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cotransport.experiments.results import MANY_CLASSES, Result
from cotransport.metrics import Floats
from cotransport.report.estimates import Estimate, estimate_positions, mean_over_seeds
from cotransport.report.style import MAX_MAP_CLASSES
from cotransport.report.text import percent


class TaskTransport(NamedTuple):
    """What one task's new classes were built from, in one run."""

    task: int
    """Index of the task, from 0."""
    first: int
    """Index of the task's first class, which is also the number of old classes."""
    shares: Floats
    """Share of each old class (row) in each new class (column), from 0 to 1."""
    effective_sources: list[float]
    """For each new class, the effective number of old classes behind it."""


@dataclass(frozen=True, eq=False)
class Origins:
    """Shares of old classes (rows) in the first weights of new classes (columns), over all tasks and seeds."""

    old: list[str]
    new: list[str]
    shares: Floats
    """In percent of the new class, mean over seeds; NaN where the old class had not been learned yet."""
    effective_sources: list[Estimate]
    """For each new class, the effective number of old classes behind it."""
    old_task_starts: list[int]
    """The first row of each task."""
    new_task_starts: list[int]
    """The first column of each task."""

    @classmethod
    def mean(cls, results: Sequence[Result], classes: Sequence[str], tasks: Sequence[int]) -> Origins | None:
        """Mean over the results; None if no result has a transport, or if there are too many classes for plans."""
        size = len(classes)
        if size > MANY_CLASSES:
            return None
        shares = np.full((len(results), size, size), np.nan)
        effective: list[list[float | None]] = [[None] * size for _ in results]
        for seed, result in enumerate(results):
            for transport in task_transports(result, tasks):
                old, seen = transport.first, transport.first + transport.shares.shape[1]
                shares[seed, :old, old:seen] = 100 * transport.shares
                effective[seed][old:seen] = transport.effective_sources
        if np.isnan(shares).all():
            return None
        starts = task_starts(tasks)
        first_new, last_task = starts[1], starts[-1]
        return cls(
            old=list(classes[:last_task]),
            new=list(classes[first_new:]),
            shares=mean_over_seeds(shares)[:last_task, first_new:],
            effective_sources=estimate_positions(effective, size)[first_new:],
            old_task_starts=starts[:-1],
            new_task_starts=[start - first_new for start in starts[1:]],
        )

    @property
    def has_map(self) -> bool:
        """Whether a map of all classes is drawn. A map of tasks is not: the plan takes equally from all rows."""
        return max(len(self.old), len(self.new)) <= MAX_MAP_CLASSES

    def possible_sources(self, new: int) -> int:
        """Number of old classes that the new class could be built from."""
        return int((~np.isnan(self.shares[:, new])).sum())

    def largest_shares(self, new: int, limit: int) -> str:
        """The old classes with the largest shares in a new class, as text."""
        shares = self.shares[:, new]
        largest = [old for old in descending_order(shares)[:limit] if shares[old] > 0]
        return ", ".join(f"{self.old[old]}\N{NO-BREAK SPACE}{shares[old] / 100:.2f}" for old in largest)

    def description(self, old: int, new: int) -> str:
        """One cell in words."""
        return f"{self.new[new]}: {percent(self.shares[old, new])} from {self.old[old]}"


def task_transports(result: Result, tasks: Sequence[int]) -> Iterator[TaskTransport]:
    """The transports of one run. A plan whose size does not fit its task is left out."""
    steps = zip(result.steps, task_starts(tasks), tasks, strict=False)  # a run may have stopped early
    for task, (step, old, new) in enumerate(steps):
        transport = step.transport
        if task == 0 or transport is None or len(transport.origins) != new:
            continue
        if [len(row) for row in transport.plan] == [new] * old:
            shares = new * np.asarray(transport.plan, dtype=np.float64)
            yield TaskTransport(task, old, shares, [origin.effective_sources for origin in transport.origins])


def task_starts(tasks: Sequence[int]) -> list[int]:
    """Index of each task's first class.

    >>> task_starts([2, 3, 1])
    [0, 2, 5]
    """
    return [int(start) for start in np.cumsum([0, *tasks[:-1]])]


def descending_order(values: Floats) -> list[int]:
    """Indices of the values, largest value first; equal values keep their order, NaN comes last.

    >>> descending_order(np.array([0.2, np.nan, 0.6, 0.2]))
    [2, 0, 3, 1]
    """
    return [int(index) for index in np.argsort(-values, kind="stable")]
