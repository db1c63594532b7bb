"""Estimates how long runs train on this machine, from a short training on random images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import torch

from cotransport.data import LabelledImages, PixelImages, load_data_set, open_source
from cotransport.data.loading import IN_MEMORY_SIDE
from cotransport.experiments.preparation import Run, expected_work, learner_settings, with_augmentation
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.stream import TaskStream, split_classes
from cotransport.learner.learning import learned
from cotransport.methods import make_method
from cotransport.training.loop import TrainingControl

MOST, MOST_LARGE = 64, 8
"""Images in a measured batch, at most: small ones, and large ones."""
STEPS = 8
"""Measured steps. The first ones are slower and are left out of the speed."""
REPETITIONS = 3
"""The fastest repetition counts, because other processes only slow a training down."""
TEACHER = 4 / 3
"""Factor of the time with a teacher: its forward pass is a third of a training step."""
_SPEEDS: dict[str, float] = {}


def expected_seconds(recipe: Recipe, runs: Sequence[Run], tasks: int | None = None) -> float:
    """The training time of some of a recipe's runs, one after the other. The recipe's images are read.

    With a frozen backbone, it is far too high: the measured training is that of the whole network.

    tasks : only the first ones.
    """
    if not runs:
        return 0.0
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    split = split_classes(source.classes, recipe.stream)
    stream = TaskStream(load_data_set(source, recipe.data, recipe.prediction.fit), split, recipe.stream.later_images)
    if recipe.schedule.seconds_per_task is not None:
        return recipe.schedule.seconds_per_task * len(stream.split[:tasks]) * len(runs)
    speed = images_per_second(recipe, stream.data.train.images.size)
    return (
        sum(
            sum(expected_work(recipe, run.method, stream)[:tasks])
            * (TEACHER if hasattr(run.method, "rehearsal") else 1)
            for run in runs
        )
        / speed
    )


def images_per_second(recipe: Recipe, size: int) -> float:
    """The speed of training a recipe's network on images of this size, without a teacher and without decoding."""
    key = json.dumps([recipe.backbone.model_dump(), size, recipe.schedule.batch_size, recipe.device.model_dump()])
    if key not in _SPEEDS:
        _SPEEDS[key] = max(_measured_speed(recipe, size) for _ in range(REPETITIONS))
    return _SPEEDS[key]


def _measured_speed(recipe: Recipe, size: int) -> float:
    count = min(MOST if size <= IN_MEMORY_SIDE else MOST_LARGE, recipe.schedule.batch_size)
    pixels = torch.randint(256, (STEPS * count, size, size, 3), dtype=torch.uint8)
    noise = LabelledImages(PixelImages(pixels), torch.arange(len(pixels)) % 2, ("one", "other"))
    settings = learner_settings(recipe, Run(make_method("finetune"), seed=0))
    changes = {"epochs": 1, "batch_size": count, "milestones": (), "shape": "constant"}
    speeds: list[float] = []
    learned(
        None,
        noise,
        replace(settings, schedule=settings.schedule.model_copy(update=changes), freeze_backbone=False),
        control=TrainingControl(listener=lambda progress: speeds.append(progress.images_per_second)),
    )
    return speeds[-1]
