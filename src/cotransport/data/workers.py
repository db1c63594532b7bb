"""Decode many images in worker threads, batch by batch.

Threads are enough because Pillow decodes and scales without holding Python's global lock. They start at once, and they
are safe: a process that is forked while other threads hold a lock may wait forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import torch
from torch import Tensor

from cotransport.data.decoding import Item, Window, decode
from cotransport.errors import DataError
from cotransport.settings.sections import Fit
from cotransport.system.machine import available_cores

Request: TypeAlias = tuple[int, Window | float]
"""The index of an image, and the part of it to decode."""
OnError: TypeAlias = Callable[[int, DataError], None]
"""Called with the index of an image that cannot be decoded, and the error."""
PIECE = 8
"""Number of images of a batch that one worker decodes at a time."""
AHEAD = 4
"""Number of batches that the workers decode ahead of the caller."""
MOST_WORKERS = 8
"""Largest number of workers that is chosen where the user chooses none. More of them would wait for Python's lock."""


def default_workers(images: int) -> int:
    """The number of workers that suits this number of images."""
    return min(MOST_WORKERS, available_cores()) if images > PIECE else 0


def in_chunks(count: int, size: int) -> list[slice]:
    """The slices that cut `count` images into chunks of at most `size`.

    >>> in_chunks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def decode_slices(
    item: Callable[[int], Item],
    size: int,
    slices: Sequence[slice],
    share: float,
    workers: int,
    on_error: OnError | None = None,
    fit: Fit = "crop",
) -> Iterator[tuple[slice, Tensor]]:
    """Each slice with its images: their central parts as uint8 (n, size, size, 3). See `decode_batches`.

    share : the share of the sides that the central part has.
    """
    requests: list[list[Request]] = [[(index, share) for index in range(rows.start, rows.stop)] for rows in slices]
    return zip(slices, decode_batches(item, size, requests, workers, on_error, fit), strict=True)


def decode_batches(
    item: Callable[[int], Item],
    size: int,
    requests: Iterable[list[Request]],
    workers: int,
    on_error: OnError | None = None,
    fit: Fit = "crop",
) -> Iterator[Tensor]:
    """For each list of requests, the decoded images as uint8 (n, size, size, 3).

    item : gives the image at an index. The workers call it at the same time.
    workers : number of threads, which decode some batches ahead. 0 decodes in the caller's thread.
    on_error : if given, it is called for images that cannot be decoded, which are then black. Otherwise the error is
        raised.
    fit : how images that are not square become squares.
    """
    batches = (_Batch(item, size, asked, fit) for asked in requests)
    if workers == 0:
        for batch in batches:
            yield batch.result([batch.decode(piece) for piece in batch.pieces], on_error)
        return
    pool = ThreadPoolExecutor(workers, "decode")
    running: deque[tuple[_Batch, list[Future[_Errors]]]] = deque()
    try:
        for batch in batches:
            running.append((batch, [pool.submit(batch.decode, piece) for piece in batch.pieces]))
            if len(running) > AHEAD:
                yield _result(*running.popleft(), on_error)
        while running:
            yield _result(*running.popleft(), on_error)
    finally:  # also if the caller stops early
        pool.shutdown(cancel_futures=True)


_Errors: TypeAlias = list[tuple[int, DataError]]


class _Batch:
    """The images of one list of requests, filled piece by piece."""

    def __init__(self, item: Callable[[int], Item], size: int, requests: list[Request], fit: Fit) -> None:
        self._item, self._size, self._requests, self._fit = item, size, requests, fit
        self._squares = torch.zeros(
            len(requests), size, size, 3, dtype=torch.uint8, pin_memory=torch.cuda.is_available()
        )
        self.pieces = in_chunks(len(requests), PIECE)

    def decode(self, piece: slice) -> _Errors:
        """Decode these images. The errors of those that cannot be decoded are returned, in order."""
        squares, errors = self._squares.numpy(), _Errors()
        for position in range(piece.start, piece.stop):
            index, crop = self._requests[position]
            try:
                squares[position] = decode(self._item(index), self._size, crop, self._fit)
            except DataError as error:
                errors.append((index, error))
        return errors

    def result(self, errors: Iterable[_Errors], on_error: OnError | None) -> Tensor:
        """All images, after the errors of all pieces have been reported."""
        for index, error in (one for piece in errors for one in piece):
            if on_error is None:
                raise error
            on_error(index, error)
        return self._squares


def _result(batch: _Batch, pieces: list[Future[_Errors]], on_error: OnError | None) -> Tensor:
    return batch.result((piece.result() for piece in pieces), on_error)
