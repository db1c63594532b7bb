"""Metrics of class-incremental learning, as functions of plain arrays. They know nothing of networks or data sets.

The accuracy matrix `A` has a row for each step and a column for each task: `A[i, j]` is the accuracy on task j's test
images after step i, in percent, and NaN where task j has not been seen yet (j > i) or has no test images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Hits = npt.NDArray[np.bool_]


def top_k_accuracy(scores: npt.NDArray[np.floating], labels: Integers, k: int) -> float:
    """Percentage of images whose label is among the k best scores. With fewer than k classes, all labels are.

    If several classes have the same score, the earlier one ranks higher, so k = 1 agrees with `argmax`.

    >>> top_k_accuracy(np.array([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]]), np.array([2, 0]), k=1)
    50.0
    """
    return percentage(top_k_hits(scores, labels, k))


def top_k_hits(scores: npt.NDArray[np.floating], labels: Integers, k: int) -> Hits:
    """Whether each image's label is among the k best scores."""
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    higher = ~(scores <= own)  # NaN counts as higher, and is never right itself
    rank = higher.sum(axis=1) + ((scores == own) & earlier).sum(axis=1)
    return np.asarray((rank < k) & ~np.isnan(own[:, 0]))


def accuracy_per_task(hits: Hits, labels: Integers, task_sizes: Sequence[int]) -> list[float]:
    """Accuracy on the images of each task, in percent. Classes are numbered in order of arrival.

    >>> accuracy_per_task(np.array([True, False, True, True]), np.array([0, 0, 1, 3]), task_sizes=[1, 3])
    [50.0, 100.0]
    """
    task = np.repeat(np.arange(len(task_sizes)), task_sizes)[labels]
    images = np.bincount(task, minlength=len(task_sizes)).tolist()
    right = np.bincount(task, weights=hits, minlength=len(task_sizes)).tolist()
    return [100.0 * (own / number) if number else float("nan") for own, number in zip(right, images, strict=True)]


def accuracy_matrix(per_task: Sequence[Sequence[float | None]]) -> Floats:
    """The accuracy matrix from each step's list of accuracies per task."""
    tasks = max((len(row) for row in per_task), default=0)
    matrix = np.full((len(per_task), tasks), np.nan)
    for i, row in enumerate(per_task):
        matrix[i, : len(row)] = [np.nan if value is None else value for value in row]
    return matrix


def average_incremental_accuracy(accuracies: Sequence[float]) -> float:
    """Mean over the steps of the accuracy on all classes seen so far. Steps without test images are skipped."""
    return float(np.nanmean(accuracies))


def forgetting_per_task(matrix: Floats) -> Floats:
    """For every task but the last: its best accuracy before the last step, minus its accuracy after the last step."""
    earlier, last = matrix[:-1, :-1], matrix[-1, :-1]
    best = np.max(np.where(np.isnan(earlier), -np.inf, earlier), axis=0, initial=-np.inf)
    return np.where(np.isfinite(best), best, np.nan) - last


def forgetting(matrix: Floats) -> float:
    """Mean of `forgetting_per_task`. It is 0 for a single task."""
    return _mean(forgetting_per_task(matrix))


def backward_transfer(matrix: Floats) -> float:
    """Mean over all tasks but the last: accuracy at the end minus accuracy when just learned. 0 for a single task."""
    tasks = matrix.shape[1] - 1
    return _mean(matrix[-1, :tasks] - np.diagonal(matrix)[:tasks])


def confusion_cells(predicted: Integers, labels: Integers) -> Integers:
    """The cells of the confusion matrix that are not zero: true class, predicted class and images (cells, 3).

    There are at most as many cells as images, however many classes there are.

    >>> confusion_cells(predicted=np.array([2, 0, 2]), labels=np.array([0, 0, 0])).tolist()
    [[0, 0, 1], [0, 2, 2]]
    """
    pairs, counts = np.unique(np.stack([labels, predicted], axis=1), axis=0, return_counts=True)
    return np.concatenate([pairs, counts[:, None]], axis=1).astype(np.int64)


def cells_of(matrix: Sequence[Sequence[int]] | Integers) -> Integers:
    """The cells (n, 3) of a confusion matrix that are not zero."""
    counts = np.asarray(matrix, dtype=np.int64)
    places = np.nonzero(counts)
    return np.stack([*places, counts[places]], axis=1)


def confusion_matrix(cells: Integers, classes: int) -> Integers:
    """Counts (classes, classes) from cells: rows are true classes, columns predicted ones.

    >>> confusion_matrix(np.array([[0, 0, 1], [0, 1, 2]]), 2).tolist()
    [[1, 2], [0, 0]]
    """
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (cells[:, 0], cells[:, 1]), cells[:, 2])
    return matrix


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def percentage(hits: Hits) -> float:
    """Percentage of hits, NaN if there are none to count."""
    return 100.0 * float(hits.mean()) if len(hits) else float("nan")
