import math

import pytest
import torch
from torch import Tensor

from cotransport import losses

LOGITS = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
LABELS = torch.tensor([1, 0])


def literal_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float, prior: list[float]) -> float:
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        shifted = [value + math.log(share) for value, share in zip(row, prior, strict=True)]
        normaliser = sum(math.exp(value) for value in shifted)
        for k, value in enumerate(shifted):
            target = (1 - smoothing) * (k == label) + smoothing / len(row)
            total -= target * math.log(math.exp(value) / normaliser)
    return total / len(labels)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("prior", [None, [0.7, 0.2, 0.1]])
def test_cross_entropy_is_equation_1(smoothing: float, prior: list[float] | None) -> None:
    log_prior = None if prior is None else torch.tensor(prior).log()
    got = losses.cross_entropy(LOGITS, LABELS, smoothing=smoothing, log_prior=log_prior).item()
    assert got == pytest.approx(literal_cross_entropy(LOGITS, LABELS, smoothing, prior or [1 / 3] * 3), rel=1e-5)


def test_a_uniform_prior_changes_nothing() -> None:
    uniform = torch.full((3,), 1 / 3).log()
    torch.testing.assert_close(
        losses.cross_entropy(LOGITS, LABELS, log_prior=uniform), losses.cross_entropy(LOGITS, LABELS)
    )
