"""How things are timed here: in turns within one process, because the machine's speed changes from minute to minute."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    """One measured number, with the target it is held to."""

    benchmark: str
    what: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def verdict(self) -> Literal["", "met", "missed"]:
        """Whether the target is met, where there is one."""
        if self.at_least is None and self.at_most is None:
            return ""
        low = self.at_least is not None and self.value < self.at_least
        high = self.at_most is not None and self.value > self.at_most
        return "missed" if low or high else "met"


def in_turns(variants: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each variant in each round; every round runs all of them, in changing order."""
    names = list(variants)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for run in variants.values():
        run()  # memory is set up, caches are warm
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            started = time.perf_counter()
            variants[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def ratio(seconds: Mapping[str, list[float]], ideal: str, ours: str) -> float:
    """How much of the ideal's speed ours reaches."""
    return undisturbed(seconds[ideal]) / undisturbed(seconds[ours])


def undisturbed(seconds: list[float]) -> float:
    """The median of the faster half of the rounds: whatever else the machine does can only slow a round down."""
    return statistics.median(sorted(seconds)[: -(-len(seconds) // 2)])
