"""Decode many images in worker processes, batch by batch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cotransport.data.decoding import Item, Window, decode
from cotransport.errors import DataError
from cotransport.system import signals
from cotransport.system.machine import available_cores

Request: TypeAlias = tuple[int, Window | float]
"""The index of an image, and the part of it to decode."""
OnError: TypeAlias = Callable[[int, DataError], None]
"""Called with the index of an image that cannot be decoded, and the error."""
FEW = 64
"""Fewer images than this are decoded without worker processes, because starting them would take longer."""
PATIENCE = 10
"""Seconds that a worker continues after SIGTERM, so that its parent process can save its state."""


def default_workers(images: int) -> int:
    """The number of worker processes that suits this number of images."""
    if images < FEW or multiprocessing.current_process().daemon:  # a daemon cannot start processes
        return 0
    return min(4, available_cores())


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
) -> Iterator[tuple[slice, Tensor]]:
    """Each slice with its images: their central squares as uint8 (n, size, size, 3). See `decode_batches`.

    share : the side of the central square, as a share of the shorter side.
    """
    requests: list[list[Request]] = [[(index, share) for index in range(rows.start, rows.stop)] for rows in slices]
    return zip(slices, decode_batches(item, size, requests, workers, on_error), strict=True)


def decode_batches(
    item: Callable[[int], Item],
    size: int,
    requests: Iterable[list[Request]],
    workers: int,
    on_error: OnError | None = None,
) -> Iterator[Tensor]:
    """For each list of requests, the decoded images as uint8 (n, size, size, 3).

    item : gives the image at an index.
    on_error : if given, it is called for images that cannot be decoded, which are then black. Otherwise the error is
        raised.
    """
    loader = DataLoader(
        _Decoder(item, size),
        sampler=requests,  # any iterable of requests will do
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # otherwise the loader draws from the global one
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_ignore_signals,
    )
    batches = iter(loader)
    try:
        for squares, errors in batches:
            for index, error in errors:
                if on_error is None:
                    raise error
                on_error(index, error)
            yield squares
    finally:  # the traceback of an error may keep the iterator alive, and with it the workers
        getattr(batches, "_shutdown_workers", lambda: None)()


def _ignore_signals(worker: int) -> None:
    """Leave signals to the parent process: a terminal sends them to all processes of a program."""
    signals.leave_to_parent(PATIENCE)


_Squares: TypeAlias = tuple[Tensor, list[tuple[int, DataError]]]


class _Decoder(Dataset[_Squares]):
    """Decodes whole batches. Errors are returned: raised in a worker, their message would be lost in a traceback."""

    def __init__(self, item: Callable[[int], Item], size: int) -> None:
        self._item, self._size = item, size

    def __getitem__(self, requests: list[Request]) -> _Squares:
        squares = np.zeros((len(requests), self._size, self._size, 3), np.uint8)
        errors: list[tuple[int, DataError]] = []
        for position, (index, crop) in enumerate(requests):
            try:
                squares[position] = decode(self._item(index), self._size, crop)
            except DataError as error:
                errors.append((index, error))
        return torch.from_numpy(squares), errors
