"""The laws of transport, checked against POT's linear program, slow loops and values derived by hand."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from cotransport.errors import ConfigError, DataError
from cotransport.transport import (
    class_centres,
    effective_sources,
    sources,
    transport_classifier,
    transport_cost,
    transport_plan,
)

SIZES = [(1, 1), (1, 50), (50, 1), (90, 10), (10, 90), (1000, 100)]
few = settings(max_examples=60, deadline=None)


def unit_cost(alpha: int, beta: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = F.normalize(torch.randn(alpha + beta, 16, generator=generator, dtype=dtype))
    return transport_cost(centres[:alpha], centres[alpha:])


@st.composite
def costs(draw: st.DrawFn) -> Tensor:
    """Any cost between unit-length centres, from 0 to 4. Ties and extreme values are frequent."""
    alpha, beta = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    values = st.one_of(st.sampled_from([0.0, 4.0]), st.floats(0, 4))
    cells = draw(st.lists(values, min_size=alpha * beta, max_size=alpha * beta))
    return torch.tensor(cells, dtype=torch.float64).view(alpha, beta)


@few
@given(costs(), st.floats(0.05, 100))
def test_marginals_are_uniform_and_sum_to_one(cost: Tensor, reg: float) -> None:
    plan = transport_plan(cost, reg)
    alpha, beta = cost.shape
    assert (plan >= 0).all()
    assert plan.sum(dim=1).numpy() == pytest.approx(np.full(alpha, 1 / alpha), abs=1e-6)
    assert plan.sum(dim=0).numpy() == pytest.approx(np.full(beta, 1 / beta), abs=1e-6)


def test_after_convergence_almost_no_mass_is_moved() -> None:
    """The mass that rows lack may sum to almost zero. Dividing by it must not move any mass."""
    cost = torch.zeros(4, 11, dtype=torch.float64)
    cost[3, 1:] = 4.0
    plan = transport_plan(cost, reg=40.25)
    assert plan.sum(dim=1).numpy() == pytest.approx(np.full(4, 1 / 4), abs=1e-9)
    assert plan.sum(dim=0).numpy() == pytest.approx(np.full(11, 1 / 11), abs=1e-9)


@few
@given(costs(), st.floats(1e-3, 0.05))
def test_small_regularisers_give_finite_plans(cost: Tensor, reg: float) -> None:
    plan = transport_plan(cost, reg)
    assert torch.isfinite(plan).all()
    assert (plan >= 0).all()
    assert plan.sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("alpha, beta", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_classes(alpha: int, beta: int, dtype: torch.dtype) -> None:
    plan = transport_plan(unit_cost(alpha, beta, dtype=dtype), reg=0.45)
    assert plan.shape == (alpha, beta)
    assert plan.dtype == dtype
    assert plan.sum(dim=1).numpy() == pytest.approx(np.full(alpha, 1 / alpha), abs=1e-6)
    assert plan.sum(dim=0).numpy() == pytest.approx(np.full(beta, 1 / beta), abs=1e-6)


def test_sinkhorn_reaches_its_tolerance_in_few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 it would take all iterations."""
    checks: list[dict[str, object]] = []
    original = ot.bregman.sinkhorn_log

    def logged(*arguments: object, **options: object) -> object:
        plan, log = original(*arguments, **options, log=True)
        checks.append(log)
        return plan

    monkeypatch.setattr(ot.bregman, "sinkhorn_log", logged)
    transport_plan(unit_cost(1000, 100, dtype=torch.float32), reg=0.45)
    assert checks[0]["niter"] <= 20  # type: ignore[operator]


@few
@given(costs(), st.floats(0.05, 1), st.data())
def test_permuting_classes_permutes_the_plan(cost: Tensor, reg: float, data: st.DataObject) -> None:
    rows, columns = (torch.tensor(data.draw(st.permutations(range(size)))) for size in cost.shape)
    permuted = transport_plan(cost[rows][:, columns], reg)
    torch.testing.assert_close(permuted, transport_plan(cost, reg)[rows][:, columns], atol=1e-7, rtol=0)


@few
@given(costs(), st.floats(0.1, 1), st.floats(0, 10))
def test_a_constant_on_all_costs_changes_nothing(cost: Tensor, reg: float, constant: float) -> None:
    torch.testing.assert_close(transport_plan(cost + constant, reg), transport_plan(cost, reg), atol=1e-7, rtol=0)


@pytest.mark.parametrize("alpha, beta", [(5, 5), (12, 4), (4, 12), (30, 10)])
def test_the_cost_approaches_that_of_the_linear_program(alpha: int, beta: int) -> None:
    cost = unit_cost(alpha, beta)
    exact = ot.emd2(np.full(alpha, 1 / alpha), np.full(beta, 1 / beta), cost.numpy())
    paid = [(transport_plan(cost, reg) * cost).sum().item() for reg in (1.0, 0.1, 0.02, 0.005)]
    assert paid == sorted(paid, reverse=True)
    assert all(one >= exact - 1e-9 for one in paid)
    assert paid[-1] == pytest.approx(exact, abs=2e-3)
    assert paid[0] > exact + 0.05


def test_the_plan_of_the_linear_program() -> None:
    """By hand, for six origin and two goal classes: each goal class takes the three nearest origin classes."""
    cost = torch.tensor([[0.0, 4.0], [0.0, 4.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
    expected = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]]) / 6
    torch.testing.assert_close(transport_plan(cost, reg=0.05), expected)


@few
@given(costs())
def test_the_plan_approaches_the_product_of_the_marginals(cost: Tensor) -> None:
    alpha, beta = cost.shape
    plan = transport_plan(cost, reg=1e7)
    torch.testing.assert_close(plan, torch.full_like(plan, 1 / (alpha * beta)), atol=1e-6, rtol=0)


def test_two_by_two_by_hand() -> None:
    """A symmetric cost: T = [[p, 1/2 - p], [1/2 - p, p]] with (p / (1/2 - p))^2 = exp(2 c / reg)."""
    c, reg = 0.6, 0.45
    ratio = math.exp(c / reg)
    p = ratio / (2 * (1 + ratio))
    plan = transport_plan(torch.tensor([[0.0, c], [c, 0.0]], dtype=torch.float64), reg)
    assert plan.flatten().tolist() == pytest.approx([p, 0.5 - p, 0.5 - p, p], abs=1e-9)


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(DataError, match="0 to 1"):
        class_centres(torch.ones(2, 3), torch.tensor([0, 2]), 2)


def test_a_regulariser_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="too small"):
        transport_plan(torch.rand(3, 2), 1e-320)


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.zeros(0, 2), torch.tensor([[math.nan]]), torch.tensor([[1e400]])]
)
def test_invalid_costs_are_refused(bad: Tensor) -> None:
    with pytest.raises(DataError, match="cost"):
        transport_plan(bad, 0.45)


@pytest.mark.parametrize("reg", [0.0, -1.0, math.nan])
def test_invalid_regularisers_are_refused(reg: float) -> None:
    with pytest.raises(ConfigError, match="reg"):
        transport_plan(torch.ones(2, 2), reg)


def test_centres_are_equation_7() -> None:
    """Compared with a slow twin, for raw and for unit-length features."""
    generator = torch.Generator().manual_seed(1)
    features, labels = torch.randn(40, 5, generator=generator), torch.randint(0, 3, (40,), generator=generator)
    for n in range(3):
        own = [feature for feature, label in zip(features, labels.tolist(), strict=True) if label == n]
        raw = sum(own) / len(own)
        unit = sum(feature / feature.norm() for feature in own) / len(own)
        torch.testing.assert_close(class_centres(features, labels, 3, unit=False)[n], raw)
        torch.testing.assert_close(class_centres(features, labels, 3)[n], unit / unit.norm())


def test_a_class_without_features_has_no_centre() -> None:
    with pytest.raises(DataError, match="class 1"):
        class_centres(torch.ones(2, 3), torch.tensor([0, 2]), 3)


def test_cost_is_equation_8() -> None:
    generator = torch.Generator().manual_seed(1)
    origin, goal = torch.randn(4, 6, generator=generator), torch.randn(3, 6, generator=generator)
    cost = transport_cost(origin, goal)
    for n in range(4):
        for m in range(3):
            distance = sum((a - b) ** 2 for a, b in zip(origin[n].tolist(), goal[m].tolist(), strict=True))
            assert cost[n, m].item() == pytest.approx(distance, rel=1e-5)


def test_cost_keeps_its_digits_between_close_centres() -> None:
    origin = torch.tensor([[1.0, 1e-4]])
    assert transport_cost(origin, torch.tensor([[1.0, 0.0]])).item() == pytest.approx(1e-8, rel=1e-3)


def test_transported_rows_are_means_of_unit_rows_with_the_origin_length() -> None:
    """By hand: the unit rows are (1, 0) and (0, 1). The goal classes take 3/4 and 1/4 of the first row."""
    plan = torch.tensor([[0.375, 0.125], [0.125, 0.375]])
    got = transport_classifier(plan, torch.tensor([[4.0, 0.0], [0.0, 2.0]]))
    factor = 3 / math.sqrt(0.75**2 + 0.25**2)  # mean length of (4, 2) over that of the mixed rows
    torch.testing.assert_close(got, factor * torch.tensor([[0.75, 0.25], [0.25, 0.75]]))


@few
@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.1, 10))
def test_transported_rows_keep_the_mean_length(alpha: int, beta: int, factor: float) -> None:
    weights = factor * torch.randn(alpha, 7, generator=torch.Generator().manual_seed(alpha))
    got = transport_classifier(transport_plan(unit_cost(alpha, beta).float(), 0.45), weights)
    assert got.shape == (beta, 7)
    assert got.norm(dim=1).mean().item() == pytest.approx(weights.norm(dim=1).mean().item(), rel=1e-4)


def test_gradients_reach_the_origin_weights() -> None:
    weights = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    plan = transport_plan(unit_cost(3, 5), 0.45)
    assert not plan.requires_grad
    assert torch.autograd.gradcheck(lambda own: transport_classifier(plan, own), (weights,))


def test_the_same_classes_keep_their_classifier() -> None:
    centres = F.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(2)))
    weights = F.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(3)))
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    plan = transport_plan(transport_cost(centres, centres[order]), reg=0.01)
    torch.testing.assert_close(transport_classifier(plan, weights), weights[order], atol=1e-4, rtol=0)


@few
@given(costs(), st.floats(0.05, 10))
def test_sources_are_shares_and_their_effective_number_lies_between_one_and_all(cost: Tensor, reg: float) -> None:
    plan = transport_plan(cost, reg)
    assert sources(plan).sum(dim=0).numpy() == pytest.approx(np.ones(cost.shape[1]), abs=1e-6)
    number = effective_sources(plan)
    assert (number >= 1 - 1e-6).all()
    assert (number <= len(cost) + 1e-6).all()


def test_the_gradient_of_a_row_of_zeros_is_bounded() -> None:
    weights = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    transported = transport_classifier(torch.tensor([[0.25, 0.25], [0.25, 0.25]]), weights)
    transported.sum().backward()
    # half of (0, 0) and half of (0.6, 0.8), scaled to the mean length of 2.5
    torch.testing.assert_close(transported.detach(), torch.tensor([[1.5, 2.0], [1.5, 2.0]]))
    assert weights.grad is not None
    assert weights.grad.abs().max().item() < 1e4
