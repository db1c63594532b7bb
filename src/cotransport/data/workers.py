"""Many images decoded by worker processes, batch after batch."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cotransport import signals
from cotransport.data.decoding import Item, Window, decode
from cotransport.errors import DataError
from cotransport.machine import available_cores

Request: TypeAlias = tuple[int, Window | float]
"""An image's place, and the part of it to decode."""
FEW = 64
"""Fewer images than this are decoded without worker processes: starting them would take longer."""


def usual_workers(images: int) -> int:
    """How many worker processes suit so many images."""
    if images < FEW or multiprocessing.current_process().daemon:  # a daemon may not start processes
        return 0
    return min(4, available_cores())


def decoded(
    item: Callable[[int], Item], size: int, requests: Iterable[list[Request]], workers: int
) -> Iterator[Tensor]:
    """For each list of requests, uint8 (n, size, size, 3). `item` gives the image at a place."""
    loader = DataLoader(
        _Decoder(item, size),
        sampler=requests,  # any iterable of requests will do
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # otherwise the loader draws from the global one
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=_leave_signals,
    )
    for squares in loader:
        if isinstance(squares, DataError):
            raise squares
        yield squares


def _leave_signals(worker: int) -> None:
    """A terminal tells all of a program's processes to stop; when the workers do is for the first one to say."""
    signals.ignore()


class _Decoder(Dataset[Tensor | DataError]):
    """Whole batches decoded at once. An error comes back as a value: raised in a worker, it would bury its message."""

    def __init__(self, item: Callable[[int], Item], size: int) -> None:
        self._item, self._size = item, size

    def __getitem__(self, requests: list[Request]) -> Tensor | DataError:
        try:
            squares = [decode(self._item(index), self._size, crop) for index, crop in requests]
        except DataError as error:
            return error
        return torch.from_numpy(np.stack(squares))
