"""Suggested settings for a lesson, for users who do not want to choose them.

The numbers were chosen by experiments on training images of digits and CIFAR-100 (LOG.md).
"""

from __future__ import annotations

import math
from typing import Any

from cotransport.data import LabelledImages, sample
from cotransport.data.loading import IN_MEMORY_SIDE, LARGEST_SIDE

STEPS = 600
"""Training steps of a lesson, if the number of epochs stays within its bounds."""
FEWEST_EPOCHS, MOST_EPOCHS = 10, 60
ENOUGH = 0.99
"""Share of recognised training images from which on a lesson ends early."""
STEPS_PER_EPOCH = 16
"""Steps in an epoch, at least, before the batch size is doubled."""
LEARNING_RATE = 0.4
"""Peak learning rate of a fresh network at batch size 128. It is scaled with the batch size."""
FINE_TUNED_RATE, FINE_TUNED_EPOCHS = LEARNING_RATE / 10, 5
"""The same for a pretrained network that is trained too, and its epochs. Larger steps, and more of them, would undo
what it has learned from far more images."""
IMAGES_CHECKED = 64
"""Images, at most, that are checked for colour."""


def largest_side(is_large: bool) -> int:
    """The largest side of images that keep their own size. Larger images are scaled down to it.

    is_large : whether large images suit, because there is a GPU or the backbone has been trained on them.
    """
    return LARGEST_SIDE if is_large else IN_MEMORY_SIDE


def suggest(data: LabelledImages, exemplars: int, *, is_gpu: bool, is_fine_tuned: bool = False) -> dict[str, Any]:
    """Settings, by section, for a lesson with these images and `exemplars` exemplars of known classes.

    is_fine_tuned : whether the backbone is pretrained, and trained too.
    """
    images = len(data) + exemplars
    batch_size = 2 ** min(7, max(4, int(math.log2(max(1, images / STEPS_PER_EPOCH)))))
    epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(STEPS * batch_size / images)))
    rate = (FINE_TUNED_RATE if is_fine_tuned else LEARNING_RATE) * batch_size / 128
    return {
        "method": "coil-tuned",
        "backbone": "resnet18" if is_gpu else "fast",
        "memory": {"per_class": 50},
        "schedule": {
            "epochs": FINE_TUNED_EPOCHS if is_fine_tuned else epochs,
            "enough": ENOUGH,
            "batch_size": batch_size,
            "learning_rate": rate,
            "later_learning_rate": rate / 2,
            "shape": "one-cycle",
        },
        "optimiser": {"nesterov": True},
        "loss": {"balanced_softmax": True},
        "augmentation": {"crop_padding": data.images.size // 8, "padding": "reflect", **_for_colours(data)},
        "head": {"linear_scale": 0.2},
    }


def _for_colours(data: LabelledImages) -> dict[str, Any]:
    """The augmentation of photographs. Digits and scans are neither mirrored nor distorted."""
    return {"flip": False} if is_grey(data) else {"flip": True, "policy": "trivial"}


def is_grey(data: LabelledImages) -> bool:
    """Whether a sample of the images has no colour, like digits, scans and X-rays, which must not be mirrored."""
    pixels = sample(data.images, IMAGES_CHECKED)
    return bool((pixels[:, :1] == pixels).all())
