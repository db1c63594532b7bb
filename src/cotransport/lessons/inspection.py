"""A model in words, numbers and pictures: what it knows, what its lessons taught and cost, and what it confuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Images, Label, LabelledImages
from cotransport.data.decoding import thumbnail
from cotransport.data.fingerprint import image_digest
from cotransport.data.images import evenly_spaced
from cotransport.data.memory import Memory
from cotransport.learner.prediction import Predictor
from cotransport.learner.snapshots import restored
from cotransport.lessons.chance import verdict
from cotransport.lessons.confidence import measure_confidence
from cotransport.lessons.information import describe
from cotransport.lessons.records import WANTED, ClassAccuracy, LessonReport, changed_images, read_report
from cotransport.model.pool import image_id
from cotransport.model.store import ModelStore
from cotransport.networks.heads import DiscriminantHead, Head
from cotransport.overview import (
    Answers,
    ClassChange,
    KnownClass,
    Mistake,
    Overview,
    Photograph,
    Related,
    Use,
    Version,
    WrongAnswer,
)

PER_CLASS, MOST_PICTURES = 4, 400
"""Photographs: of a class, and of all classes together, at most. The first classes get theirs."""
MOST_MISTAKES, EXAMPLES = 12, 4
"""Mistakes that are described, at most, and photographs of each."""
MOST_RELATED = 3
"""Related classes that are named for each class, at most."""
MOST_POINTS = 200
"""Points of a curve, at most."""
MOST_IN_MATRIX = 200
"""With more classes than this, there is no confusion matrix."""


def inspect(path: Path, progress: Callable[[str], None] = lambda _: None) -> Overview:
    """The current version of a model, and the lessons behind it. Its held-out images are predicted once more.

    progress : is called with what is being done.
    """
    progress("reading the model")
    store = ModelStore(path)
    facts = describe(path)
    snapshot = store.read(facts["current"])
    predictor = Predictor(*restored(snapshot))
    test = snapshot.held_out.labelled(snapshot.classes)
    answers, predicted = None, torch.zeros(0, dtype=torch.int64)
    if test is not None:
        progress(f"recognising {len(test):,} held-out images")
        probabilities = predictor.probabilities(test)
        predicted = probabilities.argmax(dim=1)
        answers = _answers(test, probabilities)
    progress("making thumbnails")
    versions = _versions(store, facts)
    arrivals = _arrivals(store, [version for version in versions if version.is_ancestor])
    return Overview(
        name=path.resolve().name,
        version=facts["current"],
        method=facts["method"],
        backbone=facts["backbone"],
        image_size=snapshot.image_size,
        exemplars=facts["exemplars"],
        held_out=facts["held_out"],
        bytes=facts["bytes"],
        classes=_classes(predictor, snapshot.held_out, test, predicted, arrivals),
        versions=versions,
        answers=answers,
    )


def _answers(test: LabelledImages, probabilities: Tensor) -> Answers:
    predicted, size = probabilities.argmax(dim=1), len(test.classes)
    pairs = list(zip(test.labels.tolist(), predicted.tolist(), strict=True))
    counts = Counter(pairs)
    wrong = sorted((pair for pair in counts if pair[0] != pair[1]), key=lambda pair: (-counts[pair], pair))
    confidence = measure_confidence(probabilities, test.labels)
    curve = confidence.curve()
    return Answers(
        images=len(test),
        right=len(confidence.right),
        calibration_error=confidence.error or 0.0,
        parts=tuple(confidence.parts()),
        curve=tuple(curve[index] for index in evenly_spaced(len(curve), MOST_POINTS)),
        wanted=tuple((at_least, confidence.choice(at_least / 100)) for at_least in WANTED),
        confusion=tuple(tuple(counts[true, answer] for answer in range(size)) for true in range(size))
        if size <= MOST_IN_MATRIX
        else None,
        mistakes=tuple(
            Mistake(*pair, counts[pair], _wrong_answers(test.images, pair, pairs, probabilities))
            for pair in wrong[:MOST_MISTAKES]
        ),
        wrong_pairs=len(wrong),
    )


def _wrong_answers(
    images: Images, wanted: tuple[int, int], pairs: Sequence[tuple[int, int]], probabilities: Tensor
) -> tuple[WrongAnswer, ...]:
    """Images of one class that are taken for another, the most confident answers first."""
    places = [place for place, pair in enumerate(pairs) if pair == wanted]
    certain = sorted(places, key=lambda place: -float(probabilities[place, wanted[1]]))[:EXAMPLES]
    return tuple(
        WrongAnswer(
            image_id(image_digest(images.item(place))),
            thumbnail(images.item(place)),
            float(probabilities[place, wanted[1]]),
        )
        for place in certain
    )


def _classes(
    predictor: Predictor,
    held_out: Memory,
    test: LabelledImages | None,
    predicted: Tensor,
    arrivals: Mapping[Label, int | None],
) -> tuple[KnownClass, ...]:
    state = predictor.state
    names, origins, similar = state.classes, state.built_from(), similarities(state.network.head)
    place = {name: number for number, name in enumerate(names)}
    recognised = [0] * len(names)
    if test is not None:
        right = test.labels[predicted == test.labels]
        recognised = torch.bincount(right, minlength=len(names)).tolist()
    found: list[KnownClass] = []
    for number, name in enumerate(names):
        kept: dict[Use, Images | None] = {"exemplar": _own(state.memory, number), "held out": _own(held_out, number)}
        sources = list(origins.get(name, {}).items())[:MOST_RELATED]
        found.append(
            KnownClass(
                name=str(name),
                arrived=arrivals.get(name),
                exemplars=len(kept["exemplar"] or ()),
                held_out=len(kept["held out"] or ()),
                recognised=recognised[number],
                photographs=_photographs(kept, pictures_of(number, len(names), PER_CLASS, MOST_PICTURES)),
                built_from=tuple(Related(place[source], share) for source, share in sources if share > 0),
                similar=_most_similar(similar[number], number),
            )
        )
    return tuple(found)


def _own(memory: Memory, number: int) -> Images | None:
    return memory.exemplars[number] if number < len(memory.exemplars) else None


def _photographs(kept: Mapping[Use, Images | None], count: int) -> tuple[Photograph, ...]:
    """The first images of a class: exemplars, then held-out images."""
    items = [
        (images.item(place), use)
        for use, images in kept.items()
        for place in range(min(count, len(images or ())))
        if images is not None
    ]
    return tuple(Photograph(thumbnail(item), use) for item, use in items[:count])


def pictures_of(number: int, classes: int, per_class: int, most: int) -> int:
    """How many pictures a class gets, if all classes together get at most `most`.

    >>> pictures_of(0, classes=20, per_class=4, most=400), pictures_of(0, classes=150, per_class=4, most=400)
    (4, 2)
    >>> pictures_of(399, classes=1000, per_class=4, most=400), pictures_of(400, classes=1000, per_class=4, most=400)
    (1, 0)
    """
    return min(per_class, most // classes) if classes <= most else int(number < most)


def similarities(head: Head) -> Tensor:
    """Cosines (classes, classes) between the classes, as the classifier knows them.

    Classes are compared by their weights, or by the mean features that a discriminant has seen; in both cases, by the
    differences to the mean over all classes.
    """
    rows = head.weight.detach()
    if isinstance(head, DiscriminantHead):
        rows = head.sums / head.counts.clamp_min(1)[:, None]
    rows = rows.double()
    units = F.normalize(rows - rows.mean(dim=0))
    return units @ units.T


def _most_similar(cosines: Tensor, own: int) -> tuple[Related, ...]:
    order = [number for number in cosines.argsort(descending=True, stable=True).tolist() if number != own]
    return tuple(Related(number, float(cosines[number])) for number in order[:MOST_RELATED] if cosines[number] > 0)


def _versions(store: ModelStore, facts: Mapping[str, Any]) -> tuple[Version, ...]:
    records = {version.number: version for version in store.manifest().versions}
    ancestors: set[int] = set()
    number = facts["current"]
    while number in records and number not in ancestors:
        ancestors.add(number)
        number = records[number].parent
    found: list[Version] = []
    for entry in facts["versions"]:
        number = entry["version"]
        report = None if entry["damaged"] or number not in records else read_report(store, records[number])
        found.append(
            Version(
                number=number,
                parent=entry["parent"],
                made=entry["made"],
                is_current=number == facts["current"],
                is_ancestor=number in ancestors,
                refused=entry["refused"],
                damaged=entry["damaged"],
                **({} if report is None else _lesson(report)),
            )
        )
    return tuple(found)


def _lesson(report: LessonReport) -> dict[str, Any]:
    """What a lesson taught and cost: fields of `Version`."""
    lesson, seconds = report.lesson, report.times.get("seconds")
    new = set(lesson.new_classes)
    lost, gained, _ = changed_images(report.per_class)
    learned = {
        "old_before": report.old_before,
        "old_after": report.old_after,
        "likely_loss": report.likely_loss,
        "verdict": verdict(lost, gained),
        "changes": tuple(_change(one, is_new=one.name in new) for one in report.per_class),
    }
    return {
        "taught": lesson.data,
        "images": lesson.images,
        "new_classes": tuple(map(str, lesson.new_classes)),
        "extended_classes": tuple(map(str, lesson.extended_classes)),
        "seconds": float(seconds) if isinstance(seconds, int | float) else None,
        "epochs": lesson.epochs,
        "accuracy": report.accuracy,
        **(learned if lesson.images else {}),  # a renaming repeats the numbers of the lesson before it
    }


def _change(one: ClassAccuracy, *, is_new: bool) -> ClassChange:
    return ClassChange(
        name=str(one.name),
        images=one.images,
        before=one.before,
        after=one.after,
        lost=one.lost,
        gained=one.gained,
        is_new=is_new,
        verdict=verdict(one.lost or 0, one.gained or 0),
    )


def _arrivals(store: ModelStore, ancestors: Sequence[Version]) -> dict[Label, int | None]:
    """The version in which each class of the last ancestor arrived; None if that version is missing or damaged.

    A class that was renamed keeps its place among the classes.
    """
    records = {version.number: version for version in store.manifest().versions}
    found: dict[Label, int | None] = {}
    before: tuple[Label, ...] = ()
    last: int | None = None
    for version in ancestors:
        if version.damaged:
            continue
        classes = store.facts(records[version.number]).classes
        earlier = dict(zip(classes, before, strict=True)) if len(classes) == len(before) else {}
        is_known = version.parent is None or version.parent == last
        first = {name: version.number if is_known or str(name) in version.new_classes else None for name in classes}
        found = {name: found.get(name, found.get(earlier.get(name, name), first[name])) for name in classes}
        before, last = classes, version.number
    return found
