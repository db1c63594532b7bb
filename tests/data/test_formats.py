"""Which files are images, and what is said about those that cannot be read with the installed libraries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from cotransport.data import as_labelled
from cotransport.data.decoding import decode, image_size
from cotransport.data.files import images_below
from cotransport.data.formats import is_image, readable_formats, remedy
from cotransport.errors import CotransportWarning, DataError
from tests.data.helpers import by_class, write


@pytest.fixture
def nothing_more(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without pillow-heif, and with a Pillow that cannot read AVIF files."""
    monkeypatch.setattr("cotransport.data.formats.find_spec", lambda _: None)
    monkeypatch.setattr(features, "check", lambda _: False)
    readable_formats.cache_clear()
    yield
    readable_formats.cache_clear()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("1.png", True), ("a/b.JPEG", True), ("a.b/c", False), ("png", False), (".png", False), ("a/.b.png", False)],
)
def test_what_is_named_like_an_image(name: str, expected: bool) -> None:
    assert is_image(name) is expected
    assert remedy(name) is None


@pytest.mark.usefixtures("nothing_more")
class TestWithoutLibraries:
    @pytest.mark.parametrize("name", ["IMG_1.HEIC", "a.heif", "a.hif", "b/c.avif"])
    def test_what_is_missing_is_named(self, name: str) -> None:
        assert not is_image(name)
        assert ("--upgrade pillow" if name.endswith("avif") else "pip install 'cotransport[heif]'") in str(remedy(name))
        assert remedy(f"b/.{name[0]}.heic") is None  # hidden

    def test_a_folder_without_readable_images_is_an_error(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "1.png")
        (tmp_path / "dog").mkdir()
        (tmp_path / "dog" / "IMG_1.HEIC").write_bytes(b"whatever")
        with pytest.raises(
            DataError, match=r"dog: has no images that can be read\. IMG_1\.HEIC: .*cotransport\[heif\]"
        ):
            as_labelled(tmp_path)

    def test_in_a_mixed_folder_they_are_counted(self, tmp_path: Path) -> None:
        write(tmp_path / "cat" / "1.png", 7)
        for name in ("a.heic", "b.HEIC"):
            (tmp_path / "cat" / name).write_bytes(b"whatever")
        with pytest.warns(CotransportWarning, match=r"left out 2 files, such as .*a\.heic: .*cotransport\[heif\]"):
            assert by_class(as_labelled(tmp_path)) == {"cat": [7]}

    def test_a_file_that_is_asked_for_gets_an_error_of_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "a.heic"
        path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
        assert images_below(tmp_path) == [path]
        with pytest.raises(DataError, match=r"a\.heic: HEIC images need one more library\. pip install"):
            image_size(path)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow cannot read AVIF files")
def test_avif_files_are_read(tmp_path: Path) -> None:
    _check_photograph(tmp_path / "cat" / "1.avif")


def test_heic_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif").register_heif_opener()
    _check_photograph(tmp_path / "cat" / "1.heic")


def _check_photograph(path: Path) -> None:
    """Black on the left and white on the right, 64 x 32 pixels."""
    path.parent.mkdir()
    image = Image.new("RGB", (64, 32))
    image.paste((255, 255, 255), (32, 0, 64, 32))
    image.save(path, quality=95)
    assert images_below(path.parent) == [path]
    assert as_labelled(path.parent.parent).classes == ("cat",)
    pixels = decode(path, 32, fit="stretch").astype(int)
    assert np.abs(pixels[:, :12]).max() < 30
    assert np.abs(255 - pixels[:, 20:]).max() < 30
