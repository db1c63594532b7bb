"""A model as plain values, for its pages. `lessons` gathers them and `report` draws them; neither knows the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Use = Literal["exemplar", "held out"]
"""What an image is kept for: to train later lessons, or to test."""
Verdict = Literal["loss", "gain", "chance"]
"""A change of accuracy: more than chance would explain, or not."""


def recognised(accuracy: float | None, images: int) -> str:
    """An accuracy in percent as a number of images: of few images, one is many points.

    >>> recognised(66.7, 3), recognised(None, 0)
    ('2 of 3', '–')
    """
    return "–" if accuracy is None else f"{round(accuracy * images / 100):,} of {images:,}"


class Picture(NamedTuple):
    """A small square image, encoded."""

    data: bytes
    media_type: str
    """`image/png` or `image/jpeg`."""


class Photograph(NamedTuple):
    """A picture of an image that a model keeps."""

    picture: Picture
    use: Use


class Related(NamedTuple):
    """Another class, and how much it has in common with the first one."""

    number: int
    """Its place among the classes of the model."""
    share: float
    """A share of the first weights, or a cosine."""


@dataclass(frozen=True)
class KnownClass:
    """A class of the current version."""

    name: str
    arrived: int | None
    """The version that learned it; None if that version is missing or damaged."""
    exemplars: int
    held_out: int
    recognised: int
    """Its held-out images that the current version recognises."""
    photographs: tuple[Photograph, ...]
    built_from: tuple[Related, ...]
    """Old classes with the largest shares in its first weights; empty if these were not transported."""
    similar: tuple[Related, ...]
    """The most similar classes with a positive cosine, most similar first."""


@dataclass(frozen=True)
class ClassChange:
    """A class before and after a lesson. Accuracies are in percent, None where undefined."""

    name: str
    images: int
    before: float | None
    after: float | None
    lost: int | None
    """Held-out images that were recognised before and are not now; None for a new class."""
    gained: int | None
    is_new: bool
    verdict: Verdict | None
    """None if nothing was lost or gained."""


@dataclass(frozen=True)
class Version:
    """A version, and what its lesson taught and cost."""

    number: int
    parent: int | None
    made: str
    is_current: bool
    is_ancestor: bool
    """Whether it is the current version or one that this was taught from, directly or not."""
    refused: str | None
    damaged: str | None
    taught: str | None = None
    """The images, as the user named them; None if the version was saved from Python or is damaged."""
    images: int = 0
    """The number of images that were trained on."""
    new_classes: tuple[str, ...] = ()
    extended_classes: tuple[str, ...] = ()
    seconds: float | None = None
    epochs: int | None = None
    accuracy: float | None = None
    old_before: float | None = None
    """Before the lesson, on the classes that were known then."""
    old_after: float | None = None
    likely_loss: tuple[float, float] | None = None
    """The 95 % interval of the true loss, in points."""
    verdict: Verdict | None = None
    """On all classes that were known before."""
    changes: tuple[ClassChange, ...] = ()
    """Empty if nothing was learned, as after a renaming."""


class WrongAnswer(NamedTuple):
    """A held-out image that is taken for another class."""

    id: str
    """The first letters of its digest."""
    picture: Picture
    probability: float


@dataclass(frozen=True)
class Mistake:
    """Held-out images of one class that the current version takes for another."""

    true: int
    predicted: int
    images: int
    examples: tuple[WrongAnswer, ...]


class Choice(NamedTuple):
    """A probability threshold: the share of images answered at it, and the share of these answers that are right."""

    threshold: float
    answered: float
    right: float


class Part(NamedTuple):
    """Answers of similar probability."""

    probability: float
    """Their mean, from 0 to 1."""
    right: float
    """The share of them that is right."""
    answers: int


@dataclass(frozen=True)
class Answers:
    """The answers of the current version to its held-out images. Shares of `Choice` are in percent."""

    images: int
    right: int
    calibration_error: float
    """In points."""
    parts: tuple[Part, ...]
    curve: tuple[Choice, ...]
    """From the lowest threshold, at which every image is answered, to the highest."""
    wanted: tuple[tuple[int, Choice | None], ...]
    """For some percentages of right answers: the lowest threshold that reaches them, or None."""
    confusion: tuple[tuple[int, ...], ...] | None
    """Number of images by true class (row) and predicted class; None with very many classes."""
    mistakes: tuple[Mistake, ...]
    """The most frequent ones first."""
    wrong_pairs: int
    """The number of different mistakes, of which `mistakes` has the most frequent."""


@dataclass(frozen=True)
class Overview:
    """What a model knows, and what its lessons taught and cost."""

    name: str
    version: int
    method: str
    backbone: str
    image_size: int
    exemplars: int
    held_out: int
    bytes: int
    classes: tuple[KnownClass, ...]
    versions: tuple[Version, ...]
    answers: Answers | None
    """None without held-out images."""


@dataclass(frozen=True)
class StoredImage:
    """An image in a model folder."""

    id: str
    """The first letters of its digest."""
    class_name: str
    file_name: str
    """Empty if it came as pixels."""
    exemplar_in: tuple[int, ...]
    """The versions that train with it."""
    held_out_in: tuple[int, ...]
    """The versions that are tested with it."""


@dataclass(frozen=True)
class ImageClass:
    """The images of one class in a model folder, of which the first ones have a picture."""

    name: str
    images: int
    shown: tuple[tuple[StoredImage, Picture], ...]


@dataclass(frozen=True)
class ImageOverview:
    """The images in a model folder, by class."""

    model: str
    current: int | None
    classes: tuple[ImageClass, ...]
