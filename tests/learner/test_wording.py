"""A lesson's settings in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cotransport.data import EncodedImages, LabelledImages
from cotransport.learner.lesson_settings import lesson_settings
from cotransport.learner.suggestions import suggest
from cotransport.learner.wording import lesson_notes, unseen_note
from cotransport.settings.sections import Device
from tests.conftest import blobs
from tests.learner.helpers import learner_settings

DATA, HELD_OUT = blobs(2, 18), blobs(2, 2)


def notes(
    chosen: dict[str, Any], data: LabelledImages = DATA, held_out: LabelledImages = HELD_OUT, *, is_first: bool = True
) -> list[str]:
    settings = lesson_settings(None, chosen, suggest(data, 0, is_gpu=False), Device(accelerator="cpu"))
    return lesson_notes(settings, data, held_out, is_first=is_first)


def test_the_images_the_model_and_the_training_are_described() -> None:
    assert notes({"schedule": {"epochs": 6}}) == [
        "2 classes, 36 images to train on and 4 held out for testing",
        "COIL (tuned), backbone fast, 8 x 8 pixels, exemplars: 50 of each class",
        "6 epochs in batches of 16, learning rate 0.05, images mirrored",
    ]


def test_a_lesson_may_end_early_unless_its_length_is_chosen() -> None:
    early = "60 epochs (ends earlier once 99 % of the training images are recognised) in batches of 16"
    assert notes({})[2].startswith(early)
    assert "ends earlier" not in notes({"schedule": {"seconds_per_task": 60}})[2]
    assert "ends earlier once 90 %" in notes({"schedule": {"epochs": 6, "enough": 0.9}})[2]


def test_one_is_not_many() -> None:
    found = notes({"schedule": {"epochs": 1}}, blobs(1, 1), blobs(1, 0))
    assert found[0] == "1 class, 1 image to train on and 0 held out for testing"
    assert found[2].startswith("1 epoch in batches of 16")


@pytest.mark.parametrize(
    ("chosen", "exemplars"),
    [
        ({"method": "finetune"}, "none"),
        ({"method": "oracle"}, "all images"),
        ({"method": "replay"}, "50 of each class"),
        ({"method": "replay", "memory": {"total": 2000}}, "2,000 in all"),
        ({"method": "replay", "memory": {"total": 0}}, "none"),
    ],
)
def test_the_exemplars_that_a_method_keeps_are_named(chosen: dict[str, Any], exemplars: str) -> None:
    assert notes(chosen)[1].endswith(f"exemplars: {exemplars}")


@pytest.mark.parametrize(
    ("method", "is_first", "rate"),
    [("replay", True, "0.05"), ("replay", False, "0.025"), ("oracle", False, "0.05")],
)
def test_a_later_lesson_has_half_the_rate_unless_it_starts_from_scratch(method: str, is_first: bool, rate: str) -> None:
    assert f"learning rate {rate}," in notes({"method": method}, is_first=is_first)[2]


def test_a_time_budget_replaces_the_epochs() -> None:
    assert notes({"schedule": {"seconds_per_task": 90}})[2].startswith("training for about 90 s in batches")


def test_grey_images_are_the_reason_not_to_mirror() -> None:
    assert notes({"augmentation": {"flip": False}})[2].endswith("images not mirrored")
    grey = blobs(2, 4)
    grey.images.pixels[:] = grey.images.pixels[..., :1]  # type: ignore[union-attr]
    assert notes({}, grey)[2].endswith("images not mirrored (they are grey)")


def test_it_is_said_how_much_of_the_images_is_not_seen() -> None:
    """A quarter of an image of 40 x 30 pixels, and nothing of a square one: an eighth on average."""
    shapes = [(30, 40, 3), (30, 30, 3), (40, 30, 3), (30, 30, 3)]
    images = EncodedImages.of([np.zeros(shape, np.uint8) for shape in shapes], 30)
    said = unseen_note(images, "crop")
    assert said is not None
    assert said.endswith("the central square of each image, which leaves out about 12 % of an average image")
    assert unseen_note(images, "pad") is None
    assert unseen_note(images.take(torch.tensor([1, 3])), "crop") is None
    assert unseen_note(DATA.images, "crop") is None


def test_a_users_own_module_has_no_name() -> None:
    settings = learner_settings(backbone=nn.Identity())
    assert "backbone a custom module" in lesson_notes(settings, DATA, HELD_OUT, is_first=True)[1]
