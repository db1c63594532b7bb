"""Rewriting a model folder without images that no version needs, or that must be removed.

All changed files are written under new numbers. Then the manifest is replaced, and the old files are removed. A crash
before leaves the old folder, and a crash after the new one; what is left over is removed by the next writer.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor

from cotransport.data.decoding import Encoded
from cotransport.errors import ModelError
from cotransport.model.folder import METRICS, MODEL, TENSORS, WEIGHTS, file_record
from cotransport.model.manifest import MOST_VERSIONS, FileRecord, ImageRows, Manifest, ModelRecord, VersionRecord
from cotransport.model.pool import NewImage, Place, PoolDigests, as_rows, read_column
from cotransport.model.store import ModelStore, stored_names, stored_tensors, tensor_digest
from cotransport.system.files import storage_errors, write_json

EditTensors: TypeAlias = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Takes the shared tensors of a version and returns those that it has afterwards."""


def rewrite(store: ModelStore, *, without: Collection[bytes] = (), edit: EditTensors | None = None) -> None:
    """Remove images and shared tensors that no version refers to. Needs `locked`, and no reader.

    without : digests of images that are removed from all versions.
    edit : changes the shared tensors of each version; by default, nothing.
    """
    manifest = store.manifest()
    with storage_errors(store.path):
        store.remove_unlisted(manifest)
    file = manifest.next_file
    if file + len(manifest.versions) > MOST_VERSIONS:
        raise ModelError(f"{store.path}: too many versions were made. Start a new model")
    models = [store.model(version) for version in manifest.versions]
    images = _rewrite_images(store, manifest, models, frozenset(without), file)
    tensors = _rewrite_tensors(store, manifest, models, edit, file)
    versions: list[VersionRecord] = []
    for version, model, shared in zip(manifest.versions, models, tensors.shared, strict=True):
        new = model.model_copy(
            update={
                "exemplars": [images.rows(rows) for rows in model.exemplars],
                "held_out": [images.rows(rows) for rows in model.held_out],
                "shared": shared,
            }
        )
        number = file + sum(one.place >= file for one in versions)
        versions.append(version if new == model else _rewrite_version(store, version, new, number))
    update = {"versions": versions, "images": images.records, "tensors": tensors.records}
    if all(getattr(manifest, name) == value for name, value in update.items()):
        return
    manifest = manifest.model_copy(update=update)
    store.replace_manifest(manifest)
    store.forget_places()
    with storage_errors(store.path):
        store.remove_unlisted(manifest)


class _Images(NamedTuple):
    """The image files after a change."""

    before: PoolDigests
    places: dict[bytes, Place]
    """The place of each image that is left."""
    records: dict[str, FileRecord]

    def rows(self, rows: ImageRows) -> ImageRows:
        """The rows of a class, without images that are not left."""
        places = [self.places[digest] for digest in self.before.of(rows) if digest in self.places]
        return rows.model_copy(update={"rows": as_rows(places)})


def _rewrite_images(
    store: ModelStore, manifest: Manifest, models: Sequence[ModelRecord], without: Collection[bytes], file: int
) -> _Images:
    """Write the images that are left of files with others to one new file."""
    digests = PoolDigests(store, manifest)
    needed = {digest for model in models for rows in (*model.exemplars, *model.held_out) for digest in digests.of(rows)}
    needed.difference_update(without)
    places: dict[bytes, Place] = {}
    records: dict[str, FileRecord] = {}
    new: list[NewImage] = []
    for number, own in digests.files.items():
        left = [row for row, digest in enumerate(own) if digest in needed and digest not in places]
        if len(left) == len(own):
            places |= {digest: (number, row) for row, digest in enumerate(own)}
            records[str(number)] = manifest.images[str(number)]
        elif left:
            path = store.image_file(number)
            names, encoded = read_column(path, "name"), read_column(path, "image")
            for row in left:
                places[own[row]] = (file, len(new))
                new.append(NewImage(own[row], Encoded(encoded[row], names[row])))
    if new:
        records[str(file)] = store.write_image_file(file, new)
    return _Images(digests, places, records)


class _Tensors(NamedTuple):
    """The files of shared tensors after a change."""

    shared: list[dict[str, tuple[int, str]]]
    """The place of each shared tensor of each version."""
    records: dict[str, FileRecord]


def _rewrite_tensors(
    store: ModelStore, manifest: Manifest, models: Sequence[ModelRecord], edit: EditTensors | None, file: int
) -> _Tensors:
    """Write changed tensors, and those that are left of files with others, to one new file."""
    keys: list[dict[str, str]] = []
    new: dict[str, Tensor] = {}
    for model in models:
        own = {name: key for name, (_, key) in model.shared.items()}
        if edit is not None and own:
            before = store.shared_tensors(manifest, model)
            after = edit(before)
            changed = {name: tensor for name, tensor in after.items() if tensor is not before.get(name)}
            digests = {name: tensor_digest(tensor) for name, tensor in changed.items()}
            new |= {digests[name]: tensor for name, tensor in changed.items()}
            own = {name: digests.get(name) or own[name] for name in after}
        keys.append(own)
    needed = {key for own in keys for key in own.values()}
    places: dict[str, int] = {}
    records: dict[str, FileRecord] = {}
    for name, record in manifest.tensors.items():
        path = store.check_shared(manifest, TENSORS, int(name))
        names = stored_names(path)
        left = [key for key in names if key in needed and key not in places]
        if len(left) == len(names):
            places |= dict.fromkeys(names, int(name))
            records[name] = record
        elif left:
            stored = stored_tensors(path)
            new |= {key: stored[key] for key in left}
    new = {key: tensor for key, tensor in new.items() if key not in places}
    if new:
        records[str(file)] = store.write_tensor_file(file, new)
        places |= dict.fromkeys(new, file)
    missing = needed - places.keys()
    if missing:
        raise ModelError(f"{store.path}: a version refers to tensors that are not there. Restore it from a backup")
    return _Tensors([{name: (places[key], key) for name, key in own.items()} for own in keys], records)


def _rewrite_version(store: ModelStore, version: VersionRecord, model: ModelRecord, number: int) -> VersionRecord:
    """Write a version with another `model.json` to a new folder; returns its record."""
    with store.new_version_folder(number) as beside:
        for name in (WEIGHTS, METRICS):
            shutil.copyfile(store.checked(version, name), beside / name)
        write_json(beside / MODEL, model.model_dump(mode="json"))
        files = {**version.files, MODEL: file_record(beside / MODEL)}
    return version.model_copy(
        update={
            "folder": number,
            "files": files,
            "images": sorted({file for part in (*model.exemplars, *model.held_out) for file, _, _ in part.rows}),
            "tensors": sorted({file for file, _ in model.shared.values()}),
        }
    )
