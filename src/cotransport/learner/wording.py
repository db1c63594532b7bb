"""A lesson's images and settings in words, shown before the training."""

from __future__ import annotations

from torch import nn

from cotransport.data import Images, LabelledImages
from cotransport.data.loading import outside_centre
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import is_grey
from cotransport.settings.sections import Fit

WHOLE_IMAGE = "for photographs this is usually best; --fit pad or --fit stretch uses the whole image"
WORTH_SAYING = 0.1
"""Share of an average image that is not seen, from which on a lesson says so."""


def lesson_notes(
    settings: LearnerSettings, train: LabelledImages, test: LabelledImages, *, is_first: bool
) -> list[str]:
    """The number of classes and images, and the settings, in a few lines."""
    schedule, method, size = settings.schedule, settings.method, train.images.size
    epochs = "1 epoch" if schedule.epochs == 1 else f"{schedule.epochs} epochs"
    length = epochs if schedule.seconds_per_task is None else f"training for about {schedule.seconds_per_task:g} s"
    if schedule.enough is not None and not settings.freeze_backbone:
        length += f" (ends earlier once {100 * schedule.enough:g} % of the training images are recognised)"
    rate = schedule.learning_rate
    if not is_first and not method.from_scratch:
        rate = schedule.later_learning_rate or rate
    trained_on = f"{length} in batches of {schedule.batch_size}, learning rate {rate:g}"
    mirrored = "images mirrored" if settings.augmentation.flip else "images not mirrored"
    if not settings.augmentation.flip and is_grey(train):
        mirrored += " (they are grey)"
    classes = "1 class" if len(train.classes) == 1 else f"{len(train.classes)} classes"
    images = "1 image" if len(train) == 1 else f"{len(train):,} images"
    if method.needs_frozen_backbone:
        how = "no training: the classifier is computed from sums of features"
    elif settings.freeze_backbone:
        how = f"{trained_on}, the head only"
    else:
        how = f"{trained_on}, {mirrored}"
    kept = exemplar_budget(settings)
    return [
        f"{classes}, {images} to train on and {len(test):,} held out for testing",
        f"{method.title}, backbone {backbone_name(settings)}, {size} x {size} pixels, exemplars: {kept}",
        how,
    ]


def unseen_note(images: Images, fit: Fit) -> str | None:
    """How much of the images a new model does not see; None if that is little.

    images : in their own size.
    """
    share = outside_centre(images) if fit == "crop" else 0.0
    if share < WORTH_SAYING:
        return None
    return (
        f"the network sees the central square of each image, which leaves out about {100 * share:.0f} % of an average "
        "image"
    )


def exemplar_budget(settings: LearnerSettings) -> str:
    """How many exemplars the method may keep."""
    budget = settings.method.budget(settings.memory)
    if budget is None:
        return "all images"
    if budget.per_class:
        return f"{budget.per_class} of each class"
    return f"{budget.total:,} in all" if budget.total else "none"


def backbone_name(settings: LearnerSettings) -> str:
    """The backbone's name."""
    return "a custom module" if isinstance(settings.backbone, nn.Module) else settings.backbone.name
