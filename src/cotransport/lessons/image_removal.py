"""Removing images from all versions of a model, for example when a person asks for it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cotransport.data.decoding import Encoded, Item, Pixels, decode
from cotransport.data.fingerprint import image_digest
from cotransport.data.workers import decode_slices, default_workers, in_chunks
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.lesson_settings import fit_of
from cotransport.learner.snapshots import without_features
from cotransport.lessons.ownership import changing
from cotransport.model.manifest import Manifest, ModelRecord
from cotransport.model.pool import PoolDigests, image_id, read_images
from cotransport.model.rewriting import rewrite
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Fit
from cotransport.system.files import AnyPath, storage_errors

SIMILAR = 10.0
"""Mean difference of pixels, from 0 to 255, up to which two images may be versions of the same one."""
_ID = re.compile(r"[0-9a-f]{8,64}")
_CHUNK = 256


class RemovedImage(NamedTuple):
    """A stored image that was removed."""

    given: str
    """What the user gave: a file or an id."""
    id: str
    classes: list[str | int]
    """The names of its class, in all versions that have stored it."""
    exemplar_in: list[int]
    """Versions that had it as an exemplar."""
    held_out_in: list[int]
    """Versions that had it as a held-out image."""


class RemovedImages(NamedTuple):
    """The images that were removed, and what remains of them."""

    images: list[RemovedImage]
    learned_from: list[int]
    """Versions whose weights were learned from one of the images: those that had it as an exemplar, and those that were
    taught from them. Their weights are not changed."""
    without_exemplars: dict[int, list[str | int]]
    """Classes that have lost their last exemplar, by version."""


def remove_images(path: AnyPath, images: Sequence[str]) -> RemovedImages:
    """Remove images from all versions of a model.

    images : files, or ids. A file is found by its bytes, or by the pixels that the network sees.
    """
    with changing(path) as store:
        manifest = store.manifest()
        with storage_errors(store.path):
            store.remove_unlisted(manifest)  # a removal that was interrupted may have left image files
        uses = _uses(store, manifest)
        pool = _Pool(store, manifest, {(model.image_size, fit_of(model.settings)) for model in uses.models.values()})
        meant = {digest: given for given in images for digest in pool.find(given)}
        removed, wanted = [uses.describe(given, digest) for digest, given in meant.items()], set(meant)
        rewrite(store, without=wanted, edit=partial(without_features, digests=wanted))
        exemplar_in = {number for one in removed for number in one.exemplar_in}
        return RemovedImages(removed, _with_descendants(manifest, exemplar_in), uses.without_exemplars(wanted))


class _Uses(NamedTuple):
    """Which versions use which images."""

    models: dict[int, ModelRecord]
    exemplars: dict[int, list[list[bytes]]]
    """By version, the digests of each class's exemplars."""
    held_out: dict[int, list[list[bytes]]]

    def describe(self, given: str, digest: bytes) -> RemovedImage:
        """How an image is used."""
        versions: list[list[int]] = []
        classes: dict[str | int, None] = {}
        for uses in (self.exemplars, self.held_out):
            versions.append([number for number, parts in uses.items() if any(digest in own for own in parts)])
            for number in versions[-1]:
                names = self.models[number].classes
                classes |= {names[place]: None for place, own in enumerate(uses[number]) if digest in own}
        return RemovedImage(given, image_id(digest), list(classes), *versions)

    def without_exemplars(self, wanted: set[bytes]) -> dict[int, list[str | int]]:
        """The classes of each version that have no other exemplars than these."""
        found = {
            number: [
                self.models[number].classes[place] for place, own in enumerate(parts) if own and wanted.issuperset(own)
            ]
            for number, parts in self.exemplars.items()
        }
        return {number: names for number, names in found.items() if names}


def _uses(store: ModelStore, manifest: Manifest) -> _Uses:
    digests = PoolDigests(store, manifest)
    models = {version.number: store.model(version) for version in manifest.versions}
    return _Uses(
        models,
        {number: [digests.of(rows) for rows in model.exemplars] for number, model in models.items()},
        {number: [digests.of(rows) for rows in model.held_out] for number, model in models.items()},
    )


class _Pool:
    """The stored images of a model, to be searched."""

    def __init__(self, store: ModelStore, manifest: Manifest, squares: Iterable[tuple[int, Fit]]) -> None:
        """`squares` has the sides of the squares that the versions see, and how images become squares."""
        self._path, self._squares = store.path, sorted(squares)
        self._images: dict[bytes, Encoded] = {}
        for file, digests in PoolDigests(store, manifest).files.items():
            self._images |= dict(zip(digests, read_images(store.image_file(file)), strict=True))

    def find(self, given: str) -> list[bytes]:
        """The digests of the stored images that a user means. None is an error."""
        if Path(given).is_file():
            return self._of_file(Path(given))
        if not _ID.fullmatch(given.lower()):
            raise ConfigError(f"{given}: no such file, and not the id of an image. `cotransport images` shows the ids")
        found = [digest for digest in self._images if digest.hex().startswith(given.lower())]
        if not found:
            raise ModelError(f"{given}: no stored image has this id. `cotransport images` shows the ids")
        if len(found) > 1:
            raise ConfigError(f"{given}: {len(found)} images have ids that begin like this. Give more characters")
        return found

    def _of_file(self, path: Path) -> list[bytes]:
        squares = {(size, fit): decode(path, size, fit=fit) for size, fit in self._squares}
        same = {image_digest(path), *(image_digest(square) for square in squares.values())} & self._images.keys()
        closest: list[tuple[float, bytes]] = []
        for (size, fit), square in squares.items():
            distances = self._distances(square, size, fit)
            same |= {digest for digest, distance in distances.items() if distance == 0}
            closest += [(distance, digest) for digest, distance in distances.items()]
        if not same:
            hint = ""
            distance, digest = min(closest, default=(math.inf, b""))
            if distance <= SIMILAR:
                hint = (
                    f". The most similar one is {image_id(digest)}: its pixels differ by {distance:.1f} of "
                    "255 on average. If this is the image, give its id"
                )
            raise ModelError(
                f"{path}: not among the images in {self._path}, though versions may have learned from it{hint}"
            )
        return sorted(same)

    def _distances(self, square: Pixels, size: int, fit: Fit) -> Mapping[bytes, float]:
        """The mean difference of the pixels of each stored image. Images that cannot be decoded are left out."""
        digests = list(self._images)
        items: list[Item] = list(self._images.values())
        unreadable: set[int] = set()
        found: dict[bytes, float] = {}
        chunks, workers = in_chunks(len(items), _CHUNK), default_workers(len(items))
        decoded = decode_slices(items.__getitem__, size, chunks, 1.0, workers, lambda row, _: unreadable.add(row), fit)
        for rows, squares in decoded:
            differences = np.abs(squares.numpy().astype(np.int16) - square).mean(axis=(1, 2, 3))
            for row, difference in zip(range(rows.start, rows.stop), differences.tolist(), strict=True):
                if row not in unreadable:
                    found[digests[row]] = difference
        return found


def _with_descendants(manifest: Manifest, numbers: set[int]) -> list[int]:
    """Versions, and those that were taught from them."""
    found = set(numbers)
    for version in sorted(manifest.versions, key=lambda one: one.number):  # a parent has a lower number
        if version.parent in found:
            found.add(version.number)
    return sorted(found)
