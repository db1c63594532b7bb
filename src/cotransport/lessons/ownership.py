"""What the owner of a model can do with it besides teaching: rename a class, remove old versions, check all files."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cotransport.errors import ConfigError, CotransportWarning, ModelError
from cotransport.lessons.records import Confusion, LessonRecord, LessonReport, parse_report
from cotransport.model.folder import CHOOSE_VERSION, IMAGES, METRICS, MODEL, TENSORS, WEIGHTS, ModelFolder
from cotransport.model.manifest import LONGEST_NAME
from cotransport.settings.validation import nearest
from cotransport.system.files import AnyPath

if TYPE_CHECKING:
    from cotransport.model.store import ModelStore


def rename(path: AnyPath, old: str, new: str) -> int:
    """Give a class another name, in a new version; returns its number. Nothing is trained."""
    with changing(path) as store:
        snapshot, current = store.read(), store.manifest().current
        label = known_class(old, snapshot.classes)
        name = _new_name(new, whole_number=isinstance(label, int))
        if name == label:
            raise ConfigError(f"{new!r}: the class has this name already. Choose a different one")
        if new in map(str, snapshot.classes):
            raise ConfigError(f"{new!r}: another class has this name. Choose a different one")
        metrics = dict(snapshot.metrics)
        if metrics:
            report = parse_report(metrics, f"{path}, version {current}")
            metrics = _renamed_report(report, label, name).model_dump(mode="json", by_alias=True)
        renamed = tuple(name if one == label else one for one in snapshot.classes)
        return store.write(replace(snapshot, classes=renamed, metrics=metrics), parent=current)


def _renamed_report(report: LessonReport, old: str | int, new: str | int) -> LessonReport:
    """The report of a version in which only the name of a class has changed."""
    names = {old: new}
    confusions: list[Confusion] = []
    for one in report.confusions:
        own, other = (names.get(name, name) for name in (one.name, one.predicted))
        confusions.append(one.model_copy(update={"name": own, "predicted": other}))
    return report.model_copy(
        update={
            "per_class": [one.model_copy(update={"name": names.get(one.name, one.name)}) for one in report.per_class],
            "confusions": confusions,
            "lesson": record_of_change(report.lesson, f"{old} renamed to {new}"),
            "accuracy_lost": 0.0,
        }
    )


def prune(path: AnyPath, keep: int) -> list[int]:
    """Remove all versions but the newest ones and the current one; returns the numbers of those that were removed.

    Images and features that no other version refers to are removed too.
    """
    from cotransport.model.rewriting import rewrite

    if keep < 1:
        raise ConfigError(f"--keep {keep}: give at least 1. The current version is always kept")
    with changing(path) as store:
        manifest = store.manifest()
        numbers = sorted(version.number for version in manifest.versions)
        kept = {*numbers[-keep:], *([manifest.current] if manifest.current is not None else [])}
        store.keep(kept)
        try:
            rewrite(store)
        except ModelError as error:  # one of the versions that are kept is damaged
            message = f"the versions were removed, but their images are still in the model folder. {error}"
            warnings.warn(message, CotransportWarning, stacklevel=2)
    return [number for number in numbers if number not in kept]


def check(path: AnyPath) -> list[str]:
    """Compare every file of every version with its checksum; returns what is wrong, in sentences."""
    folder = ModelFolder(path)
    manifest = folder.manifest()
    problems: dict[str, None] = {}
    for version in manifest.versions:
        for name in (WEIGHTS, MODEL, METRICS):
            try:
                folder.checked(version, name)
            except ModelError as error:
                problems[str(error)] = None
        for kind, numbers in ((IMAGES, version.images), (TENSORS, version.tensors)):
            for number in numbers:
                try:
                    folder.check_shared(manifest, kind, number)
                except ModelError as error:
                    problems[str(error)] = None
    if manifest.current is None:
        problems[f"{path}: no version is current. {CHOOSE_VERSION}"] = None
    return list(problems)


@contextmanager
def changing(path: AnyPath) -> Iterator[ModelStore]:
    """A model, locked, to be changed. A lesson that is not finished is an error: its parent version must stay."""
    from cotransport.model.store import ModelStore

    store = ModelStore(path)
    store.manifest()  # raises an error before a lock is made in a folder that is not a model
    with store.locked():
        if store.unfinished.is_dir():
            raise ModelError(
                f"{path}: a lesson is not finished, and nothing else may change the model until it is",
                hint="Repeat its command, or discard it with `learn --overwrite`",
            )
        yield store


def known_class(name: str, classes: Sequence[str | int]) -> str | int:
    """The class that a user names. Classes may be whole numbers."""
    known = {str(label): label for label in classes}
    if name not in known:
        raise ConfigError(
            f"{name!r}: the model does not know this class{nearest(name, known)} It knows: {', '.join(known)}"
        )
    return known[name]


def record_of_change(before: LessonRecord, what: str) -> LessonRecord:
    """The record of a change without images, in place of a lesson's."""
    return LessonRecord(
        id=hashlib.sha256(f"{before.id} {what}".encode()).hexdigest(),
        data=what,
        data_id="",
        images=0,
        new_classes=[],
        extended_classes=[],
    )


def _new_name(name: str, *, whole_number: bool) -> str | int:
    """A class's new name, of the same kind as the others."""
    if whole_number:
        if not name.isdecimal():
            raise ConfigError(f"{name!r}: the classes of this model are whole numbers. Give a whole number")
        return int(name)
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise ConfigError(f"{name[:40]!r}: not a class name. Give 1 to {LONGEST_NAME:,} printable characters")
    return name
