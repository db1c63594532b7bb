"""A state without one of its classes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cotransport.data import Images
from cotransport.data.memory import Memory
from cotransport.learner.removal import memory_without, without_class
from cotransport.learner.state import State
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network
from tests.model.helpers import pixels, values


def state(*task_sizes: int) -> State:
    """Classes in tasks of these sizes, each with an exemplar that has the value of its number."""
    head, classes = CosineHead(2, 10.0), sum(task_sizes)
    head.grow(classes)
    network = Network(torch.nn.Identity(), head, torch.zeros(3), torch.ones(3))
    memory = Memory(tuple(pixels(number) for number in range(classes)))
    return State(tuple("abcdef"[:classes]), task_sizes, 4, network, memory)


def single_values(memory: Memory) -> list[int]:
    return [value for images in memory.exemplars for value in values(images)]


@pytest.mark.parametrize(
    ("number", "sizes"), [(0, (1, 0, 1, 2)), (1, (1, 0, 1, 2)), (2, (2, 0, 0, 2)), (3, (2, 0, 1, 1)), (4, (2, 0, 1, 1))]
)
def test_the_task_that_brought_the_class_gets_smaller(number: int, sizes: tuple[int, ...]) -> None:
    """The second task brought no classes, only images of known ones."""
    before = state(2, 0, 1, 2)
    after = without_class(before, number)
    kept = [other for other in range(5) if other != number]
    assert after.task_sizes == sizes
    assert after.classes == tuple("abcde"[other] for other in kept)
    assert single_values(after.memory) == kept
    assert torch.equal(after.network.head.weight, before.network.head.weight[kept])


def test_the_state_before_does_not_change() -> None:
    before = state(2, 2)
    without_class(before, 1)
    assert before.network.head.classes == len(before.classes) == len(before.memory) == 4


def test_the_shares_of_other_classes_stay() -> None:
    """Two old classes, two new ones; shares are twice the plan."""
    before = replace(state(2, 2), plan=torch.tensor([[0.1, 0.35], [0.4, 0.15]]))
    assert without_class(before, 0).built_from() == {
        "c": pytest.approx({"b": 0.8}),
        "d": pytest.approx({"b": 0.3}),
    }
    assert without_class(before, 2).built_from() == {"d": pytest.approx({"a": 0.7, "b": 0.3})}
    assert without_class(without_class(before, 0), 0).plan is None
    assert without_class(without_class(before, 3), 2).plan is None


def test_a_memory_may_know_fewer_classes() -> None:
    images: tuple[Images, ...] = (pixels(1, 2), pixels(3))
    assert single_values(memory_without(Memory(images), 0)) == [3]
    assert single_values(memory_without(Memory(images), 5)) == [1, 2, 3]
    assert memory_without(Memory(), 0).exemplars == ()
