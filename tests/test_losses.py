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


TEACHER = torch.tensor([[0.3, -1.0], [2.0, 1.0]])
"""Logits of two old classes; `LOGITS` are of three classes."""


def softmax(values: list[float]) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def literal_distillation(logits: Tensor, teacher: Tensor, temperature: float, over: int) -> float:
    """Eq. 2, 4 and 5 term by term: the student's softmax over its first `over` classes, the sum over the teacher's."""
    total = 0.0
    for row, taught in zip(logits.tolist(), teacher.tolist(), strict=True):
        student = softmax([value / temperature for value in row[:over]])
        targets = softmax([value / temperature for value in taught])
        for k, target in enumerate(targets):
            total += -target * math.log(student[k])
    return total / len(logits)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_distillation_is_equation_2(temperature: float) -> None:
    letter = losses.distillation(LOGITS, TEACHER, temperature=temperature, over="all").item()
    assert letter == pytest.approx(literal_distillation(LOGITS, TEACHER, temperature, over=3), rel=1e-5)
    old = losses.distillation(LOGITS, TEACHER, temperature=temperature).item()
    assert old == pytest.approx(literal_distillation(LOGITS, TEACHER, temperature, over=2), rel=1e-5)


def test_the_default_temperature_is_that_of_the_paper() -> None:
    torch.testing.assert_close(
        losses.distillation(LOGITS, TEACHER), losses.distillation(LOGITS, TEACHER, temperature=2)
    )


def test_rehearsal_is_equation_3() -> None:
    cross_entropy, distillation = torch.tensor(1.7), torch.tensor(0.4)
    got = losses.rehearsal_loss(cross_entropy, distillation, 0.8).item()
    assert got == pytest.approx(0.2 * 1.7 + 0.8 * 0.4, rel=1e-6)
    got = losses.rehearsal_loss(cross_entropy, distillation, 0.8, combine="additive").item()
    assert got == pytest.approx(1.7 + 0.8 * 0.4, rel=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_prospective_loss_is_equation_4(temperature: float) -> None:
    teacher = torch.tensor([[0.3, -1.0, 0.0], [2.0, 1.0, 0.5]])
    got = losses.prospective_loss(LOGITS, teacher, temperature=temperature).item()
    assert got == pytest.approx(literal_distillation(LOGITS, teacher, temperature, over=3), rel=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_retrospective_loss_is_equation_5(temperature: float) -> None:
    transported = torch.tensor([[0.1, 0.2], [-0.3, 0.9]])
    got = losses.retrospective_loss(transported, TEACHER, temperature=temperature).item()
    assert got == pytest.approx(literal_distillation(transported, TEACHER, temperature, over=2), rel=1e-5)


@pytest.mark.parametrize("over", ["old", "all"])
def test_distillation_is_least_where_the_student_agrees(over: str) -> None:
    """On the old classes' logits. With `all`, the new class must also be as unlikely as possible."""
    agreeing = torch.cat([TEACHER, torch.full((2, 1), -50.0)], dim=1).requires_grad_()
    (gradient,) = torch.autograd.grad(losses.distillation(agreeing, TEACHER, over=over), agreeing)  # type: ignore[arg-type]
    assert gradient.abs().max().item() == pytest.approx(0, abs=1e-6)
    (gradient,) = torch.autograd.grad(
        losses.distillation(agreeing + torch.tensor([1.0, 0.0, 0.0]), TEACHER, over=over),  # type: ignore[arg-type]
        agreeing,
    )
    assert gradient[:, 0].min().item() > 0.01
