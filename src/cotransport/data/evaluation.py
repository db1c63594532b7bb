"""Images as evaluation sees them: not augmented, in chunks, the same at every call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from cotransport.data.batches import Shard
from cotransport.data.decoding import Item
from cotransport.data.images import Images, PixelImages, Vectors, evenly_spaced
from cotransport.data.loading import IN_MEMORY_SIDE
from cotransport.data.workers import OnError, decode_slices, default_workers, in_chunks
from cotransport.settings.sections import View

SMALL_CHUNK, LARGE_CHUNK = 256, 32
"""Number of images in a chunk, of small and of large images. They are fixed, so that features do not depend on any
setting. Large images in larger chunks would no longer fit into a processor's cache."""
CENTRE_SHARE = 0.875
"""Side of the central square that evaluation sees of large images, as a share of the shorter side: 224 of 256."""


def evaluation_chunks(
    images: Images, *, device: torch.device, shard: Shard, workers: int | None, view: View = View()
) -> Iterator[tuple[slice, Tensor]]:
    """This process's chunks of the images: the slice of each, and its pixels as uint8 (n, 3, h, w), or its features."""
    slices = in_chunks(len(images), chunk_size(images.size))[shard.rank :: shard.processes]
    if isinstance(images, Vectors):
        for rows in slices:
            yield rows, images.features[rows].to(device, non_blocking=True)
        return
    if isinstance(images, PixelImages):
        chunks: Iterator[tuple[slice, Tensor]] = ((rows, images.pixels[rows]) for rows in slices)
    else:
        workers = default_workers(len(images)) if workers is None else workers
        share = centre_share(images.size, view)
        chunks = decode_slices(images.item, images.size, slices, share, workers, fit=view.fit)
    for rows, squares in chunks:
        yield rows, squares.to(device, non_blocking=True).permute(0, 3, 1, 2)


def evaluation_squares(
    items: Sequence[Item], size: int, on_error: OnError, *, workers: int | None = None, view: View = View()
) -> Iterator[tuple[slice, PixelImages]]:
    """The chunks of items that are not loaded yet. Undecodable images are reported to `on_error`, and are black."""
    workers = default_workers(len(items)) if workers is None else workers
    slices = in_chunks(len(items), chunk_size(size))
    share = centre_share(size, view)
    for rows, squares in decode_slices(items.__getitem__, size, slices, share, workers, on_error, view.fit):
        yield rows, PixelImages(squares)


def chunk_size(size: int) -> int:
    """The number of images in a chunk, if the network sees squares of this size."""
    return SMALL_CHUNK if size <= IN_MEMORY_SIDE else LARGE_CHUNK


def centre_share(size: int, view: View = View()) -> float:
    """The share of the sides that evaluation sees, if the network sees squares of this size.

    >>> centre_share(32), centre_share(224), centre_share(224, View(crop=1.0)), centre_share(32, View(crop=0.5))
    (1.0, 0.875, 1.0, 1.0)
    >>> centre_share(224, View(fit="pad"))
    1.0
    """
    if size <= IN_MEMORY_SIDE:
        return 1.0
    if view.crop is not None:
        return view.crop
    return CENTRE_SHARE if view.fit == "crop" else 1.0


def sample(images: Images, at_most: int, workers: int | None = None, view: View = View()) -> Tensor:
    """The pixels of at most `at_most` evenly spaced images: uint8 (n, 3, h, w)."""
    return torch.cat([chunk for _, chunk in _sample_chunks(images, at_most, workers, view)])


def channel_statistics(
    images: Images, workers: int | None = None, view: View = View(), at_most: int = 10_000
) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each colour, 0 to 255, over at most `at_most` evenly spaced images."""
    total, squares, count = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64), 0
    for _, chunk in _sample_chunks(images, at_most, workers, view):
        values = chunk.double()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
        count += values.numel() // 3
    mean = total / count
    deviation = (squares / count - mean.square()).clamp_min(0).sqrt()
    return mean.float(), torch.where(deviation < 1, 1.0, deviation).float()  # images of one colour have no deviation


def _sample_chunks(images: Images, at_most: int, workers: int | None, view: View) -> Iterator[tuple[slice, Tensor]]:
    chosen = images.take(torch.tensor(evenly_spaced(len(images), at_most)))
    return evaluation_chunks(chosen, device=torch.device("cpu"), shard=Shard(), workers=workers, view=view)
