"""Batched augmentation. What is random is drawn for a whole batch at once, apart from where it is applied."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data.decoding import Window
from cotransport.settings.sections import Augmentation


class Draws(NamedTuple):
    """The random numbers of a batch of n training images."""

    shift: Tensor
    """int64 (n, 2): down and right by how many pixels the window lies off the image."""
    window: Tensor
    """float (n, 4): share of the area, aspect ratio and place of the part that is decoded."""
    flip: Tensor
    """bool (n,)."""
    brightness: Tensor
    """float (n,): a factor."""

    def part(self, indices: Tensor) -> Draws:
        """The draws of some of the images."""
        return Draws(*(numbers[indices] for numbers in self))

    def to(self, device: torch.device) -> Draws:
        """The draws on a device."""
        return Draws(*(numbers.to(device, non_blocking=True) for numbers in self))

    def windows(self) -> list[Window]:
        """The parts to decode, image by image."""
        return [Window(*values) for values in self.window.tolist()]


def draw(settings: Augmentation, count: int, generator: torch.Generator) -> Draws:
    """Random numbers for so many images; the same number of draws whatever the settings."""
    pad = settings.crop_padding
    shift = torch.randint(-pad, pad + 1, (count, 2), generator=generator)
    window = torch.rand(count, 4, generator=generator)
    window[:, 0] = settings.min_area + (1 - settings.min_area) * window[:, 0]
    window[:, 1] = torch.exp((2 * window[:, 1] - 1) * math.log(4 / 3))
    if settings.min_area == 1:
        window[:, 1] = 1
    flip = torch.rand(count, generator=generator) < 0.5
    brightness = 1 + settings.brightness * (2 * torch.rand(count, generator=generator) - 1)
    return Draws(shift, window, flip & settings.flip, brightness)


def cropped(pixels: Tensor, indices: Tensor, draws: Draws, settings: Augmentation) -> Tensor:
    """Images gathered from a storage, mirrored and shifted where the draws say so.

    uint8 pixels (N, h, w, 3), indices (n,) -> uint8 (n, h, w, 3). What comes in from outside is black, or mirrored.
    """
    chosen = flipped(pixels.index_select(0, indices), draws)
    pad, (count, height, width, _) = settings.crop_padding, chosen.shape
    if not pad:
        return chosen
    padded = _padded(chosen, pad, settings)
    image, row = padded.stride()[:2]
    # all windows are views of the padded images; nothing is copied until one of each is chosen, row by row
    windows = padded.as_strided((count, 2 * pad + 1, 2 * pad + 1, height, 3 * width), (image, row, 3, row, 1))
    down, right = draws.shift.unbind(dim=1)
    right = torch.where(draws.flip, -right, right)
    places = torch.arange(count, device=pixels.device)
    return windows[places, down + pad, right + pad].view(chosen.shape)


def flipped(images: Tensor, draws: Draws) -> Tensor:
    """Images (n, h, w, 3), mirrored where the draws say so."""
    count = len(images)
    both = torch.cat([images, images.flip(2)])
    return both.index_select(0, torch.arange(count, device=images.device) + count * draws.flip)  # whole images move


def brightened(images: Tensor, draws: Draws) -> Tensor:
    """uint8 images (n, h, w, 3) as float32, multiplied by their factors and kept within 0 to 255."""
    return (images.float() * draws.brightness[:, None, None, None]).clamp_(0, 255)


def _padded(images: Tensor, pad: int, settings: Augmentation) -> Tensor:
    """(n, h, w, 3) -> (n, h + 2 pad, w + 2 pad, 3)."""
    if settings.padding == "zero":
        return F.pad(images, (0, 0, pad, pad, pad, pad))
    for dimension in (1, 2):
        length = images.shape[dimension]
        margins = (torch.arange(start, start + pad, device=images.device) for start in (-pad, length))
        before, after = (images.index_select(dimension, _reflected(margin, length)) for margin in margins)
        images = torch.cat([before, images, after], dimension)
    return images


def _reflected(places: Tensor, length: int) -> Tensor:
    """Places beyond the edge mirrored back inside, the edge itself not repeated; a single row stays where it is."""
    if length == 1:
        return torch.zeros_like(places)
    period = 2 * (length - 1)
    places = places.remainder(period)
    return torch.where(places < length, places, period - places)
