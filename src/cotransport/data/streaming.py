"""Data sets that are read as a stream: only the images of the current task are kept, in a temporary file.

A stream yields all classes mixed, but parquet files store each column apart. So all labels are read first, without the
images, and the classes are split into tasks as usual. The images of a task are read when the task arrives, in one pass
over the stream.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cotransport.data.decoding import Encoded, Item
from cotransport.data.images import EncodedImages, Images, LabelledImages, encoded_copy
from cotransport.data.loading import fits_memory, images_from_parts, natural_size
from cotransport.data.tables import ImageColumn
from cotransport.errors import CotransportError, DataError, StorageError
from cotransport.settings.sections import Fit

FIRST = 100
"""Number of images at the start of a stream that give its image size, and are part of its fingerprint."""
BATCH = 64
"""Rows that are read at a time."""


class StreamedTable:
    """One split of a data set in parquet files.

    files : paths, or addresses that fsspec can open.
    features : the types of the columns; None if the files say it.
    errors : turns the library's errors into a DataError.
    """

    def __init__(
        self,
        files: Sequence[str],
        features: Any,  # noqa: ANN401 (Features)
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._files, self._given, self._errors = files, features, errors
        self._values: dict[str, Any] = {}
        self._row_groups: list[list[int]] = []  # for each file, the number of rows in each row group

    @cached_property
    def features(self) -> Any:  # noqa: ANN401 (Features)
        """The types of the columns."""
        import datasets

        if self._given is not None:
            return self._given
        with self._errors(), _opened(self._files[0]) as file:
            return datasets.Features.from_arrow_schema(file.schema_arrow)

    def values(self, column: str) -> Any:  # noqa: ANN401 (ChunkedArray)
        """All values of a column. No other column is read."""
        import pyarrow

        if column not in self._values:
            parts, self._row_groups = [], []
            with self._errors():
                for name in self._files:
                    with _opened(name) as file:
                        parts.append(self._cast(column, file.read([column]).column(column).combine_chunks()))
                        self._row_groups.append(_group_sizes(file))
                self._values[column] = pyarrow.chunked_array(parts)
        return self._values[column]

    def images(self, images: ImageColumn, labels: str, rows: list[int]) -> Sequence[Item]:
        """The images of some rows. They are not read yet."""
        return StreamedRows(self, images, labels, torch.tensor(rows, dtype=torch.int64))

    def read(self, images: ImageColumn, labels: str, rows: Tensor) -> Iterator[Item]:
        """The images of these rows (ascending), in one pass. Row groups and files without them are skipped."""
        import datasets

        known, wanted, start = self.values(labels), rows.numpy(), 0
        for name, groups in zip(self._files, self._row_groups, strict=True):
            starts = [start, *(start + np.cumsum(groups)).tolist()]
            places = np.searchsorted(wanted, starts)
            start = starts[-1]
            if places[0] == places[-1]:
                continue
            with self._errors(), _opened(name) as file:
                if _group_sizes(file) != groups:
                    raise _changed(images)
                for group in np.flatnonzero(places[1:] > places[:-1]).tolist():
                    first = starts[group]
                    for batch in file.iter_batches(BATCH, [group], [images.column, labels]):
                        end = first + len(batch)
                        if not self._cast(labels, batch.column(labels)).equals(known[first:end].combine_chunks()):
                            raise _changed(images)
                        values = datasets.Image().cast_storage(batch.column(images.column))
                        for row in wanted[slice(*np.searchsorted(wanted, [first, end]))].tolist():
                            yield images.item(values[row - first], row)
                        first = end

    def _cast(self, column: str, values: Any) -> Any:  # noqa: ANN401 (pyarrow arrays)
        """Values of a column with the type that the data set declares: names of classes become numbers."""
        kind = self.features[column]
        return kind.cast_storage(values) if hasattr(kind, "cast_storage") else values


@dataclass(frozen=True, eq=False)
class StreamedRows(Sequence[Item]):
    """Some rows of a stream. Their images can be used only after `fetched` has read them."""

    table: StreamedTable
    column: ImageColumn
    labels: str
    """The column of the labels."""
    rows: Tensor
    """int64 (n,): the numbers of the rows in the table."""
    fit: Fit = "crop"
    """How images that are kept in memory become squares."""
    in_memory: bool = False
    """Whether images that were read are kept in memory as pixels."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        """Not possible: a stream is read from its start."""
        raise NotImplementedError("images of a stream must be fetched first")

    def read(self, indices: Tensor) -> Iterator[Item]:
        """The images at these indices (ascending), in one pass."""
        return self.table.read(self.column, self.labels, self.rows[indices])

    @cached_property
    def first(self) -> list[Item]:
        """The first images."""
        return list(self.read(torch.arange(min(FIRST, len(self)))))


def streamed_images(parts: Sequence[Sequence[Item]], size: int | None, fit: Fit) -> list[Images]:
    """Training and test images that are still to be fetched.

    They will have the storage that they would have without streaming. By default, the first images give the size.
    """
    streams = [part for part in parts if isinstance(part, StreamedRows)]
    if size is None:
        size = natural_size(streams[0].first)
    in_memory = fits_memory(sum(map(len, streams)), size)
    return [EncodedImages.of(replace(part, fit=fit, in_memory=in_memory), size) for part in streams]


def stream_of(images: Images) -> StreamedRows | None:
    """The stream that images are still to be fetched from; None for all other images."""
    if isinstance(images, EncodedImages) and len(images.origins) == 1 and isinstance(images.origins[0], StreamedRows):
        return images.origins[0]
    return None


def fetched(data: LabelledImages) -> LabelledImages:
    """The same images, read from their stream into a temporary file or into memory. They must be in its order."""
    stream = stream_of(data.images)
    if stream is None:
        return data
    assert isinstance(data.images, EncodedImages)
    kept = TemporaryImages(stream.read(data.images.row))
    [images] = images_from_parts([kept], data.images.size, stream.fit, in_memory=stream.in_memory)
    return replace(data, images=images)


class TemporaryImages(Sequence[Item]):
    """Encoded images in a temporary file. The system removes it when nothing uses the images any more."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._lock, self._ends, self._names = Lock(), [0], list[str]()
        with _no_room():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the images are used)
            for item in items:
                data, name = encoded_copy(item)
                self._file.write(data)
                self._ends.append(self._ends[-1] + len(data))
                self._names.append(name)
            self._file.flush()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 (slices are not used)
        start, end = self._ends[index], self._ends[index + 1]
        with self._lock:  # several threads decode at the same time
            self._file.seek(start)
            data = self._file.read(end - start)
        return Encoded(data, self._names[index])


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    """A parquet file, here or elsewhere. Only what is asked for is read, and nothing is read ahead."""
    from fsspec.core import url_to_fs
    from pyarrow import parquet

    system, path = url_to_fs(name)
    with system.open(path, "rb", cache_type="none") as opened, parquet.ParquetFile(opened) as file:
        yield file


def _group_sizes(file: Any) -> list[int]:  # noqa: ANN401 (ParquetFile)
    """The number of rows in each row group."""
    return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]


@contextmanager
def _no_room() -> Iterator[None]:
    """Turn an OSError inside into a StorageError that names the temporary folder and the remedy."""
    try:
        yield
    except CotransportError:
        raise
    except OSError as error:
        raise StorageError(
            f"{tempfile.gettempdir()}: cannot hold the images of a task ({error.strerror or error}). Free some space, "
            "or set the environment variable TMPDIR to a folder on a larger disk"
        ) from None


def _changed(images: ImageColumn) -> DataError:
    return DataError(
        f"{images.split}: the labels have changed since the stream was opened. Start the run again with --overwrite"
    )
