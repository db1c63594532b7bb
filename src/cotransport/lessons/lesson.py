"""A classifier in use: lessons into a model folder, with held-out images, promotion and a way back.

All of it lies around the estimator, so that an experiment does none of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from cotransport.data import (
    Images,
    Label,
    LabelledImages,
    Source,
    concatenate,
    evaluation_squares,
    open_source,
    prefer_folder,
    resize,
)
from cotransport.data.fingerprint import fingerprint
from cotransport.data.memory import Memory
from cotransport.data.splits import DataSet, Splits, hold_out
from cotransport.errors import ConfigError, CotransportWarning, DataError, ModelError, TrainingError
from cotransport.learner.estimator import SECTIONS, IncrementalClassifier
from cotransport.lessons.suggestions import is_grey, largest_side, suggested
from cotransport.methods import make_method
from cotransport.model.store import Facts, ModelStore, Snapshot, VersionRecord, digest_of
from cotransport.settings.sections import Backbone, Budget, Data, Device, Schedule, check_backbone_name
from cotransport.settings.validation import nearest, validated
from cotransport.system import signals
from cotransport.system.files import read_json, storable_name, storage_errors, write_json
from cotransport.training.checkpoints import Checkpoints
from cotransport.training.loop import TrainingProgress, decide_once, fabric_for

HELD_OUT = 0.1
"""Share of each class that is kept to test with,"""
HELD_OUT_AT_MOST = 50
"""in at most so many images."""
LESSON = "lesson.json"
"""In the folder of an unfinished lesson: what it is, and how many epochs it has."""
_FIXED = ("backbone", "image_size")
"""Settings that a model keeps for life."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Change(_Record):
    """A class before and after a lesson: accuracy in percent on its held-out images, None where there is none."""

    name: Label
    images: int
    before: float | None
    """None for a new class."""
    after: float | None


class Lesson(_Record):
    """What a lesson was about."""

    id: str
    """The same for the same images, settings and version before it."""
    data: str
    data_id: str
    """The same for the same images."""
    images: int
    new_classes: list[Label]
    extended_classes: list[Label]
    epochs: int | None = None
    """None if nothing was trained."""


class Report(_Record):
    """What came of a lesson. Accuracies in percent of the held-out images."""

    lesson: Lesson
    chosen: dict[str, Any]
    """Settings that the user has asked for, now or in an earlier lesson."""
    per_class: list[Change]
    accuracy: float | None
    """Of all classes."""
    old_before: float | None
    """Of the classes that were known before the lesson, before it,"""
    old_after: float | None
    """and after it."""
    forgetting: float | None
    """By how many points the accuracy of the classes that were known before has fallen, None in the first lesson."""
    times: dict[str, Any]


class Outcome(NamedTuple):
    """A lesson's report, and the version that it has led to."""

    version: int
    report: Report
    refused: str | None
    """Why the version is not the current one, if it is not."""
    already: bool
    """Whether the model had learned exactly these images before, so that nothing was trained."""
    parent: int | None
    """The version that was taught."""
    promoted: bool = False
    """Whether an earlier version was made current instead."""


@dataclass(frozen=True)
class Wishes:
    """What the user asks for."""

    chosen: Mapping[str, Any] = field(default_factory=dict)
    """Settings by section, as in a recipe; the others are suggested by the data."""
    held_out: float = HELD_OUT
    known_classes: Literal["refuse", "extend"] = "refuse"
    max_forgetting: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    """Columns of a Hugging Face data set."""
    device: Device = Device()


class Observer(Protocol):
    """Is told how a lesson goes."""

    def begun(self, told: Sequence[str]) -> None:
        """What was chosen for the lesson."""

    def figures(self, figures: TrainingProgress) -> None:
        """The training goes on."""


class Silent:
    """Says nothing."""

    def begun(self, told: Sequence[str]) -> None:
        """Nothing."""

    def figures(self, figures: TrainingProgress) -> None:
        """Nothing."""


def learn(
    folder: Path, data: str, wishes: Wishes = Wishes(), *, overwrite: bool = False, observer: Observer = Silent()
) -> Outcome:
    """Teach the model in a folder the classes in some data, or begin it; goes on with the same lesson if it was killed.

    overwrite : throw a lesson that was not finished away.
    """
    fabric, store = fabric_for(wishes.device), ModelStore(folder)
    _source(data, None, wishes)  # an error before a folder is made for it
    with ExitStack() as opened:
        decide_once(fabric, lambda: opened.enter_context(store.locked()))
        model = _opened(store)
        decide_once(fabric, lambda: _tidied(model))
        pupil = _prepared(model, data, wishes, gpu=fabric.device.type != "cpu")
        known = decide_once(fabric, lambda: _learned_before(model, pupil, wishes))
        if known is not None:
            return known
        if wishes.known_classes == "refuse":
            _check_new(pupil.train.classes, model.classes)
        epochs = decide_once(fabric, lambda: _taken_up(store, pupil, overwrite=overwrite))
        with signals.deferred():  # a training saves its state, and what follows it is done to the end
            try:
                outcome = _taught(model, pupil, wishes, epochs, observer)
            except (ConfigError, TrainingError):  # it would end the same way again
                if fabric.is_global_zero:
                    shutil.rmtree(store.unfinished, ignore_errors=True)
                raise
        if signals.requested():
            signals.stop()
        return outcome


class _Model(NamedTuple):
    """A model folder as it is before a lesson."""

    store: ModelStore
    versions: Sequence[VersionRecord]
    current: int | None
    snapshot: Snapshot | None
    report: Report | None
    """Of the current version; None where it was saved from Python."""
    lessons: Mapping[int, Lesson]
    """What each version was taught, where it was by a lesson."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """The classes that are known."""
        return () if self.snapshot is None else self.snapshot.classes


class _Pupil(NamedTuple):
    """A lesson that is to be given: to whom, with which images, and by which it is recognised."""

    classifier: IncrementalClassifier
    chosen: dict[str, Any]
    train: LabelledImages
    test: LabelledImages
    data: str
    """What the user calls the images,"""
    data_id: str
    """and by which they are recognised."""
    request: dict[str, Any]

    @property
    def id(self) -> str:
        """The same for the same lesson, and for no other."""
        return hashlib.sha256(json.dumps([self.request, self.data_id], sort_keys=True).encode()).hexdigest()


def _opened(store: ModelStore) -> _Model:
    if not store.exists:
        return _Model(store, [], None, None, None, {})
    manifest = store.manifest()
    if manifest.current is None:
        raise ModelError(f"{store.folder}: no version is current. Choose one with `cotransport rollback --to`")
    snapshot, report = store.read(manifest.current), _report(store, manifest.version(manifest.current))
    # better damaged now than after the training
    _ = snapshot.memory.exemplars, snapshot.held_out.exemplars, store.stored(manifest)
    lessons: dict[int, Lesson] = {}
    for version in manifest.versions:
        with suppress(ModelError):  # a damaged version does not keep the current one from learning
            if (found := _report(store, version)) is not None:
                lessons[version.number] = found.lesson
    return _Model(store, manifest.versions, manifest.current, snapshot, report, lessons)


def _prepared(model: _Model, data: str, wishes: Wishes, *, gpu: bool) -> _Pupil:
    """A lesson's images and settings."""
    chosen = _merged_wishes(model, wishes)
    images = _images(model, data, chosen, wishes, gpu=gpu)
    train, test = _divided(model, images, wishes)
    exemplars = 0 if model.snapshot is None else len(model.snapshot.memory)
    classifier = _classifier(model.snapshot, chosen, suggested(train, exemplars, gpu=gpu), wishes.device)
    if wishes.max_forgetting is not None and model.snapshot is not None and not len(model.snapshot.held_out):
        raise ConfigError(
            "max_forgetting: no images of the known classes are held out in this model, so what is forgotten cannot be "
            "measured. Leave it out"
        )
    request = {
        "parent": model.current,
        "held_out": wishes.held_out,
        "known_classes": wishes.known_classes,
        "settings": classifier.settings(),
    }
    return _Pupil(classifier, chosen, train, test, storable_name(data), fingerprint(images), request)


def _learned_before(model: _Model, pupil: _Pupil, wishes: Wishes) -> Outcome | None:
    """What came of the very same lesson, if it was finished before; it is current then, unless it forgets too much."""
    same = [number for number, lesson in model.lessons.items() if lesson.id == pupil.id]
    if model.report is not None and model.report.lesson.data_id == pupil.data_id and model.current is not None:
        same = [model.current]  # with other settings, perhaps
    if not same:
        return None
    store, version = model.store, next(one for one in model.versions if one.number == same[-1])
    report = _report(store, version)
    assert report is not None
    refused = None if version.number == model.current else _refusal(report, wishes.max_forgetting)
    promoted = refused is None and version.number != model.current
    if promoted:
        store.make_current(version.number)
    return Outcome(version.number, report, refused, already=True, parent=version.parent, promoted=promoted)


def _tidied(model: _Model) -> None:
    """Remove what is left of a lesson that is finished, or was never begun: its process was killed at the very end."""
    begun = _begun(model.store)
    if not begun or begun.get("id") in {lesson.id for lesson in model.lessons.values()}:
        shutil.rmtree(model.store.unfinished, ignore_errors=True)


def _taught(model: _Model, pupil: _Pupil, wishes: Wishes, epochs: int | None, observer: Observer) -> Outcome:
    """Give a lesson, look at what came of it, and keep it."""
    fabric, store, classifier = fabric_for(wishes.device), model.store, pupil.classifier
    first, begun, told = fabric.is_global_zero, time.perf_counter(), list[TrainingProgress]()
    if first:
        observer.begun(_told(classifier, pupil.train, pupil.test))

    def listen(figures: TrainingProgress) -> None:
        if first and not told:
            record = {"id": pupil.id, "data": pupil.data, "data_id": pupil.data_id, "epochs": figures.epochs}
            write_json(store.unfinished / LESSON, pupil.request | record)
        told[:] = [figures]
        if first:
            observer.figures(figures)

    before = model.snapshot
    old = None if before is None else IncrementalClassifier.from_snapshot(before, device=wishes.device)
    classifier.learn(
        pupil.train,
        known_classes=wishes.known_classes,
        listener=listen,
        epochs=epochs,
        checkpoints=Checkpoints(store.unfinished),
    )
    held_out = _held_out(before, pupil.test, classifier.state_.classes)
    lesson = Lesson(
        id=pupil.id,
        data=pupil.data,
        data_id=pupil.data_id,
        images=len(pupil.train),
        new_classes=[name for name in pupil.train.classes if name not in model.classes],
        extended_classes=[name for name in pupil.train.classes if name in model.classes],
        epochs=told[-1].epochs if told else None,
    )
    changes, seconds = compared(old, classifier, held_out), time.perf_counter() - begun
    report = _summary(lesson, pupil.chosen, changes, len(model.classes), seconds)
    refused = _refusal(report, wishes.max_forgetting)
    snapshot = replace(classifier.snapshot(), held_out=held_out, metrics=report.model_dump(mode="json"))

    def keep() -> int:
        number = store.write(snapshot, parent=model.current, refused=refused)
        shutil.rmtree(store.unfinished, ignore_errors=True)
        return number

    return Outcome(decide_once(fabric, keep), report, refused, already=False, parent=model.current)


def compared(before: IncrementalClassifier | None, after: IncrementalClassifier, held_out: Memory) -> list[Change]:
    """Accuracy of each class on its held-out images, by two classifiers, the first of which may know fewer classes."""
    classes = after.state_.classes
    test = held_out.labelled(classes)
    counts = [0] * len(classes) if test is None else test.counts().tolist()
    now = _accuracies(after, test, len(classes))
    known = 0 if before is None else len(before.state_.classes)
    then: list[float | None] = []
    if before is not None and test is not None:
        old = torch.nonzero(test.labels < known).flatten()
        then = _accuracies(before, test.take(old), known)
    return [
        Change(name=name, images=counts[number], before=then[number] if number < len(then) else None, after=now[number])
        for number, name in enumerate(classes)
    ]


def _accuracies(classifier: IncrementalClassifier, test: LabelledImages | None, classes: int) -> list[float | None]:
    if test is None or not len(test):
        return [None] * classes
    hits = classifier.decision(test).argmax(dim=1) == test.labels
    return [
        100 * float(own.double().mean()) if len(own := hits[test.labels == number]) else None
        for number in range(classes)
    ]


def _summary(lesson: Lesson, chosen: Mapping[str, Any], per_class: list[Change], known: int, seconds: float) -> Report:
    old_before = mean(per_class[:known], "before")
    old_after = mean(per_class[:known], "after")
    return Report(
        lesson=lesson,
        chosen=dict(chosen),
        per_class=per_class,
        accuracy=mean(per_class, "after"),
        old_before=old_before,
        old_after=old_after,
        forgetting=None if old_before is None or old_after is None else old_before - old_after,
        times={"seconds": seconds},
    )


def mean(changes: Sequence[Change], when: Literal["before", "after"]) -> float | None:
    """Percentage of the images that are recognised."""
    tested = [(value, change.images) for change in changes if (value := getattr(change, when)) is not None]
    images = sum(count for _, count in tested)
    return sum(value * count for value, count in tested) / images if images else None


def _refusal(report: Report, max_forgetting: float | None) -> str | None:
    if max_forgetting is None or report.forgetting is None or report.forgetting <= max_forgetting:
        return None
    return (
        f"it forgets {report.forgetting:.1f} points (from {report.old_before:.1f} to {report.old_after:.1f} % on the "
        f"classes known before), and {max_forgetting:g} are allowed"
    )


def _report(store: ModelStore, version: VersionRecord) -> Report | None:
    """A version's report, None if it was saved from Python without a lesson."""
    metrics = store.metrics(version)
    return report_of(metrics, f"{store.folder}, version {version.number}") if metrics else None


def report_of(metrics: Mapping[str, Any], where: str) -> Report:
    """The report in a version's metrics."""
    try:
        return Report.model_validate(metrics)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"{where}: metrics: {field}: {first['msg']}. Restore it from a backup") from None


def _merged_wishes(model: _Model, wishes: Wishes) -> dict[str, Any]:
    """What the user has asked for in all lessons; the latest word counts."""
    known = ("method", "seed", *_FIXED, *SECTIONS)
    for key, value in wishes.chosen.items():
        if key not in known:
            raise ConfigError(f"{key}: unknown setting{nearest(key, known)} Known: {', '.join(known)}, data, device")
        if key in SECTIONS and not isinstance(value, Mapping):
            raise ConfigError(f"{key}: give one of its keys, such as {key}.KEY=VALUE")
    earlier: dict[str, Any] = {}
    if model.snapshot is not None:  # one that was saved from Python has all of its settings from its user
        earlier = dict(model.snapshot.settings if model.report is None else model.report.chosen)
        _check_fixed(model.snapshot, wishes.chosen)
    return earlier | {
        key: {**_section(earlier, key), **value} if key in SECTIONS and key != "memory" else value
        for key, value in wishes.chosen.items()
    }


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name) or {}
    if not isinstance(section, Mapping):
        raise ModelError(f"the model's settings: {name} is not a section. Restore it from a backup")
    return section


def _check_fixed(before: Snapshot, chosen: Mapping[str, Any]) -> None:
    """A model keeps its backbone and image size."""
    if "image_size" in chosen and chosen["image_size"] not in {None, before.image_size}:
        raise ConfigError(
            f"image_size: this model sees {before.image_size} x {before.image_size} pixels for life. Begin a new model "
            "for another size"
        )
    own = before.settings.get("backbone")
    if "backbone" in chosen and own is not None and _backbone(chosen["backbone"]) != _backbone(own):
        raise ConfigError(f"backbone: this model keeps {_backbone(own).name}. Begin a new model for another")


def _backbone(value: object) -> Backbone:
    if isinstance(value, Backbone):
        return value
    named = {"name": value} if isinstance(value, str) else value
    settings = validated(Backbone, named, "backbone")  # type: ignore[arg-type]  # what is no mapping is refused
    check_backbone_name(settings)
    return settings


def _source(data: str, image_size: int | None, wishes: Wishes) -> Source:
    """Where labelled images come from."""
    if "image_size" in wishes.data:
        raise ConfigError("data.image_size: a model has one for life. Give it with --image-size when it is made")
    settings = {**wishes.data, "source": prefer_folder(data), "image_size": image_size}
    source = open_source(validated(Data, settings, "data"))
    _ = source.classes  # an error if there are none
    return source


def _images(model: _Model, data: str, chosen: Mapping[str, Any], wishes: Wishes, *, gpu: bool) -> Splits:
    """A lesson's images, in the size that the network sees.

    Known classes are found before any image is read, unless it may be an earlier lesson once more.
    """
    size = chosen.get("image_size") if model.snapshot is None else model.snapshot.image_size
    source = _source(data, size, wishes)
    taught = [{*lesson.new_classes, *lesson.extended_classes} for lesson in model.lessons.values()]
    if wishes.known_classes == "refuse" and set(source.classes) not in taught:
        _check_new(source.classes, model.classes)
    train, test = source.splits()
    if size is None and train.images.size > largest_side(gpu):
        train = replace(train, images=resize(train.images, largest_side(gpu)))
    return Splits(train, test and replace(test, images=resize(test.images, train.images.size)))


def _divided(model: _Model, images: Splits, wishes: Wishes) -> DataSet:
    """Images to learn from and images to hold out.

    Known classes that are to learn more keep the held-out images that they have, and none of these is learned from.
    """
    train, test = images
    known = torch.tensor([name in model.classes for name in train.classes])[train.labels]
    more, new = (train.take(torch.nonzero(kind).flatten()) for kind in (known, ~known))
    if test is None:
        new, test = hold_out(new, wishes.held_out, HELD_OUT_AT_MOST)
    else:
        fresh = [number for number, name in enumerate(test.classes) if name not in model.classes]
        kept = [torch.nonzero(test.labels == number).flatten()[:HELD_OUT_AT_MOST] for number in fresh]
        test = test.take(torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64))
    if model.snapshot is None or not len(more):
        return DataSet(new, test)
    more = _without(more, model.snapshot.held_out)
    both = replace(new, images=concatenate([more.images, new.images]), labels=torch.cat([more.labels, new.labels]))
    return DataSet(both, test)


def _without(data: LabelledImages, others: Memory) -> LabelledImages:
    """Images that are not among others."""
    seen = {digest_of(images.item(place)) for images in others.exemplars for place in range(len(images))}
    other = [digest_of(data.images.item(place)) not in seen for place in range(len(data))]
    return data.take(torch.nonzero(torch.tensor(other)).flatten())


def _check_new(classes: Sequence[Label], known: Sequence[Label]) -> None:
    both = [repr(name) for name in classes if name in known]
    if both:
        them = "it" if len(both) == 1 else "them"
        some = ", ".join(both[:5]) + (f" and {len(both) - 5} more" if len(both) > 5 else "")
        raise DataError(
            f"{'class' if len(both) == 1 else 'classes'} {some}: known already. Leave {them} out, or let {them} learn "
            "from these images too with --known-classes extend"
        )


def _classifier(
    before: Snapshot | None, chosen: Mapping[str, Any], suggestion: Mapping[str, Any], device: Device
) -> IncrementalClassifier:
    """The model's classifier, or a new one, with what is asked for and, beside that, what is suggested."""
    wanted = {name: {**suggestion.get(name, {}), **_section(chosen, name)} for name in SECTIONS}
    wanted["memory"] = chosen.get("memory", suggestion["memory"])  # one kind of budget excludes the other
    sections = {name: validated(kind, wanted[name], name) for name, kind in SECTIONS.items()}
    given, schedule = _section(chosen, "schedule"), sections["schedule"]
    if isinstance(schedule, Schedule) and "learning_rate" in given and "later_learning_rate" not in given:
        sections["schedule"] = schedule.model_copy(update={"later_learning_rate": schedule.learning_rate / 2})
    if before is None:
        method = make_method(chosen.get("method", suggestion["method"]))
        backbone = _backbone(chosen.get("backbone", suggestion["backbone"]))
        seed = chosen.get("seed", 0)
        return IncrementalClassifier(method, backbone, seed=seed, device=device, **sections)  # type: ignore[arg-type]
    classifier = IncrementalClassifier.from_snapshot(before, device=device)
    classifier.set_params(**sections)
    if "method" in chosen:
        classifier.set_params(method=make_method(chosen["method"]))
    if "seed" in chosen:
        classifier.set_params(seed=chosen["seed"])
    return classifier


def _told(classifier: IncrementalClassifier, train: LabelledImages, test: LabelledImages) -> list[str]:
    """What is done with which settings, in words."""
    schedule, budget = classifier.schedule, classifier.memory
    assert isinstance(schedule, Schedule)
    assert isinstance(budget, Budget)
    seconds, size = schedule.seconds_per_task, train.images.size
    epochs = "1 epoch" if schedule.epochs == 1 else f"{schedule.epochs} epochs"
    length = epochs if seconds is None else f"epochs for about {seconds:g} s"
    mirrored = "mirrored" if getattr(classifier.augmentation, "flip", False) else "not mirrored"
    method = make_method(classifier.method)
    rate = schedule.learning_rate
    if hasattr(classifier, "state_") and not method.from_scratch:
        rate = schedule.later_learning_rate or rate
    allowed = method.budget(budget)
    kept = "all" if allowed is None else "none"
    if allowed is not None and (allowed.per_class or allowed.total):
        kept = f"{allowed.per_class} of each class" if allowed.per_class else f"{allowed.total:,} in all"
    classes = "1 class" if len(train.classes) == 1 else f"{len(train.classes)} classes"
    images = "1 image" if len(train) == 1 else f"{len(train):,} images"
    return [
        f"{classes}, {images} to learn from and {len(test):,} held out to test with",
        f"{method.title}, backbone {_backbone(classifier.backbone).name}, "
        f"{size} x {size} pixels, images remembered: {kept}",
        f"{length} in batches of {schedule.batch_size}, learning rate {rate:g}, images {mirrored}"
        + (" (they are grey)" if mirrored != "mirrored" and is_grey(train) else ""),
    ]


def _begun(store: ModelStore) -> dict[str, Any]:
    """What is written of a lesson that was begun; nothing if there is none, or it is damaged."""
    try:
        begun = read_json(store.unfinished / LESSON)
    except (OSError, ValueError):
        begun = {}
    return begun if isinstance(begun, dict) else {}


def _taken_up(store: ModelStore, pupil: _Pupil, *, overwrite: bool) -> int | None:
    """Prepare the folder of a lesson; the epochs that were settled for it if it was begun before."""
    begun = _begun(store)
    different = [key for key, value in pupil.request.items() if begun.get(key) != value]
    changed = begun.get("data_id") != pupil.data_id
    if changed and begun.get("data") != pupil.data:
        different.insert(0, "data")
    of_this_version = bool(begun) and begun.get("parent") == pupil.request["parent"]
    if different and of_this_version and not overwrite:
        raise ModelError(
            f"{store.folder}: a lesson from {begun.get('data')} is not finished, and this one differs in "
            f"{', '.join(different)}. Repeat its command to go on with it, or throw it away with --overwrite"
        )
    epochs = begun.get("epochs")
    if begun and changed and not different and not overwrite:
        message = f"{pupil.data}: the images have changed since this lesson was begun, so it begins anew"
        warnings.warn(message, CotransportWarning, stacklevel=2)
    if overwrite or begun.get("id") != pupil.id or not isinstance(epochs, int) or epochs < 1:
        epochs = None  # what is left of another lesson, or of other images, must not be gone on with
        shutil.rmtree(store.unfinished, ignore_errors=True)
    with storage_errors(store.unfinished):
        store.unfinished.mkdir(exist_ok=True)
    return epochs


def _held_out(before: Snapshot | None, test: LabelledImages, classes: Sequence[Label]) -> Memory:
    """The held-out images of all classes, the new ones after those that are there."""
    kept = () if before is None else before.held_out.exemplars
    parts: list[Images] = []
    for number, name in enumerate(classes):
        own: list[Images] = [kept[number]] if number < len(kept) else []
        if name in test.classes:
            own.append(test.images.take(torch.nonzero(test.labels == test.classes.index(name)).flatten()).detached())
        parts.append(concatenate(own) if own else test.images.first(0))
    return Memory(tuple(parts))


class Prediction(NamedTuple):
    """What is said of one image: the likeliest classes, or why nothing can be said."""

    path: str
    classes: tuple[tuple[Label, float], ...]
    """With their probabilities, the likeliest first."""
    error: str | None = None


def predictions(classifier: IncrementalClassifier, paths: Sequence[Path], top: int = 1) -> Iterator[Prediction]:
    """What the classifier says of image files, in their order. A file that is no image does not stop the others."""
    names, errors = classifier.classes_.tolist(), dict[int, DataError]()
    for rows, images in evaluation_squares(paths, classifier.state_.image_size, errors.__setitem__):
        shares, numbers = classifier.probabilities(images).topk(min(top, len(names)), dim=1)
        answers = zip(range(rows.start, rows.stop), shares.tolist(), numbers.tolist(), strict=True)
        for place, own_shares, own_numbers in answers:
            if place in errors:
                yield Prediction(str(paths[place]), (), str(errors.pop(place)))
            else:
                best = zip((names[number] for number in own_numbers), own_shares, strict=True)
                yield Prediction(str(paths[place]), tuple(best))


def evaluate(
    folder: Path, data: str | None = None, *, version: int | None = None, wishes: Wishes = Wishes()
) -> list[Change]:
    """Accuracy of each class on its held-out images, or on other data: of train and test parts the latter."""
    snapshot = ModelStore(folder).read(version)
    classifier = IncrementalClassifier.from_snapshot(snapshot, device=wishes.device)
    if data is None:
        test = snapshot.held_out.labelled(snapshot.classes)
        if test is None:
            raise ModelError(f"{folder}: no images were held out. Give a folder with a subfolder of images per class")
    else:
        test = _test_images(snapshot, data, wishes)
    counts = test.counts().tolist()
    accuracies = _accuracies(classifier, test, len(snapshot.classes))
    return [
        Change(name=name, images=counts[number], before=None, after=accuracies[number])
        for number, name in enumerate(snapshot.classes)
        if counts[number]
    ]


def _test_images(snapshot: Snapshot, data: str, wishes: Wishes) -> LabelledImages:
    """Labelled images, numbered as the model numbers its classes."""
    known = snapshot.classes
    source = _source(data, snapshot.image_size, wishes)
    never = [name for name in source.classes if name not in known]
    if never:
        some = ", ".join(str(name) for name in known[:12]) + (", ..." if len(known) > 12 else "")
        raise DataError(f"the class {never[0]!r} was never learned. Leave it out. Known: {some}")
    train, test = source.splits()
    chosen = train if test is None else test
    numbers = torch.tensor([known.index(name) for name in chosen.classes])
    return LabelledImages(chosen.images, numbers[chosen.labels], known)


def info(folder: Path) -> dict[str, Any]:
    """What there is to say of a model and its versions; of a damaged version, what is wrong with it."""
    store = ModelStore(folder)
    manifest = store.manifest()
    begun, finished = _begun(store), set[str | None]()
    facts: dict[int, Facts] = {}
    versions: list[dict[str, Any]] = []
    for version in manifest.versions:
        told: dict[str, Any] = {"version": version.number, "parent": version.parent, "made": version.made}
        told |= {"refused": version.refused, "damaged": None}
        told["bytes"] = sum(file.bytes for file in version.files.values())
        try:
            own, report = store.facts(version), _report(store, version)
        except ModelError as error:
            versions.append(told | {"damaged": str(error)})
            continue
        facts[version.number] = own
        finished.add(None if report is None else report.lesson.id)
        before = facts[version.parent].classes if version.parent in facts else ()
        versions.append(
            told
            | {
                "classes": len(own.classes),
                "new_classes": [name for name in own.classes if name not in before],
                "exemplars": own.exemplars,
                "held_out": own.held_out,
                "accuracy": report and report.accuracy,
                "forgetting": report and report.forgetting,
            }
        )
    if manifest.current not in facts:
        broken = [told["damaged"] for told in versions if told["version"] == manifest.current]
        raise ModelError(broken[0] if broken else f"{folder}: no version is current. Choose one with rollback --to")
    current = facts[manifest.current]
    named = current.settings.get("backbone")
    return {
        "current": manifest.current,
        "method": make_method(current.settings.get("method", "")).title,
        "backbone": "a module of its user's own" if named is None else _backbone(named).name,
        "image_size": current.image_size,
        "classes": list(current.classes),
        "exemplars": current.exemplars,
        "held_out": current.held_out,
        "bytes": sum(version["bytes"] for version in versions) + sum(file.bytes for file in manifest.images.values()),
        "unfinished": None if begun.get("id") in finished else begun.get("data"),
        "versions": versions,
    }


def rollback(folder: Path, to: int | None = None) -> tuple[int, int]:
    """Make an earlier version current, by default the one that the current one was taught from; gives both numbers."""
    store = ModelStore(folder)
    store.manifest()  # an error before a lock is made in a folder that is none of ours
    with store.locked():
        manifest = store.manifest()
        current = manifest.current
        if current is None:
            raise ModelError(f"{folder}: no version is current")
        target = manifest.version(current).parent if to is None else to
        if target is None:
            raise ModelError(f"{folder}: version {current} is the first one, so there is none before it")
        store.make_current(target)
    return current, target
