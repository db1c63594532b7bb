"""Images in folders, quick lessons, and lessons that stop in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cotransport.data import LabelledImages
from cotransport.data.memory import Memory
from cotransport.lessons import teaching
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.records import LessonOutcome
from cotransport.settings.sections import Device
from cotransport.training.listener import NullListener
from cotransport.training.progress import TrainingProgress

QUICK = LessonOptions(
    {"backbone": "resnet8", "memory": {"per_class": 4}, "schedule": {"epochs": 6, "batch_size": 16}},
    device=Device(accelerator="cpu"),
)
"""A lesson on a few of the images of `blobs`, in which their classes are learned."""


def write(data: LabelledImages, folder: Path) -> Path:
    """Write labelled images to files, in a subfolder for each class."""
    for place in range(len(data)):
        path = folder / str(data.classes[data.labels[place]]) / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images.item(place)).save(path)  # type: ignore[arg-type]
    return folder


def choose(**chosen: Any) -> LessonOptions:
    """The quick lesson's options with other settings."""
    return replace(QUICK, chosen={**QUICK.chosen, **chosen})


def learn(model: Path, data: Path, options: LessonOptions = QUICK, **more: Any) -> LessonOutcome:
    """Teach a model, quickly unless other options are given."""
    return teaching.learn(model, str(data), options, **more)


def image_bytes(memory: Memory) -> list[bytes]:
    """The pixels of all images in memory, image by image."""
    return [images.item(place).tobytes() for images in memory.exemplars for place in range(len(images))]  # type: ignore[union-attr]


class Steps(NullListener):
    """Notes the steps that were done whenever a training reports."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def training(self, progress: TrainingProgress) -> None:
        self.done.append(progress.step)


class Stopped(BaseException):
    """Raised in the middle of a training, as if the process had been stopped."""


class StopAfterAnEpoch(NullListener):
    """Stops a training after its first epoch."""

    def training(self, progress: TrainingProgress) -> None:
        if progress.epoch_done:
            raise Stopped


def stop_after_an_epoch(model: Path, data: Path, options: LessonOptions = QUICK) -> None:
    """Start a lesson and stop it after its first epoch, with a checkpoint of every step."""
    every_step = replace(options, device=Device(accelerator="cpu", checkpoint_seconds=0))
    with pytest.raises(Stopped):
        learn(model, data, every_step, listener=StopAfterAnEpoch())
