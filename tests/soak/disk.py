"""What a disk may hold when the power is cut: everything that was not synced is lost.

While a command runs without a fault, its calls are recorded. After each call that matters, what the disk may hold is
laid out in several ways: of the folders whose entries have changed since they were synced, the changes of none, of
each, of all but each, and of all have reached it. In every way, a file has the content that it had when it was last
synced. A file that was never synced is empty.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Entries: TypeAlias = dict[int, dict[str, tuple[int, bool]]]
"""The entries of folders, by inode: the name, the inode, and whether it is a folder."""


@dataclass
class _Disk:
    """What is certain to be on the disk."""

    content: dict[int, bytes] = field(default_factory=dict)
    """The synced content of files, by inode."""
    entries: Entries = field(default_factory=dict)
    """The synced entries of folders."""


def entries_of(folder: Path) -> dict[str, tuple[int, bool]]:
    """The entries of a folder now."""
    return {path.name: (path.lstat().st_ino, path.is_dir()) for path in folder.iterdir()}


class Recorder:
    """Lays out what a disk would hold after each call that matters."""

    def __init__(self, root: Path, states: Path) -> None:
        self._root, self._states, self._disk = root, states, _Disk()
        self._seen: set[bytes] = set()
        self._open: list[int] = []
        self._count = 0
        for path in [root, *root.rglob("*")]:
            self._keep_inode(path)
            if path.is_dir():
                self._disk.entries[path.lstat().st_ino] = entries_of(path)
            else:
                self._disk.content[path.lstat().st_ino] = path.read_bytes()

    def hook(self, call: str, path: Path, done: bool) -> int:
        """Record a call."""
        if not done:
            return 0
        if call == "fsync" and path.is_dir():
            self._disk.entries[path.lstat().st_ino] = entries_of(path)
        elif call == "fsync" and path.is_file():
            self._disk.content[path.lstat().st_ino] = path.read_bytes()
        elif call in {"open", "mkdir"}:
            self._keep_inode(path)
        if call in {"fsync", "rename", "unlink", "rmdir", "mkdir"}:
            for entries in self._possible():
                self._add(entries)
        return 0

    def finish(self) -> int:
        """Lay out what is certain to be on the disk now; returns the number of all states."""
        self._seen.clear()
        self._add(self._disk.entries)
        return self._count

    def _add(self, entries: Entries) -> None:
        """Lay out a state, unless it was before."""
        inode = self._root.lstat().st_ino
        digest = hashlib.sha256(repr(self._tree(entries, inode)).encode()).digest()
        if digest not in self._seen:
            self._seen.add(digest)
            self._lay_out(entries, inode, self._states / f"{self._count:05d}" / self._root.name)
            self._count += 1

    def _keep_inode(self, path: Path) -> None:
        """Keep a file or folder open, so that no other gets its inode when it is removed."""
        self._open.append(os.open(path, os.O_RDONLY))

    def _possible(self) -> Iterator[Entries]:
        """The entries of folders that may have reached the disk."""
        synced, present = self._disk.entries, self._present()
        changed = [inode for inode in present if present[inode] != synced.get(inode)]
        chosen = [set[int](), set(changed), *({one} for one in changed), *(set(changed) - {one} for one in changed)]
        for some in chosen:
            yield {**synced, **{inode: present[inode] for inode in some}}

    def _tree(self, entries: Entries, inode: int) -> object:
        """A folder with these entries as a value to be compared."""
        return [
            (name, self._tree(entries, own) if is_folder else hashlib.sha256(self._disk.content.get(own, b"")).digest())
            for name, (own, is_folder) in sorted(entries.get(inode, {}).items())
        ]

    def _present(self) -> Entries:
        """The entries of all folders now."""
        folders = [path for path in [self._root, *self._root.rglob("*")] if path.is_dir()]
        return {path.lstat().st_ino: entries_of(path) for path in folders}

    def _lay_out(self, entries: Entries, inode: int, place: Path) -> None:
        """Write a folder with these entries. Files have their synced content."""
        place.mkdir(parents=True)
        for name, (own, is_folder) in entries.get(inode, {}).items():
            if is_folder:
                self._lay_out(entries, own, place / name)
            else:
                (place / name).write_bytes(self._disk.content.get(own, b""))
