"""Files below a folder: their order, what counts as an image, and the memory that a list of them takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from cotransport.data.files import FileList, images_below, is_image, visible_files
from tests.data.helpers import write


def test_files_are_sorted_like_paths(tmp_path: Path) -> None:
    names = ["a/b.png", "a-b/c.png", "a/d/e.png", "Z.png", "a.png"]
    for name in names:
        write(tmp_path / name)
    assert visible_files(tmp_path, tmp_path) == [str(path) for path in sorted(Path(name) for name in names)]
    assert images_below(tmp_path) == sorted(tmp_path / name for name in names)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("1.png", True), ("a/b.JPEG", True), ("a.b/c", False), ("png", False), (".png", False), ("a/.b.png", False)],
)
def test_what_is_named_like_an_image(name: str, expected: bool) -> None:
    assert is_image(name) is expected


def test_a_list_gives_paths(tmp_path: Path) -> None:
    files = FileList(tmp_path, ["a/1.png", "b/2.png"])
    assert list(files) == [tmp_path / "a" / "1.png", tmp_path / "b" / "2.png"]


def test_a_list_takes_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    files = FileList(tmp_path, (f"n{number % 1000:08d}/n{number % 1000:08d}_{number}.JPEG" for number in range(10_000)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 150 * len(files)
