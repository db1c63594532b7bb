"""The only SGD loop, on Lightning Fabric, and the only evaluation pass. They know nothing of methods or tasks' meaning.

A method hands `fit` an objective: a function of the batch, the network's output and the moment of the training.
"""

from __future__ import annotations

import copy
import math
import os
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from cotransport.config import Augmentation, Device, Optimiser, Schedule
from cotransport.data import (
    Batch,
    EncodedImages,
    Images,
    LabelledImages,
    Shard,
    evaluation_chunks,
    steps_per_epoch,
    training_batches,
    usual_workers,
)
from cotransport.errors import ConfigError, CotransportWarning, TrainingError
from cotransport.machine import available_cores, keep_freed_memory
from cotransport.network import Network, Output
from cotransport.randomness import derived_seed

CHECK_EVERY = 100
"""Steps between two looks at whether the loss is still finite (and one at every epoch's end)."""
SECONDS_BETWEEN_FIGURES = 0.5
MEASURED_SHARE = 0.05
"""Share of a task's time budget in which its speed is measured,"""
MEASURED_STEPS = 8, 200
"""in at least and at most so many steps,"""
WARM_STEPS = 2
"""after so many that set up memory, and those for which images were decoded ahead."""
_SHUFFLE, _NETWORK = (0, 0), (0, 1)  # places of a task's random draws
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

    @property
    def progress(self) -> float:
        """The share of the training that lies behind, from 0 to 1."""
        return (self.epoch + self.step / self.steps) / self.epochs


@dataclass(frozen=True)
class Figures:
    """How the training of a task is going."""

    task: int
    epoch: int
    """Epochs begun."""
    epochs: int
    step: int
    """Steps done since the training began; 0 before the first, when the number of epochs is settled."""
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
    compile_seconds: float | None
    """Time of the first step, if the network is compiled in it. The first step is left out of the speed."""


class Step(NamedTuple):
    """What came out of one step of SGD."""

    batch: Batch
    output: Output
    loss: Tensor
    rate: float


Objective: TypeAlias = Callable[[Batch, Output, Moment], Tensor]
"""What is minimised."""
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
    set_threads(device)
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
    if fabric.device.type == "cpu":
        keep_freed_memory()
    return fabric


def set_threads(device: Device) -> None:
    """Give each process of this machine its share of the cores, unless OMP_NUM_THREADS says otherwise."""
    if device.threads is None and "OMP_NUM_THREADS" in os.environ:
        return
    share = max(1, available_cores() // device.processes)
    threads = device.threads or min(torch.get_num_threads(), share)
    torch.set_num_threads(threads)
    if device.processes > 1:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes that Fabric starts


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
    epochs: int | None = None
    """Train so many epochs, whatever the schedule says: those that were recorded earlier."""

    @property
    def fabric(self) -> Fabric:
        """The Fabric that this trainer runs on."""
        return fabric_for(self.device)

    @property
    def shard(self) -> Shard:
        """This process's part of every batch."""
        return Shard(self.fabric.global_rank, self.fabric.world_size)

    def place(self, network: Network) -> Network:
        """Put a network on the device, its weights in the order that the device computes fastest with."""
        if self.device.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        return network.to(self.fabric.device)

    def fit(self, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]) -> None:
        """Train a network in place.

        objective : makes, for the network at the start, what is minimised.
        """
        epochs = self.epochs or self._affordable_epochs(network, data, objective)
        meter = _Meter(self, epochs, steps_per_epoch(len(data), self.schedule.batch_size))
        with closing(self._steps(network, data, objective(network), epochs)) as steps:
            for number, step in enumerate(steps):
                meter.update(number, step)
        self._average_buffers(network)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters()):
            raise _not_finite("the weights are not finite after the last step", self.task)
        network.eval()

    def _steps(
        self, network: Network, data: LabelledImages, objective: Objective, epochs: int
    ) -> Generator[Step, None, None]:
        """Train step by step."""
        fabric, schedule, shard = self.fabric, self.schedule, self.shard
        steps = steps_per_epoch(len(data), schedule.batch_size)
        batches = training_batches(
            data,
            settings=self.augmentation,
            batch_size=schedule.batch_size,
            epochs=epochs,
            seed=self.seed,
            place=(self.task, *_SHUFFLE),
            device=fabric.device,
            shard=shard,
            workers=self._workers(data.images),
        )
        self.place(network)
        optimiser = torch.optim.SGD(
            parameter_groups(network, self.optimiser.weight_decay),
            lr=schedule.learning_rate,
            momentum=self.optimiser.momentum,
            nesterov=self.optimiser.nesterov,
        )
        compiled: nn.Module = torch.compile(network) if self.device.compile else network  # type: ignore[assignment]
        wrapped, optimiser = fabric.setup(compiled, optimiser)
        wrapped.train()
        with torch.random.fork_rng():  # what a network draws itself (dropout) is seeded below, step by step
            for number, batch in enumerate(batches):
                epoch, step = divmod(number, steps)
                torch.manual_seed(derived_seed(self.seed, self.task, *_NETWORK, number, shard.rank))
                middle = (number + 0.5) / (steps * epochs)  # no step is lost to a rate of zero at either end
                rate = schedule.learning_rate * learning_rate_factor(schedule, middle)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                output = wrapped(batch.images)
                with fabric.autocast():  # for teachers
                    loss = objective(batch, output, Moment(epoch, epochs, step, steps))
                fabric.backward(loss * batch.weight)
                if self.optimiser.clip_norm is not None:
                    fabric.clip_gradients(wrapped, optimiser, max_norm=self.optimiser.clip_norm)
                optimiser.step()
                optimiser.zero_grad()
                yield Step(batch, output, loss.detach(), rate)

    def _affordable_epochs(
        self, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]
    ) -> int:
        """The schedule's epochs; or those that its time budget buys, by the speed of a copy that is thrown away."""
        budget = self.schedule.seconds_per_task
        if budget is None:
            return self.schedule.epochs
        begun = time.perf_counter()
        twin = copy.deepcopy(network)
        warm = WARM_STEPS + (2 * self._workers(data.images) if isinstance(data.images, EncodedImages) else 0)
        least, most = (warm + count for count in MEASURED_STEPS)
        ends: list[float] = []
        with closing(self._steps(twin, data, objective(twin), most)) as steps:
            for _ in steps:
                self._synchronise()
                ends.append(time.perf_counter())
                enough = len(ends) >= least and ends[-1] - begun > MEASURED_SHARE * budget
                if self.reduced(torch.tensor(float(enough), device=self.fabric.device), "max") or len(ends) >= most:
                    break
        step_seconds = (ends[-1] - ends[warm - 1]) / (len(ends) - warm)
        seconds = step_seconds * steps_per_epoch(len(data), self.schedule.batch_size)
        left = budget - (time.perf_counter() - begun)
        epochs = int(self.reduced(torch.tensor(left / seconds, device=self.fabric.device), "mean").item())
        if epochs < 1:
            message = (
                f"schedule.seconds_per_task: after measuring the speed, {max(0.0, left):.1f} of {budget:g} s are left, "
                f"and one epoch takes about {seconds:.1f} s. One is trained all the same"
            )
            warnings.warn(message, CotransportWarning, stacklevel=2)
        return max(1, epochs)

    def outputs(self, network: Network, images: Images) -> Output:
        """Features and logits of all images, on the CPU; the same in every process."""
        fabric, training = self.fabric, network.training
        self.place(network).eval()
        features = torch.zeros(len(images), network.dimension)
        logits = torch.zeros(len(images), network.head.classes)
        with torch.inference_mode(), fabric.autocast():
            chunks = evaluation_chunks(images, device=fabric.device, shard=self.shard, workers=self._workers(images))
            for rows, chunk in chunks:
                output = network(chunk)
                features[rows], logits[rows] = output.features.float().cpu(), output.logits.float().cpu()
        if self.shard.processes > 1:  # each process has filled its own rows and left the others zero
            features, logits = (self.reduced(part.to(fabric.device), "sum").cpu() for part in (features, logits))
        network.train(training)
        return Output(features, logits)

    def features(self, network: Network, images: Images) -> Tensor:
        """Features (n, d) of all images, on the CPU; the same in every process."""
        return self.outputs(network, images).features

    def _average_buffers(self, network: nn.Module) -> None:
        if self.shard.processes > 1:
            for buffer in network.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(self.reduced(buffer, "mean"))

    def _workers(self, images: Images) -> int:
        """Processes that decode images: what is usual, shared by the processes of this machine."""
        if self.device.workers is not None:
            return self.device.workers
        return -(-usual_workers(len(images)) // self.device.processes)

    def _synchronise(self) -> None:
        """Wait for the device, so that the clock tells what it has done."""
        if self.fabric.device.type != "cpu":
            getattr(torch, self.fabric.device.type).synchronize()

    def reduced(self, tensor: Tensor, by: Literal["mean", "sum", "max"]) -> Tensor:
        """A tensor reduced over all processes."""
        reduced = self.fabric.all_reduce(tensor, reduce_op=by)
        assert isinstance(reduced, Tensor)
        return reduced


class _Meter:
    """Sums of the loss and the hits on the device, read once in a while."""

    def __init__(self, trainer: Trainer, epochs: int, steps: int) -> None:
        self._trainer, self._epochs, self._steps = trainer, epochs, steps
        device = trainer.fabric.device
        self._loss, self._hits = torch.zeros((), device=device), torch.zeros((), device=device)
        self._first_bad = torch.full((), _NEVER, device=device)
        self._own = self._images = 0
        self._first_seconds = 0.0
        self._begun = self._told = time.perf_counter()
        self._tell(-1, 0.0, epoch_done=False)

    def update(self, number: int, step: Step) -> None:
        """Take note of a step; look at the sums when it is time."""
        own = len(step.batch.labels)
        self._loss += step.loss * own
        self._hits += (step.output.logits.detach().argmax(dim=1) == step.batch.labels).sum()
        bad = torch.where(torch.isfinite(step.loss), _NEVER, number)
        self._first_bad = torch.minimum(self._first_bad, bad)
        self._own += own
        self._images += step.batch.total
        if number == 0:
            self._first_seconds = time.perf_counter() - self._begun
        epoch_done = (number + 1) % self._steps == 0
        if epoch_done or (number + 1) % CHECK_EVERY == 0:
            self._check()
        if epoch_done or time.perf_counter() - self._told >= SECONDS_BETWEEN_FIGURES:
            self._tell(number, step.rate, epoch_done=epoch_done)
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

    def _tell(self, number: int, rate: float, *, epoch_done: bool) -> None:
        """Tell the listener how it goes after step `number`, or before the first one (-1)."""
        if self._trainer.listener is None:
            return
        self._told = time.perf_counter()
        done, total = number + 1, self._epochs * self._steps
        counted, seconds = max(1, number), self._told - self._begun - self._first_seconds
        if number < 1:  # nothing but the first step can be counted
            seconds = self._first_seconds if done else math.nan
        mean = self._images / done if done else math.nan
        self._trainer.listener(
            Figures(
                task=self._trainer.task,
                epoch=max(number, 0) // self._steps + 1,
                epochs=self._epochs,
                step=done,
                steps=total,
                images=self._images,
                loss=self._loss.item() / self._own if done else math.nan,
                accuracy=100 * self._hits.item() / self._own if done else math.nan,
                learning_rate=rate,
                images_per_second=mean * counted / seconds,
                seconds_left=seconds / counted * (total - done),
                epoch_done=epoch_done,
                compile_seconds=self._first_seconds if self._trainer.device.compile and done else None,
            )
        )


def _not_finite(what: str, task: int) -> TrainingError:
    return TrainingError(
        f"{what}, in task {task + 1}. The model is as it was before the task. "
        "Lower schedule.learning_rate, or set optimiser.clip_norm"
    )
