"""Lessons on disk, so that they outlive the server: a folder beside the model.

    model-lessons/5f3a09c1/lesson.json          the request and its outcome
    model-lessons/5f3a09c1/images/cat/...       the images, until the lesson ends
    model-lessons/.lock                         held by the server of this model

A request never names a file here: lessons are looked up by their id among those that were read from disk.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from cotransport.data.decoding import Encoded
from cotransport.data.formats import is_image
from cotransport.errors import ModelError
from cotransport.server.answers import Lesson, State, TaughtClass
from cotransport.server.failures import RefusedError
from cotransport.system.files import PART, read_json, rename_folder, storage_errors, write_json

RECORD, IMAGES, LOCK = "lesson.json", "images", ".lock"
LONGEST_NAME_BYTES = 200
"""Longest class name. It becomes the name of a folder."""
ENDED: frozenset[State] = frozenset({"done", "refused", "failed"})
_ID = re.compile(r"[0-9a-f]{8}")


class LessonOptions(BaseModel):
    """What a request asks for, besides the images."""

    model_config = ConfigDict(frozen=True)

    known_classes: Literal["refuse", "extend"] = "refuse"
    max_forgetting: float | None = None


class StoredLesson(BaseModel):
    """A lesson in `lesson.json`."""

    model_config = ConfigDict(frozen=True)

    lesson: Lesson
    options: LessonOptions
    order: int
    """Lessons are learned in ascending order."""


class LessonFolder:
    """The lessons of a model's server."""

    def __init__(self, model: Path) -> None:
        self.path = model.with_name(f"{model.name}-lessons")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if needed, and keep a second server out of it."""
        with storage_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(self.path / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise ModelError(f"{self.path}: another server is using this model. Stop it first") from None
        try:
            yield
        finally:
            lock.release()

    def images(self, lesson_id: str) -> Path:
        """The folder of a lesson's images."""
        return self.path / lesson_id / IMAGES

    def add(self, images: Mapping[str, Sequence[Encoded]], options: LessonOptions) -> StoredLesson:
        """Store a new lesson: images by class. It appears only once it is complete."""
        lesson_id = secrets.token_hex(4)
        lesson = Lesson(
            id=lesson_id,
            state="queued",
            made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            classes=[TaughtClass(name=name, images=len(files)) for name, files in images.items()],
        )
        stored = StoredLesson(lesson=lesson, options=options, order=time.time_ns())
        place = self.path / lesson_id
        beside = place.with_name(f".{lesson_id}{PART}")
        try:
            with storage_errors(place):
                beside.mkdir()
                for name, files in images.items():
                    folder = beside / IMAGES / name
                    folder.mkdir(parents=True)
                    for number, file in enumerate(files):
                        (folder / _stored_name(number, file.name)).write_bytes(file.data)
            write_json(beside / RECORD, stored.model_dump(mode="json"))
            rename_folder(beside, place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return stored

    def save(self, stored: StoredLesson) -> None:
        """Write the state of a lesson. Once it has ended, its images are removed."""
        write_json(self.path / stored.lesson.id / RECORD, stored.model_dump(mode="json"))
        if stored.lesson.state in ENDED:
            shutil.rmtree(self.images(stored.lesson.id), ignore_errors=True)

    def remove(self, lesson_id: str) -> None:
        """Remove a lesson with its images."""
        shutil.rmtree(self.path / lesson_id, ignore_errors=True)

    def read(self) -> list[StoredLesson]:
        """All lessons, in the order of their requests. Lessons that a killed server left half written are removed."""
        found: list[StoredLesson] = []
        for path in self.path.iterdir():
            if path.name.endswith(PART) and _ID.fullmatch(path.name[1 : -len(PART)]):
                shutil.rmtree(path, ignore_errors=True)
            elif _ID.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                try:
                    stored = StoredLesson.model_validate(read_json(path / RECORD))
                except (OSError, ValueError, ValidationError):
                    continue  # not ours, or damaged
                if stored.lesson.id == path.name:
                    found.append(stored)
                    if stored.lesson.state in ENDED:
                        shutil.rmtree(self.images(path.name), ignore_errors=True)
        return sorted(found, key=lambda one: one.order)


def class_name(text: str) -> str:
    """A class name as the user typed it, if it can also be the name of a folder."""
    name = unicodedata.normalize("NFC", text.strip())
    if not name:
        raise RefusedError(400, "class: the name is empty. Give the class a name")
    if not name.isprintable() or name.startswith(".") or re.search(r"[/\\]", name):
        raise RefusedError(
            400, f"class {name!r}: use printable characters, without / and \\, and no full stop at the start"
        )
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME_BYTES:
        raise RefusedError(400, f"class: a name may have at most {LONGEST_NAME_BYTES} bytes")
    return name


def _stored_name(number: int, name: str) -> str:
    """The name of an image's file. The client's name is kept as far as it is harmless.

    >>> _stored_name(3, "my cat.JPG"), _stored_name(4, "../x.php"), _stored_name(5, "photo")
    ('00003-my-cat.jpg', '00004-x.png', '00005-photo.png')
    """
    stem, _, suffix = name.rpartition(".") if "." in name else (name, "", "")
    plain = re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:40]
    suffix = suffix.lower() if is_image(f"x.{suffix}") else "png"  # the content decides how it is read
    return f"{number:05d}" + (f"-{plain}" if plain else "") + f".{suffix}"
