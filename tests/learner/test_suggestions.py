"""Settings that suit some images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data import EncodedImages
from cotransport.learner import suggestions
from cotransport.learner.lesson_settings import lesson_settings
from cotransport.learner.suggestions import is_grey, largest_side, suggest
from cotransport.settings.sections import Augmentation, Device
from cotransport.settings.validation import validated
from tests.conftest import blobs
from tests.lessons.helpers import QUICK, learn


@pytest.mark.parametrize("size", [8, 224, 2560])
def test_they_are_valid_for_images_of_any_size(size: int) -> None:
    data = replace(blobs(2, 2), images=EncodedImages.of([np.zeros((4, 4, 3), np.uint8)] * 4, size))
    found = suggest(data, 0, is_gpu=False)
    assert validated(Augmentation, found["augmentation"], "augmentation").crop_padding == size // 8


@pytest.mark.parametrize(("is_gpu", "backbone"), [(False, "fast"), (True, "resnet18")])
def test_they_make_a_learner_for_any_machine(is_gpu: bool, backbone: str) -> None:
    settings = lesson_settings(None, {}, suggest(blobs(2, 2), 0, is_gpu=is_gpu), Device(accelerator="cpu"))
    assert (settings.backbone.name, settings.method.name) == (backbone, "coil-tuned")  # type: ignore[union-attr]


@pytest.mark.parametrize(("images", "batch"), [(4, 16), (600, 32), (1500, 64), (100_000, 128)])
def test_batches_grow_with_the_images(images: int, batch: int) -> None:
    schedule = suggest(blobs(2, 2), images - 4, is_gpu=False)["schedule"]
    assert schedule["batch_size"] == batch
    assert suggestions.FEWEST_EPOCHS <= schedule["epochs"] <= suggestions.MOST_EPOCHS
    assert schedule["learning_rate"] == 2 * schedule["later_learning_rate"] == 0.4 * batch / 128


def test_a_pretrained_network_is_trained_in_few_small_steps() -> None:
    usual, careful = (suggest(blobs(2, 2), 0, is_gpu=False, is_fine_tuned=it)["schedule"] for it in (False, True))
    assert careful["epochs"] == 5
    assert careful["learning_rate"] == pytest.approx(usual["learning_rate"] / 10)
    assert careful["later_learning_rate"] == careful["learning_rate"] / 2


def test_grey_images_are_neither_mirrored_nor_distorted() -> None:
    data = blobs(2, 4)
    assert not is_grey(data)
    found = suggest(data, 0, is_gpu=False)["augmentation"]
    assert (found["flip"], found["policy"]) == (True, "trivial")
    data.images.pixels[:] = data.images.pixels[..., :1]  # type: ignore[union-attr]
    assert is_grey(data)
    found = suggest(data, 0, is_gpu=False)["augmentation"]
    assert (found["flip"], "policy" in found) == (False, False)


def test_large_images_are_made_small_without_a_gpu(tmp_path: Path) -> None:
    assert (largest_side(False), largest_side(True)) == (64, 224)
    for number in range(4):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (300, 200), (60 * number, 0, 0)).save(path)
    learn(tmp_path / "m", tmp_path / "photos", replace(QUICK, chosen={"backbone": "fast", "schedule": {"epochs": 1}}))
    assert IncrementalClassifier.load(tmp_path / "m").state_.image_size == 64
