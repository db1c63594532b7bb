"""Resumable work on disk: a run of an experiment, or a lesson of a model.

A job learns one task after another. Its record, `job.json`, says what was asked for, on which images, in which
precision, and how many epochs and threads each training has. However a process ends, the same job resumes from the last
checkpoint, and its result is the same as if it had never been interrupted.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cotransport.errors import ConfigError, CotransportError
from cotransport.model.folder import ModelFolder
from cotransport.system import signals
from cotransport.system.files import read_json, storage_errors, write_json

if TYPE_CHECKING:
    from cotransport.training.inference import PassListener
    from cotransport.training.loop import TrainingControl
    from cotransport.training.processes import Processes
    from cotransport.training.progress import ProgressListener, TrainingProgress

JOB = "job.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class TrainingRecord(_Record):
    """The choices for a task's training that are recorded before its first step, so that it resumes unchanged."""

    epochs: int = Field(ge=1)
    threads: int | None = Field(default=None, ge=1)
    """Threads on the CPU; None if they were not recorded."""


class JobRecord(_Record):
    """What a job was asked to do, and the recorded choices for its trainings."""

    request: dict[str, Any]
    """The settings that were asked for, by name."""
    data: str
    """The images, as the user names them."""
    fingerprint: str
    """Fingerprint of the images."""
    trainings: dict[int, TrainingRecord] = {}
    """The trainings that have started, by task, counted from 0."""
    precision: str | None = None
    """Precision that the job computes in; None if it was not recorded."""

    @property
    def id(self) -> str:
        """A hash of the request and the images: the same for the same job, and for no other."""
        return hashlib.sha256(json.dumps([self.request, self.fingerprint], sort_keys=True).encode()).hexdigest()


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The names of the wanted settings that were found with other values, for an error message."""
    return [name for name, value in wanted.items() if found.get(name) != value]


def read_record(folder: Path) -> JobRecord | None:
    """The record of the job in a folder; None if there is none. Raises ValueError if it is damaged."""
    try:
        return JobRecord.model_validate(_with_integer_keys(read_json(folder / JOB)))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ValueError(str(error).splitlines()[0]) from None


def _with_integer_keys(values: Any) -> Any:  # noqa: ANN401 (whatever is in the file)
    """A record's values with the tasks of `trainings` as integers. In JSON, keys are strings."""
    trainings = values.get("trainings") if isinstance(values, dict) else None
    if not isinstance(trainings, dict) or not all(key.isdecimal() for key in trainings):
        return values
    return values | {"trainings": {int(key): value for key, value in trainings.items()}}


class Job:
    """A job in progress. Its owner also holds the lock of the job's model folder."""

    def __init__(self, folder: Path, record: JobRecord, processes: Processes) -> None:
        """Start a job, or resume it. In another precision it would not end with the same result: a ConfigError."""
        if record.precision not in (None, processes.precision):
            raise ConfigError(
                f"device.precision: {folder} was started in {record.precision} and would be resumed in "
                f"{processes.precision}",
                hint=f"Set it to {record.precision}, or start again with --overwrite",
            )
        self.folder, self.record = folder, record.model_copy(update={"precision": processes.precision})
        self._processes = processes
        self.last_progress: TrainingProgress | None = None

    def control(self, task: int, listener: ProgressListener, features: PassListener | None = None) -> TrainingControl:
        """The control of a task's training: recorded choices, checkpoints and a listener.

        A new training's number of epochs and threads is recorded when it first reports its progress.
        """
        from cotransport.training.checkpoints import Checkpoints
        from cotransport.training.loop import TrainingControl

        settled = self.record.trainings.get(task)
        self.last_progress = None

        def listen(progress: TrainingProgress) -> None:
            if self.last_progress is None:
                planned = settled.epochs if settled else progress.epochs  # a resumed training may end early
                self.settle(task, TrainingRecord(epochs=planned, threads=progress.threads))
            self.last_progress = progress
            listener(progress)

        return TrainingControl(
            listener=listen,
            features=features,
            epochs=settled.epochs if settled else None,
            threads=settled.threads if settled else None,
            checkpoints=Checkpoints(self.folder / str(task)),
        )

    def settle(self, task: int, training: TrainingRecord) -> None:
        """Record the choices for a task's training."""
        self.record = self.record.model_copy(update={"trainings": {**self.record.trainings, task: training}})
        self.save()

    def save(self) -> None:
        """Write the record. Once it is written, the job counts as started."""
        if self._processes.is_first:
            with storage_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / JOB, self.record.model_dump(mode="json"))

    def remove_checkpoints(self) -> None:
        """Remove the checkpoints of all tasks. Call it once the state that they led to is saved."""
        if self._processes.is_first:
            for task in self.record.trainings:
                shutil.rmtree(self.folder / str(task), ignore_errors=True)

    def remove(self) -> None:
        """Remove the job's folder: it is finished, or will never be."""
        if self._processes.is_first:
            remove_job(self.folder)


def remove_job(folder: Path) -> None:
    """Remove a job's folder, if there is one."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Finish the block before a signal stops the process. A training inside saves a checkpoint and stops earlier."""
    with signals.deferred():
        yield
    if signals.requested():
        signals.stop()


@contextmanager
def locked(model: ModelFolder, processes: Processes) -> Iterator[None]:
    """Keep other writers out of a model folder. The first process holds the lock for all."""
    with ExitStack() as opened:
        processes.decide_once(lambda: opened.enter_context(model.locked()))
        yield


def difference_error(
    kind: type[CotransportError], folder: Path, what: str, names: Sequence[str], *, hint: str
) -> CotransportError:
    """The error for an earlier job that differs from the new request in some settings."""
    return kind(f"{folder}: {what}, and the new request differs in {', '.join(names)}", hint=hint)
