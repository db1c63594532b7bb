"""How long a recipe would train on this machine, by a short training on images of noise."""

from __future__ import annotations

from dataclasses import replace

import torch

from cotransport.data import LabelledImages, PixelImages, load_data_set, open_source
from cotransport.experiments.preparation import Run, expected_work, learner_settings, with_augmentation
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.stream import TaskStream, split_classes
from cotransport.learner.learning import learned
from cotransport.methods import make_method
from cotransport.training.loop import TrainingControl

FEW = 64
"""Images in a measured batch, at most."""
STEPS = 8
"""Measured steps. The first ones are slower and are left out of the speed."""
TEACHER = 4 / 3
"""Factor of the time with a teacher: its forward pass is a third of a training step."""


def expected_seconds(recipe: Recipe) -> float:
    """The training time of all methods and seeds of a recipe, one after the other. Its images are read."""
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    stream = TaskStream(
        load_data_set(source, recipe.data), split_classes(source.classes, recipe.stream), recipe.stream.later_images
    )
    if recipe.schedule.seconds_per_task is not None:
        return recipe.schedule.seconds_per_task * len(stream) * len(recipe.methods) * len(recipe.seeds)
    speed = images_per_second(recipe, stream.data.train.images.size)
    seconds = [
        sum(expected_work(recipe, method, stream)) * (TEACHER if hasattr(method, "rehearsal") else 1) / speed
        for method in recipe.methods
    ]
    return sum(seconds) * len(recipe.seeds)


def images_per_second(recipe: Recipe, size: int) -> float:
    """The speed of training a recipe's network on images of this size, without a teacher and without decoding."""
    count = min(FEW, recipe.schedule.batch_size)
    pixels = torch.randint(256, (STEPS * count, size, size, 3), dtype=torch.uint8)
    noise = LabelledImages(PixelImages(pixels), torch.arange(len(pixels)) % 2, ("one", "other"))
    settings = learner_settings(recipe, Run(make_method("finetune"), seed=0))
    schedule = settings.schedule.model_copy(update={"epochs": 1, "batch_size": count, "milestones": ()})
    speeds: list[float] = []
    learned(
        None,
        noise,
        replace(settings, schedule=schedule.model_copy(update={"shape": "constant"})),
        control=TrainingControl(listener=lambda progress: speeds.append(progress.images_per_second)),
    )
    return speeds[-1]
