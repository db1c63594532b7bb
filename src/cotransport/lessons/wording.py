"""A lesson's images and settings in words, shown before the training."""

from __future__ import annotations

from torch import nn

from cotransport.data import LabelledImages
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import is_grey


def lesson_notes(
    settings: LearnerSettings, train: LabelledImages, test: LabelledImages, *, is_first: bool
) -> list[str]:
    """The number of classes and images, and the settings, in a few lines."""
    schedule, method, size = settings.schedule, settings.method, train.images.size
    epochs = "1 epoch" if schedule.epochs == 1 else f"{schedule.epochs} epochs"
    length = epochs if schedule.seconds_per_task is None else f"training for about {schedule.seconds_per_task:g} s"
    if schedule.enough is not None and not settings.freeze_backbone:
        length += f" (fewer if {100 * schedule.enough:g} % of the training images are recognised before)"
    rate = schedule.learning_rate
    if not is_first and not method.from_scratch:
        rate = schedule.later_learning_rate or rate
    trained_on = f"{length} in batches of {schedule.batch_size}, learning rate {rate:g}"
    mirrored = "images mirrored" if settings.augmentation.flip else "images not mirrored"
    if not settings.augmentation.flip and is_grey(train):
        mirrored += " (they are grey)"
    classes = "1 class" if len(train.classes) == 1 else f"{len(train.classes)} classes"
    images = "1 image" if len(train) == 1 else f"{len(train):,} images"
    if method.needs_fixed_features:
        how = "no training: the classifier is computed from sums of features"
    elif settings.freeze_backbone:
        how = f"{trained_on}, the head only"
    else:
        how = f"{trained_on}, {mirrored}"
    return [
        f"{classes}, {images} to train on and {len(test):,} held out for testing",
        f"{method.title}, backbone {_backbone(settings)}, {size} x {size} pixels, exemplars: {_exemplars(settings)}",
        how,
    ]


def _exemplars(settings: LearnerSettings) -> str:
    budget = settings.method.budget(settings.memory)
    if budget is None:
        return "all images"
    if budget.per_class:
        return f"{budget.per_class} of each class"
    return f"{budget.total:,} in all" if budget.total else "none"


def _backbone(settings: LearnerSettings) -> str:
    return "the user's own module" if isinstance(settings.backbone, nn.Module) else settings.backbone.name
