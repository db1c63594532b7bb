"""Whether one method is better than another by more than chance, from runs with the same seeds."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from cotransport.metrics import Floats
from cotransport.report.estimates import Estimate
from cotransport.report.summaries import MethodSummary
from cotransport.report.text import UNDEFINED

ROUNDING = 1e-9
"""Differences of less than this many points are equal: accuracies are sums of shares, which carry rounding errors."""
FEWEST_PAIRS = 6
"""Fewest differences for Wilcoxon's test. With fewer, its p-value cannot be below 0.05, whatever they are."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval. Its ends are NaN if it is undefined: with one value, or if all values are equal."""

    low: float
    high: float

    @property
    def text(self) -> str:
        """Both ends with a sign and one decimal.

        >>> Interval(-0.92, 0.55).text, Interval(math.nan, math.nan).text
        ('−0.9 to +0.6', '–')
        """
        if math.isnan(self.low):
            return UNDEFINED
        return " to ".join(Estimate(end, math.nan).signed_text for end in (self.low, self.high))


@dataclass(frozen=True)
class Comparison:
    """The differences between two methods on one stream, in percentage points. Each pair of runs shares a seed."""

    seeds: int
    """Number of pairs."""
    average: Estimate
    """Difference of the average accuracies: mean and deviation over seeds."""
    interval: Interval
    """95 % confidence interval of that mean, for other seeds."""
    last: Estimate
    """Difference of the last accuracies."""
    p_over_seeds: float
    """p-value of a paired t-test over seeds, for the average accuracies. NaN with one seed, or if all differences are
    equal."""
    p_over_tasks: float
    """p-value of Wilcoxon's signed-rank test over seeds and tasks after the first. The tasks of a run are not
    independent, so it is too low. NaN if nothing differs, and with fewer than `FEWEST_PAIRS`."""


def compare(method: MethodSummary, other: MethodSummary) -> Comparison | None:
    """How much better `method` is than `other`; None if they share no seed."""
    own, others = ({result.seed: result for result in one.results} for one in (method, other))
    pairs = [(own[seed], others[seed]) for seed in own if seed in others]
    if not pairs:
        return None
    averages = np.array([one.average_incremental_accuracy - two.average_incremental_accuracy for one, two in pairs])
    steps = np.array([np.array(one.curve)[1:] - np.array(two.curve)[1:] for one, two in pairs]).flatten()
    steps = (steps[~np.isnan(steps)] / ROUNDING).round() * ROUNDING
    return Comparison(
        seeds=len(pairs),
        average=Estimate.of(averages),
        interval=confidence_interval(averages),
        last=Estimate.of(one.last_accuracy - two.last_accuracy for one, two in pairs),
        p_over_seeds=t_test(averages),
        p_over_tasks=signed_rank_test(steps) if len(steps) >= FEWEST_PAIRS else math.nan,
    )


def t_test(differences: Floats) -> float:
    """Two-sided p-value of the t-test that the mean of paired differences is zero; NaN if it is undefined."""
    from scipy.stats import ttest_1samp  # it takes a while to import

    if len(differences) < 2 or np.ptp(differences) < ROUNDING:
        return math.nan
    return float(ttest_1samp(differences, 0.0).pvalue)


def confidence_interval(differences: Floats, level: float = 0.95) -> Interval:
    """The interval that belongs to the t-test: zero is outside if and only if p is less than 1 - level."""
    from scipy.stats import ttest_1samp

    if len(differences) < 2 or np.ptp(differences) < ROUNDING:
        return Interval(math.nan, math.nan)
    low, high = ttest_1samp(differences, 0.0).confidence_interval(level)
    return Interval(float(low), float(high))


def signed_rank_test(differences: Floats) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test of paired differences; NaN if all are zero."""
    from scipy.stats import wilcoxon

    if not differences.any():
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few pairs: the value is then approximate
        return float(wilcoxon(differences).pvalue)
