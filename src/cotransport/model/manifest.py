"""The JSON records of a model folder: its manifest, and each version's `model.json`.

Nothing here needs torch, so that commands such as `info` start at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from cotransport.errors import ModelError
from cotransport.settings.sections import LARGEST_IMAGE

FORMAT = 3
"""The newest format that this release reads and writes. It increases when older releases cannot read the new files:

1: every version has all of its weights.
2: versions may share tensors.
3: the number of a version's folder may differ from the version's.
"""
MOST_VERSIONS = 10**6
"""Version numbers are below this."""
LONGEST_NAME = 1000
"""Characters in a class name, at most."""

Number = Annotated[int, Field(ge=1, lt=MOST_VERSIONS)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
FileNumber = Annotated[str, Field(pattern=r"^[1-9]\d{0,5}$")]


class Record(BaseModel):
    """An immutable record on disk. Unknown keys belong to a later release and are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


class FileRecord(Record):
    """Checksum and size of a file."""

    sha256: str
    bytes: Count


class VersionRecord(Record):
    """A version in the manifest."""

    number: Number
    parent: Number | None
    """The version that this one was taught from."""
    files: dict[str, FileRecord]
    images: list[Number]
    """The image files that it refers to."""
    tensors: list[Number] = []
    """The files of shared tensors that it refers to."""
    made: str
    """When it was written: date and time in UTC."""
    refused: str | None = None
    """Why the version was not made current, if it was refused."""
    folder: Number | None = None
    """The number of its folder; None if it is the version's number."""

    @property
    def place(self) -> int:
        """The number of its folder."""
        return self.number if self.folder is None else self.folder


class FormatRecord(Record):
    """The part of a manifest that every format shares."""

    kind: str = "cotransport model"
    format: Count = 1


class Manifest(FormatRecord):
    """The contents of a model folder."""

    current: Number | None = None
    versions: list[VersionRecord] = []
    images: dict[FileNumber, FileRecord] = {}
    tensors: dict[FileNumber, FileRecord] = {}

    @property
    def next_file(self) -> int:
        """A number that no file or folder has."""
        used = {number for version in self.versions for number in (version.number, version.place)}
        return max({0, *used, *map(int, self.images), *map(int, self.tensors)}) + 1

    def version(self, number: int) -> VersionRecord:
        """The version with this number."""
        for version in self.versions:
            if version.number == number:
                return version
        known = ", ".join(str(version.number) for version in self.versions) or "none"
        raise ModelError(f"there is no version {number}. Versions: {known}")


class ImageRows(Record):
    """The images of one class: rows of image files, as (file, first row, number of rows)."""

    pixels: bool
    """Whether the images are stored in the size that the network sees."""
    rows: list[tuple[Number, Count, Count]]

    def __len__(self) -> int:
        return sum(count for _, _, count in self.rows)


class ModelRecord(Record):
    """`model.json`: a version without its weights and images."""

    release: str
    """The release of this package that wrote it."""
    classes: list[Name] | list[int]
    task_sizes: list[Count]
    image_size: Annotated[int, Field(ge=1, le=LARGEST_IMAGE)]
    settings: dict[str, Any]
    exemplars: list[ImageRows]
    held_out: list[ImageRows]
    shared: dict[str, tuple[Number, str]] = {}
    """Tensors that other versions have too: the file of shared tensors, and the name in it, of each."""
    chosen: dict[str, Any] | None = None
    """The settings that the user has chosen. None if that is not known, or in the metrics of a lesson."""


class Facts(NamedTuple):
    """What `model.json` says about a version."""

    classes: tuple[str | int, ...]
    image_size: int
    settings: dict[str, Any]
    exemplars: int
    held_out: int


def seal(manifest: Mapping[str, Any]) -> str:
    """The checksum of a manifest's values, including those that only a later release knows."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
