"""Watch COIL and its rehearsal alone (CE+KD) while they learn the last task, and draw what happens.

    python docs/inside_training.py measure docs/inside-training.json
    python docs/inside_training.py draw docs/inside-training.json docs/inside-training.png

The training is that of the recipe `cifar100-variations`, with its seeds; it takes about 20 minutes on one thread.
"""

from __future__ import annotations

import copy
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from cotransport.data import Batch, LabelledImages, load_data_set, open_source
from cotransport.experiments.environment import environment
from cotransport.experiments.preparation import Run, learner_settings, with_augmentation
from cotransport.experiments.recipe import load_recipe
from cotransport.experiments.stream import TaskStream, split_classes
from cotransport.learner.learning import learned
from cotransport.methods import make_method
from cotransport.methods.coil import CoilTuned
from cotransport.networks.network import Network, Output
from cotransport.training.loop import Trainer
from cotransport.training.objective import Moment, Objective
from cotransport.training.processes import processes_for
from cotransport.training.task_data import TaskData
from cotransport.transport import class_centres, effective_sources, transport_cost, transport_plan

RECIPE = "cifar100-variations"
NO_TRANSPORT: dict[str, object] = {"prospective_init": False, "pt_weight": 0, "rt_weight": 0}
METHODS: dict[str, dict[str, object]] = {"CE+KD": NO_TRANSPORT, "COIL": {}}
"""The watched methods: what differs from `coil-tuned` with `combine: ratio`."""
PARTS: dict[str, dict[str, object]] = {
    "CE": {**NO_TRANSPORT, "kd_weight": 0},
    "KD": NO_TRANSPORT,
    "PT": {"rt_weight": 0},
    "RT": {"rt_centres": "exact"},
}
"""Each loss, and the method that has this loss and those before it."""
STRENGTHS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.45, 1.0, 2.0)
"""Values of `reg`, the strength of the plan's regularisation."""
EVERY = 5
"""Steps between two looks in the first epoch; later, there is one look an epoch."""
COLOURS = {"CE+KD": "#7b8794", "COIL": "#0b6fa4", "CE": "#c5ced6", "KD": "#7b8794", "PT": "#d97706", "RT": "#0b6fa4"}


class Watcher:
    """What is recorded during the training of one task."""

    def __init__(self, test: LabelledImages, network: Network, data: TaskData, trainer: Trainer) -> None:
        self._test, self._network, self._data, self._trainer = test, network, data, trainer
        self.accuracies: list[dict[str, float]] = []
        self.gradients: list[dict[str, float]] = []
        self.sharpness = self._sharpness()
        self._parts = {name: _method(values).objective(network, data, trainer) for name, values in PARTS.items()}

    def __call__(self, batch: Batch, moment: Moment) -> None:
        """Look at a step before it is taken."""
        if moment.step == 0 or (moment.epoch == 0 and moment.step % EVERY == 0):
            epoch = moment.progress * moment.epochs
            self.accuracies.append({"epoch": epoch, **self._accuracy()})
            self.gradients.append({"epoch": epoch, **self._gradient_norms(batch, moment)})

    def finish(self, epochs: int) -> None:
        """Look once more, after the last step."""
        self.accuracies.append({"epoch": epochs, **self._accuracy()})

    def _accuracy(self) -> dict[str, float]:
        """Accuracy on old and on new classes, in percent."""
        with torch.no_grad():
            predicted = self._trainer.predictions(self._network, self._test.images).logits.argmax(dim=1)
        hits, is_new = (predicted == self._test.labels).float(), self._test.labels >= self._data.old_classes
        return {"old": 100 * hits[~is_new].mean().item(), "new": 100 * hits[is_new].mean().item()}

    def _gradient_norms(self, batch: Batch, moment: Moment) -> dict[str, float]:
        """The norm of each loss's gradient with respect to the backbone's weights."""
        twin = copy.deepcopy(self._network)  # batch norms would count the batch twice
        output = twin(batch.images)
        losses = {name: objective(batch, output, moment) for name, objective in self._parts.items()}
        before = [torch.zeros(()), *list(losses.values())[:-1]]
        weights = list(twin.backbone.parameters())

        def norm(loss: Tensor) -> float:
            gradients = torch.autograd.grad(loss, weights, retain_graph=True)
            return float(torch.stack([gradient.norm() for gradient in gradients]).norm())

        return {name: norm(own - less) for (name, own), less in zip(losses.items(), before, strict=True)}

    def _sharpness(self) -> dict[float, float]:
        """The mean effective number of old classes in a new one, for each strength of the regularisation."""
        everything = self._data.everything
        features = self._trainer.features(self._network, everything.images)
        centres = class_centres(features, everything.labels, self._data.classes)
        cost = transport_cost(centres[self._data.old_slice], centres[self._data.new_slice])
        return {reg: effective_sources(transport_plan(cost, reg)).mean().item() for reg in STRENGTHS}


class Watched(CoilTuned):
    """COIL, and what was seen while it learned a task. The training itself is unchanged."""

    _test: LabelledImages | None = PrivateAttr(None)
    _watcher: Watcher | None = PrivateAttr(None)

    def watch(self, test: LabelledImages) -> None:
        """Watch the next task; test images show how well it is learned."""
        self._test = test

    @property
    def watcher(self) -> Watcher:
        """What was seen."""
        assert self._watcher is not None
        return self._watcher

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """COIL's objective, watched if it is time."""
        own = super().objective(network, data, trainer)
        if self._test is None:
            return own
        watcher = self._watcher = Watcher(self._test, network, data, trainer)

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            watcher(batch, moment)
            return own(batch, output, moment)

        return Objective(loss, own.state)


def _method(values: dict[str, object]) -> CoilTuned:
    method = make_method({"name": "coil-tuned", "combine": "ratio", **values})
    assert isinstance(method, CoilTuned)
    return method


def measure(path: Path) -> None:
    """Train every method with every seed, and write what was seen in the last task."""
    recipe = load_recipe(RECIPE)
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    stream = TaskStream(load_data_set(source, recipe.data), split_classes(source.classes, recipe.stream))
    records = []
    for seed in recipe.seeds:
        for name, values in METHODS.items():
            method = Watched.model_validate(_method(values).model_dump())
            settings, state = learner_settings(recipe, Run(method, seed)), None
            for task in stream:
                if task.number == len(stream) - 1:
                    method.watch(task.seen_test)
                state = learned(state, task.train, settings)
            watcher = method.watcher
            watcher.finish(recipe.schedule.epochs)
            seen = {key: getattr(watcher, key) for key in ("accuracies", "gradients", "sharpness")}
            records.append({"method": name, "seed": seed, **seen})
            print(name, seed, watcher.accuracies[-1], flush=True)
    about = environment(processes_for(recipe.device))
    kept = {"recipe": RECIPE, "commit": about["commit"], "processor": about.get("processor"), "runs": records}
    path.write_text(json.dumps(_rounded(kept)) + "\n", encoding="utf-8")


def _rounded(value: object) -> object:
    """A JSON value with four digits of every number."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def draw(path: Path, picture: Path) -> None:
    """Draw the four panels."""
    values = json.loads(path.read_text(encoding="utf-8"))
    runs: dict[str, list[Any]] = defaultdict(list)
    for record in values["runs"]:
        runs[record["method"]].append(record)
    figure, ((new, old), (gradients, plans)) = plt.subplots(2, 2, figsize=(10, 7), dpi=125, layout="constrained")
    for axes, part in ((new, "new"), (old, "old")):
        for name, records in runs.items():
            curves(axes, name, [record["accuracies"] for record in records], part)
        axes.set(title=f"Accuracy on {part} classes", xlabel="epoch", ylabel="%")
        axes.legend(frameon=False)
    looks = runs["COIL"][0]["gradients"]
    norms = np.array([[[look[name] for look in run["gradients"]] for name in PARTS] for run in runs["COIL"]])
    shares = 100 * (norms / norms.sum(axis=1, keepdims=True)).mean(axis=0)
    gradients.stackplot(
        [look["epoch"] for look in looks], shares, labels=PARTS, colors=[COLOURS[name] for name in PARTS]
    )
    gradients.set(
        title="COIL: each loss's share of the gradient", xlabel="epoch", ylabel="% of the norms' sum", ylim=(0, 100)
    )
    gradients.legend(loc="lower left", reverse=True)
    regs = np.array(STRENGTHS)
    sharpness = np.array([[record["sharpness"][str(reg)] for reg in STRENGTHS] for record in runs["COIL"]])
    plans.plot(regs, sharpness.mean(axis=0), color=COLOURS["COIL"], marker="o")
    plans.axvline(0.45, color=COLOURS["CE"], linestyle=":")
    plans.set(title="Old classes that a new one is built from", xlabel="reg", ylabel="effective number", xscale="log")
    plans.set_ylim(0)
    for axes in (new, old, gradients, plans):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture)


def curves(axes: Axes, name: str, runs: Sequence[Iterable[dict[str, float]]], part: str) -> None:
    """The mean over seeds as a line, and the range over seeds as a band."""
    epochs = [look["epoch"] for look in runs[0]]
    values = np.array([[look[part] for look in run] for run in runs])
    axes.plot(epochs, values.mean(axis=0), color=COLOURS[name], label=name)
    axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=COLOURS[name], alpha=0.2, linewidth=0)


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(Path(sys.argv[2]))
    else:
        draw(Path(sys.argv[2]), Path(sys.argv[3]))
