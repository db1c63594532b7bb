"""Versions of a classifier in a model folder: written as a whole, read with checks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cotransport.data import EncodedImages, Images, PixelImages
from cotransport.data.decoding import Encoded
from cotransport.data.loading import decode_squares, fits_memory
from cotransport.data.memory import Memory
from cotransport.errors import ModelError
from cotransport.model.folder import (
    CHOOSE_VERSION,
    IMAGES,
    METRICS,
    MODEL,
    TENSORS,
    VERSIONS,
    WEIGHTS,
    ModelFolder,
    file_record,
)
from cotransport.model.manifest import (
    MOST_VERSIONS,
    FileRecord,
    ImageRows,
    Manifest,
    ModelRecord,
    VersionRecord,
)
from cotransport.model.pool import ImagePool, NewImage, Place, PoolDigests, places_of, read_images, write_images
from cotransport.model.snapshot import Snapshot
from cotransport.system.files import AnyPath, atomic_write, storage_errors, write_json
from cotransport.system.tensors import read_tensors, tensor_names, write_tensors
from cotransport.version import __version__

MOST_COPIES = 2
"""How many times the size of the stored tensors a version may have in memory. Few tensors are equal to others."""


class ModelStore(ModelFolder):
    """Reads and writes the versions of a model folder. Writers hold `locked`; readers need no lock."""

    def __init__(self, path: AnyPath) -> None:
        super().__init__(path)
        self._places: dict[bytes, Place] | None = None

    def read(self, number: int | None = None) -> Snapshot:
        """A version of the classifier, by default the current one. Its images are read when they are first needed."""
        manifest = self.manifest()
        wanted = manifest.current if number is None else number
        if wanted is None:
            raise ModelError(f"{self.path}: no version is current", hint=CHOOSE_VERSION)
        version = manifest.version(wanted)
        weights, model = self.checked(version, WEIGHTS), self.model(version)
        metrics = self.metrics(version)
        tensors, shared = stored_tensors(weights), self.shared_tensors(manifest, model)
        if tensors.keys() & shared.keys():
            raise ModelError(f"{weights}: a tensor is both shared and the version's own. Restore it from a backup")
        return Snapshot(
            settings=model.settings,
            classes=tuple(model.classes),
            task_sizes=tuple(model.task_sizes),
            image_size=model.image_size,
            tensors={**tensors, **shared},
            memory=Memory(partial(self._images, manifest, model.exemplars, model.image_size)),
            held_out=Memory(partial(self._images, manifest, model.held_out, model.image_size)),
            metrics=metrics,
            shared=frozenset(model.shared),
            chosen=_chosen(model, metrics, weights),
        )

    def write(self, snapshot: Snapshot, *, parent: int | None = None, refused: str | None = None) -> int:
        """Add a version, and make it current unless it is refused; returns its number. Needs `locked`."""
        manifest = self.manifest() if self.exists else Manifest()
        number, file = max((version.number for version in manifest.versions), default=0) + 1, manifest.next_file
        if file >= MOST_VERSIONS:
            raise ModelError(f"{self.path}: it has had too many versions. Start a new model")
        with storage_errors(self.path):
            for name in (VERSIONS, IMAGES):
                (self.path / name).mkdir(exist_ok=True)
            self.remove_unlisted(manifest)
        pool = ImagePool(self.stored_images(manifest), file)
        exemplars = [pool.add(images) for images in snapshot.memory.exemplars]
        held_out = [pool.add(images) for images in snapshot.held_out.exemplars]
        images = dict(manifest.images)
        if pool.new:
            images[str(file)] = self.write_image_file(file, pool.new)
        shared, tensors = self._write_shared(manifest, snapshot, file)
        model = ModelRecord(
            release=__version__,
            classes=list(snapshot.classes),  # type: ignore[arg-type]  # all of one kind
            task_sizes=list(snapshot.task_sizes),
            image_size=snapshot.image_size,
            settings=dict(snapshot.settings),
            exemplars=exemplars,
            held_out=held_out,
            shared=shared,
            chosen=None if snapshot.chosen is None else dict(snapshot.chosen),
        )
        files = self._write_version(file, snapshot, model)
        used = sorted({file for rows in (*exemplars, *held_out) for file, _, _ in rows.rows})
        made = datetime.now(timezone.utc).isoformat(timespec="seconds")
        version = VersionRecord(
            number=number,
            parent=parent,
            files=files,
            images=used,
            tensors=sorted({file for file, _ in shared.values()}),
            made=made,
            refused=refused,
            folder=None if file == number else file,
        )
        current = manifest.current if refused is not None else number
        self.replace_manifest(
            manifest.model_copy(
                update={
                    "current": current,
                    "versions": [*manifest.versions, version],
                    "images": images,
                    "tensors": tensors,
                }
            )
        )
        self._places = pool.places
        return number

    def keep_only(self, number: int) -> None:
        """Make a version current and remove all others. Needs `locked`, and no reader."""
        manifest = self.manifest()
        if manifest.current != number:
            self.replace_manifest(manifest.model_copy(update={"current": manifest.version(number).number}))
        self.keep({number})

    def keep(self, numbers: Collection[int]) -> None:
        """Remove all other versions, and the shared files that only they need. Needs `locked`, and no reader."""
        manifest = self.manifest()
        kept = [version for version in manifest.versions if version.number in numbers]
        used = {file for version in kept for file in version.images}
        images = {name: record for name, record in manifest.images.items() if int(name) in used}
        used = {file for version in kept for file in version.tensors}
        tensors = {name: record for name, record in manifest.tensors.items() if int(name) in used}
        update = {"versions": kept, "images": images, "tensors": tensors}
        if all(len(value) == len(getattr(manifest, name)) for name, value in update.items()):
            return
        manifest = manifest.model_copy(update=update)
        self.replace_manifest(manifest)
        with storage_errors(self.path):
            self.remove_unlisted(manifest)
        self.forget_places()

    def forget_places(self) -> None:
        """Read the places of stored images again when they are next needed. Image files have changed."""
        self._places = None

    def stored_images(self, manifest: Manifest) -> dict[bytes, Place]:
        """The place of each stored image, by its digest. The checksums of image files are verified on the way."""
        if self._places is None:
            self._places = {}
            for file, digests in PoolDigests(self, manifest).files.items():
                for row, digest in enumerate(digests):
                    self._places.setdefault(digest, (file, row))
        return self._places

    def write_image_file(self, number: int, images: Sequence[NewImage]) -> FileRecord:
        """Write an image file. Needs `locked`."""
        path = self.image_file(number)
        with atomic_write(path) as beside:
            write_images(beside, images)
        return file_record(path)

    def write_tensor_file(self, number: int, tensors: Mapping[str, Tensor]) -> FileRecord:
        """Write a file of shared tensors, named by their digests. Needs `locked`."""
        path = self.tensor_file(number)
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as beside:
            write_tensors(beside, tensors)
        return file_record(path)

    def _write_version(self, number: int, snapshot: Snapshot, model: ModelRecord) -> dict[str, FileRecord]:
        with self.new_version_folder(number) as beside:
            own = {name: tensor for name, tensor in snapshot.tensors.items() if name not in snapshot.shared}
            write_tensors(beside / WEIGHTS, own)
            write_json(beside / MODEL, model.model_dump(mode="json"))
            write_json(beside / METRICS, dict(snapshot.metrics))
            return {name: file_record(beside / name) for name in (WEIGHTS, MODEL, METRICS)}

    def _write_shared(
        self, manifest: Manifest, snapshot: Snapshot, number: int
    ) -> tuple[dict[str, tuple[int, str]], dict[str, FileRecord]]:
        """The place of each shared tensor, and the records of all files of shared tensors.

        Tensors that are not stored yet are written to a new file. A tensor's name in such a file is its digest.
        """
        places: dict[str, int] = {}
        for name in manifest.tensors:
            path = self.check_shared(manifest, TENSORS, int(name))
            places |= dict.fromkeys(stored_names(path), int(name))
        digests = {name: tensor_digest(snapshot.tensors[name]) for name in sorted(snapshot.shared)}
        new = {digest: snapshot.tensors[name] for name, digest in digests.items() if digest not in places}
        records = dict(manifest.tensors)
        if new:
            records[str(number)] = self.write_tensor_file(number, new)
            places |= dict.fromkeys(new, number)
        return {name: (places[digest], digest) for name, digest in digests.items()}, records

    def shared_tensors(self, manifest: Manifest, model: ModelRecord) -> dict[str, Tensor]:
        """The tensors that a version shares with others."""
        files: dict[int, dict[str, Tensor]] = {}
        for file in {file for file, _ in model.shared.values()}:
            files[file] = stored_tensors(self.check_shared(manifest, TENSORS, file))
        for file, key in model.shared.values():
            if key not in files[file]:
                raise ModelError(f"{self.tensor_file(file)}: lacks a tensor of this version. Restore it from a backup")
        stored = sum(_bytes(tensor) for file in files.values() for tensor in file.values())
        if sum(_bytes(files[file][key]) for file, key in model.shared.values()) > MOST_COPIES * stored:
            raise ModelError(f"{self.path}: a version refers to the same tensors too often. Restore it from a backup")
        # equal tensors are stored once, but must not share their memory
        return {name: files[file][key].clone() for name, (file, key) in model.shared.items()}

    def _images(self, manifest: Manifest, classes: Sequence[ImageRows], size: int) -> tuple[Images, ...]:
        """The images of each class, read from their files."""
        tables: dict[int, list[Encoded]] = {}
        for file in sorted({file for rows in classes for file, _, _ in rows.rows}):
            tables[file] = read_images(self.check_shared(manifest, IMAGES, file))
        chosen = [[tables[file][row] for file, row in places_of(rows, tables)] for rows in classes]
        in_memory = fits_memory(sum(map(len, chosen)), size)  # checked again: the manifest is not trusted
        return tuple(
            PixelImages(decode_squares(own, size)) if rows.pixels and in_memory else EncodedImages.of(own, size)
            for own, rows in zip(chosen, classes, strict=True)
        )


def _chosen(model: ModelRecord, metrics: Mapping[str, Any], path: Path) -> Mapping[str, Any] | None:
    """The settings that the user has chosen: a lesson writes them into the metrics."""
    chosen = metrics.get("chosen") if model.chosen is None else model.chosen
    if chosen is not None and not isinstance(chosen, Mapping):
        raise ModelError(f"{path.parent}: the chosen settings are not a section. Restore it from a backup")
    return chosen


def stored_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file of a model."""
    try:
        return read_tensors(path).tensors
    except ValueError as error:
        raise ModelError(f"{path}: damaged ({error}). Restore it from a backup") from None


def stored_names(path: Path) -> list[str]:
    """The names of the tensors in a file of a model."""
    try:
        return tensor_names(path)
    except ValueError as error:
        raise ModelError(f"{path}: damaged ({error}). Restore it from a backup") from None


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def tensor_digest(tensor: Tensor) -> str:
    """A digest that equal tensors share."""
    plain = tensor.detach().cpu().contiguous()
    kind = f"{plain.dtype} {tuple(plain.shape)} ".encode()
    return hashlib.sha256(kind + plain.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
