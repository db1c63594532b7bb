"""Paired comparisons: differences by hand, probabilities by counting or by the formula of the test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cotransport.report.aggregate import summarise
from cotransport.report.comparison import Comparison, compare, confidence_interval, signed_rank_test, t_test
from cotransport.report.summaries import MethodSummary
from tests.report.results import make_result


def methods(**lasts: dict[int, float]) -> list[MethodSummary]:
    """Methods whose accuracy is 90 after the first task, and a number for each seed after the second."""
    results = [
        make_result(label, seed=seed, per_task=[[90.0], [last, last]])
        for label, seeds in lasts.items()
        for seed, last in seeds.items()
    ]
    found = {method.label: method for method in summarise(results)[0].methods}
    return [found[label] for label in lasts]


def compared(**lasts: dict[int, float]) -> Comparison:
    comparison = compare(*methods(**lasts))
    assert comparison is not None
    return comparison


def test_differences_are_those_of_the_same_seeds() -> None:
    """Last: 70 - 66 and 64 - 62, so 4 and 2. The average over two tasks differs by half of that. Seed 3 has no pair."""
    found = compared(coil={1: 70.0, 2: 64.0, 3: 99.0}, replay={2: 62.0, 1: 66.0})
    assert found.seeds == 2
    assert (found.last.mean, found.last.deviation) == (3.0, pytest.approx(math.sqrt(2)))
    assert (found.average.mean, found.average.deviation) == (1.5, pytest.approx(math.sqrt(0.5)))


def test_methods_without_a_common_seed_are_not_compared() -> None:
    assert compare(*methods(coil={1: 70.0}, replay={2: 60.0})) is None


def test_one_seed_has_no_t_test() -> None:
    assert math.isnan(compared(coil={1: 70.0}, replay={1: 60.0}).p_over_seeds)


def test_equal_methods_have_no_probability() -> None:
    found = compared(coil={1: 70.0, 2: 60.0}, replay={1: 70.0, 2: 60.0})
    assert math.isnan(found.p_over_seeds)
    assert math.isnan(found.p_over_tasks)


def test_differences_that_only_rounding_tells_apart_are_equal() -> None:
    """0.1 + 0.2 is not 0.3 in floating point; the same number of images more with every seed has no spread."""
    rounded = np.array([0.1 + 0.2, 0.3, 0.3])
    assert np.ptp(rounded) > 0
    assert math.isnan(t_test(rounded))
    assert confidence_interval(rounded).text == "–"


def test_the_t_test_of_two_differences_is_that_of_the_cauchy_distribution() -> None:
    """With one degree of freedom, t is Cauchy distributed: p = 1 - 2 atan(|t|) / pi, and t = mean / (s / sqrt(2))."""
    t = 3.0 / (math.sqrt(2) / math.sqrt(2))
    assert t_test(np.array([4.0, 2.0])) == pytest.approx(1 - 2 * math.atan(t) / math.pi)


def test_the_interval_of_two_differences_is_that_of_the_cauchy_distribution() -> None:
    """The 97.5 % quantile of a Cauchy distribution is tan(0.475 pi); the standard error of 4 and 2 is 1."""
    interval = confidence_interval(np.array([4.0, 2.0]))
    half = math.tan(0.475 * math.pi)
    assert (interval.low, interval.high) == pytest.approx((3 - half, 3 + half))


@pytest.mark.parametrize("differences", [[1.0, 2.0, 4.5], [-0.3, -0.2, -0.2], [0.1, -0.4, 0.2, 0.6]])
def test_an_interval_up_to_zero_belongs_to_the_p_value_of_the_test(differences: list[float]) -> None:
    interval = confidence_interval(np.array(differences), level=1 - t_test(np.array(differences)))
    assert min(abs(interval.low), abs(interval.high)) == pytest.approx(0, abs=1e-9)


def test_one_seed_has_no_interval() -> None:
    assert compared(coil={1: 70.0}, replay={1: 60.0}).interval.text == "–"


def test_the_signed_rank_test_counts_all_signs() -> None:
    """Twin: the share of all sign patterns whose sum of positive ranks is as extreme as the observed one."""
    differences = np.array([3.0, -1.0, 2.0, 5.0, 4.0])  # ranks 3, 1, 2, 5, 4: the positive ones sum to 14 of 15
    sums = [sum(itertools.compress(range(1, 6), signs)) for signs in itertools.product([0, 1], repeat=5)]
    expected = sum(abs(value - 7.5) >= 14 - 7.5 for value in sums) / len(sums)
    assert signed_rank_test(differences) == pytest.approx(expected)


def test_the_first_task_is_left_out_of_the_test_over_tasks() -> None:
    """Six seeds with one later task each: all differences have the same sign, which 2 of 64 patterns have."""
    found = compared(coil={s: 70.0 + s for s in range(6)}, replay={s: 60.0 - s for s in range(6)})
    assert found.p_over_tasks == pytest.approx(2 / 64)


def test_few_tasks_and_seeds_have_no_probability() -> None:
    """Of five differences with the same sign, 2 / 32 is not below 0.05."""
    found = compared(coil={s: 70.0 + s for s in range(5)}, replay={s: 60.0 - s for s in range(5)})
    assert math.isnan(found.p_over_tasks)
