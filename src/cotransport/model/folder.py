"""The model folder on disk: its files, its lock and its checksums.

    manifest.json                       format, current version, checksums of all files
    versions/0001/weights.safetensors   tensors of the network, in version 1
    versions/0001/model.json            settings, class names, which images are exemplars and which are held out
    versions/0001/metrics.json          what was learned and lost, and how long it took
    images/0001.parquet                 encoded images that came with version 1; later versions refer to them too
    tensors/0001.safetensors            tensors of version 1 that later versions share, such as a frozen backbone
    unfinished/                         the lesson in progress: job.json and checkpoints
    .lock                               held by the process that writes

A version is written under a temporary name, synced and renamed. It counts once the manifest names it, and the manifest
is replaced last. So a reader needs no lock and never sees half a version, and a crash leaves the previous version
current. Files are never changed: `rewriting` writes new ones under other numbers, which the manifest gives. Files are
found by their numbers, never by paths from other files. Nothing in a model folder is ever executed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from cotransport.errors import ModelError
from cotransport.model.manifest import (
    FORMAT,
    Facts,
    FileRecord,
    FormatRecord,
    Manifest,
    ModelRecord,
    Record,
    VersionRecord,
    seal,
)
from cotransport.system.files import (
    PART,
    AnyPath,
    checksum,
    make_folder,
    read_json,
    read_json_bytes,
    rename_folder,
    storage_errors,
    write_json,
)

MANIFEST, LOCK = "manifest.json", ".lock"
VERSIONS, IMAGES, TENSORS, UNFINISHED = "versions", "images", "tensors", "unfinished"
WEIGHTS, MODEL, METRICS = "weights.safetensors", "model.json", "metrics.json"
_OURS = {
    VERSIONS: re.compile(r"\.?\d{4,6}(\.part)?"),
    IMAGES: re.compile(r"\.?\d{4,6}\.parquet(\.part)?"),
    TENSORS: re.compile(r"\.?\d{4,6}\.safetensors(\.part)?"),
    UNFINISHED: re.compile(r"\.?(job\.json|lesson\.json|training-.*\.safetensors)(\.part)?|\d+"),
}
"""Names of the files and folders that a writer makes in each folder. `remove_unlisted` removes no others."""
CHOOSE_VERSION = "Choose one with `cotransport rollback --to`"
"""The remedy if no version is current."""
RecordType = TypeVar("RecordType", bound=Record)


class ModelFolder:
    """A model folder. Writers hold `locked`; readers need no lock."""

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether the folder contains a version."""
        return (self.path / MANIFEST).is_file()

    @property
    def unfinished(self) -> Path:
        """The folder of a lesson that is not finished."""
        return self.path / UNFINISHED

    @property
    def is_locked(self) -> bool:
        """Whether another process is writing to the folder now."""
        if not (self.path / LOCK).exists():
            return False
        try:
            with FileLock(self.path / LOCK, timeout=0):
                return False
        except Timeout:
            return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder if needed, and keep other writers out of it."""
        self.check_place()
        is_new = not self.path.exists()
        with storage_errors(self.path):
            make_folder(self.path)
            lock = FileLock(self.path / LOCK)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise ModelError(f"{self.path}: another process is writing to it. Wait until it is done") from None
        try:
            yield
        except BaseException:
            if is_new:
                self._remove_if_unused()
            raise
        finally:
            lock.release()

    def check_place(self) -> None:
        """Raise an error if the folder is neither a model nor a place for a new one."""
        self._check_places()
        if self.path.exists() and not self.exists:
            self._check_ours()
        if not self.path.exists():
            self._check_not_inside()

    def _check_not_inside(self) -> None:
        """Raise an error if a new model would be made inside another one."""
        for parent in self.path.absolute().parents:
            if (parent / MANIFEST).is_file() and (parent / VERSIONS).is_dir():
                raise ModelError(f"{self.path}: inside the model {parent}. Give that model, or a folder outside of it")

    def _remove_if_unused(self) -> None:
        """Remove the folder if it contains nothing but the lock."""
        with suppress(OSError):
            if [path.name for path in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                self.path.rmdir()

    def manifest(self) -> Manifest:
        """The manifest, checked."""
        self._check_places()
        path = self.path / MANIFEST
        if self.path.is_file():
            raise ModelError(f"{self.path}: a file, not a model folder. Give a folder made by `learn` or save")
        if not self.path.is_dir():
            raise ModelError(f"{self.path}: no such folder", hint=f"`cotransport learn {self.path} DATA` makes a model")
        if not path.exists() and self.unfinished.is_dir():
            raise ModelError(f"{self.path}: its first lesson is not finished. Repeat the command to resume it")
        if not path.exists():
            raise ModelError(f"{self.path}: not a model (no {MANIFEST} in it). Give a folder made by `learn` or save")
        found = self.parse(FormatRecord, path)
        if found.kind != Manifest().kind:
            raise ModelError(f"{path}: not the manifest of a model. Give a folder made by `learn` or save")
        if found.format > FORMAT:
            raise ModelError(
                f"{path}: format {found.format}, made by a later release; this one reads up to {FORMAT}. "
                "Upgrade cotransport"
            )
        manifest, values = self.parse(Manifest, path), self._json(path)
        if values.get("checksum") != seal(values):
            raise ModelError(f"{path}: damaged or changed by hand (its checksum differs). Restore it from a backup")
        for numbers in ([one.number for one in manifest.versions], [one.place for one in manifest.versions]):
            if len(set(numbers)) < len(numbers):
                raise ModelError(f"{path}: two versions have the same number. Restore it from a backup")
        return manifest

    def facts(self, version: VersionRecord) -> Facts:
        """What `model.json` says about a version. Its weights and images are not read."""
        model = self.model(version)
        counts = [sum(len(part) for part in rows) for rows in (model.exemplars, model.held_out)]
        return Facts(tuple(model.classes), model.image_size, model.settings, *counts)

    def model(self, version: VersionRecord) -> ModelRecord:
        """A version's `model.json`, checked."""
        path = self.checked(version, MODEL)
        model = self.parse(ModelRecord, path)
        if not len(model.classes) == sum(model.task_sizes) == len(model.exemplars) >= len(model.held_out):
            raise ModelError(f"{path}: the numbers of classes do not agree. Restore it from a backup")
        if len(set(model.classes)) < len(model.classes):
            raise ModelError(f"{path}: two classes have the same name. Restore it from a backup")
        return model

    def metrics(self, version: VersionRecord) -> dict[str, Any]:
        """A version's `metrics.json`."""
        metrics = self._json(self.checked(version, METRICS))
        return metrics if isinstance(metrics, dict) else {}

    def check_sizes(self, version: VersionRecord) -> None:
        """Raise an error if a version's file is missing or has another size. Checksums would take longer."""
        for name, record in version.files.items():
            path = self.version_folder(version.place) / Path(name).name
            if path.is_symlink() or not path.is_file():
                raise ModelError(f"{path}: missing, or not a file. {self._remedy(path)}")
            if path.stat().st_size != record.bytes:
                raise ModelError(f"{path}: damaged (its size differs). {self._remedy(path)}")

    def make_current(self, number: int) -> None:
        """Make a version current, even if it was refused; 0 makes none current. Needs `locked`."""
        manifest = self.manifest()
        if not number:
            self.replace_manifest(manifest.model_copy(update={"current": None}))
            return
        version = manifest.version(number)
        for name in (WEIGHTS, MODEL, METRICS):
            self.checked(version, name)
        for kind, files in ((IMAGES, version.images), (TENSORS, version.tensors)):
            for file in files:
                self.check_shared(manifest, kind, file)
        self.replace_manifest(manifest.model_copy(update={"current": number}))

    def replace_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, so that a reader sees the old one or the new one. Needs `locked`."""
        moved = any(version.folder is not None for version in manifest.versions)
        form = 3 if moved else 2 if manifest.tensors else 1  # the oldest that has all it needs
        values = manifest.model_copy(update={"format": form}).model_dump(mode="json")
        write_json(self.path / MANIFEST, values | {"checksum": seal(values)})

    def remove_unlisted(self, manifest: Manifest) -> None:
        """Remove the files that killed writers have left: those that the manifest does not name. Needs `locked`."""
        versions = {self.version_folder(version.place) for version in manifest.versions}
        images = {self.image_file(int(name)) for name in manifest.images}
        tensors = {self.tensor_file(int(name)) for name in manifest.tensors}
        for name, kept in ((VERSIONS, versions), (IMAGES, images), (TENSORS, tensors)):
            folder = self.path / name
            for path in folder.iterdir() if folder.is_dir() else ():
                if path not in kept and _OURS[name].fullmatch(path.name):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def check_shared(self, manifest: Manifest, kind: str, file: int) -> Path:
        """The path of a file that versions share, with its checksum verified.

        kind : IMAGES or TENSORS.
        """
        records, path = (
            (manifest.images, self.image_file(file)) if kind == IMAGES else (manifest.tensors, self.tensor_file(file))
        )
        record = records.get(str(file))
        if record is None:
            raise ModelError(f"{self.path / MANIFEST}: no record of {kind}/{path.name}. Restore it from a backup")
        self.check(path, record)
        return path

    def checked(self, version: VersionRecord, name: str) -> Path:
        """The path of one of a version's files, with its checksum verified."""
        if name not in version.files:
            raise ModelError(
                f"{self.path / MANIFEST}: version {version.number} has no {name}. Restore it from a backup"
            )
        path = self.version_folder(version.place) / name
        self.check(path, version.files[name])
        return path

    def check(self, path: Path, record: FileRecord) -> None:
        """Raise an error unless a file matches its record."""
        if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
            raise ModelError(f"{path}: missing, or not a file. {self._remedy(path)}")
        try:
            same = path.stat().st_size == record.bytes and checksum(path) == record.sha256
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror}). Check its permissions") from None
        if not same:
            raise ModelError(f"{path}: damaged or changed (its checksum differs). {self._remedy(path)}")

    def _remedy(self, path: Path) -> str:
        other = ", or roll back to another version" if path.parent.parent.name == VERSIONS else ""
        return f"Restore it from a backup{other}"

    def _json(self, path: Path) -> Any:  # noqa: ANN401
        with _reading(path):
            return read_json(path)

    def parse(self, kind: type[RecordType], path: Path) -> RecordType:
        """A record from a JSON file."""
        with _reading(path):
            text = read_json_bytes(path)
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ModelError(
                f"{path}: damaged, or not part of a model ({where + ': ' if where else ''}{first['msg']}). "
                "Restore it from a backup"
            ) from None

    def _check_ours(self) -> None:
        """Raise an error if the folder contains anything but an unfinished model."""
        if not self.path.is_dir():
            raise ModelError(f"{self.path}: a file. Give a new folder's name, or a model's")
        started = (self.path / LOCK).exists()  # a writer makes the lock first
        for path in self.path.iterdir():
            known = started and path.name in {LOCK, f".{MANIFEST}.part", *_OURS}
            if path.is_dir():
                ours = _OURS.get(path.name)
                known = known and ours is not None and all(ours.fullmatch(one.name) for one in path.iterdir())
            if not known:
                raise ModelError(
                    f"{self.path}: not a model, and not empty ({path.name}). Give a new folder's name, or a model's"
                )

    def _check_places(self) -> None:
        """Raise an error if one of the model's own files or folders is a symbolic link: it may lead anywhere."""
        for name in (MANIFEST, LOCK, *_OURS):
            if (self.path / name).is_symlink():
                raise ModelError(
                    f"{self.path / name}: a symbolic link, which a model never contains. Restore it from a backup"
                )

    @contextmanager
    def new_version_folder(self, number: int) -> Iterator[Path]:
        """A temporary folder to write a version's files to. At the end, it is synced and renamed. Needs `locked`."""
        place = self.version_folder(number)
        beside = place.with_name(f".{place.name}{PART}")
        try:
            with storage_errors(place):
                beside.mkdir()
                yield beside
            rename_folder(beside, place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise

    def version_folder(self, number: int) -> Path:
        """The path of a version's folder."""
        return self.path / VERSIONS / f"{number:04d}"

    def image_file(self, number: int) -> Path:
        """The path of an image file."""
        return self.path / IMAGES / f"{number:04d}.parquet"

    def tensor_file(self, number: int) -> Path:
        """The path of a file of shared tensors."""
        return self.path / TENSORS / f"{number:04d}.safetensors"


def file_record(path: Path) -> FileRecord:
    """Checksum and size of a file."""
    return FileRecord(sha256=checksum(path), bytes=path.stat().st_size)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors while a file is read into a ModelError that names it."""
    try:
        yield
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}). Check the path and permissions") from None
    except ValueError as error:
        raise ModelError(f"{path}: damaged ({error}). Restore it from a backup") from None
