from __future__ import annotations

import pytest
import torch

from cotransport.methods.mapping import ClassMapping
from cotransport.transport import transport_cost, transport_plan
from tests.helpers import NEW, OLD


@pytest.mark.parametrize("reg", [0.05, 0.45])
@pytest.mark.parametrize(("origin", "goal"), [(OLD, NEW), (NEW, OLD)])
def test_a_plan_goes_from_the_origin_classes_to_the_goal_classes(reg: float, origin: slice, goal: slice) -> None:
    centres = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    plan = ClassMapping(reg=reg).plan(centres, origin, goal)
    assert plan.shape == (len(centres[origin]), len(centres[goal]))
    torch.testing.assert_close(plan, transport_plan(transport_cost(centres[origin], centres[goal]), reg))


def test_a_larger_regulariser_mixes_more_classes() -> None:
    centres = torch.eye(5)
    sharp, mixed = (ClassMapping(reg=reg).plan(centres.roll(1, dims=0) + centres, OLD, NEW) for reg in (0.05, 5.0))
    assert sharp.max() > mixed.max()


def test_centres_are_of_unit_length_or_raw() -> None:
    assert ClassMapping().unit
    assert not ClassMapping(centres="raw").unit


def test_the_regulariser_is_above_zero() -> None:
    with pytest.raises(ValueError, match="reg"):
        ClassMapping(reg=0)
