"""What a lesson leaves in a version's `metrics.json`. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from cotransport.errors import ModelError
from cotransport.model.folder import ModelFolder
from cotransport.model.manifest import Manifest, VersionRecord
from cotransport.overview import Choice, Part

CALIBRATION_PARTS = 10
"""Parts into which answers are divided by their probability, to compare it with the share of right ones."""
ROUNDING = 1e-9
"""Percentages that differ by less than this are equal."""
WANTED = (90, 95, 99)
"""Percentages of right answers for which the trade-off is shown."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class ClassAccuracy(_Record):
    """A class before and after a lesson: accuracy in percent on its held-out images, None where undefined."""

    name: str | int
    images: int
    """The number of its held-out images."""
    before: float | None
    """None for a new class."""
    after: float | None
    lost: int | None = None
    """Held-out images that were recognised before and are not now; None for a new class."""
    gained: int | None = None
    """Held-out images that were not recognised before and are now; None for a new class."""


class Confusion(_Record):
    """Held-out images of one class that are taken for another one."""

    name: str | int
    """Their class."""
    predicted: str | int
    images: int


class Confidence(_Record):
    """The probabilities of answers to the held-out images, in ascending order."""

    right: list[float]
    wrong: list[float]

    @property
    def error(self) -> float | None:
        """Mean difference between the probability and the share of right answers in ten equal parts, in points.

        None without answers.
        """
        parts = self.parts()
        gaps = [abs(part.probability - part.right) * part.answers for part in parts]
        return 100 * sum(gaps) / sum(part.answers for part in parts) if parts else None

    def parts(self) -> list[Part]:
        """The answers in ten equal parts, least probable first. With fewer than ten answers, a part has one answer.

        >>> Confidence(right=[0.4, 0.9], wrong=[]).parts()
        [Part(probability=0.4, right=1.0, answers=1), Part(probability=0.9, right=1.0, answers=1)]
        """
        answers = self._answers()
        bounds = [round(part * len(answers) / CALIBRATION_PARTS) for part in range(CALIBRATION_PARTS + 1)]
        return [
            Part(
                sum(probability for probability, _ in answers[first:last]) / (last - first),
                sum(is_right for _, is_right in answers[first:last]) / (last - first),
                last - first,
            )
            for first, last in pairwise(bounds)
            if last > first
        ]

    def curve(self) -> list[Choice]:
        """What each threshold does, from the lowest one, which answers every image, to the highest one.

        >>> Confidence(right=[0.5, 0.9], wrong=[0.5, 0.5]).curve()
        [Choice(threshold=0.5, answered=100.0, right=50.0), Choice(threshold=0.9, answered=25.0, right=100.0)]
        """
        answers, right, points = self._answers()[::-1], 0, list[Choice]()
        for count, (probability, is_right) in enumerate(answers, 1):
            right += is_right
            if count == len(answers) or answers[count][0] < probability:  # of equal ones, all count
                points.append(Choice(probability, 100 * count / len(answers), 100 * right / count))
        return points[::-1]

    def threshold(self, at_least: float) -> float | None:
        """The lowest probability from which on this share of the answers is right; None if there is none.

        >>> Confidence(right=[0.3, 0.6, 0.8, 0.9], wrong=[0.4, 0.5]).threshold(0.8)
        0.6
        """
        choice = self.choice(at_least)
        return choice and choice.threshold

    def choice(self, at_least: float) -> Choice | None:
        """What the lowest threshold does from which on this share of the answers is right; None if there is none."""
        return next((one for one in self.curve() if one.right >= 100 * at_least - ROUNDING), None)

    def at(self, threshold: float) -> Choice:
        """What a threshold does that was chosen on other images. Without any answer, none is wrong.

        >>> Confidence(right=[0.3, 0.6], wrong=[0.4, 0.7]).at(0.5)
        Choice(threshold=0.5, answered=50.0, right=50.0)
        """
        answers = self._answers()
        given = [is_right for probability, is_right in answers if probability >= threshold]
        right = 100 * sum(given) / len(given) if given else 100.0
        return Choice(threshold, 100 * len(given) / len(answers) if answers else 0.0, right)

    def count(self, threshold: float) -> tuple[int, int]:
        """The number of right answers from a threshold on, and of all answers from there on.

        >>> Confidence(right=[0.3, 0.6], wrong=[0.4, 0.7]).count(0.5)
        (1, 2)
        """
        right, wrong = (sum(one >= threshold for one in answers) for answers in (self.right, self.wrong))
        return right, right + wrong

    def _answers(self) -> list[tuple[float, bool]]:
        return sorted([(one, True) for one in self.right] + [(one, False) for one in self.wrong])


class LessonRecord(_Record):
    """What a lesson taught."""

    id: str
    """The same for the same images, settings and parent version."""
    data: str
    """The images, as the user named them."""
    data_id: str
    """Fingerprint of the images."""
    images: int
    """The number of images that were trained on."""
    new_classes: list[str | int]
    extended_classes: list[str | int]
    """Known classes that got more images."""
    epochs: int | None = None
    """None if nothing was trained."""
    kept: int | None = None
    """The number of exemplars of the taught classes that the model keeps, from this lesson and earlier ones; None if
    it was not recorded."""
    held_out: int | None = None
    """The number of this lesson's images that the model keeps for testing; None if it was not recorded."""


class LessonReport(_Record):
    """What a lesson led to. Accuracies are in percent, on the held-out images."""

    lesson: LessonRecord
    chosen: dict[str, Any]
    """Settings that the user has asked for, in this lesson or an earlier one."""
    per_class: list[ClassAccuracy]
    accuracy: float | None
    """On all classes."""
    old_before: float | None
    """Before the lesson, on the classes that were known then."""
    old_after: float | None
    """After the lesson, on the same classes."""
    accuracy_lost: float | None = Field(
        validation_alias=AliasChoices("accuracy_lost", "forgetting"), serialization_alias="forgetting"
    )
    """Points of accuracy that the classes known before have lost in this lesson; None for a first lesson. Every
    held-out image counts the same. The forgetting of an experiment is another measure: see `metrics.forgetting`."""
    times: dict[str, Any]
    likely_loss: tuple[float, float] | None = None
    """Between which points the true loss lies, with a probability of 95 %. None if it was not measured."""
    macro_accuracy: float | None = None
    """The mean of the classes' accuracies."""
    confusions: list[Confusion] = []
    """The most frequent confusions, most frequent first."""
    confidence: Confidence | None = None
    """None if it was not measured."""


class LessonOutcome(NamedTuple):
    """A lesson's report, and the version it led to."""

    version: int
    report: LessonReport
    refused: str | None
    """Why the version was not made current; None if it was."""
    already: bool
    """Whether the model had learned exactly these images before, so that nothing was trained."""
    parent: int | None
    """The version that the new one was taught from."""
    made_current: bool = False
    """Whether the lesson made an existing version current."""

    def plain(self) -> dict[str, Any]:
        """The outcome as plain values, with those of the report as in `metrics.json`."""
        return {
            "version": self.version,
            "parent": self.parent,
            "promoted": self.refused is None,
            "refused": self.refused,
            "already": self.already,
            **self.report.model_dump(mode="json", by_alias=True),
        }


class ChangedImages(NamedTuple):
    """Held-out images of the classes that were known before a lesson."""

    lost: int
    gained: int
    images: int
    """The number of all of them, changed or not."""


def changed_images(classes: Sequence[ClassAccuracy]) -> ChangedImages:
    """What the classes that were known before have lost and gained together."""
    known = [one for one in classes if one.lost is not None and one.gained is not None]
    return ChangedImages(
        sum(one.lost or 0 for one in known), sum(one.gained or 0 for one in known), sum(one.images for one in known)
    )


def mean_accuracy(classes: Sequence[ClassAccuracy], when: Literal["before", "after"]) -> float | None:
    """Percentage of all held-out images that are recognised; None without images."""
    tested = [(value, one.images) for one in classes if (value := getattr(one, when)) is not None]
    images = sum(count for _, count in tested)
    return sum(value * count for value, count in tested) / images if images else None


def macro_accuracy(classes: Sequence[ClassAccuracy]) -> float | None:
    """The mean of the classes' accuracies now, in percent; None without images."""
    tested = [one.after for one in classes if one.after is not None]
    return sum(tested) / len(tested) if tested else None


def read_report(folder: ModelFolder, version: VersionRecord) -> LessonReport | None:
    """A version's report; None if it was saved from Python, without a lesson."""
    metrics = folder.metrics(version)
    return parse_report(metrics, f"{folder.path}, version {version.number}") if metrics else None


def lessons_of(folder: ModelFolder, manifest: Manifest) -> dict[int, LessonRecord]:
    """The lessons by version. Versions that are damaged, or were saved from Python, have none."""
    lessons: dict[int, LessonRecord] = {}
    for version in manifest.versions:
        with suppress(ModelError):
            if (found := read_report(folder, version)) is not None:
                lessons[version.number] = found.lesson
    return lessons


def parse_report(metrics: Mapping[str, Any], where: str) -> LessonReport:
    """The report in a version's metrics."""
    try:
        return LessonReport.model_validate(metrics)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"{where}: metrics: {field}: {first['msg']}. Restore it from a backup") from None
