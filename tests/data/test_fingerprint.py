from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cotransport.data import EncodedImages, LabelledImages, as_labelled
from cotransport.data import fingerprint as module
from cotransport.data.fingerprint import fingerprint
from cotransport.errors import DataError
from tests.data.helpers import encoded_images, pixel_images, write


@pytest.mark.parametrize("make", [pixel_images, encoded_images])
def test_images_labels_and_names_matter(make: type[EncodedImages]) -> None:
    data = LabelledImages(make([1, 2, 3]), torch.tensor([0, 1, 0]), ("a", "b"))
    same = LabelledImages(make([1, 2, 3]), torch.tensor([0, 1, 0]), ("a", "b"))
    others = [
        replace(data, images=make([1, 2, 4])),
        replace(data, labels=torch.tensor([0, 1, 1])),
        replace(data, classes=("a", "c")),
        replace(data, images=make([1, 2, 3], 5)),
        data.take(torch.tensor([0, 1])),
    ]
    assert fingerprint([data]) == fingerprint([same]) == fingerprint([data, None])
    assert len({fingerprint([other]) for other in (data, *others)}) == 1 + len(others)
    assert fingerprint([data, same]) != fingerprint([data])


def test_the_place_of_files_does_not_matter(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        for value in range(3):
            write(tmp_path / folder / "cat" / f"{value}.png", value, (90, 90))
    here, there = as_labelled(tmp_path / "here"), as_labelled(tmp_path / "there")
    assert isinstance(here.images, EncodedImages)
    assert fingerprint([here]) == fingerprint([there])
    write(tmp_path / "there" / "cat" / "1.png", 9, (90, 90))
    assert fingerprint([here]) != fingerprint([there])


def test_the_size_of_every_file_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of files whose content is not in the sample."""
    monkeypatch.setattr(module, "SAMPLED", 2)
    paths = [write(tmp_path / "cat" / f"{value}.png", value, (90, 90)) for value in range(3)]
    before = fingerprint([as_labelled(tmp_path)])
    paths[1].write_bytes(paths[1].read_bytes() + b"more")
    assert fingerprint([as_labelled(tmp_path)]) != before


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "1.png", 1, (90, 90))
    data = as_labelled(tmp_path)
    (tmp_path / "cat" / "1.png").unlink()
    with pytest.raises(DataError, match=r"1\.png: cannot be read .* Put the file back"):
        fingerprint([data])


def test_progress_is_reported_up_to_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORTED", 2)
    for value in range(5):
        write(tmp_path / "cat" / f"{value}.png", value, (90, 90))
    seen: list[tuple[int, int]] = []
    fingerprint([as_labelled(tmp_path)], lambda *progress: seen.append(progress))
    assert seen == [(2, 5), (4, 5), (5, 5)]
