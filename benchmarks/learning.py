"""Training and evaluation against an ideal loop: the same arithmetic on one fixed batch in memory, and nothing else."""

from __future__ import annotations

import copy
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import Figure, in_turns, ratio, undisturbed
from cotransport.data import Batch, LabelledImages, PixelImages, Shard, training_batches
from cotransport.methods import Method, make_method
from cotransport.methods.coil import Coil
from cotransport.methods.retrospection import Retrospection
from cotransport.networks import backbones
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Backbone, Device, Loss, Optimiser, Schedule
from cotransport.training.loop import Trainer, TrainingControl, parameter_groups
from cotransport.training.objective import Moment, Objective
from cotransport.training.processes import processes_for
from cotransport.training.task_data import TaskData
from cotransport.transport import transport_plan

DEVICE = Device()
BATCH = 128
AUGMENTATION = Augmentation(padding="reflect")
OPTIMISER = Optimiser(nesterov=True)


DISTILLING = Coil(prospective_init=False, pt_weight=0, retrospection=Retrospection(rt_weight=0))
"""Cross-entropy and a frozen copy's opinion: what every distilling method computes at least."""
EPOCHS = 16
"""Of a task in the fast recipe."""


def noise(count: int, size: int, classes: int, *, first: int = 0) -> LabelledImages:
    """Images of noise, of classes named by whole numbers from `first` on: the arithmetic is the same."""
    pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8)
    return LabelledImages(PixelImages(pixels), torch.arange(count) % classes, tuple(range(first, first + classes)))


def make_network(backbone: str, size: int, classes: int) -> Network:
    """A network on the device, untrained."""
    torch.manual_seed(0)
    made = backbones.build(Backbone(name=backbone), size)
    head = CosineHead(backbones.feature_dimension(made, size), 10.0)
    head.grow(classes)
    network = Network(made, head, torch.full((3,), 128.0), torch.full((3,), 64.0))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    return network.to(processes_for(DEVICE).device)


ONCE = Moment(epoch=0, epochs=1, step=0, steps=1)


def make_trainer(epochs: int, batch_size: int = BATCH) -> Trainer:
    """The trainer as experiments have it, with a listener."""
    schedule = Schedule(epochs=epochs, batch_size=batch_size, learning_rate=1e-3)
    return Trainer(
        task=1,
        seed=0,
        schedule=schedule,
        optimiser=OPTIMISER,
        augmentation=AUGMENTATION,
        device=DEVICE,
        control=TrainingControl(listener=lambda progress: None),
    )


def ideal_training(
    network: Network, objective: Objective, batch: Batch, steps: int, moments: Iterable[Moment] = itertools.repeat(ONCE)
) -> Callable[[], None]:
    """Forward, loss, backward and the optimiser's step on one batch, again and again."""
    network, coming = copy.deepcopy(network).train(), iter(moments)
    optimiser = torch.optim.SGD(parameter_groups(network, OPTIMISER.weight_decay), lr=1e-3, momentum=0.9, nesterov=True)

    def run() -> None:
        for _ in range(steps):
            with processes_for(DEVICE).autocast():
                loss = objective(batch, network(batch.images), next(coming))
            torch.autograd.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
        synchronise()

    return run


def synchronise() -> None:
    """Wait for the device."""
    processes_for(DEVICE).synchronise()


def fixed_batch(size: int, classes: int, batch_size: int = BATCH) -> Batch:
    """One batch on the device, in the form that training sees."""
    return all_batches(noise(batch_size, size, classes), AUGMENTATION, batch_size)


def all_batches(data: LabelledImages, settings: Augmentation, batch_size: int = BATCH, *, loss: Loss = Loss()) -> Batch:
    """The last batch of an epoch, after all the others."""
    batches = training_batches(
        data,
        settings=settings,
        loss=loss,
        batch_size=batch_size,
        epochs=1,
        seed=0,
        place=(0,),
        device=processes_for(DEVICE).device,
        shard=Shard(),
        workers=0,
    )
    [last] = deque(batches, maxlen=1)
    synchronise()
    return last


def our_training(method: Method, network: Network, data: TaskData) -> Callable[[], None]:
    """A method's training of one epoch, as experiments run it."""
    trainer = make_trainer(epochs=1)

    def run() -> None:
        method.learn(network, data, trainer)
        synchronise()

    return run


def training() -> Iterator[Figure]:
    """Training as a share of the ideal loop."""
    cases = [("replay", "fast", 160), ("distilling", "fast", 120), ("replay", "resnet32", 40)]
    for method_name, backbone, steps in cases:
        method = DISTILLING if method_name == "distilling" else make_method(method_name)
        ideal, ours = step_seconds(method, backbone, 20, steps)
        what = f"{method_name} on {backbone}, share of the ideal loop"
        yield Figure("training", what, ideal / ours, at_least=0.92, note=f"{BATCH / ours:,.0f} images/s")


def transport() -> Iterator[Figure]:
    """What transport adds to a distilling method's training, a step of each in turns."""
    classes, rounds, steps = 100, 120, 40
    network, images = make_network("fast", 32, classes), noise(steps * BATCH, 32, classes)
    data, trainer = TaskData(images, None, 90, 10, Loss()), make_trainer(EPOCHS)
    full = Coil(pt_epochs=1.0)
    ticks = (Moment(1 + number // steps, EPOCHS, number % steps, steps) for number in itertools.count())
    variants = {
        name: ideal_training(network, method.objective(network, data, trainer), fixed_batch(32, classes), 1, moments)
        for name, method, moments in (("without", DISTILLING, itertools.repeat(ONCE)), ("with", full, ticks))
    }
    seconds = in_turns(variants, rounds)
    without, with_it = sum(seconds["without"]) / rounds, sum(seconds["with"]) / rounds
    yield Figure(
        "transport",
        "PT and RT loss in every step, share of the training time",
        1 - without / with_it,
        at_most=0.03,
        note=f"{1000 * (with_it - without):.1f} of {1000 * with_it:.0f} ms; 90 old and 10 new classes, a plan every "
        f"{full.retrospection.rt_every} steps",
    )
    features = partial(trainer.features, network, images.images)
    step = ideal_training(network, DISTILLING.objective(network, data, trainer), fixed_batch(32, classes), steps)
    seconds = in_turns({"pass": features, "epoch": step}, rounds=4)
    share = undisturbed(seconds["pass"]) / (EPOCHS * undisturbed(seconds["epoch"]))
    yield Figure(
        "transport",
        "prospective initialisation, share of a task's training time",
        share,
        at_most=0.03,
        note=f"a pass over all images before {EPOCHS} epochs",
    )
    cost = torch.rand(1000, 100)
    [plan_seconds] = in_turns({"plan": partial(transport_plan, cost, 0.45)}, rounds=10).values()
    yield Figure(
        "transport", "plan from 1,000 to 100 classes", 1000 * undisturbed(plan_seconds), unit="ms", at_most=100
    )


def classes() -> Iterator[Figure]:
    """A step's time as classes become many: it may grow by the head's and the loss's own arithmetic only."""
    for count in (10, 100, 1000, 10_000):
        ideal, ours = step_seconds(make_method("replay"), "fast", count, 80)
        note = f"{1000 * ours:.0f} ms a step, ideal {1000 * ideal:.0f}"
        yield Figure("classes", f"{count:,} classes, share of the ideal loop", ideal / ours, at_least=0.92, note=note)


def step_seconds(method: Method, backbone: str, classes: int, steps: int) -> tuple[float, float]:
    """Mean seconds of a step, in the ideal loop and in a method's training.

    A step of the ideal loop runs within each of ours, before its loss, and is taken off our time: the machine's speed
    changes too quickly for longer turns.
    """
    network, images = make_network(backbone, 32, classes), noise(steps * BATCH, 32, classes)
    data, trainer = TaskData(images, None, classes // 2, classes - classes // 2, Loss()), make_trainer(epochs=1)
    ideal_step = ideal_training(network, method.objective(network, data, trainer), fixed_batch(32, classes), 1)
    ideal: list[float] = []

    def with_an_ideal_step(objective: Objective) -> Objective:
        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            synchronise()
            started = time.perf_counter()
            ideal_step()
            ideal.append(time.perf_counter() - started)
            return objective(batch, output, moment)

        return Objective(loss)

    ideal_step()  # memory is set up
    started = time.perf_counter()
    trainer.fit(network, images, lambda trained: with_an_ideal_step(method.objective(trained, data, trainer)))
    synchronise()
    total = time.perf_counter() - started
    return sum(ideal) / steps, (total - sum(ideal)) / steps


def bare_forward(network: Network, chunk: Tensor, times: int) -> None:
    """The network on one chunk, again and again."""
    with torch.inference_mode(), processes_for(DEVICE).autocast():
        for _ in range(times):
            network(chunk)
    synchronise()


def evaluation() -> Iterator[Figure]:
    """Evaluation, which also gives features, as a share of the bare forward pass."""
    for backbone, count in (("fast", 4096), ("resnet32", 2048)):
        network, data = make_network(backbone, 32, 100).eval(), noise(count, 32, 100)
        bare = partial(bare_forward, network, fixed_batch(32, 100, 256).images, count // 256)
        ours = partial(make_trainer(epochs=1).outputs, network, data.images)
        seconds = in_turns({"bare": bare, "ours": ours}, rounds=8)
        yield Figure(
            "evaluation",
            f"{backbone}, share of the bare forward pass",
            ratio(seconds, "bare", "ours"),
            at_least=0.92,
            note=f"{count / undisturbed(seconds['ours']):,.0f} images/s",
        )


def arithmetic() -> Iterator[Figure]:
    """What the nets make of the machine: training arithmetic as a share of a matrix multiply's."""
    device = processes_for(DEVICE).device
    left, right = torch.randn(2048, 2048, device=device), torch.randn(2048, 2048, device=device)

    def multiply() -> None:
        with processes_for(DEVICE).autocast():
            left @ right
        synchronise()

    cases = [
        ("fast", 32, BATCH),
        ("fast", 224, 32),
        ("resnet32", 32, BATCH),
        ("resnet18", 32, 64),
        ("resnet18", 224, 16),
    ]
    for backbone, size, batch_size in cases:
        network, batch = make_network(backbone, size, 10), fixed_batch(size, 10, batch_size)
        run = ideal_training(network, Objective(cross_entropy), batch, 1)
        with FlopCounterMode(display=False) as counter:
            run()
        seconds = in_turns({"multiply": multiply, "net": run}, rounds=6)
        peak = 2 * 2048**3 / min(seconds["multiply"])
        rate = counter.get_total_flops() / undisturbed(seconds["net"])
        yield Figure(
            "arithmetic",
            f"{backbone} at {size} pixels, arithmetic relative to a large matrix multiply",
            rate / peak,
            note=f"{counter.get_total_flops() / batch_size / 1e6:,.0f} Mflop an image, {rate / 1e9:,.0f} of "
            f"{peak / 1e9:,.0f} Gflop/s, {batch_size / undisturbed(seconds['net']):,.0f} images/s",
        )


def cross_entropy(batch: Batch, output: Output, moment: Moment) -> Tensor:
    """Eq. 1."""
    return F.cross_entropy(output.logits, batch.labels)


def augmentation() -> Iterator[Figure]:
    """The cost of making a batch, with each policy and with mixing, as a share of a training step with the fast net."""
    data, network, plain = noise(16 * BATCH, 32, 10), make_network("fast", 32, 10), Loss()
    train = ideal_training(network, Objective(cross_entropy), fixed_batch(32, 10), 16)
    cases = {
        "basic": (AUGMENTATION, plain),
        "trivial": (Augmentation(policy="trivial", padding="reflect"), plain),
        "trivial, Cutout and CutMix": (
            Augmentation(policy="trivial", padding="reflect", cutout=0.3),
            Loss(cutmix=0.5),
        ),
        "strong": (Augmentation.model_validate({"policy": "strong", "padding": "reflect"}), plain),
    }
    for name, (settings, loss) in cases.items():
        seconds = in_turns({"train": train, "pipeline": partial(all_batches, data, settings, loss=loss)}, rounds=8)
        share = 1 / (1 + ratio(seconds, "train", "pipeline"))
        note = f"{1000 * undisturbed(seconds['pipeline']) / 16:.1f} ms a batch"
        yield Figure("augmentation", f"{name}, share of a training step", share, at_most=0.1, note=note)


def batches() -> Iterator[Figure]:
    """The in-memory pipeline alone, against what training consumes."""
    data, network = noise(16 * BATCH, 32, 10), make_network("fast", 32, 10)
    train = ideal_training(network, Objective(cross_entropy), fixed_batch(32, 10), 16)
    for padding in ("reflect", "zero"):
        settings = Augmentation(padding=padding, brightness=0.25)
        pipeline = partial(all_batches, data, settings)
        seconds = in_turns({"train": train, "pipeline": pipeline}, rounds=8)
        yield Figure(
            "batches",
            f"crop ({padding}), flip and brightness, times what training the fast net consumes",
            ratio(seconds, "train", "pipeline"),
            at_least=20,
            note=f"{len(data) / undisturbed(seconds['pipeline']):,.0f} images/s",
        )
