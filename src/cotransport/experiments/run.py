"""Runs a recipe: every method with every seed over the stream of tasks, with one result on disk for each."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cotransport import jobs, metrics
from cotransport.data import Source, load_data_set, open_source
from cotransport.data.fingerprint import fingerprint
from cotransport.data.memory import Memory
from cotransport.errors import ModelError, RunError
from cotransport.experiments.callback import Callback, StartedRun, reported
from cotransport.experiments.environment import environment
from cotransport.experiments.evaluation import evaluate, initial_accuracy, none_if_nan, transport_record
from cotransport.experiments.preparation import (
    Run,
    check_classes,
    check_memory,
    expected_work,
    learner_settings,
    runs_of,
    with_augmentation,
)
from cotransport.experiments.recipe import Recipe
from cotransport.experiments.results import MANY_CLASSES, Result, TaskResult
from cotransport.experiments.run_folders import RESTART, STATE, UNFINISHED, prepare_folders, resume_or_start
from cotransport.experiments.stream import Split, Task, TaskStream, split_classes
from cotransport.jobs import Job
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.model.store import ModelStore
from cotransport.settings.safe_yaml import yaml_text
from cotransport.training.feature_cache import FeatureCache
from cotransport.training.listener import Listener, NullListener
from cotransport.training.processes import processes_for
from cotransport.training.progress import ProgressListener, TrainingProgress


def run(
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    only: str | None = None,
    listener: Listener = NullListener(),
    callbacks: Sequence[Callback] = (),
) -> list[Result]:
    """Run what is not finished yet and return all results. Unfinished runs need `resume` or `overwrite`.

    only : the name of the folder of one of the recipe's runs. The others are left alone.
    listener : shows the progress.
    callbacks : are told what happens, such as the loggers of the recipe (`cotransport.loggers.loggers_for`).
    """
    processes = processes_for(recipe.device)
    environment_at_start = environment(processes)  # before the first task: the checkout may change during a long run
    if not processes.is_first:
        listener, callbacks = NullListener(), ()
    recipe, source, split = _open(recipe)
    runs = [one for one in runs_of(recipe) if only in (None, one.folder)]
    if not runs:
        raise RunError(f"{only}: not a run of the recipe {recipe.name}")
    results, followed = processes.decide_once(
        lambda: prepare_folders(recipe, runs, len(split), out, resume=resume, overwrite=overwrite)
    )
    pending = [one for one in runs if one.folder not in results]
    listener.planned(len(pending), [one.folder for one in runs if one.folder in results])
    if pending:
        stream = TaskStream(
            load_data_set(source, recipe.data, recipe.prediction.fit),
            split,
            recipe.stream.later_images,
            recipe.data.test_images,
        )
        check_classes(stream)
        images = fingerprint(stream.data, listener.reading)
        records = processes.decide_once(
            lambda: {
                one.folder: resume_or_start(recipe, one, out, images, followed.get(one.folder, {})) for one in pending
            }
        )
        features = FeatureCache(recipe.prediction.view) if recipe.freeze_backbone else None  # for all runs
        for number, one in enumerate(pending, start=1):
            job = Job(out / one.folder / UNFINISHED, records[one.folder], processes)
            title = f"{one.label}, seed {one.seed} (run {number} of {len(pending)})"
            results[one.folder] = _finish(
                recipe, one, stream, job, listener, callbacks, title, environment_at_start, features
            )
    return [results[one.folder] for one in runs]


def pending(recipe: Recipe, out: Path, *, resume: bool = False, overwrite: bool = False) -> list[Run]:
    """The runs that are not finished. Recipe and folders are checked as in `run`, and overwritten runs are removed."""
    recipe, _, split = _open(recipe)
    runs = runs_of(recipe)
    finished, _ = prepare_folders(recipe, runs, len(split), out, resume=resume, overwrite=overwrite)
    return [one for one in runs if one.folder not in finished]


def _open(recipe: Recipe) -> tuple[Recipe, Source, Split]:
    """The recipe with augmentation, its images, and the classes of each task. No image is read."""
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    split = split_classes(source.classes, recipe.stream)
    check_memory(recipe, sum(map(len, split)))
    return recipe, source, split


def _finish(
    recipe: Recipe,
    one: Run,
    stream: TaskStream,
    job: Job,
    listener: Listener,
    callbacks: Sequence[Callback],
    title: str,
    environment_at_start: dict[str, Any],
    features: FeatureCache | None,
) -> Result:
    """Learn and evaluate the tasks that are left, and write the result.

    features : features of the backbone that all runs freeze; it gets those that are computed here.
    """
    processes, store = processes_for(recipe.device), ModelStore(job.folder / STATE)
    folder = job.folder.parent
    with jobs.locked(store, processes):
        so_far = _restore(recipe, one, store, stream)
        if features is not None and so_far.state is not None and so_far.state.features is not None:
            features.add(so_far.state.features)
        processes.wait_for_all()  # until all have read the state, because it will be overwritten
        listener.job_started(title, [], expected_work(recipe, one.method, stream), len(so_far.results))
        listener.details(yaml_text(job.record.request))
        classes = tuple(str(name) for name in stream.classes)
        started = StartedRun(folder, recipe, one.label, one.seed, classes, len(so_far.results), so_far.steps_done)
        with reported(started, callbacks) as events:

            def listen(progress: TrainingProgress) -> None:
                events.training(progress)
                listener.training(progress)

            for number in range(len(so_far.results), len(stream)):
                task = stream[number]
                with jobs.uninterrupted():
                    so_far = _learn(recipe, one, so_far, task, job, listen, features)
                    events.task_done(so_far.results[-1])
                    so_far = replace(so_far, steps_done=events.steps_done)
                    processes.decide_once(lambda: _save(recipe, one, store, so_far, job))  # noqa: B023 (called at once)
                    listener.task_done(*_in_words(so_far.results[-1], recipe, one))
                del task  # before the next one is loaded
            result = _result(recipe, one, stream, so_far, job, environment_at_start)
            if processes.is_first:
                result.save(folder)
            events.run_done(result)
    job.remove()
    return result


@dataclass(frozen=True, eq=False)
class _SoFar:
    """A run between two tasks."""

    state: State | None
    """The learner; None before the first task."""
    results: list[TaskResult]
    """One for each finished task."""
    confusion: metrics.Integers
    """The confusion matrix after the last task, as cells (n, 3)."""
    steps_done: int
    """Training steps of all finished tasks."""


def _restore(recipe: Recipe, one: Run, store: ModelStore, stream: TaskStream) -> _SoFar:
    """The state after the last finished task, or a fresh start."""
    if not store.exists:
        return _SoFar(None, [], np.zeros((0, 3), dtype=np.int64), 0)
    try:
        snapshot = store.read()
        if one.method.budget(recipe.memory) is None:  # the memory is all images seen: the stream has them
            seen = [stream[number].train for number in range(len(snapshot.task_sizes))]
            parts = [data.select_classes([number]).images for data in seen for number in range(len(data.classes))]
            snapshot = replace(snapshot, memory=Memory(tuple(parts)))
        state, _ = restored(snapshot, device=recipe.device)
        results = [TaskResult.model_validate(values) for values in snapshot.metrics["steps"]]
        if "confusion_cells" in snapshot.metrics:
            confusion = np.array(snapshot.metrics["confusion_cells"], dtype=np.int64)
        else:  # a run that an earlier release has started
            confusion = metrics.cells_of(snapshot.metrics["confusion"])
        return _SoFar(state, results, confusion, int(snapshot.metrics["logged"]))
    except (ModelError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{store.path}: damaged ({error}). {RESTART}") from None


def _learn(
    recipe: Recipe,
    one: Run,
    so_far: _SoFar,
    task: Task,
    job: Job,
    listen: ProgressListener,
    features: FeatureCache | None,
) -> _SoFar:
    """Learn a task, and evaluate the learner after it."""
    settings = learner_settings(recipe, one)
    initial = None
    if recipe.initial_accuracy and so_far.state is not None:
        initial = initial_accuracy(so_far.state, settings, task)
    control, started = job.control(task.number, listen), time.perf_counter()
    state = learned(so_far.state, task.train, settings, control=control, features=features)
    seconds = control.seconds_before + time.perf_counter() - started
    evaluated = state
    if features is not None and not settings.prediction.flip:  # predictions for mirror images need other features
        _add_test_features(features, state, task, settings)
        evaluated = replace(state, features=features)
    accuracies, confusion = evaluate(Predictor(evaluated, settings), task.seen_test, state.task_sizes, recipe.metric)
    last = job.last_progress  # None if the method does not train at all
    speed = last.images_per_second if last and not math.isnan(last.images_per_second) else 0.0
    result = TaskResult(
        **accuracies.model_dump(),
        train_seconds=seconds,
        images_per_second=speed,
        epochs=last.epochs if last else None,
        transport=transport_record(state),
        initial=initial,
    )
    return _SoFar(state, [*so_far.results, result], confusion, so_far.steps_done)


def _add_test_features(features: FeatureCache, state: State, task: Task, settings: LearnerSettings) -> None:
    """Compute the features of the test images that are still missing.

    Each task's images are a pass of their own, so that rounding does not depend on where a run was interrupted.
    """
    first = 0
    for size in state.task_sizes:
        images = task.seen_test.select_classes(range(first, first + size)).images
        features.features(state.network, images, settings.device)
        first += size


def _save(recipe: Recipe, one: Run, store: ModelStore, so_far: _SoFar, job: Job) -> None:
    """Write the state after a task. The checkpoints of its training are then not needed any more."""
    assert so_far.state is not None
    values = {
        "steps": [result.model_dump(mode="json") for result in so_far.results],
        "confusion_cells": so_far.confusion.tolist(),
        "logged": so_far.steps_done,
    }
    snapshot = replace(snapshot_of(so_far.state, learner_settings(recipe, one)), metrics=values)
    if one.method.budget(recipe.memory) is None:
        snapshot = replace(snapshot, memory=Memory(tuple(images.first(0) for images in snapshot.memory.exemplars)))
    job.save()  # without a record, the state would not be found again
    store.keep_only(store.write(snapshot))
    job.remove_checkpoints()


def _result(
    recipe: Recipe, one: Run, stream: TaskStream, so_far: _SoFar, job: Job, environment_at_start: dict[str, Any]
) -> Result:
    steps = so_far.results
    matrix = metrics.accuracy_matrix([step.per_task for step in steps])
    curve = [math.nan if (value := getattr(step, recipe.metric)) is None else value for step in steps]
    is_large = len(stream.classes) > MANY_CLASSES
    threads = max((training.threads or 0 for training in job.record.trainings.values()), default=0)
    return Result(
        recipe=recipe.model_dump(mode="json"),
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
        forgetting_per_task=[none_if_nan(value) for value in metrics.forgetting_per_task(matrix).tolist()],
        backward_transfer=metrics.backward_transfer(matrix),
        parameters=None if so_far.state is None else _trained_weights(so_far.state, recipe),
        confusion=[] if is_large else metrics.confusion_matrix(so_far.confusion, len(stream.classes)).tolist(),
        confusion_cells=so_far.confusion.tolist() if is_large else None,
        environment={**environment_at_start, "threads": threads or environment_at_start["threads"]},
    )


def _in_words(result: TaskResult, recipe: Recipe, one: Run) -> tuple[str, str]:
    """A task's result in words: its accuracy; and details, such as the accuracy of the method's other prediction."""
    own = result.top1 if recipe.metric == "top1" else result.top5
    by_mean = one.method.predict_with == "ncm"
    name, other = ("head", result.head_top1) if by_mean else ("nearest mean", result.ncm_top1)
    own_text, other_text = ("–" if value is None else f"{value:.1f} %" for value in (own, other))
    classes = "1 class" if result.classes_seen == 1 else f"{result.classes_seen} classes"
    details = f"{name} {other_text}; {result.train_seconds:.1f} s, {result.images_per_second:,.0f} images/s"
    return f"{own_text} on {classes}", details


def _trained_weights(state: State, recipe: Recipe) -> int:
    """Number of weights that training changes: the head's alone, if the backbone is frozen."""
    if recipe.freeze_backbone:
        return sum(weight.numel() for weight in state.network.head.parameters())
    return state.network.trained_weights
