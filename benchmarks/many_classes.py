"""Ten thousand classes, a hundred at a time: `python -m benchmarks.many_classes [--classes N] [--out FOLDER]`.

Features are synthetic, and there is no backbone: everything else that depends on the number of classes is measured. The
learner and the evaluation are the real ones. Writes many-classes.json and many-classes.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn import functional as F

from cotransport.data import LabelledImages, Vectors
from cotransport.data.memory import Memory, herding
from cotransport.experiments.environment import environment
from cotransport.experiments.evaluation import evaluate, transport_record
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.methods.coil import Coil
from cotransport.networks.network import HeadAlone, Network
from cotransport.settings.sections import Backbone, Budget, Device, Schedule
from cotransport.system.randomness import generator
from cotransport.training.loop import Trainer
from cotransport.training.processes import processes_for
from cotransport.training.task_data import TaskData

STEP, DIMENSION, IMAGES, TEST_IMAGES = 100, 64, 10, 5000
"""Classes of a task, length of the features, training images of a class, and size of the sample for testing."""
DEVICE = Device(accelerator="cpu", threads=1)
SCHEDULE = Schedule(epochs=2, batch_size=512, learning_rate=0.5)
"""Two epochs: retrospective transport starts in the second."""
FILE = "many-classes.json"
PARTS = ("plan", "training", "memory", "evaluation", "record")


@dataclass(frozen=True)
class TaskCost:
    """What one task takes. Times are in seconds of the processor, which other processes hardly change."""

    classes: int
    plan: float
    training: float
    memory: float
    """Herding, and everything else of learning."""
    evaluation: float
    record: float
    """What is kept of the task for the result, as JSON."""
    resident: float
    """Memory of the process after the task, in MiB."""
    record_bytes: int
    accuracy: float


def noisy(centres: torch.Tensor, images: int, place: int, names: tuple[int, ...]) -> LabelledImages:
    """Features around class centres."""
    labels = torch.arange(len(centres)).repeat_interleave(images)
    noise = torch.randn(len(labels), DIMENSION, generator=generator(0, 1, place))
    return LabelledImages(Vectors(F.normalize(centres[labels] + 0.08 * noise)), labels, names)


def measured_tasks(classes: int, budget: Budget) -> Iterator[TaskCost]:
    """Learn task after task with COIL, and measure each."""
    seconds = dict.fromkeys(("plan", "training"), 0.0)

    class Timed(Coil):
        """COIL, with the time that its two halves take."""

        name, title = "coil-timed", "COIL (timed)"

        def initialise(self, network: Network, data: TaskData, trainer: Trainer) -> torch.Tensor | None:
            started = time.process_time()
            plan = super().initialise(network, data, trainer)
            seconds["plan"] = time.process_time() - started
            return plan

        def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
            started = time.process_time()
            super().learn(network, data, trainer)
            seconds["training"] = time.process_time() - started

    settings = LearnerSettings(Timed(), Backbone(), memory=budget, schedule=SCHEDULE, device=DEVICE)
    centres = F.normalize(torch.randn(classes, DIMENSION, generator=generator(0, 0, 0)))
    state = first_state(settings, centres)
    tested = torch.randperm(classes * IMAGES, generator=generator(0, 2, 0))
    for first in range(STEP, classes, STEP):
        names = tuple(range(first, min(first + STEP, classes)))
        started = time.process_time()
        state = learned(state, noisy(centres[first : first + STEP], IMAGES, first, names), settings)
        of_learning = time.process_time() - started
        seen = len(state.classes)
        places = tested[tested < seen * IMAGES][:TEST_IMAGES]
        labels = places // IMAGES
        features = centres[labels] + 0.08 * torch.randn(len(labels), DIMENSION, generator=generator(0, 3, first))
        test = LabelledImages(Vectors(F.normalize(features)), labels, state.classes)
        started = time.process_time()
        accuracies, cells = evaluate(Predictor(state, settings), test, state.task_sizes)
        evaluated = time.process_time()
        transport = transport_record(state)
        assert transport is not None
        record = json.dumps([accuracies.model_dump(mode="json"), transport.model_dump(mode="json"), cells.tolist()])
        yield TaskCost(
            classes=seen,
            plan=seconds["plan"],
            training=seconds["training"],
            memory=of_learning - sum(seconds.values()),
            evaluation=evaluated - started,
            record=time.process_time() - evaluated,
            resident=resident_mebibytes(),
            record_bytes=len(record),
            accuracy=accuracies.top1 or 0.0,
        )


def first_state(settings: LearnerSettings, centres: torch.Tensor) -> State:
    """The state after a first task, whose classifier is the class centres."""
    head = settings.method.make_head(DIMENSION, settings.head)
    head.grow(STEP)
    with torch.no_grad():
        head.weight.copy_(centres[:STEP])
    data = noisy(centres[:STEP], IMAGES, 0, tuple(range(STEP)))
    budget = settings.method.budget(settings.memory)
    assert budget is not None
    own = [data.select_classes([number]).images for number in range(STEP)]
    chosen = {
        number: images.take(herding(images.features, budget.quota(STEP)))
        for number, images in enumerate(own)
        if isinstance(images, Vectors)
    }
    return State(data.classes, (STEP,), 0, HeadAlone(head), Memory().updated(chosen, None))


def resident_mebibytes() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def trained_images(classes: int, budget: Budget) -> int:
    """Number of new images and exemplars in the task that ends with this many classes."""
    old = classes - STEP
    return STEP * IMAGES + old * min(IMAGES, budget.quota(old))


def growth(costs: list[TaskCost], part: str, budget: Budget) -> float:
    """The exponent p of classes^p that fits best, over the second half of the tasks: 1 is proportional to classes.

    For training, it is that of the time per image. The budget gives every class the same whole number of exemplars, so
    their sum rises and falls with the number of classes.
    """
    late = costs[len(costs) // 2 :]
    each = [trained_images(cost.classes, budget) if part == "training" else 1 for cost in late]
    values = [max(getattr(cost, part), 1e-9) / images for cost, images in zip(late, each, strict=True)]
    x = torch.tensor([cost.classes for cost in late], dtype=torch.float64).log()
    y = torch.tensor(values, dtype=torch.float64).log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def draw(costs: list[TaskCost], budget: Budget, path: Path) -> None:
    """Seconds and memory of each task over the number of classes, without the first task, in which torch warms up."""
    costs = costs[1:]
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    times, training, memory = figure.subplots(1, 3)
    classes = [cost.classes for cost in costs]
    for part in PARTS:
        if part != "training":
            times.plot(classes, [getattr(cost, part) for cost in costs], label=part)
    times.set(xlabel="Classes seen", ylabel="Processor seconds per task")
    times.legend(frameon=False)
    each = [1000 * cost.training / trained_images(cost.classes, budget) for cost in costs]
    training.plot(classes, each)
    training.set(xlabel="Classes seen", ylabel="Training: seconds for 1,000 images", ylim=(0, None))
    memory.plot(classes, [cost.resident for cost in costs])
    memory.set(xlabel="Classes seen", ylabel="Memory of the process (MiB)", ylim=(0, None))
    for axes in (times, training, memory):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Measure, print and write the curve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_classes", description=__doc__)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--memory", type=int, default=10_000, help="exemplars of all classes together")
    parser.add_argument("--out", type=Path, help="where the curve goes; by default, it is only printed")
    parser.add_argument("--redraw", action="store_true", help="measure nothing, and draw the curve in --out again")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.redraw:
        values = json.loads((arguments.out / FILE).read_text(encoding="utf-8"))
        write([TaskCost(**task) for task in values["tasks"]], values["exemplars"], values["environment"], arguments.out)
        return
    command = shlex.join(["python", "-m", "benchmarks.many_classes", *sys.argv[1:]])
    where, costs = environment(processes_for(DEVICE)) | {"command": command}, list[TaskCost]()
    for cost in measured_tasks(arguments.classes, Budget(total=arguments.memory)):
        costs.append(cost)
        parts = ", ".join(f"{part} {getattr(cost, part):.2f}" for part in PARTS)
        print(f"{cost.classes:,} classes: {parts} s; {cost.resident:,.0f} MiB; {cost.accuracy:.1f} %", flush=True)
    write(costs, arguments.memory, where, arguments.out)


def write(costs: list[TaskCost], exemplars: int, where: dict[str, Any], out: Path | None) -> None:
    """Print how the parts grow; write the numbers and the curve, if a folder is given."""
    budget = Budget(total=exemplars)
    exponents = {part: round(growth(costs, part, budget), 2) for part in (*PARTS, "resident")}
    print("grows as classes to the power of:", ", ".join(f"{part} {value}" for part, value in exponents.items()))
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    tasks = [asdict(cost) for cost in costs]
    values = {"environment": where, "exemplars": exemplars, "growth": exponents, "tasks": tasks}
    (out / FILE).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    draw(costs, budget, out / "many-classes.png")


if __name__ == "__main__":
    main()
