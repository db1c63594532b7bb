"""From images to batches on the device: in memory by gathering, otherwise decoded by worker processes.

Training batches are global: every process draws the same order and the same random numbers and takes its shard, so the
result does not depend on the number of processes or workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data import augmentation as augment
from cotransport.data.decoding import Item
from cotransport.data.images import (
    IN_MEMORY_SIDE,
    EncodedImages,
    Images,
    LabelledImages,
    PixelImages,
    Vectors,
    evenly_spaced,
)
from cotransport.data.workers import Request, decode_batches, default_workers
from cotransport.errors import DataError
from cotransport.settings.sections import Augmentation
from cotransport.system.randomness import generator

EVALUATION_CHUNK = 256
"""Images in an evaluation batch. Fixed, so that features do not depend on any setting."""
CENTRE_SHARE = 0.875
"""The central part that evaluation sees of images decoded on the fly, as 224 of 256 pixels."""
_ORDER, _CHANGES = 0, 1  # places of a run's random draws


@dataclass(frozen=True)
class Shard:
    """The part of every batch that one of several processes computes."""

    rank: int = 0
    processes: int = 1

    def of(self, count: int) -> Tensor:
        """Positions in a batch of `count`; a process without any gets the first, with no weight."""
        return torch.tensor([*range(self.rank, count, self.processes)] or [0])

    def weight(self, count: int) -> float:
        """Factor of the process's mean loss, so that the mean over processes is the mean over the batch."""
        own = len(range(self.rank, count, self.processes))
        return own * self.processes / count


class Batch(NamedTuple):
    """A process's part of one step."""

    images: Tensor
    """float32 (n, 3, h, w) in 0 to 255, channels last in memory; or features (n, d) of a fixed embedding."""
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
    """Steps that an epoch is cut into, each of at most `batch_size` images and all of the same size but for one."""
    return max(1, -(-images // batch_size))


def training_batches(
    data: LabelledImages,
    *,
    settings: Augmentation,
    batch_size: int,
    epochs: int,
    begun: int = 0,
    seed: int,
    place: tuple[int, ...],
    device: torch.device,
    shard: Shard,
    workers: int | None,
) -> Iterator[Batch]:
    """All batches of a training, or those after so many, epoch after epoch; every image comes once in an epoch."""
    steps = steps_per_epoch(len(data), batch_size)
    plans = _plans(
        len(data),
        settings=settings,
        steps=range(begun, epochs * steps),
        in_epoch=steps,
        seed=seed,
        place=place,
        shard=shard,
    )
    labels = data.labels.to(device)
    if isinstance(data.images, Vectors):
        features = data.images.features.to(device)
        for plan in plans:
            indices = plan.indices.to(device, non_blocking=True)
            yield Batch(features[indices], labels[indices], plan.weight, plan.total)
        return
    if isinstance(data.images, PixelImages):
        pixels = data.images.pixels.to(device)
        for plan in plans:
            indices, draws = plan.indices.to(device, non_blocking=True), plan.draws.to(device)
            squares = augment.cropped(pixels, indices, draws, settings)
            yield _batch(squares, draws, labels[indices], plan, settings)
        return
    ahead: deque[_Plan] = deque()  # workers run ahead of the batch that is yielded

    def requests() -> Iterator[list[Request]]:
        for plan in plans:
            ahead.append(plan)
            yield list(zip(plan.indices.tolist(), plan.draws.windows(), strict=True))

    for squares in _squares(data.images, requests(), workers):
        plan = ahead.popleft()
        draws = plan.draws.to(device)
        mirrored = augment.flipped(squares.to(device, non_blocking=True), draws)
        yield _batch(mirrored, draws, labels[plan.indices.to(device)], plan, settings)


def evaluation_chunks(
    images: Images, *, device: torch.device, shard: Shard, workers: int | None
) -> Iterator[tuple[slice, Tensor]]:
    """This process's chunks of the images as they are: where each stands, and uint8 (n, 3, h, w), or features."""
    starts = range(shard.rank * EVALUATION_CHUNK, len(images), shard.processes * EVALUATION_CHUNK)
    slices = [slice(start, min(start + EVALUATION_CHUNK, len(images))) for start in starts]
    if isinstance(images, Vectors):
        for rows in slices:
            yield rows, images.features[rows].to(device, non_blocking=True)
        return
    if isinstance(images, PixelImages):
        for rows in slices:
            yield rows, images.pixels[rows].to(device, non_blocking=True).permute(0, 3, 1, 2)
        return
    chunks: list[list[Request]] = [[(i, CENTRE_SHARE) for i in range(rows.start, rows.stop)] for rows in slices]
    for rows, squares in zip(slices, _squares(images, chunks, workers), strict=True):
        yield rows, squares.to(device, non_blocking=True).permute(0, 3, 1, 2)


def centre_share(size: int) -> float:
    """The central part of an image that evaluation sees in squares of this size, by the shorter side."""
    return 1.0 if size <= IN_MEMORY_SIDE else CENTRE_SHARE


def evaluation_squares(
    items: Sequence[Item], size: int, on_error: Callable[[int, DataError], None], workers: int | None = None
) -> Iterator[tuple[slice, PixelImages]]:
    """Items as evaluation sees them, chunk by chunk; what cannot be decoded is told, and black."""
    share = centre_share(size)
    starts = range(0, len(items), EVALUATION_CHUNK)
    slices = [slice(start, min(start + EVALUATION_CHUNK, len(items))) for start in starts]
    chunks: list[list[Request]] = [[(i, share) for i in range(rows.start, rows.stop)] for rows in slices]
    workers = default_workers(len(items)) if workers is None else workers
    for rows, squares in zip(slices, decode_batches(items.__getitem__, size, chunks, workers, on_error), strict=True):
        yield rows, PixelImages(squares)


def sample(images: Images, at_most: int, workers: int | None = None) -> Tensor:
    """Pixels of an evenly spread sample of the images as they are: uint8 (n, 3, h, w)."""
    chosen = images.take(torch.tensor(evenly_spaced(len(images), at_most)))
    chunks = evaluation_chunks(chosen, device=torch.device("cpu"), shard=Shard(), workers=workers)
    return torch.cat([chunk for _, chunk in chunks])


def channel_statistics(images: Images, workers: int | None = None, at_most: int = 10_000) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each colour, 0 to 255, over an evenly spread sample."""
    chosen = torch.tensor(evenly_spaced(len(images), at_most))
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
    *,
    settings: Augmentation,
    steps: range,
    in_epoch: int,
    seed: int,
    place: tuple[int, ...],
    shard: Shard,
) -> Iterator[_Plan]:
    parts: tuple[Tensor, ...] = ()
    for number in steps:
        epoch, step = divmod(number, in_epoch)
        if not parts or step == 0:
            order = torch.randperm(images, generator=generator(seed, *place, epoch, _ORDER))
            parts = order.tensor_split(in_epoch)
        indices = parts[step]
        draws = augment.draw(settings, len(indices), generator(seed, *place, epoch, _CHANGES, step))
        own = shard.of(len(indices))
        yield _Plan(indices[own], draws.part(own), shard.weight(len(indices)), len(indices))


def _squares(images: EncodedImages, requests: Iterable[list[Request]], workers: int | None) -> Iterator[Tensor]:
    return decode_batches(
        images.item, images.size, requests, default_workers(len(images)) if workers is None else workers
    )


def _batch(squares: Tensor, draws: augment.Draws, labels: Tensor, plan: _Plan, settings: Augmentation) -> Batch:
    images = augment.brightened(squares, draws) if settings.brightness else squares.float()
    return Batch(images.permute(0, 3, 1, 2), labels, plan.weight, plan.total)
