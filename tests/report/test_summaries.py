"""Summaries of methods: every expected number is derived by hand beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotransport.report.aggregate import summarise
from tests.report.results import make_result, transported_results


def test_uneven_tasks_and_a_seed_that_stopped_early() -> None:
    full = make_result(seed=1, per_task=[[80.0], [60.0, 70.0], [40.0, None, 90.0]], tasks=[3, 1, 2])
    early = make_result(seed=2, per_task=[[90.0], [70.0, 90.0]], tasks=[3, 1, 2], confusion=[])
    stream = summarise([full, early.model_copy(update={"classes": full.classes})])[0]
    method = stream.methods[0]
    assert stream.classes_seen == [3, 4, 6]
    assert stream.task_classes == [["class 0", "class 1", "class 2"], ["class 3"], ["class 4", "class 5"]]
    expected = [[85.0, math.nan, math.nan], [65.0, 80.0, math.nan], [40.0, math.nan, 90.0]]
    np.testing.assert_array_equal(method.accuracy_matrix, expected)
    # curves 80, 65, 65 and 90, 80
    assert [estimate.mean for estimate in method.curve] == [85.0, 72.5, 65.0]
    assert method.curve[0].deviation == pytest.approx(math.sqrt(50))
    assert math.isnan(method.curve[2].deviation)
    # first task: 80 - 40 in the full run, 90 - 70 in the early one; the second is unknown at the end
    assert method.forgetting_per_task[0].mean == 30.0
    assert math.isnan(method.forgetting_per_task[1].mean)
    assert method.confusion is not None
    assert method.confusion.counts.sum() == 54, "the early run has no confusion matrix"


def test_accuracy_before_training_has_a_line_for_each_classifier() -> None:
    method = summarise(transported_results())[0].methods[0]
    means = {line.name: [estimate.mean for estimate in line.estimates] for line in method.initial_accuracy("new")}
    # task 2: (60 + 70) / 2, (80 + 80) / 2, (40 + 50) / 2; task 3 has one value, of one seed. Chance: 2 classes, then 1
    expected = {
        "prospective transport": [65.0, 100.0],
        "nearest class mean": [80.0, math.nan],
        "random weights": [45.0, math.nan],
        "chance": [50.0, 100.0],
    }
    assert list(means) == list(expected)
    for name, line in expected.items():
        np.testing.assert_array_equal(means[name], line)
    among_all = [line.name for line in method.initial_accuracy("all")]
    assert among_all == list(expected)[:3], "chance is shown among new classes only"


def test_accuracy_before_training_may_be_unknown() -> None:
    assert summarise([make_result()])[0].methods[0].initial_accuracy("new") == []
