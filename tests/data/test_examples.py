from pathlib import Path

import pytest

from cotransport.data import as_labelled
from cotransport.data.examples import LESSONS, NAMES, write_digits
from cotransport.errors import DataError


def test_digits_are_written_as_three_lessons_and_unseen_images(tmp_path: Path) -> None:
    contents = write_digits(tmp_path / "digits")
    assert list(contents) == [tmp_path / "digits" / name for name in (*LESSONS, "unseen")]
    assert contents[tmp_path / "digits" / "third"].endswith("each of seven, eight, nine")
    lessons = [as_labelled(tmp_path / "digits" / name) for name in LESSONS]
    assert sorted(name for lesson in lessons for name in lesson.classes) == sorted(NAMES)
    assert sum(map(len, lessons)) + 50 == 1797
    assert len(list((tmp_path / "digits" / "unseen").iterdir())) == 50


def test_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="exists already"):
        write_digits(tmp_path)
