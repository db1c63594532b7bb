"""How far a model's probabilities can be trusted, measured on held-out images."""

from __future__ import annotations

import math

from torch import Tensor

from cotransport.lessons.records import Confidence


def measure_confidence(probabilities: Tensor, labels: Tensor) -> Confidence:
    """The confidence of right and of wrong answers, from probabilities (n, classes)."""
    highest, answers = probabilities.max(dim=1)
    is_right = answers == labels

    def ascending(chosen: Tensor) -> list[float]:
        return [math.floor(value * 10**4) / 10**4 for value in sorted(highest[chosen].tolist())]  # never above it

    return Confidence(right=ascending(is_right), wrong=ascending(~is_right))
