"""What a model knows, for the page and the API: its classes with pictures, and its versions."""

from __future__ import annotations

import base64
from pathlib import Path
from threading import Lock

from cotransport.lessons.information import describe
from cotransport.lessons.inspection import inspect
from cotransport.model.folder import ModelFolder
from cotransport.overview import Overview, Picture, Related
from cotransport.server.answers import KnownClass, Share, Version
from cotransport.server.predictor import CurrentVersion

MOST_NAMED = 1000
"""Largest number of new classes, and of extended ones, that are named for a version."""


class Contents:
    """The contents of a model. The overview of a version is gathered once."""

    def __init__(self, model: Path) -> None:
        self._model, self._signature = model, CurrentVersion(model).signature
        self._seen: tuple[int, int, int] | None = None
        self._overview: Overview | None = None
        self._gathering = Lock()

    def classes(self, *, pictures: bool) -> list[KnownClass]:
        """The classes of the current version, in order of arrival; none if no version is current."""
        with self._gathering:
            seen = self._signature()
            if seen != self._seen:
                has_version = seen is not None and ModelFolder(self._model).manifest().current is not None
                self._overview = inspect(self._model) if has_version else None
                self._seen = seen
            overview = self._overview
        if overview is None:
            return []

        def named(related: tuple[Related, ...]) -> list[Share]:
            return [Share(name=overview.classes[one.number].name, share=one.share) for one in related]

        return [
            KnownClass(
                name=one.name,
                arrived=one.arrived,
                exemplars=one.exemplars,
                held_out=one.held_out,
                recognised=one.recognised,
                built_from=named(one.built_from),
                similar=named(one.similar),
                pictures=[_address(photograph.picture) for photograph in one.photographs] if pictures else [],
            )
            for one in overview.classes
        ]

    def versions(self) -> list[Version]:
        """All versions, oldest first."""
        if self._signature() is None:
            return []
        facts = describe(self._model)
        return [
            Version(
                version=one["version"],
                current=one["version"] == facts["current"],
                parent=one["parent"],
                made=one["made"],
                classes=one.get("classes"),
                new_classes=[str(name) for name in one.get("new_classes", [])[:MOST_NAMED]],
                extended=[str(name) for name in one.get("extended_classes", [])[:MOST_NAMED]],
                change=one.get("change"),
                accuracy=one.get("accuracy"),
                accuracy_lost=one.get("forgetting"),
                refused=one["refused"],
                damaged=one["damaged"] is not None,
            )
            for one in facts["versions"]
        ]


def _address(picture: Picture) -> str:
    return f"data:{picture.media_type};base64,{base64.b64encode(picture.data).decode()}"
