"""From images to batches on the device: in memory by gathering, otherwise decoded by worker processes.

Training batches are global: every process draws the same order and the same random numbers and takes its shard, so the
result does not depend on the number of processes or workers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cotransport.config import Augmentation
from cotransport.data import augmentation as augment
from cotransport.data.decoding import Window, decode
from cotransport.data.images import EncodedImages, Images, LabelledImages, PixelImages
from cotransport.errors import DataError
from cotransport.randomness import generator

EVALUATION_CHUNK = 256
"""Images in an evaluation batch. Fixed, so that features do not depend on any setting."""
CENTRE_SHARE = 0.875
"""The central part that evaluation sees of images decoded on the fly, as 224 of 256 pixels."""
FEW = 64
"""Fewer images than this are decoded without worker processes: starting them would take longer."""
_Request: TypeAlias = tuple[int, Window | float]  # an image and the part of it to decode
_ORDER, _CHANGES = 0, 1  # places of a run's random draws


@dataclass(frozen=True)
class Shard:
    """The part of every batch that one of several processes computes."""

    rank: int = 0
    processes: int = 1

    def of(self, count: int) -> Tensor:
        """Positions in a batch of `count`; a process without any gets the first, with no weight."""
        positions = torch.arange(self.rank, count, self.processes)
        return positions if len(positions) else torch.zeros(1, dtype=torch.int64)

    def weight(self, count: int) -> float:
        """Factor of the process's mean loss, so that the mean over processes is the mean over the batch."""
        own = len(range(self.rank, count, self.processes))
        return own * self.processes / count


class Batch(NamedTuple):
    """A process's part of one step."""

    images: Tensor
    """float32 (n, 3, h, w) in 0 to 255, channels last in memory."""
    labels: Tensor
    """int64 (n,)."""
    weight: float
    """Factor of the mean loss (see `Shard.weight`)."""
    total: int
    """Images in the whole step, over all processes."""


class _Plan(NamedTuple):
    """What one step reads: global indices, this process's share of them and the random numbers for it."""

    indices: Tensor
    draws: augment.Draws
    weight: float
    total: int


def steps_per_epoch(images: int, batch_size: int) -> int:
    """Steps that an epoch is cut into, each of at most `batch_size` images and all of the same size but for one image."""
    return max(1, -(-images // batch_size))


def training_batches(
    data: LabelledImages,
    *,
    settings: Augmentation,
    batch_size: int,
    epochs: int,
    seed: int,
    place: tuple[int, ...],
    device: torch.device,
    shard: Shard,
    workers: int | None,
) -> Iterator[Batch]:
    """All batches of a training, epoch after epoch; every image comes once in an epoch."""
    plans = _plans(len(data), settings, batch_size, epochs, seed, place, shard)
    labels = data.labels.to(device)
    if isinstance(data.images, PixelImages):
        pixels = data.images.pixels.to(device)
        for plan in plans:
            indices, draws = plan.indices.to(device, non_blocking=True), plan.draws.to(device)
            squares = augment.cropped(pixels, indices, draws, settings)
            yield _batch(squares, draws, labels[indices], plan, settings)
        return
    begun: deque[_Plan] = deque()  # workers run ahead of the batch that is yielded

    def requests() -> Iterator[list[_Request]]:
        for plan in plans:
            begun.append(plan)
            yield list(zip(plan.indices.tolist(), plan.draws.windows(), strict=True))

    for squares in _decoded(data.images, requests(), workers):
        plan = begun.popleft()
        draws = plan.draws.to(device)
        mirrored = augment.flipped(squares.to(device, non_blocking=True), draws)
        yield _batch(mirrored, draws, labels[plan.indices.to(device)], plan, settings)


def evaluation_chunks(
    images: Images, *, device: torch.device, shard: Shard, workers: int | None
) -> Iterator[tuple[slice, Tensor]]:
    """This process's chunks of the images as they are: where each stands, and uint8 (n, 3, h, w)."""
    starts = range(shard.rank * EVALUATION_CHUNK, len(images), shard.processes * EVALUATION_CHUNK)
    slices = [slice(start, min(start + EVALUATION_CHUNK, len(images))) for start in starts]
    if isinstance(images, PixelImages):
        for rows in slices:
            yield rows, images.pixels[rows].to(device, non_blocking=True).permute(0, 3, 1, 2)
        return
    chunks: list[list[_Request]] = [[(i, CENTRE_SHARE) for i in range(rows.start, rows.stop)] for rows in slices]
    for rows, squares in zip(slices, _decoded(images, iter(chunks), workers), strict=True):
        yield rows, squares.to(device, non_blocking=True).permute(0, 3, 1, 2)


def channel_statistics(images: Images, workers: int | None = None, at_most: int = 10_000) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each colour, 0 to 255, over an evenly spread sample."""
    chosen = torch.linspace(0, len(images) - 1, min(len(images), at_most)).round().long()
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    chunks = evaluation_chunks(images.take(chosen), device=torch.device("cpu"), shard=Shard(), workers=workers)
    for _, chunk in chunks:
        values = chunk.double()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
        count += values.numel() // 3
    mean = total / count
    deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
    return mean.float(), torch.where(deviation < 1, 1.0, deviation).float()  # images of one colour have no contrast


def _plans(
    images: int,
    settings: Augmentation,
    batch_size: int,
    epochs: int,
    seed: int,
    place: tuple[int, ...],
    shard: Shard,
) -> Iterator[_Plan]:
    steps = steps_per_epoch(images, batch_size)
    for epoch in range(epochs):
        order = torch.randperm(images, generator=generator(seed, *place, epoch, _ORDER))
        for step, indices in enumerate(order.tensor_split(steps)):
            draws = augment.draw(settings, len(indices), generator(seed, *place, epoch, _CHANGES, step))
            own = shard.of(len(indices))
            yield _Plan(indices[own], draws.part(own), shard.weight(len(indices)), len(indices))


def _batch(squares: Tensor, draws: augment.Draws, labels: Tensor, plan: _Plan, settings: Augmentation) -> Batch:
    images = augment.brightened(squares, draws) if settings.brightness else squares.float()
    return Batch(images.permute(0, 3, 1, 2), labels, plan.weight, plan.total)


class _Decoder(Dataset[Tensor | DataError]):
    """Whole batches decoded at once. An error comes back as a value: raised in a worker, it would bury its message."""

    def __init__(self, images: EncodedImages) -> None:
        self._images = images

    def __getitem__(self, requests: list[_Request]) -> Tensor | DataError:
        try:
            squares = [decode(self._images.item(index), self._images.size, crop) for index, crop in requests]
        except DataError as error:
            return error
        return torch.from_numpy(np.stack(squares))


def _decoded(images: EncodedImages, requests: Iterator[list[_Request]], workers: int | None) -> Iterator[Tensor]:
    if workers is None:
        workers = min(4, os.cpu_count() or 1) if len(images) >= FEW else 0
    loader = DataLoader(
        _Decoder(images),
        sampler=requests,  # any iterable of requests will do
        batch_size=None,
        num_workers=workers,
        generator=torch.Generator(),  # otherwise the loader draws from the global one
        pin_memory=torch.cuda.is_available(),
    )
    for squares in loader:
        if isinstance(squares, DataError):
            raise squares
        yield squares
