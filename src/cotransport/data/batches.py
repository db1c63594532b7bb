"""Training batches on the device: gathered from pixels in memory, or decoded by worker processes.

Batches are global: every process draws the same order and the same random numbers, and takes its shard of each batch.
So the result does not depend on the number of processes or workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data import augmentation as augment
from cotransport.data.images import LabelledImages, PixelImages, Vectors
from cotransport.data.mixing import Mixture, draw_mixture, mix
from cotransport.data.workers import Request, decode_batches, default_workers
from cotransport.settings.sections import Augmentation, Fit, Loss
from cotransport.system.randomness import generator

_ORDER, _CHANGES, _MIXTURE = 0, 1, 2  # places of an epoch's draws: order, augmentation, mixing


@dataclass(frozen=True)
class Shard:
    """The part of every batch that one process computes."""

    rank: int = 0
    processes: int = 1

    def of(self, count: int) -> Tensor:
        """This process's positions in a batch of `count` images. If it has none, the first one, with weight 0."""
        return torch.tensor([*range(self.rank, count, self.processes)] or [0])

    def weight(self, count: int) -> float:
        """Factor of this process's mean loss. The mean over processes is then the mean over the batch."""
        own = len(range(self.rank, count, self.processes))
        return own * self.processes / count


class Mixed(NamedTuple):
    """The second labels of a batch's images: those of the images that are mixed in (Mixup, CutMix)."""

    labels: Tensor
    """int64 (n,)."""
    share: Tensor
    """float (n,): weight of the second label, about a half at most; 0 if the image is not mixed."""


class Batch(NamedTuple):
    """One process's part of one step."""

    images: Tensor
    """Pixels, float32 (n, 3, h, w) from 0 to 255, channels last in memory; or features (n, d) of a frozen backbone."""
    labels: Tensor
    """int64 (n,)."""
    weight: float
    """Factor of the mean loss; see `Shard.weight`."""
    total: int
    """Number of images in the step, over all processes."""
    mixed: Mixed | None = None
    """Second labels, if images are mixed."""


class _BatchDraw(NamedTuple):
    """What is drawn for one process's part of one step."""

    indices: Tensor
    """int64 (n,): this process's images, then other processes' images that are mixed into them."""
    draws: augment.Draws
    """The random numbers of their augmentation."""
    own: int
    """How many of them are this process's own."""
    mixture: Mixture | None
    """How its own images are mixed; None if they are not."""
    weight: float
    """Factor of the mean loss; see `Shard.weight`."""
    total: int
    """Number of images in the step, over all processes."""


def steps_per_epoch(images: int, batch_size: int) -> int:
    """The number of steps in an epoch. Each has at most `batch_size` images, and their sizes differ by at most one."""
    return max(1, -(-images // batch_size))


def training_batches(
    data: LabelledImages,
    *,
    settings: Augmentation,
    fit: Fit = "crop",
    loss: Loss = Loss(),
    batch_size: int,
    epochs: int,
    first_step: int = 0,
    seed: int,
    place: tuple[int, ...],
    device: torch.device,
    shard: Shard,
    workers: int | None,
) -> Generator[Batch, None, None]:
    """The batches of a training from `first_step` on, epoch after epoch. Every image comes once in an epoch.

    fit : how parts of images that are decoded for each use become squares.
    loss : says whether images are mixed. Features are never mixed.
    seed, place : seed of the run, and place of this training in it. All random numbers depend on these.
    workers : number of threads that decode images. By default, as many as suit the number of images.
    """
    settings = settings.in_effect
    steps = steps_per_epoch(len(data), batch_size)
    batch_draws = _draw_batches(
        len(data),
        settings=settings,
        loss=Loss() if isinstance(data.images, Vectors) else loss,
        steps=range(first_step, epochs * steps),
        steps_in_epoch=steps,
        seed=seed,
        place=place,
        shard=shard,
    )
    labels = data.labels.to(device)
    if isinstance(data.images, Vectors):
        features = data.images.features.to(device)
        for drawn in batch_draws:
            indices = drawn.indices.to(device, non_blocking=True)
            yield Batch(features[indices], labels[indices], drawn.weight, drawn.total)
        return
    if isinstance(data.images, PixelImages):
        pixels = data.images.pixels.to(device)
        for drawn in batch_draws:
            squares = augment.crop(pixels, drawn.indices.to(device, non_blocking=True), drawn.draws, settings)
            yield _batch(squares, labels, drawn, settings)
        return
    ahead: deque[_BatchDraw] = deque()  # the workers are ahead of the batch that is yielded

    def requests() -> Iterator[list[Request]]:
        for drawn in batch_draws:
            ahead.append(drawn)
            indices = drawn.indices.tolist()
            if settings.policy == "none":
                yield [(index, 1.0) for index in indices]  # as large a central part as there is
            else:
                yield list(zip(indices, drawn.draws.windows(), strict=True))

    workers = default_workers(len(data)) if workers is None else workers
    for squares in decode_batches(data.images.item, data.images.size, requests(), workers, fit=fit):
        drawn = ahead.popleft()
        yield _batch(augment.flip(squares.to(device, non_blocking=True), drawn.draws), labels, drawn, settings)


def _draw_batches(
    images: int,
    *,
    settings: Augmentation,
    loss: Loss,
    steps: range,
    steps_in_epoch: int,
    seed: int,
    place: tuple[int, ...],
    shard: Shard,
) -> Iterator[_BatchDraw]:
    """The draws of all steps, each from its own place in the run."""
    parts: tuple[Tensor, ...] = ()
    for number in steps:
        epoch, step = divmod(number, steps_in_epoch)
        if not parts or step == 0:
            order = torch.randperm(images, generator=generator(seed, *place, epoch, _ORDER))
            parts = order.tensor_split(steps_in_epoch)
        indices = parts[step]
        draws = augment.draw(settings, len(indices), generator(seed, *place, epoch, _CHANGES, step))
        mixture = draw_mixture(loss, len(indices), generator(seed, *place, epoch, _MIXTURE, step))
        own = positions = shard.of(len(indices))
        if mixture is not None:
            mixture = mixture.part(own)
            positions, mixture = _with_partners(own, mixture)
        weight = shard.weight(len(indices))
        yield _BatchDraw(indices[positions], draws.part(positions), len(own), mixture, weight, len(indices))


def _with_partners(own: Tensor, mixture: Mixture) -> tuple[Tensor, Mixture]:
    """This process's positions, then those of other processes' images that are mixed in; and the mixture, with partners
    as places in this list."""
    others = mixture.partner[~torch.isin(mixture.partner, own)]
    positions = torch.cat([own, others])
    place = torch.empty(int(positions.max()) + 1, dtype=torch.int64)
    place[positions] = torch.arange(len(positions))
    return positions, mixture._replace(partner=place[mixture.partner])


def _batch(squares: Tensor, labels: Tensor, drawn: _BatchDraw, settings: Augmentation) -> Batch:
    """A batch of uint8 squares (n, h, w, 3), after augmentation and mixing. `labels` are those of all images."""
    images, found = augment.augment(squares, drawn.draws, settings), labels[drawn.indices.to(labels.device)]
    mixed = None
    own_images, own_labels = images[: drawn.own], found[: drawn.own]
    if drawn.mixture is not None:
        partner = drawn.mixture.partner.to(images.device)
        own_images, share = mix(own_images, images[partner], drawn.mixture)
        mixed = Mixed(found[partner], share)
    return Batch(own_images.permute(0, 3, 1, 2), own_labels, drawn.weight, drawn.total, mixed)
