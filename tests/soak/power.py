"""Power cuts: everything that was not synced to the disk is lost.

While a command runs without a fault, its calls are recorded. After each call that matters, what the disk may hold is
laid out in several ways: of the folders whose entries have changed since they were synced, the changes of none, of
each, of all but each, and of all have reached it. In every way, a file has the content that it had when it was last
synced. A file that was never synced is empty.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.soak.actions import ACTIONS, Action, copy_of
from tests.soak.children import in_child
from tests.soak.interposer import watch
from tests.soak.judgement import problem_after, reference
from tests.soak.shift import Shift

Entries: TypeAlias = dict[int, dict[str, tuple[int, bool]]]
"""The entries of folders, by inode: the name, the inode, and whether it is a folder."""


def soak_power(shift: Shift) -> Iterator[None]:
    """Cut the power of every command at every moment when the state of the disk may differ."""
    place, states = shift.folder / "recorded", shift.folder / "states"
    for action in ACTIONS:
        expected = reference(action, shift.start, place)
        copy_of(shift.start, place)
        shutil.rmtree(states, ignore_errors=True)

        def recorded(action: Action = action) -> int:
            recorder = Recorder(place, states)
            watch(place, recorder.hook)
            action.act(place)
            return recorder.count

        ended = in_child(recorded)
        if ended.how != "done":
            raise RuntimeError(f"{action.name}: {ended.how} {ended.text}")
        numbers, row = range(int(ended.text)), f"`{action.name}`"
        if not shift.worker:
            shift.journal.plan("power", row, len(numbers))
        for number in shift.own(numbers):
            case = f"power/{action.name}/{number}"
            if shift.wants(case):
                copy_of(states / f"{number:05d}" / place.name, place)
                shift.journal.add("power", row, case, problem_after([], action, place, expected))
                yield


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
        self.count = 0
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
            inode = self._root.lstat().st_ino
            for entries in self._possible():
                digest = hashlib.sha256(repr(self._tree(entries, inode)).encode()).digest()
                if digest not in self._seen:
                    self._seen.add(digest)
                    self._lay_out(entries, inode, self._states / f"{self.count:05d}" / self._root.name)
                    self.count += 1
        return 0

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
