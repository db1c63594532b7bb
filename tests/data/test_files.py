"""Files below a folder: their order, what counts as an image, and the memory that a list of them takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from cotransport.data.files import FileList, check_local, images_below, visible_files
from cotransport.errors import DataError
from tests.data.helpers import write


def test_files_are_sorted_like_paths(tmp_path: Path) -> None:
    names = ["a/b.png", "a-b/c.png", "a/d/e.png", "Z.png", "a.png"]
    for name in names:
        write(tmp_path / name)
    assert visible_files(tmp_path, tmp_path) == [str(path) for path in sorted(Path(name) for name in names)]
    assert images_below(tmp_path) == sorted(tmp_path / name for name in names)


@pytest.mark.parametrize(
    "name", ["https://example.org/cats.zip", "http://a/b.png", "s3://bucket/cats", "file:///tmp/a"]
)
def test_an_address_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: nothing is downloaded .* Download the images, and give their path"):
        check_local(name)


@pytest.mark.parametrize("name", ["a.png", "C:\\photos", "owner/name", "-", "", "a:b/c", "photos//x"])
def test_a_path_is_no_address(name: str) -> None:
    check_local(name)


def test_a_list_gives_paths(tmp_path: Path) -> None:
    files = FileList(tmp_path, ["a/1.png", "b/2.png"])
    assert list(files) == [tmp_path / "a" / "1.png", tmp_path / "b" / "2.png"]


def test_a_list_takes_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    files = FileList(tmp_path, (f"n{number % 1000:08d}/n{number % 1000:08d}_{number}.JPEG" for number in range(10_000)))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 150 * len(files)
