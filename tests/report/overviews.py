"""Models as values, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cotransport.overview import (
    Answers,
    Choice,
    ClassChange,
    ImageClass,
    ImageOverview,
    KnownClass,
    Mistake,
    Overview,
    Part,
    Photograph,
    Picture,
    Related,
    StoredImage,
    Version,
    WrongAnswer,
)

NAMES = ("cat", "dog", "tiger")
PICTURE = Picture(b"not really a picture", "image/jpeg")


def known_class(name: str, **changes: Any) -> KnownClass:
    """A class of version 1 with a photograph, of which three of four held-out images are recognised."""
    values: dict[str, Any] = {
        "arrived": 1,
        "exemplars": 0,
        "held_out": 4,
        "recognised": 3,
        "photographs": (Photograph(PICTURE, "held out"),),
        "built_from": (),
        "similar": (),
    }
    return KnownClass(name=name, **(values | changes))


def change(name: str, **changes: Any) -> ClassChange:
    """A known class that a lesson has not changed."""
    values: dict[str, Any] = {"images": 4, "before": 75.0, "after": 75.0, "lost": 0, "gained": 0, "is_new": False}
    return ClassChange(name=name, **({"verdict": None} | values | changes))


def new_class(name: str) -> ClassChange:
    """A class that a lesson has taught."""
    return change(name, before=None, lost=None, gained=None, is_new=True)


def version(number: int, **changes: Any) -> Version:
    """A version on the way to the current one."""
    values: dict[str, Any] = {
        "parent": number - 1 or None,
        "made": "2026-01-02T03:04:05+00:00",
        "is_current": False,
        "is_ancestor": True,
        "refused": None,
        "damaged": None,
        "taught": f"week{number}",
        "images": 20,
        "seconds": 12.4,
        "accuracy": 75.0,
    }
    return Version(number=number, **(values | changes))


def answers(**changes: Any) -> Answers:
    """Twelve answers. One cat is taken for a dog, a dog for a cat, and a tiger for a cat."""
    values: dict[str, Any] = {
        "images": 12,
        "right": 9,
        "calibration_error": 4.25,
        "parts": (Part(0.5, 0.4, 5), Part(0.9, 1.0, 7)),
        "curve": (Choice(0.3, 100.0, 75.0), Choice(0.8, 50.0, 100.0)),
        "wanted": ((90, Choice(0.8, 50.0, 100.0)), (95, Choice(0.8, 50.0, 100.0)), (99, None)),
        "confusion": ((3, 1, 0), (1, 3, 0), (1, 0, 3)),
        "mistakes": (Mistake(0, 1, 1, (WrongAnswer("0123456789ab", PICTURE, 0.875),)), Mistake(1, 0, 1, ())),
        "wrong_pairs": 3,
    }
    return Answers(**(values | changes))


def overview(names: Sequence[str] = NAMES, **changes: Any) -> Overview:
    """A model that has learned two classes and then a third one, which was built from the first two."""
    cat, dog, tiger = names
    related = {"built_from": (Related(0, 0.7), Related(1, 0.3)), "similar": (Related(0, 0.55),)}
    lost = change(dog, before=100.0, lost=1, verdict="chance")
    values: dict[str, Any] = {
        "name": "pets",
        "version": 2,
        "method": "COIL",
        "backbone": "resnet8",
        "image_size": 64,
        "exemplars": 0,
        "held_out": 12,
        "bytes": 41_100_000,
        "classes": (known_class(cat), known_class(dog), known_class(tiger, arrived=2, **related)),
        "versions": (
            version(1, new_classes=(cat, dog), changes=(new_class(cat), new_class(dog))),
            version(
                2,
                is_current=True,
                new_classes=(tiger,),
                changes=(change(cat), lost, new_class(tiger)),
                old_before=87.5,
                old_after=75.0,
                likely_loss=(-10.0, 35.0),
                verdict="chance",
            ),
        ),
        "answers": answers(),
    }
    return Overview(**(values | changes))


def image_list(name: str = "cat", file: str = "a.jpg", images: int = 2) -> ImageOverview:
    """A class with some images, of which two are shown."""
    exemplar = StoredImage("0123456789ab", name, file, exemplar_in=(1, 2, 4), held_out_in=())
    held_out = StoredImage("ba9876543210", name, "", exemplar_in=(), held_out_in=(1,))
    return ImageOverview("pets", 4, (ImageClass(name, images, ((exemplar, PICTURE), (held_out, PICTURE))),))
