"""The pages of a model: what it knows and what its lessons cost, and the images that it keeps.

Each is one HTML file that loads no other file and needs no network. This module prepares plain values for the
templates.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from markupsafe import Markup
from rich.filesize import decimal as file_size

from cotransport.overview import (
    Answers,
    ClassChange,
    ImageOverview,
    KnownClass,
    Overview,
    Picture,
    Related,
    StoredImage,
    Verdict,
    Version,
    recognised,
)
from cotransport.report.model_charts import model_charts
from cotransport.report.templates import render_with_charts
from cotransport.report.text import UNDEFINED, one_decimal, plural

Values: TypeAlias = Mapping[str, Any]
"""Plain values for a template."""

MOST_ROWS = 60
"""Classes in the table of one lesson, at most."""
MOST_LESSONS = 40
"""Lessons with a table, at most."""
MOST_RELATED = 200
"""Classes whose related classes are shown, at most."""
MOST_LISTED = 400
"""Classes without a picture that are listed, at most."""
VERDICTS: Mapping[Verdict | None, str] = {
    "loss": "more than chance",
    "gain": "more than chance",
    "chance": "may be chance",
    None: "",
}


def render_model_page(overview: Overview) -> str:
    """The page on what a model knows, as HTML."""
    charts = model_charts(overview)
    lessons = overview.versions[::-1]
    opened = next((one.number for one in lessons if one.is_ancestor and one.changes), None)
    pictured = [one for one in overview.classes if one.photographs]
    newest = max((one.arrived or 0 for one in overview.classes), default=0)
    related = overview.classes[::-1][:MOST_RELATED][::-1]
    answers = overview.answers
    return render_with_charts(
        "model.html.j2",
        charts,
        model=overview,
        faces=_faces(overview),
        headline=_headline(overview),
        lead=_lead(overview),
        facts=_facts(overview),
        groups=_groups(overview),
        without_pictures=len(overview.classes) - len(pictured),
        lessons=[_lesson(one, has_table=place < MOST_LESSONS) for place, one in enumerate(lessons)],
        opened=opened,
        mistakes=_mistakes(overview),
        answers=answers and _answers(answers),
        newest=[_relations(overview, one) for one in related if (one.arrived or 0) == newest],
        earlier=[_relations(overview, one) for one in related if (one.arrived or 0) != newest],
        without_relations=len(overview.classes) - len(related),
        is_transported=any(one.built_from for one in overview.classes),
    )


def render_image_page(images: ImageOverview) -> str:
    """The page of all images that a model keeps, as HTML."""
    total = sum(one.images for one in images.classes)
    shown = sum(len(one.shown) for one in images.classes)
    return render_with_charts(
        "images.html.j2",
        {},
        model=images.model,
        total=plural(total, "image"),
        classes_in_words=plural(len(images.classes), "class"),
        shown=None if shown == total else f"{shown:,}",
        classes=[
            {
                "name": one.name,
                "id": f"class{number}",
                "count": plural(one.images, "image"),
                "hidden": one.images - len(one.shown),
                "images": [
                    {
                        "source": data_uri(picture),
                        "is_tiny": is_tiny(picture),
                        "id": image.id,
                        "name": image.file_name,
                        "uses": _uses(image, images.current),
                    }
                    for image, picture in one.shown
                ],
            }
            for number, one in enumerate(images.classes, start=1)
        ],
    )


def data_uri(picture: Picture) -> str:
    """A picture as an address that contains it."""
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"


def is_tiny(picture: Picture) -> bool:
    """Whether a picture has few pixels, which the page shows as squares."""
    return picture.media_type == "image/png"


def _uses(image: StoredImage, current: int | None) -> list[str]:
    """What an image is kept for, and in which versions."""
    uses = (("exemplar", image.exemplar_in), ("held out", image.held_out_in))
    return [
        f"{use} in {'version' if len(versions) == 1 else 'versions'} {_numbers(versions)}"
        + ("" if current in versions else " (not current)")
        for use, versions in uses
        if versions
    ]


def _numbers(versions: Sequence[int]) -> str:
    """Numbers of versions, with runs shortened.

    >>> _numbers([1, 2, 3, 5]), _numbers([4])
    ('1–3, 5', '4')
    """
    runs: list[list[int]] = []
    for number in versions:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _headline(overview: Overview) -> str:
    classes = plural(len(overview.classes), "class")
    answers = overview.answers
    if answers is None:
        return f"{overview.name} knows {classes}"
    share = _percent(100 * answers.right / answers.images)
    return f"{overview.name} knows {classes} and recognises {share} of the images held out to test it"


def _lead(overview: Overview) -> str:
    """What the last lesson taught and cost, in sentences."""
    lessons = [one for one in overview.versions if one.is_ancestor and one.changes]
    sentences = [_taught(lessons[-1]) + ".", *_cost(lessons[-1])] if lessons else []
    if overview.answers is None:
        sentences.append("No image was held out, so its accuracy is unknown.")
    return " ".join(sentences)


def _taught(version: Version) -> str:
    known = [f"taught {plural(len(version.new_classes), 'new class')}"] if version.new_classes else []
    if version.extended_classes:
        known.append(f"gave {plural(len(version.extended_classes), 'known class')} more images")
    length = "" if version.seconds is None else f" in {_duration(version.seconds)}"
    return f"The last lesson {' and '.join(known)}{length}"


def _cost(version: Version) -> list[str]:
    """What the lesson cost the classes that were known before."""
    if version.old_before is None or version.old_after is None:
        return []
    compared = [one for one in version.changes if one.lost is not None and one.gained is not None]
    lost, gained = sum(one.lost or 0 for one in compared), sum(one.gained or 0 for one in compared)
    if not lost and not gained:
        return ["The same held-out images of the classes known before are recognised as before it."]
    change = f"of the classes known before, {_percent(version.old_before)} were recognised before it and "
    change += f"{_percent(version.old_after)} after it"
    images = plural(sum(one.images for one in compared), "image")
    doubt = "which may be chance" if version.verdict == "chance" else "which is more than chance would explain"
    return [f"Of {images} {change}: {lost} no longer recognised, {gained} newly recognised, {doubt}."]


def _facts(overview: Overview) -> list[tuple[str, str]]:
    current = next(one for one in overview.versions if one.is_current)
    exemplars = plural(overview.exemplars, "exemplar") if overview.exemplars else "no exemplars"
    return [
        ("Method", overview.method),
        ("Backbone network", overview.backbone),
        ("Image size", f"{overview.image_size} × {overview.image_size} pixels"),
        ("Images kept", f"{exemplars}, {overview.held_out:,} held out for testing"),
        ("Size on disk", f"{file_size(overview.bytes)}, all versions together"),
        ("Version", f"{current.number}, made {current.made[:10]}"),
    ]


def _groups(overview: Overview) -> list[Values]:
    """The classes by the version that learned them, in their order of arrival."""
    taught = {one.number: one.taught for one in overview.versions}
    listed = [one for one in overview.classes if one.photographs]
    listed += [one for one in overview.classes if not one.photographs][:MOST_LISTED]
    place = {one.name: number for number, one in enumerate(overview.classes)}
    listed.sort(key=lambda one: place[one.name])
    return [
        {
            "title": "An earlier version" if version is None else f"Version {version}",
            "taught": None if version is None else taught.get(version),
            "classes": [_class_values(one) for one in members],
        }
        for version, members in groupby(listed, key=lambda one: one.arrived)
    ]


def _class_values(one: KnownClass) -> Values:
    kept = [f"{one.recognised} of {one.held_out} recognised" if one.held_out else "none held out"]
    kept += [plural(one.exemplars, "exemplar")] if one.exemplars else []
    return {
        "name": one.name,
        "kept": kept,
        "share": round(100 * one.recognised / one.held_out) if one.held_out else None,
        "photographs": [
            {
                "source": data_uri(photograph.picture),
                "is_tiny": is_tiny(photograph.picture),
                "text": f"{one.name}, {photograph.use}",
            }
            for photograph in one.photographs
        ],
    }


def _lesson(version: Version, *, has_table: bool) -> Values:
    learned = [f"{len(names):,} {kind}" for names, kind in _taught_classes(version) if names]
    facts = [
        *learned,
        version.images and f"{version.images:,} images",
        version.seconds is not None and version.images and _duration(version.seconds),
        version.epochs and plural(version.epochs, "epoch"),
        version.accuracy is not None and f"{_percent(version.accuracy)} of the held-out images recognised",
    ]
    rows = sorted(version.changes, key=_importance)[:MOST_ROWS] if has_table else ()
    shown = {one.name for one in rows}
    return {
        "number": version.number,
        "parent": version.parent,
        "made": version.made[:10],
        "is_current": version.is_current,
        "is_ancestor": version.is_ancestor,
        "refused": version.refused,
        "damaged": version.damaged,
        "taught": version.taught,
        "facts": ", ".join(str(fact) for fact in facts if fact),
        "cost": _cost(version),
        "likely_loss": version.likely_loss and " and ".join(one_decimal(bound) for bound in version.likely_loss),
        "rows": [_row(one) for one in version.changes if one.name in shown],
        "hidden": len(version.changes) - len(rows),
    }


def _taught_classes(version: Version) -> list[tuple[Sequence[str], str]]:
    return [
        (version.new_classes, "new class" if len(version.new_classes) == 1 else "new classes"),
        (version.extended_classes, "known classes with more images"),
    ]


def _importance(change: ClassChange) -> tuple[int, float]:
    """Losses beyond chance first, then new classes, then other changes."""
    moved = (change.lost or 0) - (change.gained or 0)
    return (0 if change.verdict == "loss" else 1 if change.is_new else 2, -moved)


def _row(one: ClassChange) -> Values:
    return {
        "name": one.name,
        "before": "" if one.before is None else recognised(one.before, one.images),
        "after": recognised(one.after, one.images),
        "lost": str(one.lost or ""),
        "gained": str(one.gained or ""),
        "meaning": "new" if one.is_new else VERDICTS[one.verdict],
        "kind": one.verdict or "",
    }


def _mistakes(overview: Overview) -> list[Values]:
    if overview.answers is None:
        return []
    return [
        {
            "true": overview.classes[one.true].name,
            "predicted": overview.classes[one.predicted].name,
            "number": one.predicted,
            "has_face": bool(overview.classes[one.predicted].photographs),
            "count": f"{one.images:,} of {plural(overview.classes[one.true].held_out, 'image')}",
            "examples": [
                {
                    "id": example.id,
                    "source": data_uri(example.picture),
                    "is_tiny": is_tiny(example.picture),
                    "text": f"{overview.classes[one.true].name}, taken for {overview.classes[one.predicted].name} "
                    f"with a probability of {100 * example.probability:.0f} %",
                    "probability": f"{100 * example.probability:.0f} %",
                }
                for example in one.examples
            ],
        }
        for one in overview.answers.mistakes
    ]


def _relations(overview: Overview, one: KnownClass) -> Values:
    def values(related: Sequence[Related]) -> list[Values]:
        return [
            {
                "name": overview.classes[other.number].name,
                "number": other.number,
                "has_face": bool(overview.classes[other.number].photographs),
                "share": f"{other.share:.2f}",
            }
            for other in related
        ]

    number = next(place for place, other in enumerate(overview.classes) if other is one)
    return {
        "name": one.name,
        "number": number,
        "has_face": bool(one.photographs),
        "share": None,
        "built_from": values(one.built_from),
        "similar": values(one.similar),
    }


def _answers(answers: Answers) -> Values:
    return {
        "images": plural(answers.images, "image"),
        "error": one_decimal(answers.calibration_error),
        "wrong_pairs": answers.wrong_pairs,
        "wanted": [
            {
                "at_least": at_least,
                "threshold": UNDEFINED if choice is None else f"{choice.threshold:.4g}",
                "answered": UNDEFINED if choice is None else _percent(choice.answered),
                "right": UNDEFINED if choice is None else _percent(choice.right),
            }
            for at_least, choice in answers.wanted
        ],
    }


def _faces(overview: Overview) -> Markup:
    """A style for each class with its first picture, so that a picture used several times is on the page once."""
    first = [(number, one.photographs[0].picture) for number, one in enumerate(overview.classes) if one.photographs]
    rules = [
        f".face{number} {{ background-image: url({data_uri(picture)});"
        f"{' image-rendering: pixelated;' if is_tiny(picture) else ''} }}"
        for number, picture in first
    ]
    return Markup("\n".join(rules))  # numbers and base64 only


def _percent(value: float) -> str:
    return f"{one_decimal(value)}\N{NO-BREAK SPACE}%"


def _duration(seconds: float) -> str:
    """A duration in the largest useful unit.

    >>> _duration(0.42), _duration(42.4), _duration(600), _duration(9000)
    ('0.4 s', '42 s', '10 min', '2.5 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
