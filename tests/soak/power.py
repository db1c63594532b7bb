"""Power cuts: everything that was not synced to the disk is lost.

While a command runs undisturbed, its calls are recorded. Afterwards, what a disk would hold is laid out for every moment
at which it may differ, in two ways: only synced entries of folders have reached the disk, or all of them have. The
content of a file is what it was when it was last synced in both cases; a file that was never synced is empty.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class _Disk:
    """What is on the disk for certain."""

    content: dict[int, bytes] = field(default_factory=dict)
    """The synced content of files, by inode."""
    entries: dict[Path, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    """The synced entries of folders: name, inode, and whether it is a folder."""


def entries_of(folder: Path) -> dict[str, tuple[int, bool]]:
    """The entries of a folder now."""
    return {path.name: (path.lstat().st_ino, path.is_dir()) for path in folder.iterdir()}


class Recorder:
    """Lays out what a disk would hold after each call that matters."""

    def __init__(self, root: Path, states: Path) -> None:
        self._root, self._states, self._disk = root, states, _Disk()
        self.count = 0
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                self._disk.entries[path] = entries_of(path)
            else:
                self._disk.content[path.lstat().st_ino] = path.read_bytes()

    def hook(self, call: str, path: Path, done: bool) -> int:
        """Record a call."""
        if not done:
            return 0
        if call == "fsync" and path.is_dir():
            self._disk.entries[path] = entries_of(path)
        elif call == "fsync" and path.is_file():
            self._disk.content[path.lstat().st_ino] = path.read_bytes()
        if call in {"fsync", "rename", "unlink", "rmdir", "mkdir"}:
            for only_synced in (True, False):
                self._lay_out(self._root, self._states / f"{self.count:05d}" / self._root.name, only_synced)
                self.count += 1
        return 0

    def _lay_out(self, folder: Path, place: Path, only_synced: bool) -> None:
        place.mkdir(parents=True)
        entries = self._disk.entries.get(folder, {}) if only_synced else entries_of(folder)
        for name, (inode, is_folder) in entries.items():
            if is_folder:
                self._lay_out(self._by_inode(folder / name, inode), place / name, only_synced)
            else:
                (place / name).write_bytes(self._disk.content.get(inode, b""))

    def _by_inode(self, folder: Path, inode: int) -> Path:
        """Where a folder is now, or was when it was synced: it may have been renamed since."""
        if folder.exists() and folder.lstat().st_ino == inode:
            return folder
        return next((path for path in folder.parent.iterdir() if path.lstat().st_ino == inode), folder)


def remove_state(states: Path, number: int) -> None:
    """Free the space of a state."""
    shutil.rmtree(states / f"{number:05d}", ignore_errors=True)
