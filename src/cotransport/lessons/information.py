"""The description of a model folder, and the rollback to another version. Nothing here needs torch."""

from __future__ import annotations

from typing import Any, NamedTuple

from cotransport.errors import ConfigError, ModelError
from cotransport.jobs import read_record
from cotransport.lessons.records import read_report
from cotransport.methods import make_method
from cotransport.model.folder import CHOOSE_VERSION, ModelFolder
from cotransport.model.manifest import Facts
from cotransport.settings.sections import Backbone
from cotransport.settings.validation import validated
from cotransport.system.files import AnyPath


def describe(path: AnyPath) -> dict[str, Any]:
    """A model and its versions as plain values. A damaged version is listed with what is wrong with it.

    If the current version is damaged, or none is current, nothing is known of its method, backbone and classes.
    """
    folder = ModelFolder(path)
    manifest = folder.manifest()
    finished: set[str] = set()
    facts: dict[int, Facts] = {}
    versions: list[dict[str, Any]] = []
    for version in manifest.versions:
        entry: dict[str, Any] = {"version": version.number, "parent": version.parent, "made": version.made}
        entry |= {"refused": version.refused, "damaged": None}
        entry["bytes"] = sum(file.bytes for file in version.files.values())
        try:
            folder.check_sizes(version)
            own, report = folder.facts(version), read_report(folder, version)
        except ModelError as error:
            versions.append(entry | {"damaged": str(error)})
            continue
        facts[version.number] = own
        before = facts[version.parent].classes if version.parent in facts else ()
        entry |= {
            "classes": len(own.classes),
            "new_classes": report.lesson.new_classes
            if report
            else [name for name in own.classes if name not in before],
            "extended_classes": report.lesson.extended_classes if report else [],
            "change": report.lesson.data if report and not report.lesson.images else None,
            "exemplars": own.exemplars,
            "held_out": own.held_out,
            "accuracy": report and report.accuracy,
            "tested": sum(one.images for one in report.per_class) if report else None,
            "forgetting": report and report.accuracy_lost,  # the key of earlier releases
            "likely_loss": list(report.likely_loss) if report and report.likely_loss else None,
        }
        versions.append(entry)
        if report is not None:
            finished.add(report.lesson.id)
    current = None if manifest.current is None else facts.get(manifest.current)
    return {
        "current": manifest.current,
        "method": current and _method_title(current),
        "backbone": current and _backbone_name(current),
        "image_size": current and current.image_size,
        "classes": list(current.classes) if current else [],
        "exemplars": current and current.exemplars,
        "held_out": current and current.held_out,
        "bytes": sum(entry["bytes"] for entry in versions)
        + sum(file.bytes for files in (manifest.images, manifest.tensors) for file in files.values()),
        "unfinished": _unfinished_lesson(folder, finished),
        "versions": versions,
    }


def rollback(path: AnyPath, to: int | None = None) -> tuple[int, int]:
    """Make another version current, by default the current one's parent; returns the numbers before and after.

    Version 0 is the model before its first lesson: no version is current, and the next lesson starts from nothing.
    """
    folder = ModelFolder(path)
    folder.manifest()  # raises an error before a lock is made in a folder that is not a model
    with folder.locked():
        manifest = folder.manifest()
        current = manifest.current or 0
        if to is None and not current:
            raise ModelError(f"{path}: no version is current", hint=CHOOSE_VERSION)
        target = manifest.version(current).parent if to is None else to
        if target is None:
            raise ModelError(
                f"{path}: version {current} is the first one. To empty the model, roll back to version 0",
                hint="Use --to 0",
            )
        folder.make_current(target)
    return current, target


class Threshold(NamedTuple):
    """A probability below which an answer is `unknown`, and how it does on the held-out images."""

    probability: float
    images: int
    """The number of held-out images."""
    answers: int
    """The number of them that are answered."""
    right: int
    """The number of right answers."""


def answer_threshold(path: AnyPath, at_least: float, version: int | None = None) -> Threshold:
    """The lowest probability of an answer, so that this share of all answers to the held-out images is right."""
    folder = ModelFolder(path)
    manifest = folder.manifest()
    number = manifest.current if version is None else version
    report = None if number is None else read_report(folder, manifest.version(number))
    if report is None or report.confidence is None:
        raise ModelError(
            f"{path}: this version has no record of its answers to held-out images, so no threshold can be set. Teach "
            "it one more lesson"
        )
    confidence = report.confidence
    threshold = confidence.threshold(at_least)
    if threshold is None:
        raise ModelError(
            f"{path}: no threshold makes {100 * at_least:g} % of the answers to the held-out images right",
            hint="Give a lower --at-least",
        )
    right, answers = confidence.count(threshold)
    return Threshold(threshold, len(confidence.right) + len(confidence.wrong), answers, right)


def _unfinished_lesson(folder: ModelFolder, finished: set[str]) -> str | None:
    """The name of the images of a lesson that was started and not finished; None if there is no such lesson."""
    try:
        record = read_record(folder.unfinished)
    except ValueError:
        return None
    return None if record is None or record.id in finished else record.data


def _method_title(facts: Facts) -> str:
    return make_method(facts.settings.get("method", "")).title


def _backbone_name(facts: Facts) -> str:
    named = facts.settings.get("backbone")
    if named is None:
        return "a custom module"
    try:
        return validated(Backbone, {"name": named} if isinstance(named, str) else named, "backbone").name
    except ConfigError as error:
        raise ModelError(f"the model's settings cannot be used: {error}") from None
