"""Power cuts: everything that was not synced to the disk is lost.

While a command runs without a fault, its calls are recorded. After each call that matters, what the disk may hold is
laid out in two ways: only synced entries of folders have reached it, or all of them have. In both, a file has the
content that it had when it was last synced. A file that was never synced is empty.
"""

from __future__ import annotations

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
        self.count = 0
        for path in [root, *root.rglob("*")]:
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
        elif call == "open" and not path.lstat().st_size:
            self._disk.content.pop(path.lstat().st_ino, None)  # a new file, with the inode of a removed one
        if call in {"fsync", "rename", "unlink", "rmdir", "mkdir"}:
            inode = self._root.lstat().st_ino
            self._lay_out(self._disk.entries, inode, self._next())
            self._lay_out(self._present(), inode, self._next())
        return 0

    def _next(self) -> Path:
        """A place for the next state."""
        self.count += 1
        return self._states / f"{self.count - 1:05d}" / self._root.name

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
