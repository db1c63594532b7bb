"""The model folder: versions of a classifier on the disk, and which of them is current.

    manifest.json                       format, current version, checksums of all files
    versions/0001/weights.safetensors   tensors of the network
    versions/0001/model.json            settings, class names, which images are exemplars and which are held out
    versions/0001/metrics.json          what was learned and forgotten, and how long it took
    images/0001.parquet                 encoded images that came with version 1; later versions refer to them too

A version is written beside, synced and renamed, and counts when the manifest, replaced at the very end, names it. So a
reader needs no lock and never sees half of one, and a crash leaves the previous version current. Only numbers are taken
from the files to find other files, never paths; nothing in a model folder is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from cotransport.data import EncodedImages, Images, Label, PixelImages
from cotransport.data.decoding import Encoded, Item, png
from cotransport.data.images import encoded_copy
from cotransport.data.loading import decode_squares, fits_memory
from cotransport.data.memory import Memory
from cotransport.errors import ModelError
from cotransport.settings.sections import LARGEST_IMAGE
from cotransport.system.files import (
    atomic_write,
    checksum,
    read_json,
    read_json_bytes,
    rename_folder,
    storable_name,
    storage_errors,
    write_json,
)
from cotransport.system.tensors import read_tensors, write_tensors
from cotransport.version import __version__

FORMAT = 1
"""Raised when an older release could not read what a newer one writes."""
MANIFEST, LOCK = "manifest.json", ".lock"
VERSIONS, IMAGES, UNFINISHED = "versions", "images", "unfinished"
WEIGHTS, MODEL, METRICS = "weights.safetensors", "model.json", "metrics.json"
MOST_VERSIONS = 10**6
"""Numbers that versions may have."""
ROWS_AT_ONCE = 1024
"""Images that are encoded and written together."""
LONGEST_NAME = 1000
"""Letters of a class's name, at most."""
_OURS = {
    VERSIONS: re.compile(r"\.?\d{4,6}(\.part)?"),
    IMAGES: re.compile(r"\.?\d{4,6}\.parquet(\.part)?"),
    UNFINISHED: re.compile(r"\.?(lesson\.json|training-.*\.safetensors)(\.part)?|\d+"),
}
"""What a writer may leave in each folder: nothing else is ever removed."""

RecordType = TypeVar("RecordType", bound="_Record")
Number = Annotated[int, Field(ge=1, lt=MOST_VERSIONS)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
ImageFile = Annotated[str, Field(pattern=r"^[1-9]\d{0,5}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)  # unknown keys are those of a later release


class FileRecord(_Record):
    """By which a file is recognised."""

    sha256: str
    bytes: Count


class VersionRecord(_Record):
    """A version in the manifest."""

    number: Number
    parent: Number | None
    """The version that was taught further."""
    files: dict[str, FileRecord]
    images: list[Number]
    """The files of images that it refers to."""
    made: str
    """When, in universal time."""
    refused: str | None = None
    """Why it was not made current, if it was not."""


class _Kind(_Record):
    """What is the same in the manifests of all formats."""

    kind: str = "cotransport model"
    format: Count = FORMAT


class Manifest(_Kind):
    """What a model folder holds."""

    current: Number | None = None
    versions: list[VersionRecord] = []
    images: dict[ImageFile, FileRecord] = {}

    def version(self, number: int) -> VersionRecord:
        """The version of this number."""
        for version in self.versions:
            if version.number == number:
                return version
        known = ", ".join(str(version.number) for version in self.versions) or "none"
        raise ModelError(f"there is no version {number}. Versions: {known}")


def seal(manifest: Mapping[str, Any]) -> str:
    """The checksum of a manifest's values, known to this release or not."""
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


class _Rows(_Record):
    """Images of one class: rows of image files, as (file, first row, number of rows)."""

    pixels: bool
    """Whether they are squares as the network sees them."""
    rows: list[tuple[Number, Count, Count]]


class _Model(_Record):
    """`model.json`."""

    release: str
    """Of this package, that wrote it."""
    classes: list[Name] | list[int]
    task_sizes: list[Count]
    image_size: Annotated[int, Field(ge=1, le=LARGEST_IMAGE)]
    settings: dict[str, Any]
    exemplars: list[_Rows]
    held_out: list[_Rows]


@dataclass(frozen=True)
class Snapshot:
    """A classifier as it goes to the disk and comes from it."""

    settings: Mapping[str, Any]
    classes: tuple[Label, ...]
    task_sizes: tuple[int, ...]
    image_size: int
    tensors: Mapping[str, Tensor]
    memory: Memory
    held_out: Memory = Memory()
    """Images of each class that were never trained on, to see what is forgotten."""
    metrics: Mapping[str, Any] = field(default_factory=dict)


class Facts(NamedTuple):
    """What can be said of a version without its weights and images."""

    classes: tuple[Label, ...]
    image_size: int
    settings: dict[str, Any]
    exemplars: int
    held_out: int


class ModelStore:
    """A model folder. Writers hold `locked`; readers need nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index: dict[bytes, tuple[int, int]] | None = None  # where an image with this digest is stored

    @property
    def exists(self) -> bool:
        """Whether there is a version in the folder."""
        return (self.folder / MANIFEST).is_file()

    @property
    def unfinished(self) -> Path:
        """Where a lesson that goes on keeps what it needs to be taken up again."""
        return self.folder / UNFINISHED

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep other writers out of it."""
        self._check_places()
        if self.folder.exists() and not self.exists:
            self._check_ours()
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise ModelError(f"{self.folder}: another process is writing to it. Wait until it is done") from None
        try:
            yield
        finally:
            lock.release()

    def manifest(self) -> Manifest:
        """What the folder holds, checked."""
        self._check_places()
        path = self.folder / MANIFEST
        if self.folder.is_file():
            raise ModelError(f"{self.folder}: a file, not a model's folder. Give a folder made by `learn` or save")
        if not self.folder.is_dir():
            raise ModelError(f"{self.folder}: no such folder. `cotransport learn {self.folder} DATA` makes a model")
        if not path.exists() and self.unfinished.is_dir():
            raise ModelError(f"{self.folder}: its first lesson is not finished. Repeat the command to go on with it")
        if not path.exists():
            raise ModelError(f"{self.folder}: not a model (no {MANIFEST} in it). Give a folder made by `learn` or save")
        found = self._parsed(_Kind, path)
        if found.kind != Manifest().kind:
            raise ModelError(f"{path}: not the manifest of a model. Give a folder made by `learn` or save")
        if found.format > FORMAT:
            raise ModelError(
                f"{path}: format {found.format}, made by a later release; this one reads up to {FORMAT}. Upgrade"
            )
        manifest, values = self._parsed(Manifest, path), self._json(path)
        if values.get("checksum") != seal(values):
            raise ModelError(f"{path}: damaged or changed by hand (its checksum differs). Restore it from a backup")
        if len({version.number for version in manifest.versions}) < len(manifest.versions):
            raise ModelError(f"{path}: two versions have the same number. Restore it from a backup")
        return manifest

    def read(self, number: int | None = None) -> Snapshot:
        """A version, by default the current one. Its images are read when they are first looked at."""
        manifest = self.manifest()
        wanted = manifest.current if number is None else number
        if wanted is None:
            raise ModelError(f"{self.folder}: no version is current. Choose one with `cotransport rollback --to`")
        version = manifest.version(wanted)
        weights, path, metrics_path = (self._checked(version, name) for name in (WEIGHTS, MODEL, METRICS))
        model = self._parsed(_Model, path)
        if not len(model.classes) == sum(model.task_sizes) == len(model.exemplars) >= len(model.held_out):
            raise ModelError(f"{path}: the numbers of classes do not agree. Restore it from a backup")
        if len(set(model.classes)) < len(model.classes):
            raise ModelError(f"{path}: two classes have the same name. Restore it from a backup")
        metrics = self._json(metrics_path)
        try:
            tensors = read_tensors(weights).tensors
        except ValueError as error:
            raise ModelError(f"{weights}: damaged ({error}). Restore it from a backup") from None
        return Snapshot(
            settings=model.settings,
            classes=tuple(model.classes),
            task_sizes=tuple(model.task_sizes),
            image_size=model.image_size,
            tensors=tensors,
            memory=Memory(partial(self._images, manifest, model.exemplars, model.image_size)),
            held_out=Memory(partial(self._images, manifest, model.held_out, model.image_size)),
            metrics=metrics if isinstance(metrics, dict) else {},
        )

    def facts(self, version: VersionRecord) -> Facts:
        """What `model.json` says of a version; its weights and images are not looked at."""
        model = self._parsed(_Model, self._checked(version, MODEL))
        counts = [
            sum(count for part in rows for _, _, count in part.rows) for rows in (model.exemplars, model.held_out)
        ]
        return Facts(tuple(model.classes), model.image_size, model.settings, *counts)

    def metrics(self, version: VersionRecord) -> dict[str, Any]:
        """What a version's `metrics.json` says."""
        metrics = self._json(self._checked(version, METRICS))
        return metrics if isinstance(metrics, dict) else {}

    def write(self, snapshot: Snapshot, *, parent: int | None = None, refused: str | None = None) -> int:
        """Add a version and make it current unless it is refused; returns its number. Needs `locked`."""
        manifest = self.manifest() if self.exists else Manifest()
        number = max((version.number for version in manifest.versions), default=0) + 1
        if number >= MOST_VERSIONS:
            raise ModelError(f"{self.folder}: it has had too many versions. Begin a new model")
        with storage_errors(self.folder):
            for name in (VERSIONS, IMAGES):
                (self.folder / name).mkdir(exist_ok=True)
            self._remove_leftovers(manifest)
        pool = _Pool(self.stored(manifest), number)
        exemplars = [pool.add(images) for images in snapshot.memory.exemplars]
        held_out = [pool.add(images) for images in snapshot.held_out.exemplars]
        images = dict(manifest.images)
        if pool.new:
            path = self._image_file(number)
            with atomic_write(path) as beside:
                _write_images(beside, pool.new)
            images[str(number)] = _record(path)
        model = _Model(
            release=__version__,
            classes=list(snapshot.classes),  # type: ignore[arg-type]  # all of one kind
            task_sizes=list(snapshot.task_sizes),
            image_size=snapshot.image_size,
            settings=dict(snapshot.settings),
            exemplars=exemplars,
            held_out=held_out,
        )
        files = self._write_version(number, snapshot, model)
        used = sorted({file for rows in (*exemplars, *held_out) for file, _, _ in rows.rows})
        made = datetime.now(timezone.utc).isoformat(timespec="seconds")
        version = VersionRecord(number=number, parent=parent, files=files, images=used, made=made, refused=refused)
        current = manifest.current if refused is not None else number
        self._replace(
            manifest.model_copy(
                update={"current": current, "versions": [*manifest.versions, version], "images": images}
            )
        )
        self._index = pool.index
        return number

    def make_current(self, number: int) -> None:
        """Make another version the one that is read and taught further, refused or not. Needs `locked`."""
        manifest = self.manifest()
        version = manifest.version(number)
        for name in (WEIGHTS, MODEL, METRICS):
            self._checked(version, name)
        for image_file in version.images:
            self._check(self._image_file(image_file), self._image_record(manifest, image_file))
        self._replace(manifest.model_copy(update={"current": number}))

    def keep_only(self, number: int) -> None:
        """Remove all other versions, and images that this one has no use for. Needs `locked`, and no reader about."""
        manifest = self.manifest()
        kept = manifest.version(number)
        images = {name: record for name, record in manifest.images.items() if int(name) in kept.images}
        if len(manifest.versions) == 1 and len(images) == len(manifest.images):
            return
        manifest = manifest.model_copy(update={"current": number, "versions": [kept], "images": images})
        self._replace(manifest)
        with storage_errors(self.folder):
            self._remove_leftovers(manifest)
        self._index = None

    def _write_version(self, number: int, snapshot: Snapshot, model: _Model) -> dict[str, FileRecord]:
        place = self._place(number)
        beside = place.with_name(f".{place.name}.part")
        try:
            with storage_errors(place):
                beside.mkdir()
                write_tensors(beside / WEIGHTS, snapshot.tensors)
                write_json(beside / MODEL, model.model_dump(mode="json"))
                write_json(beside / METRICS, dict(snapshot.metrics))
                files = {name: _record(beside / name) for name in (WEIGHTS, MODEL, METRICS)}
            rename_folder(beside, place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return files

    def _replace(self, manifest: Manifest) -> None:
        values = manifest.model_dump(mode="json")
        write_json(self.folder / MANIFEST, values | {"checksum": seal(values)})

    def _remove_leftovers(self, manifest: Manifest) -> None:
        """Remove what the manifest does not name: the remains of a writer that was killed."""
        versions = {self._place(version.number) for version in manifest.versions}
        images = {self._image_file(int(name)) for name in manifest.images}
        for name, kept in ((VERSIONS, versions), (IMAGES, images)):
            for path in (self.folder / name).iterdir():
                if path not in kept and _OURS[name].fullmatch(path.name):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _images(self, manifest: Manifest, classes: Sequence[_Rows], size: int) -> tuple[Images, ...]:
        """The images of each class, read from their files."""
        tables: dict[int, list[Encoded]] = {}
        for file in sorted({file for rows in classes for file, _, _ in rows.rows}):
            path = self._image_file(file)
            self._check(path, self._image_record(manifest, file))
            tables[file] = _read_images(path)
        chosen: list[list[Encoded]] = []
        for rows in classes:
            own: list[Encoded] = []
            for file, first, count in rows.rows:
                if first + count > len(tables[file]):
                    raise ModelError(f"{self._image_file(file)}: has fewer images than a version refers to")
                own += tables[file][first : first + count]
            chosen.append(own)
        in_memory = fits_memory(sum(map(len, chosen)), size)  # as they were when they came, unless somebody lies
        return tuple(
            PixelImages(decode_squares(own, size)) if rows.pixels and in_memory else EncodedImages.of(own, size)
            for own, rows in zip(chosen, classes, strict=True)
        )

    def _image_record(self, manifest: Manifest, file: int) -> FileRecord:
        record = manifest.images.get(str(file))
        if record is None:
            raise ModelError(
                f"{self.folder / MANIFEST}: no record of {self._image_file(file).name}. Restore it from a backup"
            )
        return record

    def stored(self, manifest: Manifest) -> dict[bytes, tuple[int, int]]:
        """Where each image is stored, by the digest of what it shows."""
        if self._index is None:
            self._index = {}
            for name, record in manifest.images.items():
                path = self._image_file(int(name))
                self._check(path, record)
                for row, digest in enumerate(_read_column(path, "digest")):
                    self._index.setdefault(digest, (int(name), row))
        return self._index

    def _checked(self, version: VersionRecord, name: str) -> Path:
        """The place of one of a version's files, which is the one that was written."""
        if name not in version.files:
            raise ModelError(
                f"{self.folder / MANIFEST}: version {version.number} has no {name}. Restore it from a backup"
            )
        path = self._place(version.number) / name
        self._check(path, version.files[name])
        return path

    def _check(self, path: Path, record: FileRecord) -> None:
        """An error unless a file is the one that was written."""
        if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: missing, or not a file. {self._remedy(path)}")
        try:
            same = path.stat().st_size == record.bytes and checksum(path) == record.sha256
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror}). Check its permissions") from None
        if not same:
            raise ModelError(f"{path}: damaged or changed (its checksum differs). {self._remedy(path)}")

    def _remedy(self, path: Path) -> str:
        other = ", or go to another version by `rollback`" if path.parent.parent.name == VERSIONS else ""
        return f"Restore it from a backup{other}"

    def _json(self, path: Path) -> Any:  # noqa: ANN401
        with _blamed(path):
            return read_json(path)

    def _parsed(self, kind: type[RecordType], path: Path) -> RecordType:
        with _blamed(path):
            text = read_json_bytes(path)
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ModelError(
                f"{path}: damaged, or not of a model ({where + ': ' if where else ''}{first['msg']}). Restore it from "
                "a backup"
            ) from None

    def _check_ours(self) -> None:
        """An error if the folder holds something else than the beginning of a model."""
        if not self.folder.is_dir():
            raise ModelError(f"{self.folder}: a file. Give a new folder's name, or a model's")
        begun = (self.folder / LOCK).exists()  # the first thing that a writer makes
        for path in self.folder.iterdir():
            known = begun and path.name in {LOCK, f".{MANIFEST}.part", *_OURS}
            if path.is_dir():
                ours = _OURS.get(path.name)
                known = known and ours is not None and all(ours.fullmatch(one.name) for one in path.iterdir())
            if not known:
                raise ModelError(
                    f"{self.folder}: not a model, and not empty ({path.name}). Give a new folder's name, or a model's"
                )

    def _check_places(self) -> None:
        """An error if a link stands where a model has a folder or a file of its own: it may lead anywhere."""
        for name in (MANIFEST, LOCK, *_OURS):
            if (self.folder / name).is_symlink():
                raise ModelError(f"{self.folder / name}: a link, which a model never has. Restore it from a backup")

    def _place(self, number: int) -> Path:
        return self.folder / VERSIONS / f"{number:04d}"

    def _image_file(self, number: int) -> Path:
        return self.folder / IMAGES / f"{number:04d}.parquet"


class _New(NamedTuple):
    """An image that is not stored yet."""

    digest: bytes
    item: Item


class _Pool:
    """Images on their way to the disk: those that are there already are referred to, the others are collected."""

    def __init__(self, stored: Mapping[bytes, tuple[int, int]], file: int) -> None:
        self.index, self._file = dict(stored), file
        self.new: list[_New] = []

    def add(self, images: Images) -> _Rows:
        """Where the images of a class are, or will be, stored."""
        rows: list[tuple[int, int, int]] = []
        for place in range(len(images)):
            item = images.item(place)
            digest = digest_of(item)
            if digest not in self.index:
                self.index[digest] = (self._file, len(self.new))
                self.new.append(_New(digest, item))
            file, row = self.index[digest]
            if rows and rows[-1][0] == file and sum(rows[-1][1:]) == row:
                rows[-1] = (file, rows[-1][1], rows[-1][2] + 1)
            else:
                rows.append((file, row, 1))
        return _Rows(pixels=isinstance(images, PixelImages), rows=rows)


def digest_of(item: Item) -> bytes:
    """By which the same image is recognised: its pixels, or its file's bytes."""
    if isinstance(item, Path):
        return hashlib.sha256(_encoded(item).data).digest()
    if isinstance(item, Encoded):
        return hashlib.sha256(item.data).digest()
    return hashlib.sha256(repr(item.shape).encode() + item.tobytes()).digest()


def _encoded(item: Item) -> Encoded:
    if isinstance(item, Encoded):
        return item
    if isinstance(item, Path):
        return encoded_copy(item)
    return Encoded(png(item), "")


def _write_images(path: Path, images: Sequence[_New]) -> None:
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        [("digest", pyarrow.binary()), ("name", pyarrow.string()), ("image", pyarrow.large_binary())]
    )
    with parquet.ParquetWriter(path, schema, compression="none") as writer:
        for start in range(0, len(images), ROWS_AT_ONCE):
            some = images[start : start + ROWS_AT_ONCE]
            encoded = [_encoded(image.item) for image in some]
            names = [storable_name(Path(image.name).name) for image in encoded]
            columns = [[image.digest for image in some], names, [image.data for image in encoded]]
            arrays = [pyarrow.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _read_images(path: Path) -> list[Encoded]:
    names, images = _read_column(path, "name"), _read_column(path, "image")
    return [
        Encoded(image, f"{path}, row {row}" + (f" ({name})" if name else ""))
        for row, (name, image) in enumerate(zip(names, images, strict=True))
    ]


def _read_column(path: Path, name: str) -> list[Any]:
    from pyarrow import parquet

    try:
        values: list[Any] = parquet.read_table(path, columns=[name]).column(name).to_pylist()
    except Exception as error:  # the library raises many kinds for a damaged file
        raise ModelError(f"{path}: damaged ({str(error).splitlines()[0]}). Restore it from a backup") from None
    if not all(isinstance(value, str if name == "name" else bytes) for value in values):
        raise ModelError(f"{path}: damaged (the column {name!r} holds something else). Restore it from a backup")
    return values


def _record(path: Path) -> FileRecord:
    return FileRecord(sha256=checksum(path), bytes=path.stat().st_size)


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read, as an error that names it."""
    try:
        yield
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}). Check the path and permissions") from None
    except ValueError as error:
        raise ModelError(f"{path}: damaged ({error}). Restore it from a backup") from None
