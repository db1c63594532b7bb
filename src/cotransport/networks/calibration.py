"""Probabilities that can be trusted: a temperature that is chosen on held-out images."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

FEWEST_IMAGES = 20
"""With fewer images, probabilities stay as they are."""
LOWEST, HIGHEST = 0.02, 10_000.0
"""Bounds of a temperature."""
_ITERATIONS = 60


def fit_temperature(scores: Tensor, labels: Tensor) -> float:
    """The divisor of scores (n, classes) that makes their softmax most like the right answers (Guo et al., 2017).

    Each answer counts as right with a probability of (n + 1) / (n + 2) only. Otherwise, if all are right, the
    probabilities would go to 1.
    """
    images, classes = scores.shape
    if images < FEWEST_IMAGES or classes < 2:
        return 1.0
    scores, doubt = scores.double(), 1 / (images + 2)
    targets = torch.full_like(scores, doubt / (classes - 1)).scatter_(1, labels[:, None], 1 - doubt)

    def loss(logarithm: float) -> float:
        return float(F.cross_entropy(scores / math.exp(logarithm), targets))

    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(_ITERATIONS):  # golden-section search: the loss has one minimum in 1 / temperature
        third = (high - low) * (math.sqrt(5) - 1) / 2
        left, right = high - third, low + third
        if loss(left) <= loss(right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)
