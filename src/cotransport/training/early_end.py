"""The early end of a training whose images are learned."""

from __future__ import annotations

import torch
from torch import Tensor

from cotransport.data import Batch
from cotransport.networks.network import Output
from cotransport.settings.sections import Schedule
from cotransport.training.processes import Processes
from cotransport.training.schedule import learning_rate_factor


class EarlyEnd:
    """Decides after each epoch whether enough training images were recognised in it.

    From then on, the learning rate falls linearly to zero, within half as many epochs as are done. If that would not
    end the training earlier, the plan stays.
    """

    def __init__(self, schedule: Schedule, processes: Processes, steps_per_epoch: int) -> None:
        self._schedule, self._processes, self._steps = schedule, processes, steps_per_epoch
        self._right = torch.zeros((), dtype=torch.int64, device=processes.device)  # in this epoch and process
        self._images = 0  # in this epoch, of all processes
        self._decided = 0  # epochs done at the decision; 0 before it

    def epochs(self, planned: int) -> int:
        """The epochs of the whole training, as far as is known."""
        return self._decided + -(-self._decided // 2) if self._decided else planned

    def learning_rate_factor(self, number: int, planned: int) -> float:
        """The learning rate of step `number`, counted from 0, as a share of the peak."""
        middle, steps = number + 0.5, planned * self._steps  # at the very ends of a step, the rate may be zero
        if not self._decided:
            return learning_rate_factor(self._schedule, middle / steps)
        start, end = self._decided * self._steps, self.epochs(planned) * self._steps
        return learning_rate_factor(self._schedule, start / steps) * (end - middle) / (end - start)

    def update(self, number: int, planned: int, batch: Batch, output: Output) -> None:
        """Count the right answers of step `number`; at the end of an epoch, decide."""
        enough = self._schedule.enough
        if enough is None or self._decided:
            return
        if batch.weight:  # a process without images in a batch gets one of weight 0
            self._right += (output.logits.detach().argmax(dim=1) == batch.labels).sum()
        self._images += batch.total
        epoch, step = divmod(number + 1, self._steps)
        if step:
            return
        right = self._right if self._processes.count == 1 else self._processes.reduce(self._right, "sum")
        if int(right) >= enough * self._images and epoch + -(-epoch // 2) < planned:
            self._decided = epoch
        self._right.zero_()
        self._images = 0

    def state_dict(self) -> dict[str, Tensor]:
        """Everything needed to resume; empty if trainings do not end early."""
        if self._schedule.enough is None:
            return {}
        return {"right": self._right, "images": torch.tensor(self._images), "decided": torch.tensor(self._decided)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        if state:
            self._right.copy_(state["right"])
            self._images, self._decided = int(state["images"]), int(state["decided"])
