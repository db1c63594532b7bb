"""Runs a recipe: every method and seed over the stream, one result on disk for each. The learner is the estimator."""

from __future__ import annotations

import copy
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.nn import functional as F

from cotransport import metrics
from cotransport.data import LabelledImages, Source, load_data_set, open_source
from cotransport.data.fingerprint import fingerprint
from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, DataError, ModelError, RunError
from cotransport.experiments.recipe import Recipe, label_of
from cotransport.experiments.results import RESULT, InitialAccuracy, Origin, Result, SourceShare, TaskResult, Transport
from cotransport.experiments.stream import Split, Task, TaskStream, split_classes
from cotransport.learner.estimator import IncrementalClassifier
from cotransport.methods import Method
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Augmentation
from cotransport.system import signals
from cotransport.system.files import read_json, storage_errors, write_json
from cotransport.training.checkpoints import Checkpoints
from cotransport.training.loop import Listener, TrainingProgress, decide_once, fabric_for
from cotransport.transport import class_centres, effective_sources
from cotransport.version import __version__

STARTED = "recipe.json"
"""Written when a run begins; a folder with it and without a result is an unfinished run."""

IMAGES = "images"
"""In it, beside the recipe: by which the images are recognised that the run began with."""

EPOCHS = "epochs.json"
"""The epochs of each task, written before its first step: what a time budget bought once is followed afterwards."""

PROGRESS = "progress"
"""What an unfinished run has learned: a model folder with the last task's state, and the training that goes on."""

SOURCES = 5
"""Old classes that are named for each new class in a result; the plan has them all."""


@dataclass(frozen=True)
class Run:
    """One method with one seed."""

    method: Method
    seed: int

    @property
    def label(self) -> str:
        """The name in results and figures."""
        return label_of(self.method)

    @property
    def folder(self) -> str:
        """Its folder's name."""
        return f"{self.label}-seed{self.seed}"


class Watcher(Protocol):
    """Is told how an experiment goes."""

    def planned(self, runs: int, kept: Sequence[Run]) -> None:
        """So many runs are to be done; some were finished before and are kept."""

    def run_begun(self, run: Run, work: Sequence[float], done: int = 0) -> None:
        """A run begins, or goes on after `done` tasks; `work` is what each task takes, in a unit of its own."""

    def figures(self, figures: TrainingProgress) -> None:
        """The training of a task goes on."""

    def task_done(self, step: TaskResult) -> None:
        """A task is learned and evaluated."""


def runs_of(recipe: Recipe) -> list[Run]:
    """All runs of a recipe, seed by seed."""
    return [Run(method, seed) for seed in recipe.seeds for method in recipe.methods]


def run(recipe: Recipe, out: Path, *, resume: bool = False, overwrite: bool = False, watcher: Watcher) -> list[Result]:
    """Run what is not finished yet and return all results. Unfinished runs need `resume` or `overwrite`."""
    fabric = fabric_for(recipe.device)
    first = fabric.is_global_zero
    source = open_source(recipe.data)
    recipe = suited(recipe, source)
    split = split_classes(source.classes, recipe.stream)
    tasks = len(split)
    check_memory(recipe, sum(map(len, split)))
    pending = decide_once(fabric, lambda: _prepared(recipe, tasks, out, resume=resume, overwrite=overwrite))
    if first:
        watcher.planned(len(pending), [one for one in runs_of(recipe) if one.folder not in pending])
    if pending:
        stream = TaskStream(load_data_set(source, recipe.data), split)
        check_classes(stream)
        images = fingerprint(stream.data)
        decide_once(fabric, lambda: _same_images(images, [out / folder for folder in pending]))
        for one in runs_of(recipe):
            if one.folder not in pending:
                continue
            folder = out / one.folder
            if first:
                with storage_errors(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                write_json(folder / STARTED, _dump(recipe) | {IMAGES: images})
            result = _one_run(recipe, one, stream, folder, pending[one.folder], watcher)
            if first:
                result.save(folder)
                shutil.rmtree(folder / PROGRESS, ignore_errors=True)
    fabric.barrier()
    return [Result.load(out / one.folder / RESULT) for one in runs_of(recipe)]


def _one_run(recipe: Recipe, one: Run, stream: TaskStream, folder: Path, epochs: list[int], watcher: Watcher) -> Result:
    """Learn and evaluate task after task, from where an earlier process has stopped.

    epochs : those recorded earlier, for some of the tasks or none.
    """
    fabric, store = fabric_for(recipe.device), ModelStore(folder / PROGRESS)
    first = fabric.is_global_zero
    with ExitStack() as opened:
        decide_once(fabric, lambda: opened.enter_context(store.locked()))
        so_far = _taken_up(recipe, one, store, stream)
        fabric.barrier()  # all have read it before it is written again
        log = opened.enter_context(closing(_Log(recipe, folder, so_far.logged)))
        if first:
            watcher.run_begun(one, expected_work(recipe, one.method, stream), len(so_far.steps))
        for task in (stream[number] for number in range(len(so_far.steps), len(stream))):
            told: list[TrainingProgress] = []

            def listen(figures: TrainingProgress, task: int = task.number, told: list[TrainingProgress] = told) -> None:
                if first and not told:
                    epochs.extend([1] * (task - len(epochs)))  # of tasks in which nothing was trained
                    epochs[task : task + 1] = [figures.epochs]
                    write_json(folder / EPOCHS, epochs)
                told[:] = [figures]
                log.figures(figures)
                if first:
                    watcher.figures(figures)

            with signals.deferred():  # a training saves its state, and what follows it is done to the end
                recorded = epochs[task.number] if task.number < len(epochs) else None
                checkpoints = Checkpoints(store.unfinished / str(task.number))
                step, confusion = _learned(recipe, so_far.classifier, task, listen, recorded, checkpoints)
                for last in told:  # none, if the method has not trained at all
                    speed = last.images_per_second  # not a number, if nothing was left to train
                    speed = 0.0 if math.isnan(speed) else speed
                    step = step.model_copy(update={"images_per_second": speed, "epochs": last.epochs})
                log.step(step)
                so_far = _SoFar(so_far.classifier, [*so_far.steps, step], confusion, log.done)
                decide_once(fabric, partial(_save_progress, recipe, one, store, so_far))
                if first:
                    watcher.task_done(step)
            if signals.requested():
                signals.stop()
    return _result(recipe, one, stream, so_far.steps, so_far.confusion)


def _learned(
    recipe: Recipe,
    classifier: IncrementalClassifier,
    task: Task,
    listener: Listener,
    epochs: int | None,
    checkpoints: Checkpoints,
) -> tuple[TaskResult, metrics.Integers]:
    """Learn a task and evaluate; the step, and the confusion matrix."""
    initial = initial_accuracy(classifier, task) if recipe.initial_accuracy and task.number else None
    begun = time.perf_counter()
    classifier.learn(task.train, listener=listener, epochs=epochs, checkpoints=checkpoints)
    seconds = time.perf_counter() - begun
    step, confusion = evaluate(classifier, task.seen_test, classifier.state_.task_sizes, recipe.metric)
    carried = transport_record(classifier)
    return step.model_copy(update={"train_seconds": seconds, "transport": carried, "initial": initial}), confusion


class _SoFar(NamedTuple):
    """An unfinished run between two tasks."""

    classifier: IncrementalClassifier
    steps: list[TaskResult]
    confusion: metrics.Integers
    logged: int
    """Steps of training that were logged."""


def _taken_up(recipe: Recipe, one: Run, store: ModelStore, stream: TaskStream) -> _SoFar:
    """What an earlier process has learned, or a fresh start."""
    classifier = classifier_for(recipe, one)
    if not store.exists:
        return _SoFar(classifier, [], np.zeros((0, 0), dtype=np.int64), 0)
    try:
        snapshot = store.read()
        if one.method.budget(recipe.memory) is None:  # all images ever seen, which the stream has
            seen = [stream[number].train for number in range(len(snapshot.task_sizes))]
            parts = [data.select_classes([number]).images for data in seen for number in range(len(data.classes))]
            snapshot = replace(snapshot, memory=Memory(tuple(parts)))
        classifier.state_ = IncrementalClassifier.from_snapshot(snapshot, device=recipe.device).state_
        steps = [TaskResult.model_validate(step) for step in snapshot.metrics["steps"]]
        confusion = np.array(snapshot.metrics["confusion"], dtype=np.int64)
        return _SoFar(classifier, steps, confusion, int(snapshot.metrics["logged"]))
    except (ModelError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{store.folder}: damaged ({error}). Start the run anew with --overwrite") from None


def _save_progress(recipe: Recipe, one: Run, store: ModelStore, so_far: _SoFar) -> None:
    """Keep what was learned up to now; the training that led there is not needed any more."""
    metrics = {
        "steps": [step.model_dump(mode="json") for step in so_far.steps],
        "confusion": so_far.confusion.tolist(),
        "logged": so_far.logged,
    }
    snapshot = replace(so_far.classifier.snapshot(), metrics=metrics)
    if one.method.budget(recipe.memory) is None:
        snapshot = replace(snapshot, memory=Memory(tuple(images.first(0) for images in snapshot.memory.exemplars)))
    store.keep_only(store.write(snapshot))
    shutil.rmtree(store.unfinished, ignore_errors=True)


def classifier_for(recipe: Recipe, one: Run) -> IncrementalClassifier:
    """The learner that a recipe describes, for one of its runs."""
    return IncrementalClassifier(
        one.method,
        recipe.backbone,
        memory=recipe.memory,
        schedule=recipe.schedule,
        optimiser=recipe.optimiser,
        loss=recipe.loss,
        augmentation=recipe.augmentation or Augmentation(),
        head=recipe.head,
        device=recipe.device,
        seed=one.seed,
    )


def suited(recipe: Recipe, source: Source) -> Recipe:
    """The recipe with the augmentation that suits the data, changed by what the recipe says."""
    said = recipe.augmentation.model_dump(exclude_unset=True) if recipe.augmentation else {}
    return recipe.model_copy(update={"augmentation": source.augmentation.model_copy(update=said)})


def check_classes(stream: TaskStream) -> None:
    """Better now than when the task arrives."""
    counts = stream.data.train.counts()
    for label in (label for task in stream.split for label in task):
        if not counts[label]:
            name = stream.data.train.classes[label]
            raise DataError(f"the class {name!r} has no training images. Leave it out of stream.classes, or add some")
    if not len(stream.data.test):
        raise DataError("no images to test with. Give every class at least two images, or a folder test/")


def check_memory(recipe: Recipe, classes: int) -> None:
    """Better now than when the memory gets too small."""
    for method in recipe.methods:
        budget = method.budget(recipe.memory)
        if method.needs_exemplars and budget is not None and not budget.quota(classes):
            raise ConfigError(
                f"memory: {label_of(method)} needs an exemplar of each of {classes} classes, and there is room for "
                f"{budget.total or 0}. Raise memory.total or per_class"
            )


def evaluate(
    classifier: IncrementalClassifier,
    test: LabelledImages,
    task_sizes: Sequence[int],
    metric: Literal["top1", "top5"] = "top1",
) -> tuple[TaskResult, metrics.Integers]:
    """Figures of a classifier on test images of all classes seen, and the confusion matrix. The times are left at 0."""
    scores = classifier.scores(test)
    own = classifier.own_scores(scores).numpy()
    labels, predicted = test.labels.numpy(), own.argmax(axis=1)
    hits = metrics.top_k_hits(own, labels, 1 if metric == "top1" else 5)
    ncm = None if scores.ncm is None else metrics.top_k_accuracy(scores.ncm.numpy(), labels, 1)
    step = TaskResult(
        classes_seen=len(test.classes),
        top1=_known(metrics.top_k_accuracy(own, labels, 1)),
        top5=_known(metrics.top_k_accuracy(own, labels, 5)),
        head_top1=_known(metrics.top_k_accuracy(scores.head.numpy(), labels, 1)),
        ncm_top1=None if ncm is None else _known(ncm),
        per_task=[_known(value) for value in metrics.accuracy_per_task(hits, labels, task_sizes)],
        train_seconds=0.0,
        images_per_second=0.0,
    )
    return step, metrics.confusion_matrix(predicted, labels, len(test.classes))


def initial_accuracy(
    classifier: IncrementalClassifier, task: Task
) -> dict[Literal["pt", "ncm", "random"], InitialAccuracy] | None:
    """How well a task's new classes are told apart before they are trained, None if the method does not transport."""
    own = classifier.initialise(task.train)
    if own.state_.plan is None:
        return None
    known = len(classifier.classes_)
    test = task.seen_test.select_classes(range(known, len(task.seen_test.classes)))
    random = copy.copy(classifier).set_params(method="replay").initialise(task.train)
    exemplars = classifier.state_.memory.labelled(own.state_.classes)
    assert exemplars is not None  # without any, nothing could have been transported
    centres = class_centres(
        torch.cat([own.features(exemplars), own.features(task.train)]),
        torch.cat([exemplars.labels, task.train.labels + known]),
        len(own.classes_),
    )
    ways: dict[Literal["pt", "ncm", "random"], Tensor] = {
        "pt": own.scores(test).head,
        "ncm": F.linear(F.normalize(own.features(test)), centres),  # by the images that the plan goes by
        "random": random.scores(test).head,
    }
    labels = test.labels.numpy()
    return {
        way: InitialAccuracy(
            among_new=_known(metrics.top_k_accuracy(scores[:, known:].numpy(), labels, 1)),
            among_all=_known(metrics.top_k_accuracy(scores.numpy(), labels + known, 1)),
        )
        for way, scores in ways.items()
    }


def transport_record(classifier: IncrementalClassifier) -> Transport | None:
    """What the newest classes were built from."""
    state = classifier.state_
    if state.plan is None:
        return None
    built = zip(classifier.built_from().items(), effective_sources(state.plan).tolist(), strict=True)
    origins = [
        Origin(
            name=str(name),
            sources=[SourceShare(name=str(old), share=share) for old, share in list(shares.items())[:SOURCES]],
            effective_sources=number,
        )
        for (name, shares), number in built
    ]
    return Transport(plan=[[round(mass, 8) for mass in row] for row in state.plan.tolist()], origins=origins)


def expected_work(recipe: Recipe, method: Method, stream: TaskStream) -> list[float]:
    """What training each task takes: epochs times new images and exemplars; or the seconds of the time budget."""
    if recipe.schedule.seconds_per_task is not None:
        return [recipe.schedule.seconds_per_task] * len(stream.split)
    counts = stream.data.train.counts()
    budget = method.budget(recipe.memory)
    work: list[float] = []
    old: list[int] = []
    for task in stream.split:
        new = [int(counts[label]) for label in task]
        quota = max(counts) if budget is None else budget.quota(max(1, len(old)))
        work.append(recipe.schedule.epochs * (sum(new) + sum(min(int(quota), count) for count in old)))
        old += new
    return work


def _result(
    recipe: Recipe, one: Run, stream: TaskStream, steps: list[TaskResult], confusion: metrics.Integers
) -> Result:
    matrix = metrics.accuracy_matrix([step.per_task for step in steps])
    curve = [float("nan") if (value := getattr(step, recipe.metric)) is None else value for step in steps]
    return Result(
        recipe=_dump(recipe),
        label=one.label,
        method=one.method.name,
        title=one.method.title,
        seed=one.seed,
        class_order_seed=recipe.stream.order_seed if recipe.stream.classes is None else None,
        class_order=[label for task in stream.split for label in task],
        classes=[str(name) for name in stream.classes],
        tasks=list(stream.sizes),
        metric=recipe.metric,
        steps=steps,
        average_incremental_accuracy=metrics.average_incremental_accuracy(curve),
        last_accuracy=curve[-1],
        forgetting=metrics.forgetting(matrix),
        forgetting_per_task=[_known(value) for value in metrics.forgetting_per_task(matrix).tolist()],
        backward_transfer=metrics.backward_transfer(matrix),
        confusion=confusion.tolist(),
        environment=environment(fabric_for(recipe.device)),
    )


def environment(fabric: Fabric) -> dict[str, Any]:
    """What a result was computed with."""
    return {
        "cotransport": __version__,
        "commit": _commit(),
        "command": " ".join(["cotransport", *sys.argv[1:]]),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "device": str(fabric.device),
        "processes": fabric.world_size,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, if it is one."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def _dump(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json")


def _prepared(recipe: Recipe, tasks: int, out: Path, *, resume: bool, overwrite: bool) -> dict[str, list[int]]:
    """The folders of the runs that are to be run, with the epochs of tasks that are recorded for them.

    Old runs are removed where the user says so, after everything has been checked.
    """
    pending: dict[str, list[int]] = {}
    old: list[Path] = []
    for one in runs_of(recipe):
        folder = out / one.folder
        finished, begun = (folder / RESULT).exists(), (folder / STARTED).exists()
        epochs = []
        if overwrite and (finished or begun):
            old.append(folder)
        elif finished:
            _same_recipe(recipe, one, Result.load(folder / RESULT).recipe, folder)
            shutil.rmtree(folder / PROGRESS, ignore_errors=True)  # killed between the result and its removal
            continue
        elif begun and not resume:
            raise RunError(f"{folder}: an unfinished run. Go on with --resume, or start it anew with --overwrite")
        elif begun:
            _same_recipe(recipe, one, _begun_with(folder / STARTED), folder)
            if (folder / EPOCHS).exists():
                epochs = _recorded(folder / EPOCHS, "Start the run anew with --overwrite")
        elif folder.exists() and not folder.is_dir():
            raise RunError(f"{folder}: in the way of a run's folder. Move it, or choose another --out")
        if recipe.follow is not None and not epochs:
            record = Path(recipe.follow) / one.folder / EPOCHS
            epochs = _recorded(
                record, "Let follow name the --out folder of a finished run of the same methods and seeds"
            )
            if len(epochs) != tasks:
                raise RunError(f"{record}: of {len(epochs)} tasks, but there are {tasks}. Follow another run")
        pending[one.folder] = epochs
    for folder in old:
        shutil.rmtree(folder)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out}: cannot be made ({error.strerror}). Choose another --out") from None
    return pending


def _recorded(path: Path, remedy: str) -> list[int]:
    """The epochs of tasks in a record."""
    try:
        epochs = read_json(path)
    except FileNotFoundError:
        raise RunError(f"{path}: not there. {remedy}") from None
    except (OSError, ValueError):
        epochs = None
    if not isinstance(epochs, list) or not all(type(number) is int and number > 0 for number in epochs):
        raise RunError(f"{path}: damaged. {remedy}")
    return epochs


def _begun_with(path: Path) -> dict[str, Any]:
    """The recipe that a run was begun with."""
    try:
        values = read_json(path)
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise RunError(f"{path}: damaged. Start the run anew with --overwrite")
    return values


def _same_recipe(recipe: Recipe, one: Run, begun_with: dict[str, Any], folder: Path) -> None:
    """A run counts only for the recipe it was made with; where it ran and what it logged does not matter."""
    here, there = _dump(recipe), dict(begun_with)
    for key in ("name", "description", "device", "logging", "follow", "methods", "seeds"):
        here.pop(key), there.pop(key, None)
    here["method"] = _method_dump(_dump(recipe), one.label)
    there["method"] = _method_dump(begun_with, one.label)
    different = [key for key in here if here[key] != there.get(key)]
    if different:
        raise RunError(
            f"{folder}: a run of another recipe (it differs in {', '.join(different)}). "
            "Choose another --out, or start anew with --overwrite"
        )


def _same_images(images: str, folders: Sequence[Path]) -> None:
    """An error if an unfinished run began with other images than there are now."""
    for folder in folders:
        if (folder / STARTED).exists() and _begun_with(folder / STARTED).get(IMAGES, images) != images:
            raise RunError(
                f"{folder}: the images have changed since this run began. Put them back and go on with --resume, or "
                "start it anew with --overwrite"
            )


def _method_dump(recipe: dict[str, Any], label: str) -> dict[str, Any] | None:
    found = [method for method in recipe.get("methods", []) if (method.get("label") or method.get("name")) == label]
    return found[0] if found else None


class _Log:
    """The loggers that the recipe asks for, in the run's folder."""

    def __init__(self, recipe: Recipe, folder: Path, done: int = 0) -> None:
        from lightning_fabric.loggers.csv_logs import CSVLogger
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        self._loggers: list[CSVLogger | TensorBoardLogger] = []
        self._begun = self.done = done
        if recipe.logging.csv:
            names = (
                f"csv-{number}" if number else "csv" for number in count()
            )  # the logger would remove what is there
            name = next(name for name in names if not (folder / "logs" / name).exists())
            self._loggers.append(CSVLogger(folder, name="logs", version=name))
        if recipe.logging.tensorboard:
            try:
                logger = TensorBoardLogger(folder, name="logs", version="tensorboard")
                _ = logger.experiment
            except ModuleNotFoundError:
                raise RunError(
                    "logging.tensorboard: TensorBoard is not installed. pip install 'cotransport[tensorboard]'"
                ) from None
            self._loggers.append(logger)

    def figures(self, figures: TrainingProgress) -> None:
        """Log an epoch's end."""
        self.done = self._begun + figures.step
        if figures.epoch_done:
            names = ("task", "epoch", "loss", "accuracy", "learning_rate", "images_per_second")
            self._write({f"train/{name}": float(getattr(figures, name)) for name in names})

    def step(self, step: TaskResult) -> None:
        """Log a task's evaluation."""
        values = {"classes_seen": step.classes_seen, "top1": step.top1, "top5": step.top5, "ncm_top1": step.ncm_top1}
        if step.transport is not None:
            values["effective_sources"] = float(
                np.mean([origin.effective_sources for origin in step.transport.origins])
            )
        self._write({f"test/{name}": float(value) for name, value in values.items() if value is not None})
        self._begun = self.done

    def close(self) -> None:
        """Write what is left."""
        for logger in self._loggers:
            logger.finalize("success")

    def _write(self, values: dict[str, float]) -> None:
        for logger in self._loggers:
            logger.log_metrics(dict(values), step=self.done)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


@dataclass(frozen=True)
class Plan:
    """What a recipe will do, found out without reading an image."""

    recipe: Recipe
    classes: tuple[str, ...]
    split: Split

    def exemplars(self, method: Method) -> list[str]:
        """Exemplars of each class that the method keeps after each task."""
        budget = method.budget(self.recipe.memory)
        seen = np.cumsum([len(task) for task in self.split]).tolist()
        return ["all" if budget is None else str(budget.quota(classes)) for classes in seen]


def plan(recipe: Recipe) -> Plan:
    """The plan of a recipe."""
    source = open_source(recipe.data)
    names = tuple(str(name) for name in source.classes)
    split = split_classes(source.classes, recipe.stream)
    check_memory(recipe, sum(map(len, split)))
    return Plan(recipe, names, split)
