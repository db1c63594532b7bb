from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from cotransport.errors import StorageError
from cotransport.system import files
from cotransport.system.files import (
    atomic_write,
    checksum,
    make_folder,
    read_json,
    rename_folder,
    storable_name,
    write_json,
    write_text,
)


def full_disk(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"é": 1})
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        assert read_json(path) == {"é": 1}
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(StorageError, match=r"a\.txt: cannot be written \(No space left on device\).*still there"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_text(tmp_path / "file" / "a.txt", "new")


def test_a_new_folder_is_on_the_disk_before_anything_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "_sync", synced.append)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert sorted(synced) == [tmp_path, tmp_path / "a"]
    make_folder(tmp_path / "a" / "b")
    assert len(synced) == 2


def test_a_new_folder_in_one_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "_sync", refuse)
    make_folder(tmp_path / "a")
    assert (tmp_path / "a").is_dir()


def test_a_finished_folder_is_moved_to_its_place(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "temporary" / "a").write_text("1")
    rename_folder(tmp_path / "temporary", tmp_path / "place")
    assert (tmp_path / "place" / "a").read_text() == "1"
    assert not (tmp_path / "temporary").exists()


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "\udcff", ""], ids=["half", "deep", "bytes", "empty"])
def test_text_that_is_not_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError):
        read_json(tmp_path / "a.json")


def test_json_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_JSON", 10)
    (tmp_path / "a.json").write_text(json.dumps([1] * 10))
    with pytest.raises(ValueError, match="more than"):
        read_json(tmp_path / "a.json")


def test_the_checksum_is_sha_256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")  # the example in FIPS 180-4
    assert checksum(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_name_that_is_not_valid_unicode_can_be_stored(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", storable_name("caf\udce9"))
    assert read_json(tmp_path / "a.json") == "caf\\udce9"


def test_json_that_is_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 66 + "]" * 66)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[" * 64 + "]" * 64)
    read_json(tmp_path / "a.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(ValueError, match="not a file"):
        read_json(tmp_path / "a.json")
