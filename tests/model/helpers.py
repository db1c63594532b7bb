"""Small versions of a model, and ways to damage a model folder."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cotransport.data import EncodedImages, Images, PixelImages
from cotransport.data.memory import Memory
from cotransport.model.manifest import seal
from cotransport.model.snapshot import Snapshot
from cotransport.model.store import ModelStore
from cotransport.system import files
from cotransport.system.files import checksum


def pixels(*values: int) -> PixelImages:
    """Grey images in memory, one of each value."""
    return PixelImages(torch.stack([torch.full((4, 4, 3), value, dtype=torch.uint8) for value in values]))


def values(images: Images) -> list[int]:
    """The values of grey images in memory, in order."""
    assert isinstance(images, PixelImages)
    return [int(value) for value in images.pixels[:, 0, 0, 0]]


def snapshot(*exemplars: PixelImages | EncodedImages, held_out: tuple[PixelImages, ...] = ()) -> Snapshot:
    """A version with these exemplars of each class."""
    names = tuple(f"class {number}" for number in range(len(exemplars)))
    tensors = {"network.a": torch.arange(6.0).view(2, 3).T, "plan": torch.empty(0, 2)}
    return Snapshot(
        {"seed": 3}, names, (len(names),), 4, tensors, Memory(exemplars), Memory(held_out), {"accuracy": 90.0}
    )


def store_with(folder: Path, *snapshots: Snapshot) -> ModelStore:
    """A model folder to which some versions were added."""
    store = ModelStore(folder)
    with store.locked():
        for one in snapshots:
            store.write(one)
    return store


def damage(path: Path, how: str) -> None:
    """Change, truncate or remove a file, or put a link in its place."""
    content = path.read_bytes()
    path.unlink()
    if how == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "link":
        elsewhere = path.parent.parent / "elsewhere"
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)


def change_manifest(model: Path, **changes: Any) -> None:
    """Change a manifest's values, with a valid checksum."""
    manifest = model / "manifest.json"
    changed = json.loads(manifest.read_text()) | changes
    manifest.write_text(json.dumps(changed | {"checksum": seal(changed)}))


def accept(model: Path, path: Path) -> None:
    """Change the manifest so that it accepts a file's new content, as an attacker would."""
    manifest = json.loads((model / "manifest.json").read_text())
    record = {"sha256": checksum(path), "bytes": path.stat().st_size}
    if path.parent.name in {"images", "tensors"}:
        manifest[path.parent.name][str(int(path.stem))] = record
    else:
        (version,) = [
            one for one in manifest["versions"] if (one.get("folder") or one["number"]) == int(path.parent.name)
        ]
        version["files"][path.name] = record
    change_manifest(model, **manifest)


def full_disk(patch: pytest.MonkeyPatch, syncs: int) -> None:
    """Let every sync of a file or folder fail after some. Every file is synced before it counts."""
    done, sync = [0], files.os.fsync

    def fsync(descriptor: int) -> None:
        done[0] += 1
        if done[0] > syncs:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    patch.setattr(files.os, "fsync", fsync)
