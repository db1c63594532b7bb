"""Removing a class from a model. Nothing is trained."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.prediction import Predictor
from cotransport.learner.removal import without_class
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.lessons.comparison import compare, report_of
from cotransport.lessons.ownership import changing, known_class, record_of_change
from cotransport.lessons.records import LessonReport, parse_report
from cotransport.model.pool import PoolDigests
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Device, PredictionSettings
from cotransport.system.files import AnyPath
from cotransport.training.feature_cache import digests_of

if TYPE_CHECKING:
    from torch import nn


class RemovedClass(NamedTuple):
    """A version without a class."""

    version: int
    images: int
    """The number of its exemplars and held-out images, which the new version does not have."""
    held_by: list[int]
    """Earlier versions that have images of the class."""
    report: LessonReport | None
    """The accuracy of the other classes before and after; None for a model that was saved from Python."""


def remove(path: AnyPath, name: str, *, backbone: nn.Module | None = None, device: Device = Device()) -> RemovedClass:
    """Write a version that does not know a class. A later lesson can teach it again.

    backbone : the module that the model was made with, if it was not made with a name.
    """
    with changing(path) as store:
        snapshot, current = store.read(), store.manifest().current
        label = known_class(name, snapshot.classes)
        if len(snapshot.classes) == 1:
            raise ConfigError(f"{name!r}: the only class of this model. To empty the model, roll back to version 0")
        number = snapshot.classes.index(label)
        before, settings = restored(snapshot, backbone=backbone, device=device)
        after = _without_features(without_class(before, number))
        report, prediction = None, settings.prediction
        if snapshot.metrics:
            earlier = parse_report(snapshot.metrics, f"{path}, version {current}")
            report, prediction = _measured(earlier, before, after, settings, f"{name} removed")
        version = store.write(
            replace(
                snapshot_of(after, replace(settings, prediction=prediction), snapshot.chosen),
                metrics={} if report is None else report.model_dump(mode="json", by_alias=True),
            ),
            parent=current,
        )
        images = sum(
            len(memory.exemplars[number])
            for memory in (snapshot.memory, snapshot.held_out)
            if number < len(memory.exemplars)
        )
        return RemovedClass(version, images, _versions_with(store, label, version), report)


def _without_features(state: State) -> State:
    """The state with the stored features of its exemplars and held-out images, and of no others."""
    if state.features is None:
        return state
    kept = {
        digest
        for memory in (state.memory, state.held_out)
        for images in memory.exemplars
        for digest in digests_of(images)
    }
    return replace(state, features=state.features.only(kept))


def _measured(
    earlier: LessonReport, before: State, after: State, settings: LearnerSettings, what: str
) -> tuple[LessonReport, PredictionSettings]:
    """The report of a removal, and how the new version predicts: calibrated on the held-out images that are left."""
    started = time.perf_counter()
    chosen: dict[str, Any] = earlier.chosen
    temperature = chosen.get("prediction", {}).get("temperature")
    comparison = compare(Predictor(before, settings), Predictor(after, settings), after.held_out, temperature)
    report = report_of(
        record_of_change(earlier.lesson, what),
        chosen,
        comparison,
        len(after.classes),
        time.perf_counter() - started,
    )
    return report, settings.prediction.model_copy(update={"temperature": comparison.temperature})


def _versions_with(store: ModelStore, label: str | int, version: int) -> list[int]:
    """All other versions that have images of a class, under any name."""
    manifest = store.manifest()
    digests = PoolDigests(store, manifest)
    images: dict[int, set[bytes]] = {}
    own: set[bytes] = set()
    for one in manifest.versions:
        with suppress(ModelError):  # of a damaged version, nothing is known
            model = store.model(one)
            parts = [zip(model.classes, rows, strict=False) for rows in (model.exemplars, model.held_out)]
            named = [(name, digests.of(rows)) for part in parts for name, rows in part]
            images[one.number] = {digest for _, found in named for digest in found}
            own.update(digest for name, found in named if name == label for digest in found)
    return [number for number, found in images.items() if number != version and found & own]
