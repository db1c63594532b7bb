"""The only SGD loop, on Lightning Fabric, and the only evaluation pass. They know nothing of methods or tasks' meaning.

A method hands `fit` an objective: a function of the batch, the network's output and the moment of the training.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from cotransport.data import (
    Batch,
    EncodedImages,
    Images,
    LabelledImages,
    Shard,
    default_workers,
    evaluation_chunks,
    steps_per_epoch,
    training_batches,
)
from cotransport.errors import ConfigError, CotransportWarning, StorageError, TrainingError
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Device, Optimiser, Schedule
from cotransport.system import signals
from cotransport.system.machine import available_cores, keep_freed_memory
from cotransport.system.randomness import derived_seed
from cotransport.training.checkpoints import Checkpoint, Checkpoints

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
T = TypeVar("T")


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
class TrainingProgress:
    """How the training of a task is going."""

    task: int
    epoch: int
    """Epochs begun."""
    epochs: int
    step: int
    """Steps done since the training began, and told also before the first, when the number of epochs is settled."""
    steps: int
    """Steps of the whole training."""
    images: int
    """Images seen since the training began or was taken up again."""
    loss: float
    """Mean since the epoch began, or since then."""
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


class Stateful(Protocol):
    """Something that changes during a training beside the network."""

    def state_dict(self) -> dict[str, Tensor]:
        """All that it needs to go on."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""


@dataclass(frozen=True)
class Objective:
    """What is minimised, and what it remembers from step to step, if anything."""

    loss: Callable[[Batch, Output, Moment], Tensor]
    remembered: Stateful | None = None

    def __call__(self, batch: Batch, output: Output, moment: Moment) -> Tensor:
        """The loss of a batch."""
        return self.loss(batch, output, moment)


Listener: TypeAlias = Callable[[TrainingProgress], None]


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
    set_threads(device)
    fabric = make_fabric(device)
    for logger in ("lightning_fabric.utilities.distributed", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(logger).setLevel(logging.WARNING)  # no banner about the processes
    fabric.launch()
    if fabric.device.type == "cpu":
        keep_freed_memory()
    return fabric


def make_fabric(device: Device) -> Fabric:
    """A Fabric for these settings, an error if this machine does not have what they ask for."""
    precision = device.precision
    if precision == "auto":
        gpu = device.accelerator != "cpu" and torch.cuda.is_available()
        precision = "bf16-mixed" if gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    several = device.processes * device.nodes > 1
    try:
        return Fabric(
            accelerator=device.accelerator,
            devices=device.processes,
            num_nodes=device.nodes,
            precision=precision,
            # buffers are averaged once at the end of a training instead of being sent around in every step
            strategy=DDPStrategy(broadcast_buffers=False) if several else "auto",
        )
    except Exception as error:  # Lightning raises many kinds for a device that is not there
        raise ConfigError(f"device: {error}. Choose one that this machine has, for example accelerator: cpu") from None


def decide_once(fabric: Fabric, decide: Callable[[], T]) -> T:
    """What the first process decides, in all processes; also if that is an error."""
    decision: T | Exception | None = None
    if fabric.is_global_zero:
        try:
            decision = decide()
        except Exception as error:
            decision = error
    decision = fabric.broadcast(decision)
    if isinstance(decision, Exception):
        raise decision
    return decision  # type: ignore[return-value]  # the first process has decided


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
    checkpoints: Checkpoints | None = None
    """Where the state of a training is kept, if anywhere."""

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
        """Train a network in place, from the last checkpoint if there is one.

        objective : makes, for the network at the start, what is minimised.
        """
        number = self.checkpoints.next_training() if self.checkpoints else 0
        training = _Training(self, network, data, objective(network))
        saved = self._saved(number, training)
        training.epochs = saved.epochs if saved else self.epochs or self._affordable_epochs(network, data, objective)
        begun = training.restore(saved) if saved else 0
        meter = _Meter(self, training.epochs, training.steps_per_epoch, begun)
        with signals.deferred(), closing(training.steps(begun)) as steps:
            for place, step in enumerate(steps, begun):
                meter.update(place, step)
                self._keep(number, training, place + 1)
        self._average_buffers(network)
        if not all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters()):
            raise _not_finite("the weights are not finite after the last step", self.task)
        network.eval()

    def _saved(self, number: int, training: _Training) -> Checkpoint | None:
        """The checkpoint that all processes can go on from."""
        if self.checkpoints is None:
            return None
        saved = self.checkpoints.load(number, rank=self.shard.rank, processes=self.shard.processes)
        if saved is not None and not training.fits(saved):
            message = f"{self.checkpoints.folder}: a checkpoint of another training. This one begins anew"
            warnings.warn(message, CotransportWarning, stacklevel=2)
            saved = None
        done = saved.steps if saved else -1
        return saved if self._largest(done) == -self._largest(-done) else None

    def _keep(self, number: int, training: _Training, done: int) -> None:
        """Write a checkpoint after so many steps if it is time, or if a signal asks for the end; then end."""
        several = self.shard.processes > 1
        if several and done % CHECK_EVERY and done % training.steps_per_epoch:  # agreeing in every step would be slow
            return
        due = self.checkpoints is not None and self.checkpoints.due(self.device.checkpoint_seconds)
        wish = self._largest(2 if signals.requested() else int(due))
        if wish and self.checkpoints is not None:
            self._write_checkpoint(self.checkpoints, number, Checkpoint(done, training.epochs, training.state()))
        if wish == 2:
            signals.stop()

    def _write_checkpoint(self, checkpoints: Checkpoints, number: int, checkpoint: Checkpoint) -> None:
        """A checkpoint of all processes; where one cannot write, all stop."""
        failure: StorageError | None = None
        try:
            checkpoints.write(number, checkpoint, rank=self.shard.rank, processes=self.shard.processes)
        except StorageError as error:
            failure = error
        if self._largest(int(failure is not None)):
            raise failure or StorageError("another process could not write its checkpoint")
        if self.shard.rank == 0:
            checkpoints.forget_older(number, checkpoint.steps)

    def _largest(self, value: int) -> int:
        """The largest of the processes' numbers."""
        if self.shard.processes == 1:
            return value
        return int(self.reduced(torch.tensor(float(value), device=self.fabric.device), "max").item())

    def _affordable_epochs(
        self, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]
    ) -> int:
        """The schedule's epochs; or those that its time budget buys, by the speed of a copy that is thrown away."""
        budget = self.schedule.seconds_per_task
        if budget is None:
            return self.schedule.epochs
        begun = time.perf_counter()
        twin = copy.deepcopy(network)
        warm = WARM_STEPS + (2 * self.workers(data.images) if isinstance(data.images, EncodedImages) else 0)
        least, most = (warm + count for count in MEASURED_STEPS)
        ends: list[float] = []
        training = _Training(self, twin, data, objective(twin), most)
        with closing(training.steps()) as steps:
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
            chunks = evaluation_chunks(images, device=fabric.device, shard=self.shard, workers=self.workers(images))
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

    def workers(self, images: Images) -> int:
        """Processes that decode images: what is usual, shared by the processes of this machine."""
        if self.device.workers is not None:
            return self.device.workers
        return -(-default_workers(len(images)) // self.device.processes)

    def _synchronise(self) -> None:
        """Wait for the device, so that the clock tells what it has done."""
        if self.fabric.device.type != "cpu":
            getattr(torch, self.fabric.device.type).synchronize()

    def reduced(self, tensor: Tensor, by: Literal["mean", "sum", "max"]) -> Tensor:
        """A tensor reduced over all processes."""
        reduced = self.fabric.all_reduce(tensor, reduce_op=by)
        assert isinstance(reduced, Tensor)
        return reduced


class _Training:
    """One training of one network: all that changes in it from step to step."""

    def __init__(
        self, trainer: Trainer, network: Network, data: LabelledImages, objective: Objective, epochs: int = 0
    ) -> None:
        self._trainer, self._network, self._data, self._objective = trainer, network, data, objective
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch(len(data), trainer.schedule.batch_size)
        trainer.place(network)
        settings = trainer.optimiser
        self._optimiser = torch.optim.SGD(
            parameter_groups(network, settings.weight_decay),
            lr=trainer.schedule.learning_rate,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
        compiled: nn.Module = torch.compile(network) if trainer.device.compile else network  # type: ignore[assignment]
        # it may change the network's number type, so it comes before anything is restored
        self._wrapped, self._wrapped_optimiser = trainer.fabric.setup(compiled, self._optimiser)

    def steps(self, begun: int = 0) -> Generator[Step, None, None]:
        """Train step by step, after so many that were done before."""
        trainer, epochs, steps = self._trainer, self.epochs, self.steps_per_epoch
        fabric, schedule, shard = trainer.fabric, trainer.schedule, trainer.shard
        batches = training_batches(
            self._data,
            settings=trainer.augmentation,
            batch_size=schedule.batch_size,
            epochs=epochs,
            first_step=begun,
            seed=trainer.seed,
            place=(trainer.task, *_SHUFFLE),
            device=fabric.device,
            shard=shard,
            workers=trainer.workers(self._data.images),
        )
        wrapped, optimiser = self._wrapped, self._wrapped_optimiser
        wrapped.train()
        with torch.random.fork_rng():  # what a network draws itself (dropout) is seeded below, step by step
            for number, batch in enumerate(batches, begun):
                epoch, step = divmod(number, steps)
                torch.manual_seed(derived_seed(trainer.seed, trainer.task, *_NETWORK, number, shard.rank))
                middle = (number + 0.5) / (steps * epochs)  # no step is lost to a rate of zero at either end
                rate = schedule.learning_rate * learning_rate_factor(schedule, middle)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                output = wrapped(batch.images)
                with fabric.autocast():  # for teachers
                    loss = self._objective(batch, output, Moment(epoch, epochs, step, steps))
                fabric.backward(loss * batch.weight)
                if trainer.optimiser.clip_norm is not None:
                    fabric.clip_gradients(wrapped, optimiser, max_norm=trainer.optimiser.clip_norm)
                optimiser.step()
                optimiser.zero_grad()
                yield Step(batch, output, loss.detach(), rate)

    def state(self) -> dict[str, Tensor]:
        """All tensors that the next step depends on."""
        tensors = {f"network.{name}": tensor for name, tensor in self._network.state_dict().items()}
        for number, parameter in enumerate(self._parameters()):
            momentum = self._optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{number}"] = momentum
        if self._objective.remembered is not None:
            remembered = self._objective.remembered.state_dict()
            tensors |= {f"objective.{name}": tensor for name, tensor in remembered.items()}
        return tensors

    def fits(self, saved: Checkpoint) -> bool:
        """Whether a checkpoint is of such a training: of the same tensors, and not beyond its end."""
        parts, own = _parts(saved.tensors), _parts(self.state())
        same = all(
            name in parts["network"] and parts["network"][name].shape == tensor.shape
            for name, tensor in own["network"].items()
        )
        shapes = [parameter.shape for parameter in self._parameters()]
        momenta = all(
            number.isdigit() and int(number) < len(shapes) and tensor.shape == shapes[int(number)]
            for number, tensor in parts["momentum"].items()
        )
        remembered = all(
            name in parts["objective"] and parts["objective"][name].shape == tensor.shape
            for name, tensor in own["objective"].items()
        )
        in_time = 0 < saved.steps <= saved.epochs * self.steps_per_epoch
        return same and len(parts["network"]) == len(own["network"]) and momenta and remembered and in_time

    def restore(self, saved: Checkpoint) -> int:
        """Go on from a checkpoint that fits; returns the steps that were done."""
        parts = _parts(saved.tensors)
        self._network.load_state_dict(parts["network"])
        for number, parameter in enumerate(self._parameters()):
            momentum = parts["momentum"].get(str(number))
            if momentum is not None:
                self._optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
        if self._objective.remembered is not None:
            self._objective.remembered.load_state_dict(parts["objective"])
        return saved.steps

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._optimiser.param_groups for parameter in group["params"]]


def _parts(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A checkpoint's tensors by what they belong to."""
    parts: dict[str, dict[str, Tensor]] = {"network": {}, "momentum": {}, "objective": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    return parts


class _Meter:
    """Sums of the loss and the hits on the device, read once in a while."""

    def __init__(self, trainer: Trainer, epochs: int, steps: int, begun: int = 0) -> None:
        self._trainer, self._epochs, self._steps, self._before = trainer, epochs, steps, begun
        device = trainer.fabric.device
        self._loss, self._hits = torch.zeros((), device=device), torch.zeros((), device=device)
        self._first_bad = torch.full((), _NEVER, device=device)
        self._own = self._images = 0
        self._first_seconds = 0.0
        self._begun = self._told = time.perf_counter()
        self._tell(begun - 1, 0.0, epoch_done=False)

    def update(self, number: int, step: Step) -> None:
        """Take note of a step; look at the sums when it is time."""
        own = len(step.batch.labels)
        self._loss += step.loss * own
        self._hits += (step.output.logits.detach().argmax(dim=1) == step.batch.labels).sum()
        bad = torch.where(torch.isfinite(step.loss), _NEVER, number)
        self._first_bad = torch.minimum(self._first_bad, bad)
        self._own += own
        self._images += step.batch.total
        if number == self._before:
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
        """Tell the listener how it goes after step `number`, or before the first one."""
        if self._trainer.listener is None:
            return
        self._told = time.perf_counter()
        done, total = number + 1, self._epochs * self._steps
        own = done - self._before  # steps of this process's life
        counted, seconds = max(1, own - 1), self._told - self._begun - self._first_seconds
        if own < 2:  # nothing but the first step can be counted
            seconds = self._first_seconds if own else math.nan
        mean = self._images / own if own else math.nan
        self._trainer.listener(
            TrainingProgress(
                task=self._trainer.task,
                epoch=max(number, 0) // self._steps + 1,
                epochs=self._epochs,
                step=done,
                steps=total,
                images=self._images,
                loss=self._loss.item() / self._own if own else math.nan,
                accuracy=100 * self._hits.item() / self._own if own else math.nan,
                learning_rate=rate,
                images_per_second=mean * counted / seconds,
                seconds_left=seconds / counted * (total - done),
                epoch_done=epoch_done,
                compile_seconds=self._first_seconds if self._trainer.device.compile and own else None,
            )
        )


def _not_finite(what: str, task: int) -> TrainingError:
    return TrainingError(
        f"{what}, in task {task + 1}. The model is as it was before the task. "
        "Lower schedule.learning_rate, or set optimiser.clip_norm"
    )
