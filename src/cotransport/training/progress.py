"""The progress of a training: loss, accuracy, speed and time left, and whether the loss is still finite."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Batch
from cotransport.errors import TrainingError
from cotransport.networks.network import Output
from cotransport.training.processes import Processes

CHECK_EVERY = 100
"""Steps between two checks that the loss is finite. The end of each epoch is checked too."""
SECONDS_BETWEEN_REPORTS = 0.5
_NEVER = 2**62


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a task's training. It is first reported before the first step, with the number of epochs."""

    task: int
    epoch: int
    """Epochs started."""
    epochs: int
    step: int
    """Steps done since the training started."""
    steps: int
    """Steps of the whole training."""
    images: int
    """Images seen since the training started or was resumed."""
    loss: float
    """The method's loss, a mean since the epoch started or was resumed. The weights of its terms may change with time,
    so it may rise while the network gets better."""
    cross_entropy: float
    """Between the head's probabilities and the labels, a mean as above. It falls when the network gets better."""
    accuracy: float
    """On the training images, in percent, since the epoch started."""
    learning_rate: float
    images_per_second: float
    seconds_left: float
    epoch_done: bool
    threads: int
    """Threads on the CPU that the training computes with."""
    compile_seconds: float | None
    """Time of the first step, if the network is compiled in it. The speed leaves the first step out."""


ProgressListener: TypeAlias = Callable[[TrainingProgress], None]


class Meter:
    """Sums of loss, cross-entropy and correct predictions. They stay on the device, because reading them is slow.

    epochs : epochs of the whole training. It may be changed, if the training ends early.
    """

    def __init__(
        self,
        processes: Processes,
        listener: ProgressListener | None,
        *,
        task: int,
        epochs: int,
        steps_per_epoch: int,
        threads: int,
        steps_done: int = 0,
        compiled: bool = False,
    ) -> None:
        self._processes, self._listener, self._task = processes, listener, task
        self.epochs, self._steps, self._threads = epochs, steps_per_epoch, threads
        self._before, self._compiled = steps_done, compiled
        device = processes.device
        self._loss, self._cross_entropy, self._correct = (torch.zeros((), device=device) for _ in range(3))
        self._first_bad_step = torch.full((), _NEVER, device=device)
        self._own_images = self._images = 0
        self._first_step_seconds = 0.0
        self._started = self._reported = time.perf_counter()
        self._report(steps_done - 1, 0.0, epoch_done=False)

    def update(self, number: int, batch: Batch, output: Output, loss: Tensor, learning_rate: float) -> None:
        """Add step `number`, counted from 0; check and report when it is time."""
        own = len(batch.labels)
        self._loss += loss * own
        self._cross_entropy += F.cross_entropy(output.logits.detach().float(), batch.labels, reduction="sum")
        self._correct += (output.logits.detach().argmax(dim=1) == batch.labels).sum()
        bad = torch.where(torch.isfinite(loss), _NEVER, number)
        self._first_bad_step = torch.minimum(self._first_bad_step, bad)
        self._own_images += own
        self._images += batch.total
        if number == self._before:
            self._first_step_seconds = time.perf_counter() - self._started
        epoch_done = (number + 1) % self._steps == 0
        if epoch_done or (number + 1) % CHECK_EVERY == 0:
            self._check()
        if epoch_done or time.perf_counter() - self._reported >= SECONDS_BETWEEN_REPORTS:
            self._report(number, learning_rate, epoch_done=epoch_done)
        if epoch_done:
            self._loss.zero_(), self._cross_entropy.zero_(), self._correct.zero_()
            self._own_images = 0

    def _check(self) -> None:
        """Raise an error in all processes if the loss was not finite in one of them."""
        first = self._first_bad_step
        if self._processes.count > 1:
            first = -self._processes.reduce(-first, "max")
        if first.item() < _NEVER:
            epoch, step = divmod(int(first.item()), self._steps)
            where = f"first at step {step + 1} of {self._steps} in epoch {epoch + 1}"
            raise not_finite(f"the loss is not finite, {where}", self._task)

    def _report(self, number: int, learning_rate: float, *, epoch_done: bool) -> None:
        """Report the progress after step `number` to the listener; -1 is before the first step."""
        if self._listener is None:
            return
        self._reported = time.perf_counter()
        done, total = number + 1, self.epochs * self._steps
        own_steps = done - self._before  # steps since the training started or was resumed
        timed, seconds = max(1, own_steps - 1), self._reported - self._started - self._first_step_seconds
        if own_steps < 2:  # the first step is the only one that can be timed
            seconds = self._first_step_seconds if own_steps else math.nan
        images_per_step = self._images / own_steps if own_steps else math.nan
        self._listener(
            TrainingProgress(
                task=self._task,
                epoch=max(number, 0) // self._steps + 1,
                epochs=self.epochs,
                step=done,
                steps=total,
                images=self._images,
                loss=self._loss.item() / self._own_images if own_steps else math.nan,
                cross_entropy=self._cross_entropy.item() / self._own_images if own_steps else math.nan,
                accuracy=100 * self._correct.item() / self._own_images if own_steps else math.nan,
                learning_rate=learning_rate,
                images_per_second=images_per_step * timed / seconds,
                seconds_left=seconds / timed * (total - done),
                epoch_done=epoch_done,
                threads=self._threads,
                compile_seconds=self._first_step_seconds if self._compiled and own_steps else None,
            )
        )


def not_finite(what: str, task: int) -> TrainingError:
    """The error for a loss or weights that are not finite."""
    return TrainingError(
        f"{what}, in task {task + 1}. What was learned in earlier tasks is unchanged",
        hint="Lower schedule.learning_rate, or set optimiser.clip_norm",
    )
