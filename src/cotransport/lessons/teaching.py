"""Lessons: teach a model new classes, compare it with the version before, and promote or refuse the new version.

This is for models in use. An experiment calls the learner directly.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cotransport import jobs
from cotransport.data import Label, LabelledImages
from cotransport.data.duplicates import without_copies
from cotransport.data.fingerprint import fingerprint
from cotransport.data.splits import Splits
from cotransport.errors import ConfigError, CotransportWarning, ModelError, TrainingError
from cotransport.jobs import Job, JobRecord
from cotransport.learner.first_network import way_of
from cotransport.learner.held_out import resized
from cotransport.learner.learning import check_new_classes, learned
from cotransport.learner.lesson_settings import lesson_fit
from cotransport.learner.prediction import Predictor
from cotransport.learner.preparation import prepare, with_held_out
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.learner.wording import lesson_notes
from cotransport.lessons.comparison import compare, report_of
from cotransport.lessons.images import open_lesson_source
from cotransport.lessons.options import LessonOptions, merge_choices
from cotransport.lessons.records import (
    LessonOutcome,
    LessonRecord,
    LessonReport,
    lessons_of,
    read_report,
)
from cotransport.model.manifest import VersionRecord
from cotransport.model.snapshot import Snapshot
from cotransport.model.store import ModelStore
from cotransport.settings.safe_yaml import yaml_text
from cotransport.system.files import AnyPath, storable_name
from cotransport.training.feature_cache import FeatureCache
from cotransport.training.listener import Listener, NullListener
from cotransport.training.processes import processes_for


def learn(
    folder: AnyPath,
    data: AnyPath,
    options: LessonOptions = LessonOptions(),
    *,
    overwrite: bool = False,
    listener: Listener = NullListener(),
) -> LessonOutcome:
    """Teach a model the classes in some data; the first lesson creates the model. An unfinished lesson is resumed.

    overwrite : discard an unfinished lesson instead.
    """
    started = time.perf_counter()
    data, processes, store = str(data), processes_for(options.device), ModelStore(folder)
    listener = listener if processes.is_first else NullListener()
    store.check_place()
    size = _image_size(store, options)
    source = open_lesson_source(data, size, options)  # wrong data is an error before a model folder is created
    with jobs.locked(store, processes):
        model = _open_model(store, options)
        processes.decide_once(lambda: _remove_leftovers(model))
        chosen = merge_choices(options, model.snapshot)
        taught = [{*lesson.new_classes, *lesson.extended_classes} for lesson in model.lessons.values()]
        if options.known_classes == "refuse" and set(source.classes) not in taught:  # before any image is read
            check_new_classes(source.classes, model.classes)
        unfinished = None if overwrite else processes.decide_once(lambda: jobs.read_record(store.unfinished))
        images = source.splits(lesson_fit(model.settings, chosen))
        lesson = _prepare(model, images, chosen, options, unfinished, storable_name(data), listener)
        repeated = processes.decide_once(lambda: _promote_if_already_learned(model, lesson, options))
        if repeated is not None:
            return repeated
        if options.known_classes == "refuse":
            check_new_classes(source.classes, model.classes)
        record = processes.decide_once(lambda: _resume_or_start(store, lesson.record, overwrite=overwrite))
        job = Job(store.unfinished, record, processes)
        with jobs.uninterrupted():
            try:
                outcome = _teach(model, lesson, job, options, listener, started)
            except (ConfigError, TrainingError):  # it would fail in the same way again
                job.remove()
                raise
        return outcome


@dataclass(frozen=True)
class _Model:
    """A model before a lesson; empty before its first one."""

    store: ModelStore
    versions: Sequence[VersionRecord] = ()
    current: int | None = None
    snapshot: Snapshot | None = None
    state: State | None = None
    settings: LearnerSettings | None = None
    report: LessonReport | None = None
    """The report of the current version; None if it was saved from Python."""
    lessons: Mapping[int, LessonRecord] = field(default_factory=dict)
    """The lessons by version. Versions saved from Python have none."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The known classes."""
        return () if self.snapshot is None else self.snapshot.classes

    @property
    def learner(self) -> tuple[State, LearnerSettings] | None:
        """The state and the settings; None before the first lesson."""
        return (self.state, self.settings) if self.state and self.settings else None


@dataclass(frozen=True)
class _PreparedLesson:
    """A lesson that is ready to run."""

    settings: LearnerSettings
    chosen: dict[str, Any]
    train: LabelledImages
    test: LabelledImages
    record: JobRecord
    features: FeatureCache | None
    """Features that are known already."""


def _image_size(store: ModelStore, options: LessonOptions) -> int | None:
    """The image size of the model, or the one that the user asks for; None if the images decide."""
    if store.exists:
        manifest = store.manifest()
        if manifest.current is not None:
            return store.facts(manifest.version(manifest.current)).image_size
    size: int | None = options.chosen.get("image_size")  # the source validates it
    return size


def _open_model(store: ModelStore, options: LessonOptions) -> _Model:
    """The model in a folder, empty if no version is current. Damage is found now, not after the training."""
    if not store.exists:
        return _Model(store)
    manifest = store.manifest()
    lessons = lessons_of(store, manifest)
    if manifest.current is None:
        return _Model(store, manifest.versions, lessons=lessons)
    snapshot, report = store.read(manifest.current), read_report(store, manifest.version(manifest.current))
    _ = snapshot.memory.exemplars, snapshot.held_out.exemplars, store.stored_images(manifest)
    state, settings = restored(snapshot, device=options.device)
    return _Model(store, manifest.versions, manifest.current, snapshot, state, settings, report, lessons)


def _remove_leftovers(model: _Model) -> None:
    """Remove the folder of an unfinished lesson if its record is missing or damaged, or if its version is written.

    In the last case, the process was killed before it could remove the folder.
    """
    try:
        record = jobs.read_record(model.store.unfinished)
    except ValueError:
        record = None
    if record is None or record.id in {lesson.id for lesson in model.lessons.values()}:
        jobs.remove_job(model.store.unfinished)


def _prepare(
    model: _Model,
    images: Splits,
    chosen: dict[str, Any],
    options: LessonOptions,
    unfinished: JobRecord | None,
    data: str,
    listener: Listener,
) -> _PreparedLesson:
    """Divide a lesson's images, and choose its settings.

    images : in their own size.
    """
    images = without_copies(images, listener.reading)
    natural = fingerprint(images)
    same = unfinished is not None and unfinished.request.get("images") == natural
    prepared = prepare(
        images,
        model.learner,
        chosen,
        held_out=options.held_out,
        device=options.device,
        listener=listener,
        decided=way_of(unfinished.request["settings"]) if unfinished and same else None,
    )
    settings, train, test, features = prepared
    seen = (part and resized(part, train.images.size, settings.prediction.fit) for part in images)
    if options.max_forgetting is not None and model.state is not None and not len(model.state.held_out):
        raise ConfigError(
            "max_forgetting: no images of the known classes are held out in this model, so the accuracy lost cannot be "
            "measured. Leave it out"
        )
    request = {
        "parent": model.current,
        "held_out": options.held_out,
        "known_classes": options.known_classes,
        "settings": settings.plain(),
        "images": natural,
    }
    record = JobRecord(request=request, data=data, fingerprint=fingerprint(seen))
    return _PreparedLesson(settings, chosen, train, test, record, features)


def _promote_if_already_learned(model: _Model, lesson: _PreparedLesson, options: LessonOptions) -> LessonOutcome | None:
    """If the same lesson was finished before: make its version current, unless refused, and return its outcome."""
    same = [number for number, finished in model.lessons.items() if finished.id == lesson.record.id]
    current = model.report.lesson if model.report else None
    if current is not None and current.data_id == lesson.record.fingerprint and model.current is not None:
        same = [model.current]  # the same images, perhaps with other settings
    if not same:
        return None
    version = next(one for one in model.versions if one.number == same[-1])
    report = read_report(model.store, version)
    assert report is not None
    refused = None if version.number == model.current else _refusal(report, options.max_forgetting)
    promoted = refused is None and version.number != model.current
    if promoted:
        model.store.make_current(version.number)
    return LessonOutcome(version.number, report, refused, already=True, parent=version.parent, made_current=promoted)


def _resume_or_start(store: ModelStore, record: JobRecord, *, overwrite: bool) -> JobRecord:
    """The record of the same unfinished lesson, or the new record. Another unfinished lesson is an error."""
    found = None if overwrite else jobs.read_record(store.unfinished)
    if found is not None and found.id == record.id:
        return found
    if found is not None and found.request.get("parent") == record.request["parent"]:
        names = [name for name in jobs.differences(record.request, found.request) if name != "images"]
        has_other_images = found.fingerprint != record.fingerprint
        if has_other_images and found.data != record.data:
            names = ["data", *names]
        if names:
            raise jobs.difference_error(
                ModelError,
                store.path,
                f"a lesson from {found.data} is not finished",
                names,
                hint="Repeat its command to resume it, or discard it with --overwrite",
            )
        message = f"{record.data}: the images have changed since this lesson was started, so it starts again"
        warnings.warn(message, CotransportWarning, stacklevel=2)
    jobs.remove_job(store.unfinished)
    return record


def _teach(
    model: _Model, lesson: _PreparedLesson, job: Job, options: LessonOptions, listener: Listener, started: float
) -> LessonOutcome:
    """Learn, compare with the version before, and write the new version to the model folder.

    started : when the lesson began, in seconds of `time.perf_counter`.
    """
    store, settings = model.store, lesson.settings
    notes = lesson_notes(settings, lesson.train, lesson.test, is_first=model.state is None)
    listener.job_started("", notes, work=[1.0], tasks_done=0)
    listener.details(yaml_text({**settings.plain(), "device": settings.device.model_dump(mode="json")}))
    control, extend = job.control(0, listener.training, listener.features), options.known_classes == "extend"
    state = learned(model.state, lesson.train, settings, extend=extend, control=control, features=lesson.features)
    listener.testing()
    state = with_held_out(state, lesson.test, settings)
    before = None if model.learner is None else Predictor(*model.learner)
    temperature = lesson.chosen.get("prediction", {}).get("temperature")
    comparison = compare(before, Predictor(state, settings), state.held_out, temperature)
    record = LessonRecord(
        id=job.record.id,
        data=lesson.record.data,
        data_id=job.record.fingerprint,
        images=len(lesson.train),
        new_classes=[name for name in lesson.train.classes if name not in model.classes],
        extended_classes=[name for name in lesson.train.classes if name in model.classes],
        epochs=job.last_progress.epochs if job.last_progress else None,
        kept=sum(len(state.memory.exemplars[state.classes.index(name)]) for name in lesson.train.classes)
        if len(state.memory)
        else 0,
        held_out=len(lesson.test),
    )
    seconds = control.seconds_before + time.perf_counter() - started
    report = report_of(record, lesson.chosen, comparison, len(model.classes), seconds)
    refused = _refusal(report, options.max_forgetting)
    metrics = report.model_dump(mode="json", by_alias=True)
    calibrated = settings.prediction.model_copy(update={"temperature": comparison.temperature})
    stored = snapshot_of(state, replace(settings, prediction=calibrated))
    snapshot = replace(stored, metrics=metrics)

    def write() -> int:
        number = store.write(snapshot, parent=model.current, refused=refused)
        jobs.remove_job(store.unfinished)
        return number

    version = processes_for(options.device).decide_once(write)
    return LessonOutcome(version, report, refused, already=False, parent=model.current)


def _refusal(report: LessonReport, max_forgetting: float | None) -> str | None:
    """Why a version is not made current; None if it is."""
    if max_forgetting is None or report.accuracy_lost is None:
        return None
    least, most = report.likely_loss or (report.accuracy_lost, report.accuracy_lost)
    if least <= max_forgetting:  # what chance alone can do is no reason
        return None
    return (
        f"the classes known before lose {report.accuracy_lost:.1f} points (from {report.old_before:.1f} to "
        f"{report.old_after:.1f} %; likely between {least:.1f} and {most:.1f} points), and {max_forgetting:g} are "
        "allowed"
    )
