import dataclasses
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cotransport import losses
from cotransport.data import Batch, EncodedImages, LabelledImages
from cotransport.errors import ConfigError, CotransportWarning, TrainingError
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Device, Optimiser, Schedule
from cotransport.system import signals
from cotransport.training import loop as training
from cotransport.training.checkpoints import Checkpoints
from cotransport.training.loop import (
    Moment,
    Objective,
    Trainer,
    TrainingProgress,
    fabric_for,
    learning_rate_factor,
    parameter_groups,
    set_threads,
)
from tests.conftest import blobs

CPU = Device(accelerator="cpu")
STILL = Augmentation(crop_padding=0, flip=False)


def small_network(*, norm: bool = True, dropout: float = 0.0) -> Network:
    torch.manual_seed(3)
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(8 * 36, 16),
    )
    head = CosineHead(16, 10.0)
    head.grow(2)
    return Network(backbone, head, torch.full((3,), 100.0), torch.full((3,), 60.0))


def cross_entropy(batch: Batch, output: Output, moment: Moment) -> Tensor:
    return losses.cross_entropy(output.logits, batch.labels)


def always(loss: Callable[[Batch, Output, Moment], Tensor]) -> Callable[[Network], Objective]:
    return lambda network: Objective(loss)


def trained(data: LabelledImages, trainer: Trainer, network: Network | None = None) -> Network:
    network = network or small_network()
    trainer.fit(network, data, always(cross_entropy))
    return network


def quick(**settings: object) -> Trainer:
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05)
    defaults: dict[str, object] = {"task": 0, "seed": 1, "schedule": schedule, "device": CPU}
    return Trainer(**(defaults | settings))  # type: ignore[arg-type]


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def factors(schedule: Schedule, moments: list[float]) -> list[float]:
    return [learning_rate_factor(schedule, moment) for moment in moments]


def test_steps_of_the_paper() -> None:
    schedule = Schedule(epochs=160, shape="steps", milestones=(80, 120), decay=0.1)
    epochs = [0.1, 79.9, 80.1, 119.9, 120.1, 159.9]
    assert factors(schedule, [epoch / 160 for epoch in epochs]) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_one_cycle_rises_and_falls() -> None:
    schedule = Schedule(shape="one-cycle", warmup=0.25)
    assert factors(schedule, [0, 0.125, 0.25, 0.625, 1]) == pytest.approx([0, 0.5, 1, 0.5, 0])


def test_cosine_falls_like_half_a_wave() -> None:
    assert factors(Schedule(shape="cosine"), [0, 1 / 3, 0.5, 1]) == pytest.approx([1, 0.75, 0.5, 0])


def test_constant_with_warm_up() -> None:
    assert factors(Schedule(shape="constant", warmup=0.5), [0.25, 0.5, 0.9]) == pytest.approx([0.5, 1, 1])


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
    trained(blobs(2, 16), quick(), network)
    moved = {name for name, value in network.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {"head.weight", "head.scale"}


def test_fit_is_plain_sgd() -> None:
    """Against a loop written out: one batch an epoch, so that the order of images does not matter."""
    data = blobs(2, 8)
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05, shape="cosine")
    optimiser = Optimiser(momentum=0.9, nesterov=True, weight_decay=0.01, clip_norm=0.5)
    network = trained(
        data, quick(schedule=schedule, optimiser=optimiser, augmentation=STILL), small_network(norm=False)
    )

    twin = small_network(norm=False)
    images = data.images.pixels.permute(0, 3, 1, 2).float()  # type: ignore[union-attr]
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
    networks = [trained(data, quick(), small_network(dropout=0.5)) for _ in range(2)]
    assert same(*networks)


@pytest.mark.parametrize("change", [{"seed": 2}, {"task": 1}])
def test_another_seed_or_task_gives_another_network(change: dict[str, object]) -> None:
    data = blobs(2, 20)
    assert not same(trained(data, quick()), trained(data, quick(**change)))


def test_training_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    trained(blobs(2, 8), quick(), (network := small_network()))
    torch.manual_seed(5)
    trained(blobs(2, 8), quick(), network)
    assert torch.equal(torch.rand(1), expected)


def test_an_objective_is_told_the_moment() -> None:
    moments: list[Moment] = []

    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        moments.append(moment)
        return cross_entropy(batch, output, moment)

    quick().fit(small_network(), blobs(2, 20), always(objective))  # 40 images: three steps of at most 16
    assert [(moment.epoch, moment.step) for moment in moments] == [(e, s) for e in range(3) for s in range(3)]
    assert all((moment.epochs, moment.steps) == (3, 3) for moment in moments)


def test_a_loss_that_is_not_finite_names_its_first_step() -> None:
    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        loss = cross_entropy(batch, output, moment)
        return loss * float("nan") if (moment.epoch, moment.step) >= (1, 2) else loss

    with pytest.raises(TrainingError, match=r"first at step 3 of 3 in epoch 2, in task 1.*learning_rate"):
        quick().fit(small_network(), blobs(2, 20), always(objective))


def test_weights_that_are_not_finite_are_found_after_the_last_step() -> None:
    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        return (output.features.sum() * 0).sqrt()  # 0, with a slope that is not finite

    with pytest.raises(TrainingError, match="the weights are not finite after the last step"):
        quick(schedule=Schedule(epochs=1, batch_size=40)).fit(small_network(), blobs(2, 20), always(objective))


def test_outputs_may_be_used_in_training() -> None:
    features = quick().features(small_network(), blobs(1, 4).images)
    weight = torch.ones(1, 16, requires_grad=True)
    (features * weight).sum().backward()
    assert weight.grad is not None


def test_figures_tell_how_it_goes() -> None:
    figures: list[TrainingProgress] = []
    trained(blobs(2, 20), quick(listener=figures.append, augmentation=STILL))
    ends = [figure for figure in figures if figure.epoch_done]
    assert [figure.epoch for figure in ends] == [1, 2, 3]
    assert [figure.images for figure in ends] == [40, 80, 120]
    assert ends[-1].step == ends[-1].steps == 9
    assert ends[-1].seconds_left == 0
    assert ends[-1].loss < ends[0].loss
    assert 0 <= ends[0].accuracy <= ends[-1].accuracy <= 100


def test_reported_loss_and_accuracy_are_the_epochs_means() -> None:
    seen: list[tuple[float, int, int]] = []
    figures: list[TrainingProgress] = []

    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        loss = cross_entropy(batch, output, moment)
        if moment.epoch == 2:
            hits = int((output.logits.argmax(dim=1) == batch.labels).sum())
            seen.append((loss.item(), hits, len(batch.labels)))
        return loss

    quick(listener=figures.append).fit(small_network(), blobs(2, 20), always(objective))
    images = sum(count for _, _, count in seen)
    assert figures[-1].loss == pytest.approx(sum(loss * count for loss, _, count in seen) / images, rel=1e-5)
    assert figures[-1].accuracy == pytest.approx(100 * sum(hits for _, hits, _ in seen) / images)


def test_outputs_are_those_of_the_network_in_evaluation() -> None:
    network, data = small_network(), blobs(2, 150)  # more than one chunk
    output = quick().outputs(network.train(), data.images)
    network.eval()
    with torch.no_grad():
        expected = network(data.images.pixels.permute(0, 3, 1, 2))  # type: ignore[union-attr]
    torch.testing.assert_close(output.features, expected.features)
    torch.testing.assert_close(output.logits, expected.logits)


def test_features_do_not_depend_on_the_training_batch_size() -> None:
    network, data = small_network(), blobs(2, 150)
    settings = [Schedule(batch_size=size) for size in (1, 7, 512)]
    first, *others = [quick(schedule=schedule).features(network, data.images) for schedule in settings]
    assert all(torch.equal(first, other) for other in others)


def test_double_precision() -> None:
    network = small_network()
    trained(blobs(2, 8), quick(device=Device(accelerator="cpu", precision="64-true")), network)
    assert network.head.weight.dtype == torch.float64


def test_mixed_precision_trains_in_float32_weights() -> None:
    network = trained(blobs(2, 16), quick(device=Device(accelerator="cpu", precision="bf16-mixed")))
    assert network.head.weight.dtype == torch.float32
    assert torch.isfinite(network.head.weight).all()


@pytest.mark.slow  # compiling takes about a minute
def test_a_compiled_network_learns_the_same() -> None:
    data, figures = blobs(2, 20), list[TrainingProgress]()
    plain, compiled = (
        trained(
            data,
            quick(device=Device(accelerator="cpu", compile=compile), augmentation=STILL, listener=figures.append),
        )
        for compile in (False, True)
    )
    assert figures[-1].compile_seconds is not None
    assert figures[1].compile_seconds is None
    assert type(compiled) is Network
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_a_device_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match=r"device: .*accelerator: cpu"):
        fabric_for(Device(accelerator="cuda"))


def test_trainers_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        quick().seed = 3  # type: ignore[misc]


def with_a_budget(seconds: float, **settings: object) -> Trainer:
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05, seconds_per_task=seconds)
    return quick(schedule=schedule, **settings)


def test_a_time_budget_buys_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of which every step takes a second: three steps an epoch."""
    figures: list[TrainingProgress] = []
    clock = Clock()
    monkeypatch.setattr(training.time, "perf_counter", clock.now)

    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        clock.seconds += 1
        return cross_entropy(batch, output, moment)

    with_a_budget(40, listener=figures.append).fit(small_network(), blobs(2, 20), always(objective))
    # ten steps are needed to measure the speed; the other thirty seconds are ten epochs of three steps
    assert clock.seconds == 40
    assert {figure.epochs for figure in figures} == {10}
    assert figures[0].step == 0
    assert figures[-1].step == 30


class Clock:
    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_a_followed_record_gives_what_the_time_budget_gave() -> None:
    data, figures = blobs(2, 20), list[TrainingProgress]()
    network = trained(data, with_a_budget(0.5, listener=figures.append))
    assert same(network, trained(data, quick(epochs=figures[-1].epochs)))


def test_a_time_budget_below_one_epoch() -> None:
    figures: list[TrainingProgress] = []
    with pytest.warns(CotransportWarning, match=r"seconds_per_task: .* 0.0 of 1e-06 s are left"):
        trained(blobs(2, 20), with_a_budget(1e-6, listener=figures.append))
    assert figures[-1].epochs == 1


def test_measuring_the_speed_leaves_the_objective_and_the_gradients_alone() -> None:
    made: list[list[int]] = []

    def objective(network: Network) -> Objective:
        steps: list[int] = []
        made.append(steps)

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            steps.append(moment.epochs)
            return cross_entropy(batch, output, moment) + network.head.weight.square().sum()

        return loss

    figures, network, twin = list[TrainingProgress](), small_network(), small_network()
    with_a_budget(0.3, listener=figures.append).fit(network, blobs(2, 20), objective)
    real, measured = made
    assert len(measured) >= 10
    assert real == [figures[-1].epochs] * figures[-1].steps
    quick(epochs=figures[-1].epochs).fit(twin, blobs(2, 20), objective)
    assert same(network, twin)


def test_decoded_images_are_measured_after_those_that_were_decoded_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers run four batches ahead: those are free, every later one takes a second."""
    clock, steps = Clock(), list[int]()
    monkeypatch.setattr(training.time, "perf_counter", clock.now)

    def objective(batch: Batch, output: Output, moment: Moment) -> Tensor:
        steps.append(moment.epochs)
        clock.seconds += 0 if len(steps) < 7 else 1
        return cross_entropy(batch, output, moment)

    items = [blobs(2, 20).images.item(i) for i in range(40)]
    data = LabelledImages(EncodedImages.of(items, 8), blobs(2, 20).labels, ("a", "b"))
    trainer = with_a_budget(44, device=Device(accelerator="cpu", workers=2))
    trainer.fit(small_network(), data, always(objective))
    assert steps[-1] == (44 - 8) // 3


def test_milestones_are_stretched_to_the_epochs_that_a_time_budget_buys() -> None:
    rates: list[float] = []
    schedule = Schedule(epochs=4, shape="steps", milestones=(2,), decay=0.5, batch_size=40, learning_rate=0.08)
    trained(blobs(2, 20), quick(schedule=schedule, epochs=8, listener=lambda f: rates.append(f.learning_rate)))
    assert rates[1:] == pytest.approx([0.08] * 4 + [0.04] * 4)


def test_threads_are_shared_by_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(training, "available_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    for processes in (1, 2, 3, 16):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        set_threads(Device(processes=processes))
        assert os.environ.get("OMP_NUM_THREADS") == (None if processes == 1 else str(chosen[-1]))
    assert chosen == [6, 4, 2, 1]
    set_threads(Device(processes=2))  # as in the processes that Fabric starts
    assert len(chosen) == 4
    set_threads(Device(threads=5))
    assert chosen[-1] == 5


class Killed(BaseException):
    pass


def interrupted(folder: Path, precision: str = "32-true") -> tuple[Network, Network]:
    """A network that was trained in one go, and one whose training was killed and taken up again."""
    device = Device(accelerator="cpu", checkpoint_seconds=0, precision=precision)  # type: ignore[arg-type]
    trainer = quick(epochs=3, device=device)
    whole = small_network()
    trainer.fit(whole, blobs(2, 20), always(cross_entropy))

    def dies(batch: Batch, output: Output, moment: Moment) -> Tensor:
        if (moment.epoch, moment.step) == (1, 1):
            raise Killed
        return cross_entropy(batch, output, moment)

    with pytest.raises(Killed):
        replace(trainer, checkpoints=Checkpoints(folder)).fit(small_network(), blobs(2, 20), always(dies))
    again = small_network()
    begun: list[TrainingProgress] = []
    resumed = replace(trainer, checkpoints=Checkpoints(folder), listener=begun.append)
    resumed.fit(again, blobs(2, 20), always(cross_entropy))
    assert begun[0].step > 0
    return whole, again


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_a_training_goes_on_in_any_precision(precision: str, tmp_path: Path) -> None:
    assert same(*interrupted(tmp_path, precision))


def test_a_checkpoint_of_another_network_is_not_gone_on_with(tmp_path: Path) -> None:
    interrupted(tmp_path)
    trainer = quick(epochs=3)
    other, twin = (
        Network(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), CosineHead(5, 10.0), torch.zeros(3), torch.ones(3))
        for _ in "ab"
    )
    for network in (other, twin):
        torch.manual_seed(0)
        network.head.grow(2)
    twin.load_state_dict(other.state_dict())
    with pytest.warns(CotransportWarning, match="a checkpoint of another training"):
        replace(trainer, checkpoints=Checkpoints(tmp_path)).fit(other, blobs(2, 20), always(cross_entropy))
    trainer.fit(twin, blobs(2, 20), always(cross_entropy))
    assert same(other, twin)


def test_a_signal_ends_a_training_that_has_saved(tmp_path: Path) -> None:
    def asked(batch: Batch, output: Output, moment: Moment) -> Tensor:
        if (moment.epoch, moment.step) == (1, 0):
            os.kill(os.getpid(), signal.SIGTERM)
        return cross_entropy(batch, output, moment)

    trainer, whole, stopped = quick(epochs=3), small_network(), small_network()
    trainer.fit(whole, blobs(2, 20), always(cross_entropy))
    with pytest.raises(signals.Interrupted), signals.handled():
        replace(trainer, checkpoints=Checkpoints(tmp_path)).fit(stopped, blobs(2, 20), always(asked))
    assert len(list(tmp_path.iterdir())) == 1
    again = small_network()
    replace(trainer, checkpoints=Checkpoints(tmp_path)).fit(again, blobs(2, 20), always(cross_entropy))
    assert same(whole, again)
