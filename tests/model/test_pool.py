"""The image pool: every image is stored once, and versions refer to rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from cotransport.data import EncodedImages
from cotransport.data.decoding import Encoded, decode, png
from cotransport.data.fingerprint import image_digest
from cotransport.errors import DataError, ModelError
from cotransport.model import pool
from cotransport.model.pool import ImagePool, NewImage, read_column, read_images, write_images
from tests.model.helpers import pixels

GREY = np.full((4, 4, 3), 7, np.uint8)


class TestDigest:
    def test_equal_pixels_share_it_and_others_do_not(self) -> None:
        assert image_digest(GREY) == image_digest(GREY.copy())
        assert image_digest(GREY) != image_digest(GREY + 1)
        assert image_digest(GREY) != image_digest(GREY.reshape(2, 8, 3))

    def test_a_file_and_its_bytes_share_it(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(png(GREY))
        assert image_digest(tmp_path / "a.png") == image_digest(Encoded(png(GREY), "another name"))

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"gone\.png: cannot be read"):
            image_digest(tmp_path / "gone.png")


class TestPool:
    def test_rows_that_follow_each_other_are_written_as_one(self) -> None:
        images = ImagePool({}, file=1)
        assert images.add(pixels(1, 2, 3)).rows == [(1, 0, 3)]
        assert images.add(pixels(2, 3, 1)).rows == [(1, 1, 2), (1, 0, 1)]
        assert images.add(pixels(4, 1, 2)).rows == [(1, 3, 1), (1, 0, 2)]
        assert len(images.new) == 4

    def test_images_that_are_stored_are_referred_to(self) -> None:
        earlier = ImagePool({}, file=1)
        earlier.add(pixels(1, 2))
        later = ImagePool(earlier.places, file=2)
        assert later.add(pixels(5, 2, 6)).rows == [(2, 0, 1), (1, 1, 1), (2, 1, 1)]
        assert [new.digest for new in later.new] == [image_digest(pixels(value).item(0)) for value in (5, 6)]
        assert len(earlier.places) == 2  # not changed by the later pool

    def test_the_kind_of_storage_is_kept(self) -> None:
        images = ImagePool({}, file=1)
        assert images.add(pixels(1)).pixels
        encoded = images.add(EncodedImages.of([Encoded(b"whatever", "a.jpg")], 4))
        assert (encoded.pixels, encoded.rows) == (False, [(1, 1, 1)])


class TestImageFile:
    def test_what_is_written_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pool, "ROWS_AT_ONCE", 2)  # several chunks
        (tmp_path / "photo.png").write_bytes(png(GREY))
        items = [GREY, Encoded(b"whatever", "folder/a.jpg"), tmp_path / "photo.png"]
        write_images(tmp_path / "images.parquet", [NewImage(image_digest(item), item) for item in items])
        found = read_images(tmp_path / "images.parquet")
        assert decode(found[0], 4).tolist() == GREY.tolist()
        assert [image.data for image in found[1:]] == [b"whatever", png(GREY)]
        assert [image.name.removeprefix(f"{tmp_path}/") for image in found] == [
            "images.parquet, row 0",
            "images.parquet, row 1 (a.jpg)",
            "images.parquet, row 2 (photo.png)",
        ]
        assert read_column(tmp_path / "images.parquet", "digest") == [image_digest(item) for item in items]

    def test_a_name_that_is_not_valid_text_is_escaped(self, tmp_path: Path) -> None:
        write_images(tmp_path / "images.parquet", [NewImage(b"digest", Encoded(b"whatever", "caf\udce9.png"))])
        assert read_column(tmp_path / "images.parquet", "name") == ["caf\\udce9.png"]

    def test_what_is_not_parquet_is_damage(self, tmp_path: Path) -> None:
        (tmp_path / "images.parquet").write_bytes(b"nonsense")
        with pytest.raises(ModelError, match=r"images\.parquet: damaged"):
            read_images(tmp_path / "images.parquet")

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"name": ["a"], "digest": [b"d"]}, r"images\.parquet: damaged"),
            ({"name": ["a"], "image": ["text"]}, "the column 'image' has a wrong type"),
            ({"name": [None], "image": [b"whatever"]}, "the column 'name' has a wrong type"),
            ({"name": [3], "image": [b"whatever"]}, "the column 'name' has a wrong type"),
        ],
    )
    def test_other_columns_are_damage(self, columns: dict[str, list[object]], message: str, tmp_path: Path) -> None:
        parquet.write_table(pyarrow.table(columns), tmp_path / "images.parquet")
        with pytest.raises(ModelError, match=message):
            read_images(tmp_path / "images.parquet")
