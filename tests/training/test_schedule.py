from __future__ import annotations

import pytest

from cotransport.settings.sections import Schedule
from cotransport.training.schedule import learning_rate_factor


def factors(schedule: Schedule, moments: list[float]) -> list[float]:
    return [learning_rate_factor(schedule, moment) for moment in moments]


def test_steps_of_the_paper() -> None:
    schedule = Schedule(epochs=160, shape="steps", milestones=(80, 120), decay=0.1)
    epochs = [0.1, 79.9, 80.1, 119.9, 120.1, 159.9]
    assert factors(schedule, [epoch / 160 for epoch in epochs]) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_one_cycle_rises_and_falls() -> None:
    schedule = Schedule(shape="one-cycle", warmup=0.25)
    assert factors(schedule, [0, 0.125, 0.25, 0.625, 1]) == pytest.approx([0, 0.5, 1, 0.5, 0])


def test_one_cycle_warms_up_by_default() -> None:
    assert factors(Schedule(shape="one-cycle"), [0.1, 0.2, 0.6]) == pytest.approx([0.5, 1, 0.5])


def test_cosine_falls_like_half_a_wave() -> None:
    assert factors(Schedule(shape="cosine"), [0, 1 / 3, 0.5, 1]) == pytest.approx([1, 0.75, 0.5, 0])


def test_constant_with_warm_up() -> None:
    assert factors(Schedule(shape="constant", warmup=0.5), [0.25, 0.5, 0.9]) == pytest.approx([0.5, 1, 1])
