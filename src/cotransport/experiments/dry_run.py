"""What a recipe would run. No image is read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from cotransport.data import open_source
from cotransport.experiments.preparation import check_memory
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.stream import Split, split_classes
from cotransport.methods import Method


@dataclass(frozen=True)
class DryRun:
    """A recipe, its classes and its tasks."""

    recipe: Recipe
    classes: tuple[str, ...]
    split: Split

    def exemplars(self, method: Method) -> list[str]:
        """The number of exemplars of each class that a method keeps, after each task."""
        budget = method.budget(self.recipe.memory)
        seen = accumulate(len(task) for task in self.split)
        return ["all" if budget is None else str(budget.quota(classes)) for classes in seen]


def dry_run(recipe: Recipe) -> DryRun:
    """Check a recipe against its source, and split the classes into tasks."""
    source = open_source(recipe.data)
    split = split_classes(source.classes, recipe.stream)
    check_memory(recipe, sum(map(len, split)))
    return DryRun(recipe, tuple(str(name) for name in source.classes), split)
