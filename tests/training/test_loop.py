"""The loop against SGD written out, time budgets, and trainings that resume."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cotransport.data import Batch, EncodedImages, LabelledImages
from cotransport.errors import CotransportWarning, StorageError
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Device, Loss, Optimiser, Schedule
from cotransport.system import signals
from cotransport.training.checkpoints import Checkpoint, Checkpoints
from cotransport.training.loop import Trainer, parameter_groups
from cotransport.training.objective import Moment, Objective
from cotransport.training.progress import TrainingProgress
from tests.conftest import blobs
from tests.helpers import (
    STILL,
    Killed,
    always,
    cross_entropy,
    pixels,
    quick_trainer,
    same_weights,
    small_network,
    trained,
)


def test_weight_decay_spares_norms_biases_and_the_scale() -> None:
    network = small_network()
    decayed, spared = ({id(p) for p in group["params"]} for group in parameter_groups(network, 5e-4))  # type: ignore[attr-defined]
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert {names[i] for i in decayed} == {"backbone.0.weight", "backbone.5.weight", "head.weight"}
    assert {names[i] for i in spared} == {
        "backbone.0.bias",
        "backbone.1.weight",
        "backbone.1.bias",
        "backbone.5.bias",
        "head.scale",
    }


def test_frozen_parameters_are_not_trained() -> None:
    network = small_network()
    network.backbone.requires_grad_(False)
    before = {name: value.clone() for name, value in network.named_parameters()}
    trained(blobs(2, 16), quick_trainer(), network)
    moved = {name for name, value in network.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {"head.weight", "head.scale"}


def test_fit_is_plain_sgd() -> None:
    """Against a loop written out, with one batch an epoch, so that the order of images does not matter."""
    data = blobs(2, 8)
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05, shape="cosine")
    optimiser = Optimiser(momentum=0.9, nesterov=True, weight_decay=0.01, clip_norm=0.5)
    trainer = quick_trainer(schedule=schedule, optimiser=optimiser, augmentation=STILL)
    network = trained(data, trainer, small_network(norm=False))

    twin = small_network(norm=False)
    images = pixels(data.images).permute(0, 3, 1, 2).float()
    velocity = {name: torch.zeros_like(value) for name, value in twin.named_parameters()}
    for epoch in range(3):
        rate = 0.05 * (1 + math.cos(math.pi * (epoch + 0.5) / 3)) / 2
        twin.zero_grad()
        nn.functional.cross_entropy(twin(images).logits, data.labels).backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in twin.parameters()))  # type: ignore[union-attr]
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                assert parameter.grad is not None
                gradient = parameter.grad * min(1.0, 0.5 / norm)
                if parameter.ndim > 1:
                    gradient += 0.01 * parameter
                velocity[name] = 0.9 * velocity[name] + gradient
                parameter.sub_(rate * (gradient + 0.9 * velocity[name]))
    for name, value in network.named_parameters():
        torch.testing.assert_close(value, twin.get_parameter(name), rtol=1e-4, atol=1e-6)


def test_the_same_seed_gives_the_same_network() -> None:
    data = blobs(2, 20)
    networks = [trained(data, quick_trainer(), small_network(dropout=0.5)) for _ in range(2)]
    assert same_weights(*networks)


def test_averaged_networks_with_dropout_are_the_same_too() -> None:
    """Dropout changes the batches from which the statistics of the second norm are computed."""
    data, trainer = blobs(2, 20), quick_trainer(optimiser=Optimiser(average_last=0.5))
    networks = [small_network(dropout=0.5) for _ in range(2)]
    for network in networks:
        network.backbone.append(nn.BatchNorm1d(16))  # type: ignore[operator]
        trained(data, trainer, network)
        torch.rand(1)  # the global generator is somewhere else now
    assert same_weights(*networks)


@pytest.mark.parametrize("change", [{"seed": 2}, {"task": 1}])
def test_another_seed_or_task_gives_another_network(change: dict[str, object]) -> None:
    data = blobs(2, 20)
    assert not same_weights(trained(data, quick_trainer()), trained(data, quick_trainer(**change)))


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    trained(blobs(2, 8), quick_trainer(), (network := small_network()))
    torch.manual_seed(5)
    trained(blobs(2, 8), quick_trainer(), network)
    assert torch.equal(torch.rand(1), expected)


def test_an_objective_gets_the_moment_of_each_step() -> None:
    moments: list[Moment] = []

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        moments.append(moment)
        return cross_entropy(batch, output, moment)

    quick_trainer().fit(small_network(), blobs(2, 20), always(loss))  # 40 images: three steps of at most 16
    assert [(moment.epoch, moment.step) for moment in moments] == [(e, s) for e in range(3) for s in range(3)]
    assert all((moment.epochs, moment.steps) == (3, 3) for moment in moments)


def test_the_last_weights_are_averaged() -> None:
    """Three of nine steps are in the last 30 % of the training, by the middle of each step."""
    network, before = small_network(norm=False), list[dict[str, Tensor]]()

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        before.append({name: value.detach().clone() for name, value in network.named_parameters()})
        return cross_entropy(batch, output, moment)

    data, last = blobs(2, 20), trained(blobs(2, 20), quick_trainer(), small_network(norm=False))
    quick_trainer(optimiser=Optimiser(average_last=0.3)).fit(network, data, always(loss))
    after = [*before[1:], dict(last.named_parameters())]  # averaging does not change the training itself
    assert len(after) == 9
    for name, value in network.named_parameters():
        torch.testing.assert_close(value, torch.stack([step[name] for step in after[-3:]]).mean(dim=0))
    assert not same_weights(network, last)


def test_averaged_weights_have_their_own_batch_norm_statistics() -> None:
    """With one batch of all images, the statistics are those of the averaged convolution's output."""
    schedule = Schedule(epochs=4, batch_size=40, learning_rate=0.05)
    data = blobs(2, 20)
    network = trained(data, quick_trainer(schedule=schedule, optimiser=Optimiser(average_last=0.6), augmentation=STILL))
    convolution, norm = network.backbone[0], network.backbone[1]  # type: ignore[index]
    with torch.no_grad():
        values = convolution(network.normalised(pixels(data.images).permute(0, 3, 1, 2)))
    torch.testing.assert_close(norm.running_mean, values.mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, values.var(dim=(0, 2, 3)), rtol=1e-4, atol=1e-5)
    assert norm.momentum == 0.1
    assert not network.training


def test_a_norm_that_its_network_keeps_frozen_is_not_recomputed() -> None:
    """As in pretrained networks, whose norms must not follow small data."""

    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Frozen:
            return super().train(False)  # type: ignore[return-value]

    network = small_network()
    network.backbone[1] = Frozen(8)  # type: ignore[operator]
    network.backbone[1].running_mean.fill_(3.0)  # type: ignore[index, union-attr]
    trained(blobs(2, 20), quick_trainer(optimiser=Optimiser(average_last=0.5)), network)
    assert (network.backbone[1].running_mean == 3.0).all()  # type: ignore[index, union-attr]


def test_a_time_budget_pays_for_the_statistics_of_an_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes a second. Of 40, ten measure the speed and three pay for a pass over the images: 27 are left."""
    reports, clock = list[TrainingProgress](), Clock()
    monkeypatch.setattr(time, "perf_counter", clock.now)

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        clock.seconds += 1
        return cross_entropy(batch, output, moment)

    trainer = with_budget(40, listener=reports.append, optimiser=Optimiser(average_last=0.5))
    trainer.fit(small_network(), blobs(2, 20), always(loss))
    assert {report.epochs for report in reports} == {9}


def test_mixed_images_reach_the_objective() -> None:
    seen: list[Batch] = []

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        seen.append(batch)
        return cross_entropy(batch, output, moment)

    quick_trainer(loss=Loss(cutmix=1.0)).fit(small_network(), blobs(2, 20), always(loss))
    assert all(batch.mixed is not None and bool((batch.mixed.share > 0).any()) for batch in seen)


def test_double_precision() -> None:
    network = trained(blobs(2, 8), quick_trainer(device=Device(accelerator="cpu", precision="64-true")))
    assert network.head.weight.dtype == torch.float64


def test_mixed_precision_keeps_weights_in_float32() -> None:
    network = trained(blobs(2, 16), quick_trainer(device=Device(accelerator="cpu", precision="bf16-mixed")))
    assert network.head.weight.dtype == torch.float32
    assert torch.isfinite(network.head.weight).all()


@pytest.mark.slow  # compiling takes about a minute
def test_a_compiled_network_learns_the_same() -> None:
    data, reports = blobs(2, 20), list[TrainingProgress]()
    devices = [Device(accelerator="cpu", compile=compiled) for compiled in (False, True)]
    plain, compiled = (
        trained(data, quick_trainer(device=device, augmentation=STILL, listener=reports.append)) for device in devices
    )
    assert reports[-1].compile_seconds is not None
    assert reports[1].compile_seconds is None
    assert type(compiled) is Network
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_trainers_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        quick_trainer().seed = 3  # type: ignore[misc]


class Clock:
    """A clock that stands still unless a test moves it."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which a second passes with each look at it, however busy the machine is."""
    looks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(looks)))


def with_budget(seconds: float, **settings: object) -> Trainer:
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05, seconds_per_task=seconds)
    return quick_trainer(schedule=schedule, **settings)


def test_a_time_budget_buys_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step takes a second, and an epoch has three steps."""
    reports: list[TrainingProgress] = []
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.now)

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        clock.seconds += 1
        return cross_entropy(batch, output, moment)

    with_budget(40, listener=reports.append).fit(small_network(), blobs(2, 20), always(loss))
    # ten steps measure the speed; the other thirty seconds are ten epochs of three steps
    assert clock.seconds == 40
    assert {report.epochs for report in reports} == {10}
    assert reports[0].step == 0
    assert reports[-1].step == 30


@pytest.mark.usefixtures("ticking")
def test_recorded_epochs_give_what_the_time_budget_gave() -> None:
    data, reports = blobs(2, 20), list[TrainingProgress]()
    network = trained(data, with_budget(40, listener=reports.append))
    assert same_weights(network, trained(data, with_budget(40, epochs=reports[-1].epochs)))
    assert same_weights(network, trained(data, quick_trainer(epochs=reports[-1].epochs)))


def test_a_time_budget_below_one_epoch_warns_and_trains_one() -> None:
    reports: list[TrainingProgress] = []
    with pytest.warns(CotransportWarning, match=r"seconds_per_task: .* 0.0 of 1e-06 s are left"):
        trained(blobs(2, 20), with_budget(1e-6, listener=reports.append))
    assert reports[-1].epochs == 1


@pytest.mark.usefixtures("ticking")
def test_measuring_the_speed_leaves_the_objective_and_the_gradients_alone() -> None:
    made: list[list[int]] = []

    def objective(network: Network) -> Objective:
        steps: list[int] = []
        made.append(steps)

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            steps.append(moment.epochs)
            return cross_entropy(batch, output, moment) + network.head.weight.square().sum()

        return Objective(loss)

    reports, network, twin = list[TrainingProgress](), small_network(), small_network()
    with_budget(40, listener=reports.append).fit(network, blobs(2, 20), objective)
    real, measured = made
    assert len(measured) >= 10
    assert real == [reports[-1].epochs] * reports[-1].steps
    quick_trainer(epochs=reports[-1].epochs).fit(twin, blobs(2, 20), objective)
    assert same_weights(network, twin)


def test_the_speed_is_measured_after_the_images_that_were_decoded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers decode four batches ahead. Those take no time, every later one takes a second."""
    clock, steps = Clock(), list[int]()
    monkeypatch.setattr(time, "perf_counter", clock.now)

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        steps.append(moment.epochs)
        clock.seconds += 0 if len(steps) < 7 else 1
        return cross_entropy(batch, output, moment)

    items = [blobs(2, 20).images.item(i) for i in range(40)]
    data = LabelledImages(EncodedImages.of(items, 8), blobs(2, 20).labels, ("a", "b"))
    trainer = with_budget(44, device=Device(accelerator="cpu", workers=2))
    trainer.fit(small_network(), data, always(loss))
    assert steps[-1] == (44 - 8) // 3


def test_milestones_are_stretched_to_the_epochs_that_a_time_budget_buys() -> None:
    rates: list[float] = []
    schedule = Schedule(epochs=4, shape="steps", milestones=(2,), decay=0.5, batch_size=40, learning_rate=0.08)
    trainer = quick_trainer(schedule=schedule, epochs=8, listener=lambda report: rates.append(report.learning_rate))
    trained(blobs(2, 20), trainer)
    assert rates[1:] == pytest.approx([0.08] * 4 + [0.04] * 4)


def with_control(trainer: Trainer, **control: object) -> Trainer:
    return replace(trainer, control=replace(trainer.control, **control))  # type: ignore[arg-type]


class Total:
    """The sum of all losses so far."""

    def __init__(self) -> None:
        self.value = torch.zeros(())

    def state_dict(self) -> dict[str, Tensor]:
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.value = state["value"].clone()


def remembering(network: Network) -> Objective:
    """An objective whose loss depends on all steps before."""
    total = Total()

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        value = cross_entropy(batch, output, moment) * (1 + total.value)
        total.value = total.value + value.detach().float().cpu()
        return value

    return Objective(loss, total)


def interrupted(folder: Path, precision: str = "32-true", **settings: object) -> tuple[Network, Network]:
    """A network that was trained in one go, and one whose training was killed and resumed."""
    device = Device(accelerator="cpu", checkpoint_seconds=0, precision=precision)  # type: ignore[arg-type]
    trainer, whole = quick_trainer(device=device, **settings), small_network()
    trainer.fit(whole, blobs(2, 20), remembering)

    def dying(network: Network) -> Objective:
        objective = remembering(network)

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            if (moment.epoch, moment.step) == (1, 1):
                raise Killed
            return objective(batch, output, moment)

        return Objective(loss, objective.state)

    with pytest.raises(Killed):
        with_control(trainer, checkpoints=Checkpoints(folder)).fit(small_network(), blobs(2, 20), dying)
    again = small_network()
    reports: list[TrainingProgress] = []
    resumed = with_control(trainer, checkpoints=Checkpoints(folder), listener=reports.append)
    resumed.fit(again, blobs(2, 20), remembering)
    assert reports[0].step == 4
    return whole, again


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_a_training_resumes_in_any_precision(precision: str, tmp_path: Path) -> None:
    assert same_weights(*interrupted(tmp_path, precision))


def test_a_training_with_averages_mixed_and_augmented_images_resumes(tmp_path: Path) -> None:
    """It is killed within the part of the training that is averaged."""
    settings = {
        "optimiser": Optimiser(average_last=0.8),
        "augmentation": Augmentation(policy="trivial", cutout=0.3),
        "loss": Loss(mixup=0.3, cutmix=0.3),
    }
    assert same_weights(*interrupted(tmp_path, **settings))


EARLY = Schedule(epochs=6, batch_size=16, learning_rate=0.05, enough=0.01)
"""Enough after the first epoch: the training ends after the second."""


def test_a_training_ends_early_when_its_images_are_recognised() -> None:
    reports: list[TrainingProgress] = []
    trained(blobs(2, 20), quick_trainer(schedule=EARLY, listener=reports.append))
    done = [report for report in reports if report.epoch_done]
    assert reports[0].epochs == 6
    assert [report.epochs for report in done] == [2, 2]
    assert (done[-1].step, done[-1].steps, done[-1].seconds_left) == (6, 6, 0)


def test_a_training_that_ends_early_resumes(tmp_path: Path) -> None:
    """It is killed in its second epoch, which is the last."""
    assert same_weights(*interrupted(tmp_path, schedule=EARLY, optimiser=Optimiser(average_last=0.5)))


def test_a_training_that_has_ended_early_is_not_continued(tmp_path: Path) -> None:
    device = Device(accelerator="cpu", checkpoint_seconds=0)
    trainer = quick_trainer(schedule=EARLY, device=device)
    whole, again = small_network(), small_network()
    with_control(trainer, checkpoints=Checkpoints(tmp_path)).fit(whole, blobs(2, 20), remembering)
    with_control(trainer, checkpoints=Checkpoints(tmp_path)).fit(again, blobs(2, 20), remembering)
    assert same_weights(whole, again)


def test_a_checkpoint_without_averages_is_not_used_with_them(tmp_path: Path) -> None:
    interrupted(tmp_path)
    trainer = quick_trainer(checkpoints=Checkpoints(tmp_path), optimiser=Optimiser(average_last=0.5))
    with pytest.warns(CotransportWarning, match="a checkpoint of another training"):
        trained(blobs(2, 20), trainer)


@pytest.mark.usefixtures("ticking")
def test_a_checkpoint_knows_the_epochs_that_a_time_budget_bought(tmp_path: Path) -> None:
    reports: list[TrainingProgress] = []

    class Dies(Checkpoints):
        def write(self, training: int, checkpoint: Checkpoint, **process: int) -> None:
            super().write(training, checkpoint, **process)
            raise Killed

    device = Device(accelerator="cpu", checkpoint_seconds=0)
    trainer = with_budget(40, device=device, listener=reports.append)
    with pytest.raises(Killed):
        trained(blobs(2, 20), with_control(trainer, checkpoints=Dies(tmp_path)))
    bought = reports[-1].epochs
    network = trained(blobs(2, 20), with_control(trainer, checkpoints=Checkpoints(tmp_path)))
    assert reports[-1].epochs == bought
    assert same_weights(network, trained(blobs(2, 20), quick_trainer(epochs=bought)))


def test_a_checkpoint_of_another_network_is_not_used(tmp_path: Path) -> None:
    interrupted(tmp_path)
    other, twin = (
        Network(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), CosineHead(5, 10.0), torch.zeros(3), torch.ones(3))
        for _ in "ab"
    )
    for network in (other, twin):
        torch.manual_seed(0)
        network.head.grow(2)
    twin.load_state_dict(other.state_dict())
    with pytest.warns(CotransportWarning, match="a checkpoint of another training"):
        trained(blobs(2, 20), quick_trainer(checkpoints=Checkpoints(tmp_path)), other)
    trained(blobs(2, 20), quick_trainer(), twin)
    assert same_weights(other, twin)


def test_a_checkpoint_that_cannot_be_written_ends_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    trainer = quick_trainer(
        device=Device(accelerator="cpu", checkpoint_seconds=0), checkpoints=Checkpoints(tmp_path / "file" / "folder")
    )
    with pytest.raises(StorageError):
        trained(blobs(2, 20), trainer)


def test_a_signal_ends_a_training_after_a_checkpoint(tmp_path: Path) -> None:
    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        if (moment.epoch, moment.step) == (1, 0):
            os.kill(os.getpid(), signal.SIGTERM)
        return cross_entropy(batch, output, moment)

    trainer = quick_trainer()
    whole, resumable = trained(blobs(2, 20), trainer), with_control(trainer, checkpoints=Checkpoints(tmp_path))
    with pytest.raises(signals.Interrupted), signals.handled():
        resumable.fit(small_network(), blobs(2, 20), always(loss))
    assert len(list(tmp_path.iterdir())) == 1
    again = trained(blobs(2, 20), with_control(trainer, checkpoints=Checkpoints(tmp_path)))
    assert same_weights(whole, again)
