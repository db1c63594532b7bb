"""The rows of a Hugging Face data set as images: a table in memory-mapped files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cotransport.data.decoding import Encoded, Item
from cotransport.data.files import check_inside
from cotransport.errors import DataError


@dataclass(frozen=True)
class ImageColumn:
    """The column of the images of a split, and what is needed to read it."""

    column: str
    split: str
    """The split's name in messages."""
    root: Path | None
    """If set, files that the column refers to must be in this folder."""

    def item(self, value: Any, row: int) -> Item:  # noqa: ANN401 (a pyarrow struct)
        """The image of a row, from the value of the column."""
        if value.is_valid and value["bytes"].is_valid:
            return Encoded(value["bytes"].as_py(), f"{self.split}, row {row}")
        if value.is_valid and value["path"].is_valid:
            path = Path(value["path"].as_py())
            check_inside(path, self.root)
            return path
        raise DataError(f"{self.split}, row {row}: no image in the column {self.column!r}. Remove the row")


class MappedTable:
    """One split in memory-mapped files."""

    def __init__(self, table: Any) -> None:  # noqa: ANN401 (Dataset)
        self._table, self.features = table, table.features

    def values(self, column: str) -> Any:  # noqa: ANN401 (ChunkedArray)
        """All values of a column."""
        return self._table.data.column(column)

    def images(self, images: ImageColumn, labels: str, rows: list[int]) -> Sequence[Item]:
        """The images of some rows."""
        import datasets

        table = self._table
        if type(self.features[images.column]).__name__ != "Image":  # a column of paths or bytes, chosen by the user
            table = table.cast_column(images.column, datasets.Image())
        return _MappedRows(table.data.column(images.column), images, rows)


@dataclass(frozen=True, eq=False)
class _MappedRows(Sequence[Item]):
    """Some rows of a table as images. An image is read from the memory-mapped file when it is used."""

    values: Any
    """The column, as a pyarrow ChunkedArray."""
    column: ImageColumn
    rows: list[int]
    """The numbers of the rows in the table."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are not used)
        row = self.rows[index]
        return self.column.item(self.values[row], row)
