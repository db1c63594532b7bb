"""Means and deviations over seeds."""

from __future__ import annotations

import math

from cotransport.report.estimates import Estimate


def test_an_estimate_without_values_is_undefined() -> None:
    assert Estimate.of([None, math.nan]).text == "\N{EN DASH}"


def test_there_is_no_negative_zero() -> None:
    assert Estimate(-0.04, 0.0).text == "0.0 ± 0.0"
