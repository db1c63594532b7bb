"""Temperatures that make probabilities like the right answers."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from cotransport.networks.calibration import FEWEST_IMAGES, HIGHEST, LOWEST, fit_temperature


def answers(images: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores, and labels that are drawn from their softmax at a temperature."""
    random = torch.Generator().manual_seed(0)
    scores = 4 * torch.randn(images, 5, generator=random)
    labels = torch.multinomial(F.softmax(scores / temperature, dim=1), 1, generator=random)[:, 0]
    return scores, labels


class TestTemperature:
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
    def test_finds_the_one_that_the_answers_were_drawn_with(self, temperature: float) -> None:
        assert fit_temperature(*answers(5000, temperature)) == pytest.approx(temperature, rel=0.05)

    def test_against_a_fine_grid(self) -> None:
        """Twin: the smallest of many losses."""
        scores, labels = answers(60, 2.0)
        doubt = 1 / 62
        targets = F.one_hot(labels, 5) * (1 - doubt) + (1 - F.one_hot(labels, 5)) * doubt / 4
        grid = torch.logspace(math.log10(LOWEST), math.log10(HIGHEST), 4001, dtype=torch.float64)
        losses = [-(targets * F.log_softmax(scores.double() / one, dim=1)).sum(dim=1).mean() for one in grid]
        expected = grid[int(torch.tensor(losses).argmin())]
        assert fit_temperature(scores, labels) == pytest.approx(float(expected), rel=0.003)

    def test_right_answers_alone_do_not_make_certain(self) -> None:
        scores = torch.eye(3).repeat(10, 1)
        found = fit_temperature(scores, torch.arange(3).repeat(10))
        assert LOWEST < found < 1
        assert F.softmax(scores / found, dim=1).max() == pytest.approx(31 / 32, abs=1e-3)

    def test_few_images_and_a_single_class_change_nothing(self) -> None:
        scores, labels = answers(FEWEST_IMAGES - 1, 3.0)
        assert fit_temperature(scores, labels) == 1.0
        assert fit_temperature(torch.zeros(50, 1), torch.zeros(50, dtype=torch.int64)) == 1.0
