"""Means and standard deviations over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cotransport.metrics import Floats, Integers
from cotransport.report.style import LineStyle
from cotransport.report.text import MINUS, UNDEFINED, one_decimal


@dataclass(frozen=True)
class Estimate:
    """Mean and sample standard deviation over seeds. Undefined values are NaN: a single seed has no deviation."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Estimate:
        """The estimate from one value per seed. Undefined values are left out.

        >>> Estimate.of([1.0, None, 3.0])
        Estimate(mean=2.0, deviation=1.4142135623730951)
        >>> Estimate.of([5.0])
        Estimate(mean=5.0, deviation=nan)
        """
        known = [value for value in values if value is not None and np.isfinite(value)]
        return cls(
            mean=float(np.mean(known)) if known else float("nan"),
            deviation=float(np.std(known, ddof=1)) if len(known) > 1 else float("nan"),
        )

    @property
    def text(self) -> str:
        """Mean ± deviation with one decimal.

        >>> Estimate(65.52, 0.26).text, Estimate(65.52, float("nan")).text
        ('65.5 ± 0.3', '65.5')
        """
        mean = one_decimal(self.mean)
        return mean if math.isnan(self.deviation) else f"{mean} ± {one_decimal(self.deviation)}"

    @property
    def signed_text(self) -> str:
        """A difference: the same text, with a sign unless the mean rounds to zero.

        >>> Estimate(0.52, float("nan")).signed_text, Estimate(-0.03, 0.3).signed_text
        ('+0.5', '0.0 ± 0.3')
        """
        return self.text if self.text.startswith((MINUS, UNDEFINED, "0.0")) else f"+{self.text}"


@dataclass(frozen=True)
class Line:
    """A line of a figure or chart: one estimate for each position on the horizontal axis."""

    name: str
    style: LineStyle
    estimates: list[Estimate]

    @property
    def has_band(self) -> bool:
        """Whether any position has a deviation to draw."""
        return not all(math.isnan(estimate.deviation) for estimate in self.estimates)


def estimate_positions(values_per_seed: Sequence[Sequence[float | None]], length: int) -> list[Estimate]:
    """One estimate for each position. A seed that stopped early has no values at later positions."""
    return [Estimate.of(values[i] for values in values_per_seed if i < len(values)) for i in range(length)]


def mean_over_seeds(values: Floats) -> Floats:
    """Mean over the first axis. NaN values are left out; the mean of NaN values alone is NaN."""
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0).sum(axis=0), known.sum(axis=0))


def ratio(part: Floats, whole: Integers) -> Floats:
    """Element-wise division; NaN where the divisor is 0."""
    quotient = np.full(part.shape, np.nan)
    np.divide(part, whole, out=quotient, where=whole > 0)
    return quotient
