"""The state between two tasks, and what a transport plan says of its classes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from cotransport.data.memory import Memory
from cotransport.learner.state import State
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network

NETWORK = Network(torch.nn.Identity(), CosineHead(2, 10.0), torch.zeros(3), torch.ones(3))
STATE = State(("cat", "dog", "fox"), (2, 1), 8, NETWORK, Memory())


def test_newest_classes_are_built_from_old_ones_in_the_shares_of_the_plan() -> None:
    """Two old classes, two new ones; each column of the plan sums to 1/2, its shares to 1."""
    plan = torch.tensor([[0.1, 0.35], [0.4, 0.15]])
    built = replace(STATE, classes=("cat", "dog", "fox", "owl"), plan=plan).built_from()
    assert list(built) == ["fox", "owl"]
    assert built["fox"] == pytest.approx({"dog": 0.8, "cat": 0.2})
    assert built["owl"] == pytest.approx({"cat": 0.7, "dog": 0.3})
    assert [list(shares) for shares in built.values()] == [["dog", "cat"], ["cat", "dog"]]  # largest first


def test_classes_with_random_weights_are_built_from_nothing() -> None:
    assert STATE.built_from() == {}


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        STATE.image_size = 16  # type: ignore[misc]
