"""Settings that suit some images, for people who want a classifier and not a study.

They were chosen on held-out training images of digits and CIFAR-100 (LOG.md).
"""

from __future__ import annotations

import math
from typing import Any

from cotransport.data import LabelledImages, sample
from cotransport.data.loading import IN_MEMORY_SIDE, LARGEST_SIDE

STEPS = 600
"""Steps of a lesson,"""
EPOCHS = 10, 60
"""in at least and at most so many epochs."""
BATCHES = 16
"""Steps of an epoch, at least, before batches get larger."""
RATE = 0.4
"""Peak learning rate of a fresh network in batches of 128; proportional to the batch size."""
IMAGES_LOOKED_AT = 64


def largest_side(gpu: bool) -> int:
    """The side up to which images are looked at in their own size."""
    return LARGEST_SIDE if gpu else IN_MEMORY_SIDE


def suggested(data: LabelledImages, exemplars: int, *, gpu: bool) -> dict[str, Any]:
    """Settings, by section, for a lesson on these images and so many exemplars of earlier ones."""
    images = len(data) + exemplars
    batch = 2 ** min(7, max(4, int(math.log2(max(1, images / BATCHES)))))
    epochs = min(EPOCHS[1], max(EPOCHS[0], math.ceil(STEPS * batch / images)))
    rate = RATE * batch / 128
    return {
        "method": "coil-tuned",
        "backbone": "resnet18" if gpu else "fast",
        "memory": {"per_class": 50},
        "schedule": {
            "epochs": epochs,
            "batch_size": batch,
            "learning_rate": rate,
            "later_learning_rate": rate / 2,
            "shape": "one-cycle",
        },
        "optimiser": {"nesterov": True},
        "loss": {"balanced_softmax": True},
        "augmentation": {"crop_padding": data.images.size // 8, "padding": "reflect", "flip": not is_grey(data)},
        "head": {"linear_scale": 0.2},
    }


def is_grey(data: LabelledImages) -> bool:
    """Whether images are without colour, as far as a sample tells: digits, scans, x-rays, where left is not right."""
    pixels = sample(data.images, IMAGES_LOOKED_AT)
    return bool((pixels[:, :1] == pixels).all())
