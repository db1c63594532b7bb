"""The image pool of a model folder: parquet files of encoded images, each image stored once.

Versions refer to rows of these files. An image that is stored already is not written again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cotransport.data import Images, PixelImages
from cotransport.data.decoding import Encoded, Item
from cotransport.data.fingerprint import image_digest
from cotransport.data.images import encoded_copy
from cotransport.errors import ModelError
from cotransport.model.folder import IMAGES, ModelFolder
from cotransport.model.manifest import ImageRows, Manifest
from cotransport.system.files import storable_name

Place = tuple[int, int]
"""An image file's number, and a row in it."""
ID_LETTERS = 12
"""Letters of an image's id: the first ones of its digest, in hexadecimal."""
ROWS_AT_ONCE = 1024
"""Images that are encoded and written together."""


def image_id(digest: bytes) -> str:
    """The id of an image, from its digest.

    >>> image_id(bytes(range(32)))
    '000102030405'
    """
    return digest.hex()[:ID_LETTERS]


class NewImage(NamedTuple):
    """An image that is not stored yet."""

    digest: bytes
    item: Item


class ImagePool:
    """Assigns places to images. Those that are not stored yet are collected in `new`, for the next image file."""

    def __init__(self, stored: Mapping[bytes, Place], file: int) -> None:
        self.places, self._file = dict(stored), file
        self.new: list[NewImage] = []

    def add(self, images: Images) -> ImageRows:
        """The rows in which the images of a class are stored, or will be once the next image file is written."""
        places: list[Place] = []
        for index in range(len(images)):
            item = images.item(index)
            digest = image_digest(item)
            if digest not in self.places:
                self.places[digest] = (self._file, len(self.new))
                self.new.append(NewImage(digest, item))
            places.append(self.places[digest])
        return ImageRows(pixels=isinstance(images, PixelImages), rows=as_rows(places))


def as_rows(places: Iterable[Place]) -> list[tuple[int, int, int]]:
    """Places as (file, first row, number of rows).

    >>> as_rows([(1, 4), (1, 5), (2, 6)])
    [(1, 4, 2), (2, 6, 1)]
    """
    rows: list[tuple[int, int, int]] = []
    for file, row in places:
        if rows and rows[-1][0] == file and sum(rows[-1][1:]) == row:
            rows[-1] = (file, rows[-1][1], rows[-1][2] + 1)
        else:
            rows.append((file, row, 1))
    return rows


def places_of(rows: ImageRows, files: Mapping[int, Sized]) -> list[Place]:
    """The places of the images of a class.

    files : the contents of each image file.
    """
    places: list[Place] = []
    for file, first, count in rows.rows:
        if first + count > len(files.get(file, ())):
            raise ModelError(
                f"images/{file:04d}.parquet: has fewer images than a version refers to. Restore it from a backup"
            )
        places += [(file, row) for row in range(first, first + count)]
    return places


class PoolDigests:
    """The digests of all images of a pool, by file and row."""

    def __init__(self, folder: ModelFolder, manifest: Manifest) -> None:
        """Read the digests. The checksums of image files are verified on the way."""
        paths = {int(name): folder.check_shared(manifest, IMAGES, int(name)) for name in manifest.images}
        self.files: Mapping[int, Sequence[bytes]] = {file: read_column(path, "digest") for file, path in paths.items()}

    def of(self, rows: ImageRows) -> list[bytes]:
        """The digests of the images of a class."""
        return [self.files[file][row] for file, row in places_of(rows, self.files)]


def write_images(path: Path, images: Sequence[NewImage]) -> None:
    """Write an image file."""
    import pyarrow
    from pyarrow import parquet

    schema = pyarrow.schema(
        [("digest", pyarrow.binary()), ("name", pyarrow.string()), ("image", pyarrow.large_binary())]
    )
    with parquet.ParquetWriter(path, schema, compression="none") as writer:
        for start in range(0, len(images), ROWS_AT_ONCE):
            some = images[start : start + ROWS_AT_ONCE]
            encoded = [encoded_copy(image.item) for image in some]
            names = [
                "" if isinstance(image.item, np.ndarray) else storable_name(Path(copy.name).name)
                for image, copy in zip(some, encoded, strict=True)
            ]
            columns = [[image.digest for image in some], names, [image.data for image in encoded]]
            arrays = [pyarrow.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def read_images(path: Path) -> list[Encoded]:
    """All images of an image file."""
    names, images = read_column(path, "name"), read_column(path, "image")
    return [
        Encoded(image, f"{path}, row {row}" + (f" ({name})" if name else ""))
        for row, (name, image) in enumerate(zip(names, images, strict=True))
    ]


def read_column(path: Path, name: str) -> list[Any]:
    """One column of an image file."""
    from pyarrow import parquet

    try:
        values: list[Any] = parquet.read_table(path, columns=[name]).column(name).to_pylist()
    except Exception as error:  # pyarrow raises many kinds for a damaged file
        raise ModelError(f"{path}: damaged ({str(error).splitlines()[0]}). Restore it from a backup") from None
    if not all(isinstance(value, str if name == "name" else bytes) for value in values):
        raise ModelError(f"{path}: damaged (the column {name!r} has a wrong type). Restore it from a backup")
    return values
