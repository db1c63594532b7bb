"""Confusion matrices over seeds."""

from __future__ import annotations

import numpy as np

from cotransport.experiments.results import Result
from cotransport.report.aggregate import summarise
from cotransport.report.confusion import Confusion
from tests.report.results import make_result


def confusion_of(*results: Result) -> Confusion:
    confusion = summarise(results)[0].methods[0].confusion
    assert confusion is not None
    return confusion


def test_counts_are_summed_over_seeds_and_described_in_words() -> None:
    first = [[20, 4, 0, 0], [0, 18, 0, 0], [1, 0, 17, 0], [0, 0, 0, 18]]
    second = [[10, 8, 0, 0], [0, 18, 0, 0], [0, 0, 18, 0], [0, 2, 0, 16]]
    names = ["7", "1", "0", "4"]
    confusion = confusion_of(*(make_result(seed=s, confusion=c, classes=names) for s, c in enumerate((first, second))))
    assert confusion.most_frequent(2) == ["7 predicted as 1: 12 of 42 images", "4 predicted as 1: 2 of 36 images"]
    assert confusion.description(0, 0) == "7 recognised: 30 of 42 images"
    np.testing.assert_allclose(confusion.shares[0], [100 * 30 / 42, 100 * 12 / 42, 0, 0])
    assert confusion.task_starts == [0, 2]


def test_a_class_without_test_images_has_no_shares() -> None:
    confusion = confusion_of(make_result(confusion=np.diag([9, 9, 0, 9]).tolist()))
    assert np.isnan(confusion.shares[2]).all()
    assert confusion.most_frequent(5) == []


def test_many_classes_are_counted_by_task() -> None:
    counts = np.zeros((300, 300), dtype=int)
    counts[0, 0], counts[1, 250], counts[299, 100] = 5, 3, 2
    per_task = [[80.0], [60.0, 70.0], [40.0, 50.0, 90.0]]
    confusion = confusion_of(make_result(tasks=[100, 150, 50], per_task=per_task, confusion=counts.tolist()))
    assert confusion.is_by_task
    np.testing.assert_array_equal(confusion.counts, [[5, 0, 3], [0, 0, 0], [0, 2, 0]])
    assert confusion.most_frequent(1) == ["task 1 predicted as task 3: 3 of 8 images"]


def test_a_list_of_cells_stands_for_a_matrix_of_very_many_classes() -> None:
    """Three seeds: twice the cells of 5,000 classes in tasks of 2,000, 2,000 and 1,000, and one without any."""
    cells = [(0, 0, 5), (1, 4999, 3), (2000, 1999, 2)]
    per_task = [[80.0], [60.0, 70.0], [40.0, 50.0, 90.0]]
    results = [
        make_result(seed=seed, tasks=[2000, 2000, 1000], per_task=per_task, confusion=[], confusion_cells=known)
        for seed, known in enumerate((cells, cells, None))
    ]
    np.testing.assert_array_equal(confusion_of(*results).counts, [[10, 0, 6], [4, 0, 0], [0, 0, 0]])
    assert summarise(results)[0].methods[0].origins is None
