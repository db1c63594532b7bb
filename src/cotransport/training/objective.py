"""What a training minimises: a loss that depends on the batch, the network's output and the current step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from cotransport.data import Batch
from cotransport.networks.network import Output


@dataclass(frozen=True)
class Moment:
    """Where a training is: the current epoch and step, and how many there are."""

    epoch: int
    """Counted from 0."""
    epochs: int
    step: int
    """Within the epoch, counted from 0."""
    steps: int
    """Steps in an epoch."""

    @property
    def progress(self) -> float:
        """The share of the training that is done, from 0 to 1."""
        return (self.epoch + self.step / self.steps) / self.epochs


class Stateful(Protocol):
    """Something other than the network that changes during a training."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything needed to resume."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a state."""


@dataclass(frozen=True)
class Objective:
    """A loss, and the state that it keeps from step to step, if any."""

    loss: Callable[[Batch, Output, Moment], Tensor]
    state: Stateful | None = None

    def __call__(self, batch: Batch, output: Output, moment: Moment) -> Tensor:
        """The loss of a batch."""
        return self.loss(batch, output, moment)
