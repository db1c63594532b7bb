"""Many images decoded by worker processes, batch after batch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
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
"""An image's place, and the part of it to decode."""
FEW = 64
"""Fewer images than this are decoded without worker processes: starting them would take longer."""
PATIENCE = 10
"""Seconds that a worker goes on after SIGTERM, so that the process which has started it can save what it has."""


def default_workers(images: int) -> int:
    """How many worker processes suit so many images."""
    if images < FEW or multiprocessing.current_process().daemon:  # a daemon may not start processes
        return 0
    return min(4, available_cores())


def decode_batches(
    item: Callable[[int], Item],
    size: int,
    requests: Iterable[list[Request]],
    workers: int,
    on_error: Callable[[int, DataError], None] | None = None,
) -> Iterator[Tensor]:
    """For each list of requests, uint8 (n, size, size, 3). `item` gives the image at a place.

    An image that cannot be decoded ends it; with `on_error`, that is told its place and why, and the image is black.
    """
    loader = DataLoader(
        _Decoder(item, size),
        sampler=requests,  # any iterable of requests will do
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # otherwise the loader draws from the global one
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_leave_signals,
    )
    batches = iter(loader)
    try:
        for squares, errors in batches:
            for index, error in errors:
                if on_error is None:
                    raise error
                on_error(index, error)
            yield squares
    finally:  # also if an error keeps the iterator alive
        getattr(batches, "_shutdown_workers", lambda: None)()


def _leave_signals(worker: int) -> None:
    """A terminal tells all of a program's processes to stop; when the workers do is for the first one to say."""
    signals.leave_to_parent(PATIENCE)


_Squares: TypeAlias = tuple[Tensor, list[tuple[int, DataError]]]


class _Decoder(Dataset[_Squares]):
    """Whole batches decoded at once. Errors come back as values: raised in a worker, they would bury their message."""

    def __init__(self, item: Callable[[int], Item], size: int) -> None:
        self._item, self._size = item, size

    def __getitem__(self, requests: list[Request]) -> _Squares:
        squares = np.zeros((len(requests), self._size, self._size, 3), np.uint8)
        errors: list[tuple[int, DataError]] = []
        for place, (index, crop) in enumerate(requests):
            try:
                squares[place] = decode(self._item(index), self._size, crop)
            except DataError as error:
                errors.append((index, error))
        return torch.from_numpy(squares), errors
