"""The learning rate over the course of a training."""

from __future__ import annotations

import math

from cotransport.settings.sections import Schedule


def learning_rate_factor(schedule: Schedule, progress: float) -> float:
    """The learning rate as a share of the peak. `progress` goes from 0, the start of the training, to 1, its end.

    >>> halves = Schedule(epochs=4, shape="steps", milestones=(2,), decay=0.5)
    >>> [learning_rate_factor(halves, (epoch + 0.5) / 4) for epoch in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """
    warmup = schedule.warmup if schedule.warmup is not None else (0.2 if schedule.shape == "one-cycle" else 0.0)
    if progress < warmup:
        return progress / warmup
    if schedule.shape == "steps":
        passed = sum(progress * schedule.epochs >= milestone for milestone in schedule.milestones)
        return float(schedule.decay**passed)
    rest = (progress - warmup) / (1 - warmup)
    if schedule.shape == "one-cycle":
        return 1 - rest
    if schedule.shape == "cosine":
        return (1 + math.cos(math.pi * rest)) / 2
    return 1.0
