"""What a run needs, from a recipe and a source: settings, checks and the expected work."""

from __future__ import annotations

from dataclasses import dataclass

from cotransport.data import Source, usual_augmentation
from cotransport.errors import ConfigError, DataError
from cotransport.experiments.recipe import Recipe, label_of
from cotransport.experiments.stream import TaskStream
from cotransport.learner.settings import LearnerSettings
from cotransport.methods import Method
from cotransport.settings.sections import Augmentation


@dataclass(frozen=True)
class Run:
    """One method with one seed."""

    method: Method
    seed: int

    @property
    def label(self) -> str:
        """The name in results and figures."""
        return label_of(self.method)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.label}-seed{self.seed}"


def runs_of(recipe: Recipe) -> list[Run]:
    """All runs of a recipe, seed by seed."""
    return [Run(method, seed) for seed in recipe.seeds for method in recipe.methods]


def with_augmentation(recipe: Recipe, source: Source) -> Recipe:
    """The recipe with the augmentation that suits the data. What the recipe itself sets takes precedence."""
    return _with_defaults(recipe, source.augmentation)


def with_usual_augmentation(recipe: Recipe) -> Recipe:
    """The same, without opening the source."""
    return _with_defaults(recipe, usual_augmentation(recipe.data.source))


def _with_defaults(recipe: Recipe, defaults: Augmentation) -> Recipe:
    given = recipe.augmentation.model_dump(exclude_unset=True) if recipe.augmentation else {}
    return recipe.model_copy(update={"augmentation": defaults.model_copy(update=given)})


def learner_settings(recipe: Recipe, one: Run) -> LearnerSettings:
    """The settings of the learner for one of a recipe's runs."""
    return LearnerSettings(
        one.method,
        recipe.backbone,
        memory=recipe.memory,
        schedule=recipe.schedule,
        optimiser=recipe.optimiser,
        loss=recipe.loss,
        augmentation=recipe.augmentation or Augmentation(),
        head=recipe.head,
        prediction=recipe.prediction,
        device=recipe.device,
        freeze_backbone=recipe.freeze_backbone,
        seed=one.seed,
    )


def check_classes(stream: TaskStream) -> None:
    """Fail before the first task if a class has no training images, or if there are no test images."""
    counts = stream.data.train.counts()
    for label in (label for task in stream.split for label in task):
        if not counts[label]:
            name = stream.data.train.classes[label]
            raise DataError(f"the class {name!r} has no training images. Leave it out of stream.classes, or add some")
    if not len(stream.data.test):
        raise DataError("no images to test with. Give every class at least two images, or a folder test/")


def check_memory(recipe: Recipe, classes: int) -> None:
    """Fail before the first task if the memory will be too small for a method."""
    for method in recipe.methods:
        budget = method.budget(recipe.memory)
        if method.needs_exemplars and budget is not None and not budget.quota(classes):
            raise ConfigError(
                f"memory: {label_of(method)} needs an exemplar of each of {classes} classes, and there is room for "
                f"{budget.total or 0}. Raise memory.total or memory.per_class"
            )


def expected_work(recipe: Recipe, method: Method, stream: TaskStream) -> list[float]:
    """The cost of each task: the epochs times the new images and exemplars, or the seconds of the time budget."""
    if recipe.schedule.seconds_per_task is not None:
        return [recipe.schedule.seconds_per_task] * len(stream.split)
    counts = stream.data.train.counts()
    budget = method.budget(recipe.memory)
    work: list[float] = []
    old: list[int] = []
    for number, task in enumerate(stream.split):
        limit = stream.later_images if number and stream.later_images is not None else max(counts)
        new = [min(int(counts[label]), int(limit)) for label in task]
        quota = max(counts) if budget is None else budget.quota(max(1, len(old)))
        work.append(recipe.schedule.epochs * (sum(new) + sum(min(int(quota), count) for count in old)))
        old += new
    return work
