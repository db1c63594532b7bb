"""Runs a recipe: every method with every seed over the stream of tasks, with one result on disk for each."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

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
from cotransport.experiments.recipe import Recipe, with_new_settings
from cotransport.experiments.results import MANY_CLASSES, RESULT, Result, TaskResult
from cotransport.experiments.stream import Split, Task, TaskStream, split_classes
from cotransport.jobs import Job, JobRecord, TrainingRecord
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.model.folder import ModelFolder
from cotransport.model.store import ModelStore
from cotransport.settings.safe_yaml import yaml_text
from cotransport.system.files import make_folder, storage_errors
from cotransport.training.feature_cache import FeatureCache
from cotransport.training.listener import Listener, NullListener
from cotransport.training.processes import processes_for
from cotransport.training.progress import ProgressListener, TrainingProgress

UNFINISHED = "unfinished"
"""Folder in the folder of an unfinished run: its `job.json`, its checkpoints and the state after the last task."""
STATE = "state"
"""Model folder, within UNFINISHED, of the state after the last finished task."""
WITHOUT_EFFECT = ("name", "description", "device", "logging", "follow", "methods", "seeds")
"""Parts of a recipe that are not compared when a run is kept or resumed. Its own method is compared by itself."""
RESTART = "Start it again with --overwrite"
_Trainings: TypeAlias = dict[int, TrainingRecord]


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
        lambda: _prepare_folders(recipe, runs, len(split), out, resume=resume, overwrite=overwrite)
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
                one.folder: _resume_or_start(recipe, one, out, images, followed.get(one.folder, {})) for one in pending
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
    finished, _ = _prepare_folders(recipe, runs, len(split), out, resume=resume, overwrite=overwrite)
    return [one for one in runs if one.folder not in finished]


def wait_until_free(folder: Path, seconds: float) -> None:
    """Wait at most this long while another process works on a run."""
    end = time.monotonic() + seconds
    while ModelFolder(folder / UNFINISHED / STATE).is_locked and time.monotonic() < end:
        time.sleep(0.5)


def _open(recipe: Recipe) -> tuple[Recipe, Source, Split]:
    """The recipe with augmentation, its images, and the classes of each task. No image is read."""
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    split = split_classes(source.classes, recipe.stream)
    check_memory(recipe, sum(map(len, split)))
    return recipe, source, split


def adopt(recipe: Recipe, results: Sequence[Result], out: Path) -> None:
    """Save those results into `out` that are runs of the recipe, as if they had been run there. No image is read.

    Runs that were started in `out` are left as they are.
    """
    for result in adopted(recipe, results):
        folder = out / result.folder
        if not (folder / RESULT).exists() and not (folder / UNFINISHED / jobs.JOB).exists():
            with storage_errors(folder):
                make_folder(folder)
            result.save(folder)


def adopted(recipe: Recipe, results: Sequence[Result]) -> list[Result]:
    """Those results that are runs of the recipe, with its labels and its name.

    A result is a run of the recipe if its seed and all settings that affect it are the recipe's. If it has the accuracy
    before training and the recipe does not ask for it, the accuracy is left out.
    """
    found = []
    for one in runs_of(recipe):
        candidates = [result for result in results if result.seed == one.seed]
        for result in sorted(candidates, key=lambda result: result.label != one.label):  # those of the same label first
            own_recipe = _as_run_with(recipe, result)
            measures_more = {"initial_accuracy": recipe.initial_accuracy or bool(result.recipe.get("initial_accuracy"))}
            wanted = _request({**own_recipe, **measures_more}, one.label)
            request = with_new_settings(_request(result.recipe, result.label))
            if not jobs.differences(_without_label(wanted), _without_label(request)):
                steps = result.steps
                if not recipe.initial_accuracy:
                    steps = [step.model_copy(update={"initial": None}) for step in steps]
                found.append(result.model_copy(update={"label": one.label, "recipe": own_recipe, "steps": steps}))
                break
    return found


def _as_run_with(recipe: Recipe, result: Result) -> dict[str, Any]:
    """A recipe with what it leaves open as in a result: augmentation that suits the data, and the device."""
    values, earlier = recipe.model_dump(mode="json"), result.recipe
    chosen = recipe.augmentation.model_dump(mode="json", exclude_unset=True) if recipe.augmentation else {}
    values["augmentation"] = {**earlier.get("augmentation", {}), **chosen}
    values["device"] = earlier.get("device", values["device"])
    return values


def _without_label(request: Mapping[str, Any]) -> dict[str, Any]:
    method = request["method"]
    return {**request, "method": None if method is None else {**method, "label": None}}


def check_no_unfinished_run(recipe: Recipe, out: Path) -> None:
    """Raise an error if one of a recipe's runs was started in this folder and not finished."""
    for one in runs_of(recipe):
        folder = out / one.folder
        if (folder / UNFINISHED / jobs.JOB).exists() and not (folder / RESULT).exists():
            raise _unfinished_error(folder)


def _unfinished_error(folder: Path) -> RunError:
    return RunError(f"{folder}: an unfinished run. Resume it with --resume, or start it again with --overwrite")


def _prepare_folders(
    recipe: Recipe, runs: list[Run], tasks: int, out: Path, *, resume: bool, overwrite: bool
) -> tuple[dict[str, Result], dict[str, _Trainings]]:
    """The results of finished runs, and the epochs that the others follow, both by folder.

    Overwritten runs are removed once everything has been checked and read: a run may follow itself.
    """
    finished: dict[str, Result] = {}
    followed: dict[str, _Trainings] = {}
    overwritten: list[Path] = []
    for one in runs:
        folder = out / one.folder
        _check_not_running(folder)
        is_finished, is_started = (folder / RESULT).exists(), (folder / UNFINISHED / jobs.JOB).exists()
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder}: a file is in the way of a run's folder. Move it, or choose another --out")
        if overwrite and (is_finished or is_started):
            overwritten.append(folder)
        elif is_finished:
            result = Result.load(folder / RESULT)
            _check_request(recipe, one, _request(result.recipe, one.label), folder)
            jobs.remove_job(folder / UNFINISHED)  # the process was killed between the result and the removal
            finished[one.folder] = result
            continue
        elif is_started and not resume:
            raise _unfinished_error(folder)
        elif is_started:
            _check_request(recipe, one, _stored_record(folder).request, folder)
            continue  # its own record says what it follows
        followed[one.folder] = _followed_trainings(recipe, one, tasks)
    for folder in overwritten:
        shutil.rmtree(folder)
    try:
        make_folder(out)
    except OSError as error:
        raise RunError(f"{out}: cannot be made ({error.strerror}). Choose another --out") from None
    return finished, followed


def _resume_or_start(recipe: Recipe, one: Run, out: Path, images: str, followed: _Trainings) -> JobRecord:
    """The record of a run that was started before, or a new one."""
    folder = out / one.folder
    if (folder / UNFINISHED / jobs.JOB).exists():
        record = _stored_record(folder)
        if record.fingerprint != images:
            raise RunError(
                f"{folder}: the images have changed since this run was started. Put them back and use --resume, or "
                "start it again with --overwrite"
            )
        return record
    _check_not_running(folder)  # it may have started while the images were read
    jobs.remove_job(folder / UNFINISHED)
    with storage_errors(folder):
        make_folder(folder)
    return JobRecord(
        request=_request(recipe.model_dump(mode="json"), one.label),
        data=recipe.data.source,
        fingerprint=images,
        trainings=followed,
    )


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
    started = time.perf_counter()
    state = learned(so_far.state, task.train, settings, control=job.control(task.number, listen), features=features)
    seconds = time.perf_counter() - started
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


def _request(recipe: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The parts of a recipe that one run's result depends on."""
    found = [method for method in recipe.get("methods", []) if (method.get("label") or method.get("name")) == label]
    request = {key: value for key, value in recipe.items() if key not in WITHOUT_EFFECT}
    return request | {"method": found[0] if found else None}


def _check_request(recipe: Recipe, one: Run, earlier: Mapping[str, Any], folder: Path) -> None:
    """Raise an error if an earlier run in a folder does not fit the recipe."""
    wanted = _request(recipe.model_dump(mode="json"), one.label)
    names = jobs.differences(wanted, with_new_settings(earlier))
    if names:
        raise jobs.difference_error(
            RunError, folder, "has a run of another recipe", names, hint="Choose another --out, or use --overwrite"
        )


def _check_not_running(folder: Path) -> None:
    """Raise an error if another process is working on a run."""
    if ModelFolder(folder / UNFINISHED / STATE).is_locked:
        raise RunError(f"{folder}: another process is running it. Wait until it is done, or choose another --out")


def _stored_record(folder: Path) -> JobRecord:
    try:
        record = jobs.read_record(folder / UNFINISHED)
    except ValueError as error:
        raise RunError(f"{folder / UNFINISHED / jobs.JOB}: damaged ({error}). {RESTART}") from None
    assert record is not None
    return record


def _followed_trainings(recipe: Recipe, one: Run, tasks: int) -> _Trainings:
    """The epochs of each task in the run that this one follows; empty if it follows none."""
    if recipe.follow is None:
        return {}
    if recipe.schedule.enough is not None:  # the schedule depends on the planned epochs, which no result records
        raise RunError("follow: a training that ends early cannot be followed. Set schedule.enough to null")
    path = Path(recipe.follow) / one.folder / RESULT
    if not path.exists():
        raise RunError(
            f"{path}: not there. Set follow to the --out folder of a finished experiment with the same methods and "
            "seeds"
        )
    epochs = [step.epochs or 1 for step in Result.load(path).steps]
    if len(epochs) != tasks:
        raise RunError(f"{path}: it has {len(epochs)} tasks, but this experiment has {tasks}. Follow another run")
    return {task: TrainingRecord(epochs=number) for task, number in enumerate(epochs)}
