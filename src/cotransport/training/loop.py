"""The only SGD loop. It knows nothing about methods or tasks.

A method gives `Trainer.fit` an objective: a loss that depends on the batch, the network's output and the current step.
"""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel

from cotransport.data import (
    AHEAD,
    Batch,
    EncodedImages,
    Images,
    LabelledImages,
    Vectors,
    steps_per_epoch,
    training_batches,
)
from cotransport.errors import CotransportWarning, StorageError
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Device, Loss, Optimiser, PredictionSettings, Schedule
from cotransport.system import signals
from cotransport.system.randomness import derived_seed, seeded
from cotransport.training import inference
from cotransport.training.checkpoints import Checkpoint, Checkpoints
from cotransport.training.early_end import EarlyEnd
from cotransport.training.objective import Moment, Objective
from cotransport.training.processes import Processes, processes_for
from cotransport.training.progress import CHECK_EVERY, Meter, ProgressListener, not_finite
from cotransport.training.threads import threads, training_threads

MEASURED_SHARE = 0.05
"""Share of a task's time budget that is spent on measuring the speed."""
FEWEST_MEASURED_STEPS = 8
MOST_MEASURED_STEPS = 200
WARM_UP_STEPS = 2
"""Untimed steps before the speed is measured."""
STATISTICS_IMAGES = 10_000
"""Largest number of images from which batch-norm statistics are recomputed after averaging."""
_SHUFFLE, _NETWORK, _STATISTICS = (0, 0), (0, 1), (0, 3)  # places of a task's random draws


@dataclass(frozen=True)
class TrainingControl:
    """How a training is watched and resumed: its listener, recorded choices and checkpoints."""

    listener: ProgressListener | None = None
    features: inference.PassListener | None = None
    """Hears of the pass that computes the features of a frozen backbone."""
    epochs: int | None = None
    """Recorded number of epochs. It overrides the schedule."""
    threads: int | None = None
    """Recorded number of threads. It overrides the choice by the network's size."""
    checkpoints: Checkpoints | None = None
    """Without it, no checkpoint is written."""

    @property
    def seconds_before(self) -> float:
        """Time that interrupted processes spent on the task, up to the checkpoint that it was resumed from."""
        return self.checkpoints.seconds_before if self.checkpoints else 0.0


@dataclass(frozen=True)
class Trainer:
    """Trains networks and runs them over images, for one task."""

    task: int
    seed: int
    schedule: Schedule = Schedule()
    optimiser: Optimiser = Optimiser()
    augmentation: Augmentation = Augmentation()
    loss: Loss = Loss()
    """Only its mixing settings are used; the objective computes the loss."""
    prediction: PredictionSettings = PredictionSettings()
    """What a network sees outside training, and how a method that fits something to predictions must predict."""
    device: Device = Device()
    control: TrainingControl = TrainingControl()

    @property
    def processes(self) -> Processes:
        """The processes that this trainer runs on."""
        return processes_for(self.device)

    def fit(self, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]) -> None:
        """Train a network in place, from the last checkpoint if there is one.

        objective : makes the objective, given the network before the first step.
        """
        control = self.control
        count = control.threads or self._threads(network, data.images)
        with threads(count):
            number = control.checkpoints.next_training() if control.checkpoints else 0
            training = _Training(self, network, data, objective(network))
            saved = self._load_checkpoint(number, training)
            if saved is not None:
                training.planned = saved.epochs
            else:
                training.planned = control.epochs or self._affordable_epochs(network, data, objective)
            steps_done = training.restore(saved) if saved else 0
            meter = Meter(
                self.processes,
                control.listener,
                task=self.task,
                epochs=training.epochs,
                steps_per_epoch=training.steps_per_epoch,
                threads=count,
                steps_done=steps_done,
                compiled=self.device.compile,
            )
            with signals.deferred(), closing(training.steps(steps_done)) as steps:
                for index, step in enumerate(steps, steps_done):
                    meter.epochs = training.epochs
                    meter.update(index, step.batch, step.output, step.loss, step.learning_rate)
                    self._checkpoint_or_stop(number, training, index + 1)
            training.finish()
            self._average_buffers(network)
            if not all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters()):
                raise not_finite("the weights are not finite after the last step", self.task)
            network.eval()

    def outputs(self, network: Network, images: Images) -> Output:
        """Features and logits of all images, on the CPU; the same in every process."""
        return inference.outputs(network, images, self.device, view=self.prediction.view)

    def predictions(self, network: Network, images: Images) -> Output:
        """Like `outputs`, as the classifier will predict: averaged over mirror images, if the settings say so.

        Features of a frozen backbone have no mirror images here.
        """
        settings = self.prediction
        flip = settings.flip and not isinstance(images, Vectors)
        return inference.outputs(network, images, self.device, flip=flip, view=settings.view)

    def features(self, network: Network, images: Images) -> Tensor:
        """Features (n, d) of all images, on the CPU; the same in every process."""
        view = self.prediction.view
        return inference.outputs(network, images, self.device, view=view, with_logits=False).features

    def _threads(self, network: Network, images: Images) -> int:
        """The number of threads that a step of this training keeps busy."""
        if self.processes.device.type != "cpu":
            return torch.get_num_threads()
        is_vector = isinstance(images, Vectors)
        shape = (network.dimension,) if is_vector else (3, images.size, images.size)
        own = max(1, min(self.schedule.batch_size, len(images)) // self.processes.count)
        return training_threads(network, shape, own, self.device)

    def _load_checkpoint(self, number: int, training: _Training) -> Checkpoint | None:
        """The checkpoint that all processes can resume from; None if there is none."""
        checkpoints, shard = self.control.checkpoints, self.processes.shard
        if checkpoints is None:
            return None
        saved = checkpoints.load(number, rank=shard.rank, processes=shard.processes)
        if saved is not None and not training.fits(saved):
            message = f"{checkpoints.folder}: a checkpoint of another training. This one starts from the beginning"
            warnings.warn(message, CotransportWarning, stacklevel=2)
            saved = None
        done = saved.steps if saved else -1
        agreed = self.processes.largest(done) == -self.processes.largest(-done)  # in all processes, or they would wait
        if saved is None or not agreed:
            return None
        checkpoints.resume(saved)
        return saved

    def _checkpoint_or_stop(self, number: int, training: _Training, done: int) -> None:
        """After `done` steps, write a checkpoint if one is due. If a signal was received, write one and stop."""
        several = self.processes.count > 1
        if several and done % CHECK_EVERY and done % training.steps_per_epoch:  # to agree in every step would be slow
            return
        checkpoints = self.control.checkpoints
        is_due = checkpoints is not None and checkpoints.due(self.device.checkpoint_seconds)
        action = 2 if signals.requested() else int(is_due)
        if several:
            action = self.processes.largest(action)
        if action and checkpoints is not None:
            self._write_checkpoint(checkpoints, number, Checkpoint(done, training.planned, training.state()))
        if action == 2:
            signals.stop()

    def _write_checkpoint(self, checkpoints: Checkpoints, number: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint of all processes. If one cannot write, all stop."""
        failure: StorageError | None = None
        shard = self.processes.shard
        try:
            checkpoints.write(number, checkpoint, rank=shard.rank, processes=shard.processes)
        except StorageError as error:
            failure = error
        if self.processes.largest(int(failure is not None)):
            raise failure or StorageError("another process could not write its checkpoint")
        if self.processes.is_first:
            checkpoints.remove_older(number, checkpoint.steps)

    def _affordable_epochs(
        self, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]
    ) -> int:
        """The schedule's epochs; with a time budget, the epochs that fit, by the speed of a throwaway copy."""
        budget = self.schedule.seconds_per_task
        if budget is None:
            return self.schedule.epochs
        processes, started = self.processes, time.perf_counter()
        twin = copy.deepcopy(network)
        decoded_ahead = AHEAD if isinstance(data.images, EncodedImages) and self.workers(data.images) else 0
        warm_up = WARM_UP_STEPS + decoded_ahead
        fewest, most = warm_up + FEWEST_MEASURED_STEPS, warm_up + MOST_MEASURED_STEPS
        ends: list[float] = []
        endless = replace(self, schedule=self.schedule.model_copy(update={"enough": None}))
        training = _Training(endless, twin, data, objective(twin), most)
        with closing(training.steps()) as steps:
            for _ in steps:
                processes.synchronise()
                ends.append(time.perf_counter())
                is_enough = len(ends) >= fewest and ends[-1] - started > MEASURED_SHARE * budget
                if processes.largest(int(is_enough)) or len(ends) >= most:
                    break
        step_seconds = (ends[-1] - ends[warm_up - 1]) / (len(ends) - warm_up)
        epoch_seconds = step_seconds * steps_per_epoch(len(data), self.schedule.batch_size)
        left = budget - (time.perf_counter() - started)
        if self.optimiser.average_last is not None:  # a forward pass over some images follows
            left -= step_seconds * min(self.statistics_steps, steps_per_epoch(len(data), self.schedule.batch_size))
        epochs = int(processes.reduce(torch.tensor(left / epoch_seconds, device=processes.device), "mean").item())
        if epochs < 1:
            message = (
                f"schedule.seconds_per_task: after measuring the speed, {max(0.0, left):.1f} of {budget:g} s are left, "
                f"and one epoch takes about {epoch_seconds:.1f} s. One epoch is trained anyway"
            )
            warnings.warn(message, CotransportWarning, stacklevel=2)
        return max(1, epochs)

    @property
    def statistics_steps(self) -> int:
        """Largest number of batches from which batch-norm statistics are recomputed."""
        return -(-STATISTICS_IMAGES // self.schedule.batch_size)

    def _average_buffers(self, network: nn.Module) -> None:
        if self.processes.count > 1:
            for buffer in network.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(self.processes.reduce(buffer, "mean"))

    def workers(self, images: Images) -> int:
        """The number of threads that decode images."""
        return inference.decoding_workers(images, self.device)


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Parameters with weight decay, and those without it: norms, biases and the head's scale (at most 1-D)."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trained if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


class _Step(NamedTuple):
    """The result of one SGD step."""

    batch: Batch
    output: Output
    loss: Tensor
    learning_rate: float


class _Training:
    """One training of one network: everything that changes from step to step."""

    def __init__(
        self, trainer: Trainer, network: Network, data: LabelledImages, objective: Objective, epochs: int = 0
    ) -> None:
        self._trainer, self._network, self._data, self._objective = trainer, network, data, objective
        self.planned = epochs
        self.steps_per_epoch = steps_per_epoch(len(data), trainer.schedule.batch_size)
        is_frozen = isinstance(data.images, Vectors)
        schedule = trainer.schedule.model_copy(update={"enough": None}) if is_frozen else trainer.schedule
        self._early_end = EarlyEnd(schedule, trainer.processes, self.steps_per_epoch)
        inference.place(network, trainer.device)
        settings = trainer.optimiser
        self._optimiser = torch.optim.SGD(
            parameter_groups(network, settings.weight_decay),
            lr=trainer.schedule.learning_rate,
            momentum=settings.momentum,
            nesterov=settings.nesterov,
        )
        compiled: nn.Module = torch.compile(network) if trainer.device.compile else network  # type: ignore[assignment]
        # this may change the network's dtype, so it comes before anything is restored
        self._wrapped, self._wrapped_optimiser = trainer.processes.fabric.setup(compiled, self._optimiser)
        self._average = AveragedModel(network) if settings.average_last is not None else None

    @property
    def epochs(self) -> int:
        """Epochs of the whole training: as planned, or fewer if it ends early."""
        return self._early_end.epochs(self.planned)

    def steps(self, done: int = 0) -> Generator[_Step, None, None]:
        """Train step by step, after `done` steps of an earlier process."""
        trainer, planned, steps = self._trainer, self.planned, self.steps_per_epoch
        processes, schedule = trainer.processes, trainer.schedule
        fabric, shard = processes.fabric, processes.shard
        wrapped, optimiser = self._wrapped, self._wrapped_optimiser
        wrapped.train()
        # the network's own draws (dropout) are seeded below, step by step
        with closing(self._batches(_SHUFFLE, planned, done)) as batches, torch.random.fork_rng():
            for number, batch in enumerate(batches, done):
                if number >= steps * self.epochs:  # it has ended early
                    break
                epoch, step = divmod(number, steps)
                torch.manual_seed(derived_seed(trainer.seed, trainer.task, *_NETWORK, number, shard.rank))
                rate = schedule.learning_rate * self._early_end.learning_rate_factor(number, planned)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                output = wrapped(batch.images)
                with fabric.autocast():  # for teachers
                    loss = self._objective(batch, output, Moment(epoch, planned, step, steps))
                fabric.backward(loss * batch.weight)
                if trainer.optimiser.clip_norm is not None:
                    fabric.clip_gradients(wrapped, optimiser, max_norm=trainer.optimiser.clip_norm)
                optimiser.step()
                optimiser.zero_grad()
                self._early_end.update(number, planned, batch, output)
                middle = (number + 0.5) / (steps * self.epochs)
                if self._average is not None and middle > 1 - (trainer.optimiser.average_last or 0):
                    self._average.update_parameters(self._network)
                yield _Step(batch, output, loss.detach(), rate)

    def finish(self) -> None:
        """After the last step: replace the weights by their average, and recompute the batch-norm statistics."""
        if self._average is None or not self._average.n_averaged:
            return
        averaged = self._average.module.state_dict()
        with torch.no_grad():
            for name, parameter in self._network.named_parameters():
                parameter.copy_(averaged[name])
        self._recompute_norm_statistics()

    def _recompute_norm_statistics(self) -> None:
        """Set the running statistics of batch norms to the mean over some batches. Frozen norms stay as they are."""
        trainer = self._trainer
        self._wrapped.train()
        norms = [
            module
            for module in self._network.modules()
            if isinstance(module, _BatchNorm) and module.training and module.track_running_stats
        ]
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean over all batches
        draws = seeded(trainer.seed, trainer.task, *_STATISTICS)  # the network's own, such as dropout's
        with closing(self._batches(_STATISTICS, epochs=1)) as batches, draws, torch.no_grad():
            for batch in itertools.islice(batches, trainer.statistics_steps):
                self._wrapped(batch.images)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum

    def _batches(self, place: tuple[int, int], epochs: int, first_step: int = 0) -> Generator[Batch, None, None]:
        trainer = self._trainer
        return training_batches(
            self._data,
            settings=trainer.augmentation,
            fit=trainer.prediction.fit,
            loss=trainer.loss,
            batch_size=trainer.schedule.batch_size,
            epochs=epochs,
            first_step=first_step,
            seed=trainer.seed,
            place=(trainer.task, *place),
            device=trainer.processes.device,
            shard=trainer.processes.shard,
            workers=trainer.workers(self._data.images),
        )

    def state(self) -> dict[str, Tensor]:
        """All tensors that the next step depends on."""
        tensors = {f"network.{name}": tensor for name, tensor in self._network.state_dict().items()}
        for number, parameter in enumerate(self._parameters()):
            momentum = self._optimiser.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{number}"] = momentum
        if self._objective.state is not None:
            kept = self._objective.state.state_dict()
            tensors |= {f"objective.{name}": tensor for name, tensor in kept.items()}
        if self._average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self._average.state_dict().items()}
        return tensors | {f"early-end.{name}": tensor for name, tensor in self._early_end.state_dict().items()}

    def fits(self, saved: Checkpoint) -> bool:
        """Whether this training can resume from a checkpoint: the same tensors, and not beyond the last step."""
        parts, own = _parts(saved.tensors), _parts(self.state())
        same = all(_same_shapes(parts[part], own[part]) for part in ("network", "average", "early-end"))
        shapes = [parameter.shape for parameter in self._parameters()]
        momentum_fits = all(
            number.isdigit() and int(number) < len(shapes) and tensor.shape == shapes[int(number)]
            for number, tensor in parts["momentum"].items()
        )
        objective_fits = all(
            name in parts["objective"] and parts["objective"][name].shape == tensor.shape
            for name, tensor in own["objective"].items()
        )
        steps_fit = 0 < saved.steps <= saved.epochs * self.steps_per_epoch
        return same and momentum_fits and objective_fits and steps_fit

    def restore(self, saved: Checkpoint) -> int:
        """Resume from a checkpoint that fits; returns the number of steps done."""
        parts = _parts(saved.tensors)
        self._network.load_state_dict(parts["network"])
        for number, parameter in enumerate(self._parameters()):
            momentum = parts["momentum"].get(str(number))
            if momentum is not None:
                self._optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
        if self._objective.state is not None:
            self._objective.state.load_state_dict(parts["objective"])
        if self._average is not None:
            self._average.load_state_dict(parts["average"])
        self._early_end.load_state_dict(parts["early-end"])
        return saved.steps

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._optimiser.param_groups for parameter in group["params"]]


def _same_shapes(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors have the same names and shapes."""
    return {name: tensor.shape for name, tensor in one.items()} == {name: t.shape for name, t in other.items()}


def _parts(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A checkpoint's tensors, grouped by what they belong to."""
    names = ("network", "momentum", "objective", "average", "early-end")
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts.setdefault(part, {})[rest] = tensor
    return parts
