"""The result of a run: one `result.json` for each method and seed. Experiments write it, reports read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cotransport import metrics
from cotransport.errors import RunError
from cotransport.system.files import storage_errors, write_text

RESULT = "result.json"
MANY_CLASSES = 1000
"""With more classes than this, a result lists the cells of its confusion matrix, and has no transport plans."""
ARCHIVE_START = '{"runs": ['
"""The first characters of an archive."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


_RecordType = TypeVar("_RecordType", bound=_Record)


class SourceShare(_Record):
    """An old class that a new class was built from."""

    name: str
    share: float
    """Its share of the new class's first weights, from 0 to 1."""


class Origin(_Record):
    """What a new class's first weights were built from."""

    name: str
    sources: list[SourceShare]
    """The old classes with the largest shares, largest first."""
    effective_sources: float
    """The effective number of old classes behind it: 1 for a single one, their number if all shares are equal."""


class Transport(_Record):
    """How old classes' weights were transported to a task's new classes."""

    plan: list[list[float]]
    """Row i, column j: the mass that goes from old class i to the task's new class j. The total mass is 1.

    Empty if there are more than MANY_CLASSES classes; `origins` then has the largest shares only.
    """
    origins: list[Origin]
    """One for each new class."""


class InitialAccuracy(_Record):
    """Accuracy on a task's new classes before they are trained, in percent."""

    among_new: float | None
    """If only the task's own classes are allowed as answers."""
    among_all: float | None
    """If all classes seen so far are allowed as answers."""


class Accuracies(_Record):
    """Accuracies in percent on the test images of all classes seen, None where undefined."""

    classes_seen: int
    top1: float | None
    top5: float | None
    head_top1: float | None
    """Accuracy of the trained head."""
    ncm_top1: float | None
    """Accuracy of the nearest class mean; None for a method that keeps no exemplars."""
    per_task: list[float | None]
    """The metric on each task's images."""
    test_images: int | None = None
    """Number of images behind these numbers; None in results of earlier releases."""


class TaskResult(Accuracies):
    """The result after one task."""

    train_seconds: float
    images_per_second: float
    epochs: Annotated[int, Field(ge=1)] | None = None
    """Epochs of the task's training."""
    transport: Transport | None = None
    """None where nothing was transported."""
    initial: dict[Literal["pt", "ncm", "random"], InitialAccuracy] | None = None
    """Accuracy on the new classes before training: with transported weights (`pt`), with the nearest class mean (`ncm`)
    and with random weights (`random`). None in the first task, and where it was not asked for."""


class Result(_Record):
    """One method on one stream with one seed."""

    recipe: dict[str, Any]
    label: str
    method: str
    title: str
    """The method's name as people write it."""
    seed: int
    class_order_seed: int | None
    class_order: list[int]
    """The source's class numbers in order of arrival."""
    classes: list[str]
    """Their names, in the same order."""
    tasks: list[int]
    """Number of classes in each task."""
    metric: Literal["top1", "top5"]
    steps: list[TaskResult]
    average_incremental_accuracy: float
    last_accuracy: float
    forgetting: float
    forgetting_per_task: list[float | None]
    backward_transfer: float
    parameters: int | None = None
    """Number of trained weights of the network after the last task; None in results of earlier releases."""
    confusion: list[list[int]]
    """After the last task: rows are true classes, columns predicted ones, both in order of arrival. Empty if there are
    more than MANY_CLASSES classes."""
    confusion_cells: list[tuple[int, int, int]] | None = None
    """The same for more classes: true class, predicted class and number of images, where it is not 0."""
    environment: dict[str, Any]

    @property
    def folder(self) -> str:
        """The name of the run's folder."""
        return f"{self.label}-seed{self.seed}"

    @property
    def curve(self) -> list[float]:
        """The metric after each task, NaN where undefined."""
        return [_number(getattr(step, self.metric)) for step in self.steps]

    @property
    def accuracy_matrix(self) -> metrics.Floats:
        """Row i, column j: accuracy on task j after task i, NaN where undefined."""
        return metrics.accuracy_matrix([step.per_task for step in self.steps])

    @property
    def cells(self) -> metrics.Integers | None:
        """The confusion matrix after the last task, as cells (n, 3); None if the result has none of all classes."""
        if self.confusion_cells is not None:
            return np.array(self.confusion_cells, dtype=np.int64).reshape(-1, 3)
        return metrics.cells_of(self.confusion) if len(self.confusion) == len(self.classes) else None

    def save(self, folder: Path) -> Path:
        """Write `result.json` into a folder. A reader sees all of it or nothing."""
        path = folder / RESULT
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False))
        return path

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read a `result.json`."""
        return _load(cls, path, "a result of a run", "Remove it, or run the experiment again with --overwrite")


class Archive(_Record):
    """The results of several runs in one file, without confusion matrices and transport plans."""

    runs: list[Result]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Archive:
        """An archive of results. A run that is in there twice, with the same times of training, is kept once."""
        runs: dict[str, Result] = {}
        for run in map(_without_large_parts, results):
            runs.setdefault(run.model_dump_json(exclude={"environment"}), run)
        return cls(runs=list(runs.values()))

    def save(self, path: Path) -> None:
        """Write the archive as JSON, with a line for each run. A reader sees all of it or nothing."""
        lines = [json.dumps(run.model_dump(mode="json"), ensure_ascii=False, allow_nan=False) for run in self.runs]
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, ARCHIVE_START + "\n" + ",\n".join(lines) + "\n]}\n")

    @classmethod
    def load(cls, path: Path) -> Archive:
        """Read an archive."""
        remedy = "Give the --out folder of a run, or a file that `cotransport report --archive` wrote"
        return _load(cls, path, "an archive of results", remedy)


def find_results(*places: Path) -> list[Result]:
    """All results in archives and in folders; an error if there is none.

    A folder has runs, up to two levels below, or archives. Runs are sorted by their name.
    """
    archived: list[Result] = []
    paths: set[Path] = set()
    for place in places:
        if place.is_file():
            archived += Archive.load(place).runs
        elif place.is_dir():
            paths |= {path for depth in ("", "*/", "*/*/") for path in place.glob(f"{depth}{RESULT}")}
            archived += [
                run for path in sorted(place.glob("*.json")) if _is_archive(path) for run in Archive.load(path).runs
            ]
        else:
            raise RunError(f"{place}: no such file or folder. Give the --out folder of a run, or an archive of results")
    if not archived and not paths:
        names = ", ".join(map(str, places))
        raise RunError(f"{names}: no finished run in it (no {RESULT}). `cotransport run` makes one")
    return [*archived, *(Result.load(path) for path in sorted(paths))]


def with_other_results(results: Sequence[Result], folder: Path) -> list[Result]:
    """These results and all others in the folder, sorted by the name of their run's folder."""
    own = {result.folder: result for result in results}
    found = {path.parent.name: path for path in folder.glob(f"*/{RESULT}")}
    others = {name: Result.load(path) for name, path in found.items() if name not in own}
    return [result for _, result in sorted((own | others).items())]


def _is_archive(path: Path) -> bool:
    """Whether a file begins like an archive. A folder may have other JSON files."""
    try:
        with path.open("rb") as file:
            return file.read(len(ARCHIVE_START)) == ARCHIVE_START.encode()
    except OSError:
        return False


def _load(kind: type[_RecordType], path: Path, what: str, remedy: str) -> _RecordType:
    """Read a record from a JSON file. If it is something else, the error says what it should be, and the remedy."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValidationError, UnicodeDecodeError) as error:
        reason = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error), "loc": ()}
        field = ".".join(str(part) for part in reason["loc"])
        raise RunError(f"{path}: not {what} ({field + ': ' if field else ''}{reason['msg']}). {remedy}") from None


def _without_large_parts(result: Result) -> Result:
    steps = [step.model_copy(update={"transport": None}) for step in result.steps]
    return result.model_copy(update={"steps": steps, "confusion": [], "confusion_cells": None})


def _number(value: float | None) -> float:
    return float(np.nan) if value is None else value
