"""A classifier in use: lessons into a model folder, with held-out images, promotion and a way back.

All of it lies around the estimator, so that an experiment does none of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from cotransport.checkpoints import Checkpoints
from cotransport.config import Backbone, Budget, Data, Device, Schedule, nearest, validated
from cotransport.data import (
    Images,
    Label,
    LabelledImages,
    PixelImages,
    evaluation_squares,
    fitted,
    joined,
    open_source,
)
from cotransport.data.splits import divided
from cotransport.errors import ConfigError, DataError, ModelError
from cotransport.estimator import SECTIONS, IncrementalClassifier
from cotransport.files import explained, read_json, write_json
from cotransport.memory import Memory
from cotransport.methods import make_method
from cotransport.model_store import ModelStore, Snapshot
from cotransport.suggestions import is_grey, largest_side, suggested
from cotransport.training import Figures, agreed, fabric_for

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

    data: str
    data_id: str
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
    """Whether the model had learned exactly these images before, so that nothing was done."""


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

    def figures(self, figures: Figures) -> None:
        """The training goes on."""


class Silent:
    """Says nothing."""

    def begun(self, told: Sequence[str]) -> None:
        """Nothing."""

    def figures(self, figures: Figures) -> None:
        """Nothing."""


def learn(
    folder: Path, data: str, wishes: Wishes = Wishes(), *, overwrite: bool = False, observer: Observer = Silent()
) -> Outcome:
    """Teach the model in a folder the classes in some data, or begin it; goes on with the same lesson if it was killed.

    overwrite : throw another lesson that was not finished away.
    """
    fabric = fabric_for(wishes.device)
    first, store = fabric.is_global_zero, ModelStore(folder)
    with store.locked() if first else nullcontext():
        parent, before = agreed(fabric, lambda: _current(store)), None
        if parent is not None:
            before = store.read(parent)
        chosen = _merged_wishes(before, wishes)
        gpu = fabric.device.type != "cpu"
        last = None if before is None or parent is None else _report(before, store, parent)
        train, test = _images(data, before, last, chosen, wishes, gpu=gpu)
        data_id = _fingerprint(train, test)
        if last is not None and last.lesson.data_id == data_id:
            return Outcome(parent or 0, last, None, already=True)
        if before is not None and wishes.known_classes == "refuse":
            _check_new(train.classes, before.classes)
        exemplars = 0 if before is None else len(before.memory)
        suggestion = suggested(train, exemplars, gpu=gpu)
        classifier = _classifier(before, chosen, suggestion, wishes.device)
        request = _request(data, classifier, parent, wishes)
        epochs = agreed(fabric, lambda: _taken_up(store, request, data_id, overwrite=overwrite))
        begun, told = time.perf_counter(), list[Figures]()
        if first:
            observer.begun(_told(classifier, train, test))

        def listen(figures: Figures) -> None:
            if first and not told:
                write_json(store.unfinished / LESSON, request | {"data_id": data_id, "epochs": figures.epochs})
            told[:] = [figures]
            if first:
                observer.figures(figures)

        old = None if before is None else IncrementalClassifier.from_snapshot(before, device=wishes.device)
        known_before = () if before is None else before.classes
        checkpoints = Checkpoints(store.unfinished)
        classifier.learn(
            train, known_classes=wishes.known_classes, listener=listen, epochs=epochs, checkpoints=checkpoints
        )
        held_out = _held_out(before, test, classifier.state_.classes)
        per_class = compared(old, classifier, held_out)
        lesson = Lesson(
            data=data,
            data_id=data_id,
            images=len(train),
            new_classes=[name for name in train.classes if name not in known_before],
            extended_classes=[name for name in train.classes if name in known_before],
            epochs=told[-1].epochs if told else None,
        )
        report = _summary(lesson, chosen, per_class, len(known_before), time.perf_counter() - begun)
        refused = _refusal(report, wishes.max_forgetting)
        snapshot = replace(classifier.snapshot(), held_out=held_out, metrics=report.model_dump(mode="json"))

        def keep() -> int:
            number = store.write(snapshot, parent=parent, refused=refused)
            shutil.rmtree(store.unfinished, ignore_errors=True)
            return number

        return Outcome(agreed(fabric, keep), report, refused, already=False)


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
        times={"seconds": seconds, "made": datetime.now(timezone.utc).isoformat(timespec="seconds")},
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


def _current(store: ModelStore) -> int | None:
    if not store.exists:
        return None
    current = store.manifest().current
    if current is None:
        raise ModelError(f"{store.folder}: no version is current. Choose one with `cotransport rollback --to`")
    return current


def _report(snapshot: Snapshot, store: ModelStore, version: int) -> Report | None:
    """A version's report, None if it was saved from Python without a lesson."""
    if not snapshot.metrics:
        return None
    return report_of(snapshot.metrics, f"{store.folder}, version {version}")


def report_of(metrics: Mapping[str, Any], where: str) -> Report:
    """The report in a version's metrics."""
    try:
        return Report.model_validate(metrics)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"{where}: metrics: {field}: {first['msg']}. Restore it from a backup") from None


def _merged_wishes(before: Snapshot | None, wishes: Wishes) -> dict[str, Any]:
    """What the user has asked for in all lessons; the latest word counts."""
    known = ("method", "seed", *_FIXED, *SECTIONS)
    for key in wishes.chosen:
        if key not in known:
            raise ConfigError(f"{key}: unknown setting{nearest(key, known)} Known: {', '.join(known)}, data, device")
    earlier: dict[str, Any] = {}
    if before is not None:  # one that was saved from Python has all of its settings from its user
        earlier = dict(before.metrics.get("chosen", before.settings))
    merged = earlier | {
        key: {**earlier.get(key, {}), **value} if key in SECTIONS and key != "memory" else value
        for key, value in wishes.chosen.items()
    }
    if before is not None:
        _check_fixed(before, wishes.chosen)
    return merged


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
    return validated(Backbone, {"name": value} if isinstance(value, str) else value, "backbone")  # type: ignore[arg-type]


def _images(
    data: str,
    before: Snapshot | None,
    last: Report | None,
    chosen: Mapping[str, Any],
    wishes: Wishes,
    *,
    gpu: bool,
) -> tuple[LabelledImages, LabelledImages]:
    """Images to learn from and images to hold out, in the size that the network sees.

    Known classes are found before any image is read, unless it may be the `last` lesson once more.
    """
    size = chosen.get("image_size") if before is None else before.image_size
    source = open_source(validated(Data, {"image_size": size, **wishes.data, "source": data}, "data"))
    repeated = last is not None and set(source.classes) == {*last.lesson.new_classes, *last.lesson.extended_classes}
    if before is not None and wishes.known_classes == "refuse" and not repeated:
        _check_new(source.classes, before.classes)
    train, test = source.splits()
    if size is None and train.images.size > largest_side(gpu):
        train = replace(train, images=fitted(train.images, largest_side(gpu)))
    if test is not None:
        test = replace(test, images=fitted(test.images, train.images.size))
    if test is None:
        return divided(train, wishes.held_out, HELD_OUT_AT_MOST)
    kept = [torch.nonzero(test.labels == number).flatten()[:HELD_OUT_AT_MOST] for number in range(len(test.classes))]
    return train, test.take(torch.cat(kept))


def _check_new(classes: Sequence[Label], known: Sequence[Label]) -> None:
    both = [repr(name) for name in classes if name in known]
    if both:
        some = ", ".join(both[:5]) + (f" and {len(both) - 5} more" if len(both) > 5 else "")
        raise DataError(
            f"{'class' if len(both) == 1 else 'classes'} {some}: known already. Leave them out, or let them learn from "
            "these images too with --known-classes extend"
        )


def _classifier(
    before: Snapshot | None, chosen: Mapping[str, Any], suggestion: Mapping[str, Any], device: Device
) -> IncrementalClassifier:
    """The model's classifier, or a new one, with what is asked for and, beside that, what is suggested."""
    wanted = {name: {**suggestion.get(name, {}), **chosen.get(name, {})} for name in SECTIONS}
    wanted["memory"] = chosen.get("memory", suggestion["memory"])  # one kind of budget excludes the other
    schedule = chosen.get("schedule", {})
    if "learning_rate" in schedule and "later_learning_rate" not in schedule:
        wanted["schedule"]["later_learning_rate"] = schedule["learning_rate"] / 2
    sections = {name: validated(kind, wanted[name], name) for name, kind in SECTIONS.items()}
    if before is None:
        method = make_method(chosen.get("method", suggestion["method"]))
        backbone = _backbone(chosen.get("backbone", suggestion["backbone"]))
        seed = chosen.get("seed", 0)
        return IncrementalClassifier(method, backbone, seed=seed, device=device, **sections)  # type: ignore[arg-type]
    classifier = IncrementalClassifier.from_snapshot(before, device=device)
    classifier.set_params(**sections)
    if "method" in chosen:
        classifier.set_params(method=make_method(chosen["method"]))
    return classifier


def _told(classifier: IncrementalClassifier, train: LabelledImages, test: LabelledImages) -> list[str]:
    """What is done with which settings, in words."""
    schedule, budget = classifier.schedule, classifier.memory
    assert isinstance(schedule, Schedule)
    assert isinstance(budget, Budget)
    seconds, size = schedule.seconds_per_task, train.images.size
    length = f"{schedule.epochs} epochs" if seconds is None else f"epochs for about {seconds:g} s"
    mirrored = "mirrored" if getattr(classifier.augmentation, "flip", False) else "not mirrored"
    kept = f"{budget.per_class} of each class" if budget.per_class is not None else f"{budget.total:,} in all"
    classes = "1 class" if len(train.classes) == 1 else f"{len(train.classes)} classes"
    return [
        f"{classes}, {len(train):,} images to learn from and {len(test):,} held out to test with",
        f"{make_method(classifier.method).title}, backbone {_backbone(classifier.backbone).name}, "
        f"{size} x {size} pixels, images remembered: {kept}",
        f"{length} in batches of {schedule.batch_size}, learning rate {schedule.learning_rate:g}, images {mirrored}"
        + (" (they are grey)" if mirrored != "mirrored" and is_grey(train) else ""),
    ]


def _request(data: str, classifier: IncrementalClassifier, parent: int | None, wishes: Wishes) -> dict[str, Any]:
    """By which a lesson is recognised when it is taken up again."""
    sections = {name: getattr(classifier, name).model_dump(mode="json") for name in SECTIONS}
    return {
        "data": data,
        "parent": parent,
        "held_out": wishes.held_out,
        "known_classes": wishes.known_classes,
        "settings": {"method": make_method(classifier.method).dumped(), "seed": classifier.seed, **sections},
    }


def _taken_up(store: ModelStore, request: Mapping[str, Any], data_id: str, *, overwrite: bool) -> int | None:
    """Prepare the folder of a lesson; the epochs that were settled for it if it was begun before."""
    path = store.unfinished / LESSON
    epochs = None
    if path.exists() and not overwrite:
        try:
            begun = read_json(path)
        except (OSError, ValueError):
            begun = {}
        if isinstance(begun, dict) and {key: begun.get(key) for key in request} == request:
            if begun.get("data_id") == data_id and isinstance(begun.get("epochs"), int) and begun["epochs"] > 0:
                epochs = begun["epochs"]
        elif isinstance(begun, dict) and "data" in begun:
            raise ModelError(
                f"{store.folder}: a lesson from {begun['data']} is not finished. Repeat its command to go on with it, "
                "or throw it away with --overwrite"
            )
    if epochs is None:  # what is left of another lesson must not be gone on with
        shutil.rmtree(store.unfinished, ignore_errors=True)
    with explained(store.unfinished):
        store.unfinished.mkdir(exist_ok=True)
    return epochs


def _fingerprint(*parts: LabelledImages) -> str:
    """By which the same images and labels are recognised."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps([part.images.size, part.classes]).encode())
        digest.update(part.labels.numpy().tobytes())
        if isinstance(part.images, PixelImages):
            digest.update(part.images.pixels.numpy().tobytes())
            continue
        for place in range(len(part.images)):
            item = part.images.item(place)
            if isinstance(item, Path):
                status = item.stat()
                digest.update(json.dumps([str(item), status.st_size, status.st_mtime_ns]).encode())
            else:
                digest.update(item.tobytes() if isinstance(item, np.ndarray) else item.data)
    return digest.hexdigest()


def _held_out(before: Snapshot | None, test: LabelledImages, classes: Sequence[Label]) -> Memory:
    """The held-out images of all classes, the new ones after those that are there."""
    kept = () if before is None else before.held_out.exemplars
    parts: list[Images] = []
    for number, name in enumerate(classes):
        own: list[Images] = [kept[number]] if number < len(kept) else []
        if name in test.classes:
            own.append(test.images.take(torch.nonzero(test.labels == test.classes.index(name)).flatten()).kept())
        parts.append(joined(own) if own else test.images.first(0))
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
    source = open_source(validated(Data, {**wishes.data, "source": data, "image_size": snapshot.image_size}, "data"))
    never = [name for name in source.classes if name not in known]
    if never:
        some = ", ".join(str(name) for name in known[:12]) + (", ..." if len(known) > 12 else "")
        raise DataError(f"the class {never[0]!r} was never learned. Leave it out. Known: {some}")
    train, test = source.splits()
    chosen = train if test is None else test
    numbers = torch.tensor([known.index(name) for name in chosen.classes])
    return LabelledImages(chosen.images, numbers[chosen.labels], known)


def info(folder: Path) -> dict[str, Any]:
    """What there is to say of a model and its versions."""
    store = ModelStore(folder)
    manifest = store.manifest()
    versions = []
    for version in manifest.versions:
        facts = store.facts(version.number)
        metrics = store.metrics(version.number)
        report = report_of(metrics, f"{folder}, version {version.number}") if metrics else None
        parents = store.facts(version.parent).classes if version.parent is not None else ()
        versions.append(
            {
                "version": version.number,
                "parent": version.parent,
                "classes": len(facts.classes),
                "new_classes": [name for name in facts.classes if name not in parents],
                "exemplars": facts.exemplars,
                "held_out": facts.held_out,
                "accuracy": report and report.accuracy,
                "forgetting": report and report.forgetting,
                "bytes": sum(file.bytes for file in version.files.values()),
                "made": report.times.get("made") if report else None,
                "refused": version.refused,
            }
        )
    current = store.facts(_current(store) or 0)
    begun = store.unfinished / LESSON
    try:
        unfinished = read_json(begun).get("data") if begun.exists() else None
    except (OSError, ValueError, AttributeError):
        unfinished = None
    backbone = current.settings.get("backbone")
    return {
        "current": manifest.current,
        "method": make_method(current.settings.get("method", "")).title,
        "backbone": backbone["name"] if isinstance(backbone, dict) else "a module of its user's own",
        "image_size": current.image_size,
        "classes": list(current.classes),
        "bytes": sum(file.bytes for version in manifest.versions for file in version.files.values())
        + sum(file.bytes for file in manifest.images.values()),
        "unfinished": unfinished,
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
        store.read(target)  # all of it is there
        store.make_current(target)
    return current, target
