"""The requests and answers of the API as types. The OpenAPI document is generated from them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["queued", "running", "done", "refused", "failed"]


class _Values(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Failure(_Values):
    """Why a request failed."""

    error: str
    unreadable: list[int] = []
    """Files of a lesson that cannot be read as images, counted from 0 in the order of the request; left out if none."""


class Health(_Values):
    """The server is up."""

    status: Literal["ok"] = "ok"
    release: str
    """The release of cotransport."""


class ClassProbability(_Values):
    """A class, and how likely it is."""

    name: str
    probability: float = Field(ge=0, le=1)


class ImageAnswer(_Values):
    """The most likely classes of one image."""

    file: str
    classes: list[ClassProbability]
    """Most likely first. Empty if the file is not an image that can be read."""
    unknown: bool | None
    """Whether even the most likely class is too unlikely; null if the model has too few held-out images to say."""
    error: str | None = None
    """Why the file could not be read; left out if it could."""


class TeachAnswer(_Values):
    """A lesson is queued."""

    lesson: str
    """Its id."""


class TaughtClass(_Values):
    """A class of a lesson."""

    name: str
    images: int


class Progress(_Values):
    """The progress of a running lesson."""

    stage: Literal["waiting", "starting", "reading", "trial", "features", "training", "testing"]
    """`waiting`: another command is changing the model. `trial`: a short training that helps to choose the network."""
    done: int = 0
    of: int = 0
    """Files, images or steps, whichever the stage counts; 0 if that is not known yet."""
    seconds_left: float | None = None


class ClassChange(_Values):
    """A class before and after a lesson: accuracy in percent on its held-out images."""

    name: str
    images: int
    """The number of its held-out images."""
    before: float | None
    after: float | None
    lost: int | None
    """Held-out images that were recognised before the lesson, but not after it."""
    gained: int | None


class LessonResult(_Values):
    """The outcome of a finished lesson. Accuracies are in percent."""

    version: int
    parent: int | None
    """The previous version; null for a first lesson. A rollback to it, or to 0, undoes the lesson."""
    accuracy: float | None
    old_before: float | None
    """Accuracy on the classes that were known before the lesson."""
    old_after: float | None
    new_classes: list[str]
    per_class: list[ClassChange]
    seconds: float | None
    already: bool
    """Whether exactly these images had been learned before, so that nothing was trained."""


class Lesson(_Values):
    """A lesson, from the upload of its images to its result."""

    id: str
    state: State
    made: str
    """Date and time of the request, in UTC."""
    classes: list[TaughtClass]
    progress: Progress | None = None
    notes: list[str] = []
    """What the user should know, such as images that were left out."""
    settings: list[str] = []
    """How it is learned."""
    error: str | None = None
    """Why it failed or was refused."""
    result: LessonResult | None = None


class Share(_Values):
    """Another class, and what it has in common with this one."""

    name: str
    share: float


class KnownClass(_Values):
    """A class that the current version knows."""

    name: str
    arrived: int | None
    """The version that learned it."""
    exemplars: int
    held_out: int
    recognised: int
    """Its held-out images that are recognised."""
    built_from: list[Share]
    """Old classes with the largest shares in its first weights."""
    similar: list[Share]
    """Classes that it resembles, with the cosine similarity."""
    pictures: list[str] = []
    """Thumbnails of images that the model keeps, as data URLs, if the request asks for them."""


class Version(_Values):
    """A version of the model. Accuracies are in percent, on the held-out images."""

    version: int
    current: bool
    parent: int | None
    made: str
    classes: int | None
    new_classes: list[str]
    extended: list[str]
    """Classes that were known before and got more images."""
    change: str | None
    """What was done instead of a lesson, such as a renaming; null for a lesson."""
    accuracy: float | None
    accuracy_lost: float | None
    """Percentage points that the classes known before lost in its lesson."""
    refused: str | None
    damaged: bool


class RollbackRequest(_Values):
    """The version to go to."""

    to: int | None = Field(default=None, strict=True)
    """By default, the parent of the current version. 0 is the empty model, as before the first lesson."""


class RollbackAnswer(_Values):
    """The version that was current, and the one that is now."""

    before: int
    """0 if none was."""
    current: int
    """0 if none is."""


class RenameRequest(_Values):
    """A class and its new name."""

    name: str
    to: str


class RemoveRequest(_Values):
    """The class to remove."""

    name: str


class NewVersion(_Values):
    """A new version, which is now current."""

    version: int
