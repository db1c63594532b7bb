"""Removing a class from a learned state. Nothing is trained."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor

from cotransport.data import Images
from cotransport.data.memory import Memory
from cotransport.learner.state import State


def without_class(state: State, number: int) -> State:
    """The state without the class of this number. The other classes keep their weights and images."""
    kept = [other for other in range(len(state.classes)) if other != number]
    network = copy.deepcopy(state.network)
    network.head.keep(torch.tensor(kept))
    return replace(
        state,
        classes=tuple(state.classes[other] for other in kept),
        task_sizes=_task_sizes(state.task_sizes, number),
        network=network,
        memory=memory_without(state.memory, number),
        plan=None if state.plan is None else _plan(state.plan, number),
        held_out=memory_without(state.held_out, number),
    )


def memory_without(memory: Memory, number: int) -> Memory:
    """A memory without the images of one class."""
    images: Sequence[Images] = memory.exemplars
    return Memory(tuple(own for other, own in enumerate(images) if other != number))


def _task_sizes(sizes: Sequence[int], number: int) -> tuple[int, ...]:
    """The task that brought the class has one class less. A task without classes still counts as a task."""
    task = next(task for task, end in enumerate(accumulate(sizes)) if number < end)
    return tuple(size - (place == task) for place, size in enumerate(sizes))


def _plan(plan: Tensor, number: int) -> Tensor | None:
    """The plan without a class; None if no old or no new class is left. The shares of the other classes stay."""
    old, new = plan.shape
    rows = [row for row in range(old) if row != number]
    columns = [column for column in range(new) if old + column != number]
    if not rows or not columns:
        return None
    return plan[rows][:, columns] * (new / len(columns))  # the shares are the plan times the number of new classes
