"""The only SGD loop, on Lightning Fabric, and the only evaluation pass. They know nothing of methods or tasks' meaning.

A method hands `fit` an objective: a function of the batch, the network's output and the moment of the training.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from cotransport.config import Augmentation, Device, Optimiser, Schedule
from cotransport.data import Batch, Images, LabelledImages, Shard, evaluation_chunks, steps_per_epoch, training_batches
from cotransport.errors import ConfigError, TrainingError
from cotransport.network import Network, Output
from cotransport.randomness import derived_seed

CHECK_EVERY = 100
"""Steps between two looks at whether the loss is still finite (and one at every epoch's end)."""
SECONDS_BETWEEN_FIGURES = 0.5
_SHUFFLE, _NETWORK = 0, 1  # places of a run's random draws
_NEVER = 2**62


@dataclass(frozen=True)
class Moment:
    """Where the training stands when a loss is computed."""

    epoch: int
    """Counted from 0."""
    epochs: int
    step: int
    """Within the epoch, counted from 0."""
    steps: int


@dataclass(frozen=True)
class Figures:
    """How the training of a task is going."""

    task: int
    epoch: int
    """Epochs begun."""
    epochs: int
    step: int
    """Steps done since the training began."""
    steps: int
    """Steps of the whole training."""
    images: int
    """Images seen since the training began."""
    loss: float
    """Mean since the epoch began."""
    accuracy: float
    """On the training images, in percent, since the epoch began."""
    learning_rate: float
    images_per_second: float
    seconds_left: float
    epoch_done: bool


Objective: TypeAlias = Callable[[Batch, Output, Moment], Tensor]
Listener: TypeAlias = Callable[[Figures], None]


def learning_rate_factor(schedule: Schedule, progress: float) -> float:
    """The share of the peak learning rate at a moment of the training, from 0 (start) to 1 (end).

    >>> halves = Schedule(epochs=4, shape="steps", milestones=(2,), decay=0.5)
    >>> [learning_rate_factor(halves, (epoch + 0.5) / 4) for epoch in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """
    warmup = schedule.warmup if schedule.warmup is not None else (0.2 if schedule.shape == "one-cycle" else 0.0)
    if progress < warmup:
        return progress / warmup
    if schedule.shape == "steps":
        passed = sum(progress * schedule.epochs >= milestone for milestone in schedule.milestones)
        return float(schedule.decay**passed)
    rest = (progress - warmup) / (1 - warmup)
    if schedule.shape == "one-cycle":
        return 1 - rest
    if schedule.shape == "cosine":
        return (1 + math.cos(math.pi * rest)) / 2
    return 1.0


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters with weight decay, and those without: norms, biases and the head's scale, of one dimension or none."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


@lru_cache(maxsize=4)
def fabric_for(device: Device) -> Fabric:
    """The Fabric of this process for these settings, its processes started."""
    precision = device.precision
    if precision == "auto":
        gpu = device.accelerator != "cpu" and torch.cuda.is_available()
        precision = "bf16-mixed" if gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    several = device.processes * device.nodes > 1
    try:
        fabric = Fabric(
            accelerator=device.accelerator,
            devices=device.processes,
            num_nodes=device.nodes,
            precision=precision,
            # buffers are averaged once at the end of a training instead of being sent around in every step
            strategy=DDPStrategy(broadcast_buffers=False) if several else "auto",
        )
    except Exception as error:  # Lightning raises many kinds for a device that is not there
        raise ConfigError(f"device: {error}. Choose one that this machine has, for example accelerator: cpu") from None
    fabric.launch()
    return fabric


@dataclass(frozen=True)
class Trainer:
    """Trains networks and runs them over images, for one task of one run."""

    task: int
    seed: int
    schedule: Schedule = Schedule()
    optimiser: Optimiser = Optimiser()
    augmentation: Augmentation = Augmentation()
    device: Device = Device()
    listener: Listener | None = None

    @property
    def fabric(self) -> Fabric:
        """The Fabric that this trainer runs on."""
        return fabric_for(self.device)

    @property
    def shard(self) -> Shard:
        """This process's part of every batch."""
        return Shard(self.fabric.global_rank, self.fabric.world_size)

    def fit(self, network: Network, data: LabelledImages, objective: Objective, *, stage: int = 0) -> None:
        """Train a network in place. A method with several stages numbers them, so that each draws its own order."""
        fabric, schedule, shard = self.fabric, self.schedule, self.shard
        steps = steps_per_epoch(len(data), schedule.batch_size)
        batches = training_batches(
            data,
            settings=self.augmentation,
            batch_size=schedule.batch_size,
            epochs=schedule.epochs,
            seed=self.seed,
            place=(self.task, stage, _SHUFFLE),
            device=fabric.device,
            shard=shard,
            workers=self.device.workers,
        )
        if self.device.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        optimiser = torch.optim.SGD(
            parameter_groups(network, self.optimiser.weight_decay),
            lr=schedule.learning_rate,
            momentum=self.optimiser.momentum,
            nesterov=self.optimiser.nesterov,
        )
        compiled: nn.Module = torch.compile(network) if self.device.compile else network  # type: ignore[assignment]
        wrapped, optimiser = fabric.setup(compiled, optimiser)
        wrapped.train()
        meter = _Meter(self, steps)
        with torch.random.fork_rng():  # what a network draws itself (dropout) is seeded below, step by step
            for number, batch in enumerate(batches):
                epoch, step = divmod(number, steps)
                torch.manual_seed(derived_seed(self.seed, self.task, stage, _NETWORK, number, shard.rank))
                middle = (number + 0.5) / (steps * schedule.epochs)  # no step is lost to a rate of zero at either end
                rate = schedule.learning_rate * learning_rate_factor(schedule, middle)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                output = wrapped(batch.images)
                loss = objective(batch, output, Moment(epoch, schedule.epochs, step, steps))
                fabric.backward(loss * batch.weight)
                if self.optimiser.clip_norm is not None:
                    fabric.clip_gradients(wrapped, optimiser, max_norm=self.optimiser.clip_norm)
                optimiser.step()
                optimiser.zero_grad()
                meter.update(number, batch, output, loss.detach(), rate)
        self._average_buffers(network)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters()):
            raise _not_finite("the weights are not finite after the last step", self.task)
        network.eval()

    def outputs(self, network: Network, images: Images) -> Output:
        """Features and logits of all images, on the CPU; the same in every process."""
        fabric = self.fabric
        network.to(fabric.device).eval()
        features = torch.zeros(len(images), network.dimension)
        logits = torch.zeros(len(images), network.head.classes)
        with torch.inference_mode(), fabric.autocast():
            chunks = evaluation_chunks(images, device=fabric.device, shard=self.shard, workers=self.device.workers)
            for rows, chunk in chunks:
                output = network(chunk)
                features[rows], logits[rows] = output.features.float().cpu(), output.logits.float().cpu()
        if self.shard.processes > 1:  # each process has filled its own rows and left the others zero
            features, logits = (self.reduced(part.to(fabric.device), "sum").cpu() for part in (features, logits))
        return Output(features, logits)

    def features(self, network: Network, images: Images) -> Tensor:
        """Features (n, d) of all images, on the CPU; the same in every process."""
        return self.outputs(network, images).features

    def _average_buffers(self, network: nn.Module) -> None:
        if self.shard.processes > 1:
            for buffer in network.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(self.reduced(buffer, "mean"))

    def reduced(self, tensor: Tensor, by: Literal["mean", "sum", "max"]) -> Tensor:
        """A tensor reduced over all processes."""
        reduced = self.fabric.all_reduce(tensor, reduce_op=by)
        assert isinstance(reduced, Tensor)
        return reduced


class _Meter:
    """Sums of the loss and the hits on the device, read once in a while."""

    def __init__(self, trainer: Trainer, steps: int) -> None:
        self._trainer, self._steps = trainer, steps
        device = trainer.fabric.device
        self._loss, self._hits = torch.zeros((), device=device), torch.zeros((), device=device)
        self._first_bad = torch.full((), _NEVER, device=device)
        self._own = self._images = 0
        self._begun = self._told = time.perf_counter()

    def update(self, number: int, batch: Batch, output: Output, loss: Tensor, rate: float) -> None:
        """Take note of a step; look at the sums when it is time."""
        self._loss += loss * len(batch.labels)
        self._hits += (output.logits.detach().argmax(dim=1) == batch.labels).sum()
        bad = torch.where(torch.isfinite(loss), _NEVER, number)
        self._first_bad = torch.minimum(self._first_bad, bad)
        self._own += len(batch.labels)
        self._images += batch.total
        epoch_done = (number + 1) % self._steps == 0
        if epoch_done or (number + 1) % CHECK_EVERY == 0:
            self._check()
        if self._trainer.listener is not None:
            now = time.perf_counter()
            if epoch_done or now - self._told >= SECONDS_BETWEEN_FIGURES:
                self._told = now
                self._trainer.listener(self._figures(number, rate, epoch_done, now - self._begun))
        if epoch_done:
            self._loss.zero_(), self._hits.zero_()
            self._own = 0

    def _check(self) -> None:
        first = self._first_bad
        if self._trainer.shard.processes > 1:  # all processes must stop together
            first = -self._trainer.reduced(-first, "max")
        if first.item() < _NEVER:
            epoch, step = divmod(int(first.item()), self._steps)
            where = f"first at step {step + 1} of {self._steps} in epoch {epoch + 1}"
            raise _not_finite(f"the loss is not finite, {where}", self._trainer.task)

    def _figures(self, number: int, rate: float, epoch_done: bool, seconds: float) -> Figures:
        epochs = self._trainer.schedule.epochs
        total = epochs * self._steps
        return Figures(
            task=self._trainer.task,
            epoch=number // self._steps + 1,
            epochs=epochs,
            step=number + 1,
            steps=total,
            images=self._images,
            loss=self._loss.item() / self._own,
            accuracy=100 * self._hits.item() / self._own,
            learning_rate=rate,
            images_per_second=self._images / seconds,
            seconds_left=seconds / (number + 1) * (total - number - 1),
            epoch_done=epoch_done,
        )


def _not_finite(what: str, task: int) -> TrainingError:
    return TrainingError(
        f"{what}, in task {task + 1}. The model is as it was before the task. "
        "Lower schedule.learning_rate, or set optimiser.clip_norm"
    )
