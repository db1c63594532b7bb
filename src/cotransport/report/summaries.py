"""What the report says about a method and about a stream, as values that tables, figures and the page share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from cotransport.experiments.results import Result, TaskResult
from cotransport.metrics import Floats
from cotransport.report.confusion import Confusion
from cotransport.report.estimates import Estimate, Line, estimate_positions, mean_over_seeds
from cotransport.report.origins import Origins, task_starts
from cotransport.report.recipes import setting
from cotransport.report.style import CHANCE_STYLE, LineStyle, line_styles

UPPER_BOUND = "oracle"
"""The method that trains on the images of all tasks. It shows what can be reached and is not compared."""

Candidates: TypeAlias = Literal["new", "all"]
"""The classes that a prediction chooses from: the task's new classes, or all classes seen so far."""
CANDIDATES: tuple[Candidates, ...] = ("new", "all")

InitialClassifier: TypeAlias = Literal["pt", "ncm", "random"]
"""A classifier of new classes before training, by its name in the results."""
INITIAL_CLASSIFIERS: dict[InitialClassifier, str] = {
    "pt": "prospective transport",
    "ncm": "nearest class mean",
    "random": "random weights",
}
INITIAL_STYLES = dict(zip(INITIAL_CLASSIFIERS, line_styles(INITIAL_CLASSIFIERS).values(), strict=True))


@dataclass(frozen=True, eq=False)
class MethodSummary:
    """All seeds of one method with one set of settings on one stream."""

    label: str
    """As in the results, for machines."""
    name: str
    """For people; no other method on the stream has the same name."""
    style: LineStyle
    classes: list[str]
    """In order of arrival."""
    tasks: list[int]
    """Number of classes in each task."""
    results: list[Result]

    @property
    def is_upper_bound(self) -> bool:
        """Whether the method only shows what can be reached."""
        return self.results[0].method == UPPER_BOUND

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.results)

    @property
    def fastest_seconds(self) -> float:
        """Training time of the fastest seed: others may have shared their machine with other work."""
        return min(sum(step.train_seconds for step in result.steps) for result in self.results)

    @cached_property
    def curve(self) -> list[Estimate]:
        """Accuracy after each task."""
        return estimate_positions([result.curve for result in self.results], len(self.tasks))

    @cached_property
    def forgetting_per_task(self) -> list[Estimate]:
        """For each task but the last, the drop from its best accuracy to its last, in percentage points."""
        return estimate_positions([result.forgetting_per_task for result in self.results], len(self.tasks) - 1)

    @cached_property
    def accuracy_matrix(self) -> Floats:
        """Mean over seeds. Row i, column j: accuracy on task j after task i; NaN if undefined."""
        tasks = len(self.tasks)
        matrices = np.full((self.seeds, tasks, tasks), np.nan)
        for padded, result in zip(matrices, self.results, strict=True):
            matrix = result.accuracy_matrix[:tasks, :tasks]
            padded[: matrix.shape[0], : matrix.shape[1]] = matrix
        return mean_over_seeds(matrices)

    @cached_property
    def confusion(self) -> Confusion | None:
        """Sum over seeds after the last task; None if no result has it."""
        return Confusion.total(self.results, self.classes, task_starts(self.tasks))

    @cached_property
    def origins(self) -> Origins | None:
        """What new classes were built from; None if no result has it."""
        return Origins.mean(self.results, self.classes, self.tasks)

    def initial_accuracy(self, candidates: Candidates) -> list[Line]:
        """Accuracy on the new classes of each task but the first, before training on them, and accuracy by chance."""
        later_tasks = len(self.tasks) - 1
        lines = []
        for classifier, name in INITIAL_CLASSIFIERS.items():
            accuracies = [
                [_initial_accuracy(step, classifier, candidates) for step in result.steps[1:]]
                for result in self.results
            ]
            lines.append(Line(name, INITIAL_STYLES[classifier], estimate_positions(accuracies, later_tasks)))
        known = [line for line in lines if not all(math.isnan(estimate.mean) for estimate in line.estimates)]
        if known and candidates == "new":
            known.append(Line("chance", CHANCE_STYLE, [Estimate.of([100 / new]) for new in self.tasks[1:]]))
        return known


@dataclass(frozen=True, eq=False)
class StreamSummary:
    """The classes of a data set in one order and split, evaluated in one way, and the methods that ran on them."""

    title: str
    classes: list[str]
    """In order of arrival."""
    tasks: list[int]
    """Number of classes in each task."""
    metric: str
    methods: list[MethodSummary]
    """Best average accuracy first."""
    duplicates: int
    """Number of results that were left out because they repeat another result."""

    @property
    def results(self) -> list[Result]:
        """All results, without duplicates."""
        return [result for method in self.methods for result in method.results]

    @property
    def competitors(self) -> list[MethodSummary]:
        """The methods to compare: all but upper bounds, or all if there are only upper bounds."""
        return [method for method in self.methods if not method.is_upper_bound] or self.methods

    @property
    def upper_bounds(self) -> list[MethodSummary]:
        """The methods that are shown but not compared."""
        return [method for method in self.methods if method not in self.competitors]

    @property
    def classes_seen(self) -> list[int]:
        """Number of classes seen after each task."""
        return [int(seen) for seen in np.cumsum(self.tasks)]

    @property
    def task_classes(self) -> list[list[str]]:
        """The names of each task's classes."""
        return [self.classes[seen - size : seen] for seen, size in zip(self.classes_seen, self.tasks, strict=True)]

    @property
    def accuracy_lines(self) -> list[Line]:
        """Accuracy after each task, one line for each method."""
        return [Line(method.name, method.style, method.curve) for method in self.methods]


def in_recipe_order(methods: Iterable[MethodSummary]) -> list[MethodSummary]:
    """Methods in the order of the recipes that they ran with."""

    def place(method: MethodSummary) -> int:
        listed = setting(method.results[0].recipe, "methods")
        rows = listed if isinstance(listed, list) else []
        labels = [row.get("label") or row.get("name") for row in rows if isinstance(row, Mapping)]
        return labels.index(method.label) if method.label in labels else len(labels)

    return sorted(methods, key=place)


def _initial_accuracy(step: TaskResult, classifier: InitialClassifier, candidates: Candidates) -> float | None:
    accuracy = (step.initial or {}).get(classifier)
    if accuracy is None:
        return None
    return accuracy.among_new if candidates == "new" else accuracy.among_all
