"""The folders of runs: what is finished in them, what can be resumed, and whether it fits the recipe."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from cotransport import jobs
from cotransport.errors import RunError
from cotransport.experiments.preparation import Run, runs_of
from cotransport.experiments.recipe import Recipe, with_new_settings
from cotransport.experiments.results import RESULT, Result
from cotransport.jobs import JobRecord, TrainingRecord
from cotransport.model.folder import ModelFolder
from cotransport.system.files import make_folder, storage_errors

UNFINISHED = "unfinished"
"""Folder in the folder of an unfinished run: its `job.json`, its checkpoints and the state after the last task."""
STATE = "state"
"""Model folder, within UNFINISHED, of the state after the last finished task."""
WITHOUT_EFFECT = ("name", "description", "device", "logging", "methods", "seeds")
"""Parts of a recipe that are not compared when a run is kept or resumed. Its own method is compared by itself."""
RESTART = "Start it again with --overwrite"
Trainings: TypeAlias = dict[int, TrainingRecord]


def is_finished(folder: Path) -> bool:
    """Whether a run's folder has its result."""
    return (folder / RESULT).exists()


def is_started(folder: Path) -> bool:
    """Whether a run was started in its folder, and its record not removed since."""
    return (folder / UNFINISHED / jobs.JOB).exists()


def check_no_unfinished_run(recipe: Recipe, out: Path) -> None:
    """Raise an error if one of a recipe's runs was started in this folder and not finished."""
    for one in runs_of(recipe):
        folder = out / one.folder
        if is_started(folder) and not is_finished(folder):
            raise _unfinished_error(folder)


def _unfinished_error(folder: Path) -> RunError:
    return RunError(f"{folder}: an unfinished run. Resume it with --resume, or start it again with --overwrite")


def prepare_folders(
    recipe: Recipe, runs: list[Run], tasks: int, out: Path, *, resume: bool, overwrite: bool
) -> tuple[dict[str, Result], dict[str, Trainings]]:
    """The results of finished runs, and the epochs that the others follow, both by folder.

    Overwritten runs are removed once everything has been checked and read: a run may follow itself.
    """
    finished: dict[str, Result] = {}
    followed: dict[str, Trainings] = {}
    overwritten: list[Path] = []
    for one in runs:
        folder = out / one.folder
        _check_not_running(folder)
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder}: a file is in the way of a run's folder. Move it, or choose another --out")
        if overwrite and (is_finished(folder) or is_started(folder)):
            overwritten.append(folder)
        elif is_finished(folder):
            result = Result.load(folder / RESULT)
            _check_request(recipe, one, request_of(result.recipe, one.label), folder)
            jobs.remove_job(folder / UNFINISHED)  # the process was killed between the result and the removal
            finished[one.folder] = result
            continue
        elif is_started(folder) and not resume:
            raise _unfinished_error(folder)
        elif is_started(folder):
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


def resume_or_start(recipe: Recipe, one: Run, out: Path, images: str, followed: Trainings) -> JobRecord:
    """The record of a run that was started before, or a new one."""
    folder = out / one.folder
    if is_started(folder):
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
        request=request_of(recipe.model_dump(mode="json"), one.label),
        data=recipe.data.source,
        fingerprint=images,
        trainings=followed,
    )


def wait_until_free(folder: Path, seconds: float) -> None:
    """Wait at most this long while another process works on a run."""
    end = time.monotonic() + seconds
    while ModelFolder(folder / UNFINISHED / STATE).is_locked and time.monotonic() < end:
        time.sleep(0.5)


def request_of(recipe: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The parts of a recipe that one run's result depends on."""
    found = [method for method in recipe.get("methods", []) if (method.get("label") or method.get("name")) == label]
    request = {key: value for key, value in recipe.items() if key not in WITHOUT_EFFECT}
    return request | {"method": found[0] if found else None}


def _check_request(recipe: Recipe, one: Run, earlier: Mapping[str, Any], folder: Path) -> None:
    """Raise an error if an earlier run in a folder does not fit the recipe."""
    wanted = request_of(recipe.model_dump(mode="json"), one.label)
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


def _followed_trainings(recipe: Recipe, one: Run, tasks: int) -> Trainings:
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
