"""Expected values are computed by hand in the comments."""

import numpy as np
import pytest

from cotransport import metrics

NAN = float("nan")
MATRIX = np.array(
    [
        [90.0, NAN, NAN],
        [60.0, 80.0, NAN],
        [70.0, 50.0, 100.0],
    ]
)


def test_top_1_is_the_share_of_best_scores() -> None:
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]])
    assert metrics.top_k_accuracy(scores, np.array([0, 2, 1, 1]), 1) == 75.0


def test_top_5_with_fewer_than_five_classes_is_always_right() -> None:
    assert metrics.top_k_accuracy(np.array([[0.9, 0.1, 0.0]]), np.array([2]), 5) == 100.0


def test_top_5_of_seven_classes() -> None:
    scores = np.tile(np.arange(7.0), (7, 1))  # class 6 scores best, class 0 worst: 0 and 1 are outside the five best
    assert metrics.top_k_accuracy(scores, np.arange(7), 5) == pytest.approx(100 * 5 / 7)


def test_ties_go_to_the_earlier_class_as_in_argmax() -> None:
    scores = np.zeros((3, 3))
    assert metrics.top_k_accuracy(scores, np.arange(3), 1) == pytest.approx(100 / 3)
    assert metrics.top_k_accuracy(scores, np.arange(3), 2) == pytest.approx(200 / 3)


def test_scores_that_are_not_numbers_never_count_as_right() -> None:
    scores = np.full((1, 3), NAN)
    assert metrics.top_k_accuracy(scores, np.array([1]), 1) == 0.0


def test_no_images_have_no_accuracy() -> None:
    assert np.isnan(metrics.top_k_accuracy(np.zeros((0, 3)), np.zeros(0, dtype=np.int64), 1))


def test_accuracy_per_task_of_uneven_tasks() -> None:
    # tasks: classes 0-2, class 3, classes 4-5
    labels = np.array([0, 1, 2, 2, 3, 4, 5])
    predicted = np.array([0, 1, 2, 5, 4, 4, 0])
    assert metrics.accuracy_per_task(predicted == labels, labels, [3, 1, 2]) == [75.0, 0.0, 50.0]


def test_a_task_without_test_images_has_no_accuracy() -> None:
    first, second = metrics.accuracy_per_task(np.array([True]), np.array([0]), [1, 1])
    assert first == 100.0
    assert np.isnan(second)


def test_accuracy_matrix_of_ragged_rows() -> None:
    np.testing.assert_array_equal(metrics.accuracy_matrix([[90.0], [60.0, None]]), [[90.0, NAN], [60.0, NAN]])


def test_average_incremental_accuracy() -> None:
    assert metrics.average_incremental_accuracy([90.0, 70.0, 65.0]) == 75.0
    assert metrics.average_incremental_accuracy([NAN, 80.0, 60.0]) == 70.0


def test_forgetting_is_best_before_the_last_step_minus_last() -> None:
    # task 0: max(90, 60) - 70 = 20; task 1: 80 - 50 = 30
    np.testing.assert_array_equal(metrics.forgetting_per_task(MATRIX), [20.0, 30.0])
    assert metrics.forgetting(MATRIX) == 25.0


def test_forgetting_can_be_negative() -> None:
    assert metrics.forgetting(np.array([[50.0, NAN], [60.0, 80.0]])) == -10.0


def test_backward_transfer_is_last_minus_just_learned() -> None:
    # task 0: 70 - 90 = -20; task 1: 50 - 80 = -30
    assert metrics.backward_transfer(MATRIX) == -25.0


def test_one_task_forgets_nothing() -> None:
    single = np.array([[90.0]])
    assert metrics.forgetting(single) == 0.0
    assert metrics.backward_transfer(single) == 0.0
    assert len(metrics.forgetting_per_task(single)) == 0


def test_undefined_tasks_are_left_out_of_means() -> None:
    matrix = np.array([[NAN, NAN, NAN], [NAN, 80.0, NAN], [NAN, 50.0, 90.0]])
    assert metrics.forgetting(matrix) == 30.0
    assert metrics.backward_transfer(matrix) == -30.0


def test_confusion_matrix_has_true_classes_in_rows() -> None:
    expected = [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert (
        metrics.confusion_matrix(metrics.confusion_cells(np.array([0, 2, 1]), np.array([0, 0, 1])), 3).tolist()
        == expected
    )
