"""Batched augmentation: random numbers are drawn for a whole batch, and applied to it later on the device."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data.decoding import Window
from cotransport.settings.sections import Augmentation


class Draws(NamedTuple):
    """The random numbers for a batch of n training images."""

    shift: Tensor
    """int64 (n, 2): how many pixels the window is shifted down and right."""
    window: Tensor
    """float (n, 4): area, aspect ratio and position of the part that is decoded; see `Window`."""
    flip: Tensor
    """bool (n,): whether the image is mirrored."""
    brightness: Tensor
    """float (n,): factor of the pixels."""

    def part(self, indices: Tensor) -> Draws:
        """The draws of the images at these indices."""
        return Draws(*(numbers[indices] for numbers in self))

    def to(self, device: torch.device) -> Draws:
        """The draws on a device."""
        return Draws(*(numbers.to(device, non_blocking=True) for numbers in self))

    def windows(self) -> list[Window]:
        """The part of each image to decode."""
        return [Window(*values) for values in self.window.tolist()]


def draw(settings: Augmentation, count: int, generator: torch.Generator) -> Draws:
    """Random numbers for `count` images. A setting does not change the numbers that are drawn for the others."""
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


def crop(pixels: Tensor, indices: Tensor, draws: Draws, settings: Augmentation) -> Tensor:
    """Gather images from a storage, mirrored and shifted as drawn. The new pixels at the edge are the padding.

    uint8 pixels (N, h, w, 3), indices (n,) -> uint8 (n, h, w, 3).
    """
    chosen = flip(pixels.index_select(0, indices), draws)
    pad, (count, height, width, _) = settings.crop_padding, chosen.shape
    if not pad:
        return chosen
    padded = _pad(chosen, pad, settings)
    image, row = padded.stride()[:2]
    # all windows are views of the padded images: pixels are copied only when one window of each image is chosen
    windows = padded.as_strided((count, 2 * pad + 1, 2 * pad + 1, height, 3 * width), (image, row, 3, row, 1))
    down, right = draws.shift.unbind(dim=1)
    right = torch.where(draws.flip, -right, right)
    rows = torch.arange(count, device=pixels.device)
    return windows[rows, down + pad, right + pad].view(chosen.shape)


def flip(images: Tensor, draws: Draws) -> Tensor:
    """Images (n, h, w, 3), mirrored as drawn."""
    count = len(images)
    both = torch.cat([images, images.flip(2)])
    return both.index_select(0, torch.arange(count, device=images.device) + count * draws.flip)  # copies whole images


def brighten(images: Tensor, draws: Draws) -> Tensor:
    """uint8 images (n, h, w, 3) as float32, multiplied by the drawn factors and limited to 0 to 255."""
    return (images.float() * draws.brightness[:, None, None, None]).clamp_(0, 255)


def _pad(images: Tensor, pad: int, settings: Augmentation) -> Tensor:
    """Images with padding: (n, h, w, 3) -> (n, h + 2 pad, w + 2 pad, 3)."""
    if settings.padding == "zero":
        return F.pad(images, (0, 0, pad, pad, pad, pad))
    for dimension in (1, 2):
        length = images.shape[dimension]
        margins = (torch.arange(start, start + pad, device=images.device) for start in (-pad, length))
        before, after = (images.index_select(dimension, _reflect(margin, length)) for margin in margins)
        images = torch.cat([before, images, after], dimension)
    return images


def _reflect(positions: Tensor, length: int) -> Tensor:
    """Positions beyond the edge, mirrored back inside. The edge itself is not repeated, unless there is one row."""
    if length == 1:
        return torch.zeros_like(positions)
    period = 2 * (length - 1)
    positions = positions.remainder(period)
    return torch.where(positions < length, positions, period - positions)
