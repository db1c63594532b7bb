"""Small data that many tests share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests' networks are tiny: threads would only wait for each other

import numpy as np
import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages, PixelImages
from cotransport.settings.sections import (
    Augmentation,
    Budget,
    Device,
    HeadSettings,
    Loss,
    Optimiser,
    PredictionSettings,
    Schedule,
)

SIZE = 8


def blobs(classes: int, per_class: int, *, first: int = 0, seed: int = 0) -> LabelledImages:
    """Noisy images of 8 x 8 pixels, each class with a bright square in a place and a colour of its own."""
    random = np.random.RandomState(seed)
    images = random.randint(0, 60, (classes * per_class, SIZE, SIZE, 3))
    labels = np.repeat(np.arange(classes), per_class)
    for i, label in enumerate(labels + first):
        row, column, colour = label % 4 * 2, label // 4 % 4 * 2, label % 3
        images[i, row : row + 2, column : column + 2, colour] += 180
    names = tuple(f"class {first + label}" for label in range(classes))
    return LabelledImages(PixelImages(torch.from_numpy(images.astype(np.uint8))), torch.from_numpy(labels), names)


@pytest.fixture
def two_tasks() -> tuple[LabelledImages, LabelledImages]:
    """Two tasks of two classes."""
    return blobs(2, 24), blobs(2, 24, first=2, seed=1)


def classifier(method: object, **settings: object) -> IncrementalClassifier:
    """A small one that learns in a second, as it is or with other settings. Nothing is left to the images."""
    defaults: dict[str, object] = {
        "memory": Budget(per_class=4),
        "schedule": Schedule(epochs=2, batch_size=16, learning_rate=0.05),
        "augmentation": Augmentation(crop_padding=0, flip=False),
        "optimiser": Optimiser(),
        "loss": Loss(),
        "head": HeadSettings(),
        "prediction": PredictionSettings(),
        "freeze_backbone": False,
        "device": Device(accelerator="cpu"),
    }
    return IncrementalClassifier(method, "resnet8", **(defaults | settings))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def taught_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model after one lesson, and one after two lessons. Do not change them."""
    from tests.lessons.helpers import learn, write

    folder = tmp_path_factory.mktemp("taught")
    learn(folder / "one", write(blobs(2, 20), folder / "first"))
    shutil.copytree(folder / "one", folder / "two")
    learn(folder / "two", write(blobs(2, 20, first=2, seed=1), folder / "second"))
    return folder
