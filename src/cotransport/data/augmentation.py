"""Augmentation of training images: random numbers are drawn for a whole batch, and applied to it on the device.

A policy decides how the numbers are drawn. How they are applied is the same for all policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data import transformations as change
from cotransport.data.decoding import WIDEST, Window
from cotransport.settings.sections import Augmentation

TRIVIAL_CHANGES = (
    "identity",
    "shear right",
    "shear down",
    "translate right",
    "translate down",
    "rotate",
    "brightness",
    "contrast",
    "saturation",
    "posterise",
    "solarise",
    "equalise",
)
"""The policy `trivial` picks one of these for each image, all equally likely.

TrivialAugment also has sharpness and auto-contrast. The ranges below are those of RandAugment (Cubuk et al., 2020).
"""
MAX_SHEAR = 0.3
MAX_TRANSLATION = 0.3
"""As a share of the image's side."""
MAX_ROTATION = 30.0
"""In degrees."""
MAX_COLOUR = 0.9
"""Largest difference of a colour's factor from 1."""
MIN_BITS = 4
"""Fewest bits that `posterise` keeps."""
ALL_BITS, NO_THRESHOLD = 8.0, 256.0
"""Values of `posterise` and `solarise` that change nothing."""


class Draws(NamedTuple):
    """The random numbers for a batch of n training images, on the CPU."""

    shift: Tensor
    """int64 (n, 2): how many pixels the window is shifted down and right."""
    window: Tensor
    """float (n, 4): area, aspect ratio and position of the part that is decoded; see `Window`."""
    flip: Tensor
    """bool (n,): whether the image is mirrored."""
    brightness: Tensor
    """float (n,): factor of the pixels."""
    contrast: Tensor
    """float (n,): factor of the differences from the mean grey."""
    saturation: Tensor
    """float (n,): factor of the differences from a pixel's grey."""
    rotation: Tensor
    """float (n,): angle in degrees."""
    shear: Tensor
    """float (n, 2): horizontal and vertical factors."""
    zoom: Tensor
    """float (n,): factor; above 1, it enlarges."""
    translation: Tensor
    """float (n, 2): to the right and down, as a share of the image's side."""
    bits: Tensor
    """float (n,): bits of each colour that are kept."""
    threshold: Tensor
    """float (n,): colours that are not below it are inverted."""
    equalised: Tensor
    """bool (n,): whether the histograms are flattened."""
    cutout: Tensor
    """float (n, 2): centre of the square that is cut out, down and right, from 0 to 1."""

    def part(self, indices: Tensor) -> Draws:
        """The draws of the images at these indices."""
        return Draws(*(numbers[indices] for numbers in self))

    def windows(self) -> list[Window]:
        """The part of each image to decode."""
        return [Window(*values) for values in self.window.tolist()]


def draw(settings: Augmentation, count: int, generator: torch.Generator) -> Draws:
    """Random numbers for `count` images. A setting does not change the numbers that are drawn for the others."""

    def around(centre: float, most: float, *shape: int) -> Tensor:
        return centre + most * (2 * torch.rand(count, *shape, generator=generator) - 1)

    pad = settings.crop_padding
    shift = torch.randint(-pad, pad + 1, (count, 2), generator=generator)
    window = torch.rand(count, 4, generator=generator)
    window[:, 0] = settings.min_area + (1 - settings.min_area) * window[:, 0]
    window[:, 1] = torch.exp((2 * window[:, 1] - 1) * math.log(WIDEST))
    if settings.min_area == 1:
        window[:, 1] = 1
    flip = torch.rand(count, generator=generator) < 0.5
    draws = Draws(
        shift,
        window,
        flip & settings.flip,
        brightness=around(1, settings.brightness),
        contrast=around(1, settings.contrast),
        saturation=around(1, settings.saturation),
        rotation=around(0, settings.rotation),
        shear=around(0, settings.shear, 2),
        zoom=around(1, settings.zoom),
        translation=torch.zeros(count, 2),
        bits=torch.full((count,), ALL_BITS),
        threshold=torch.full((count,), NO_THRESHOLD),
        equalised=torch.zeros(count, dtype=torch.bool),
        cutout=torch.rand(count, 2, generator=generator),
    )
    return _with_trivial_change(draws, generator) if settings.policy == "trivial" else draws


def _with_trivial_change(draws: Draws, generator: torch.Generator) -> Draws:
    """The draws with one more change for each image, of random strength (TrivialAugment)."""
    count = len(draws.flip)
    chosen = torch.randint(len(TRIVIAL_CHANGES), (count,), generator=generator)
    strength = torch.rand(count, generator=generator)  # of changes in one direction
    signed = 2 * torch.rand(count, generator=generator) - 1  # of changes in both directions
    is_chosen = {name: chosen == number for number, name in enumerate(TRIVIAL_CHANGES)}

    def if_chosen(name: str, values: Tensor) -> Tensor:
        return torch.where(is_chosen[name], values, 0.0)

    def along_axes(first: str, second: str, most: float) -> Tensor:
        return torch.stack([if_chosen(name, most * signed) for name in (first, second)], dim=1)

    return draws._replace(
        brightness=draws.brightness * (1 + if_chosen("brightness", MAX_COLOUR * signed)),
        contrast=draws.contrast * (1 + if_chosen("contrast", MAX_COLOUR * signed)),
        saturation=draws.saturation * (1 + if_chosen("saturation", MAX_COLOUR * signed)),
        rotation=draws.rotation + if_chosen("rotate", MAX_ROTATION * signed),
        shear=draws.shear + along_axes("shear right", "shear down", MAX_SHEAR),
        translation=draws.translation + along_axes("translate right", "translate down", MAX_TRANSLATION),
        bits=ALL_BITS - if_chosen("posterise", (strength * (1 + ALL_BITS - MIN_BITS)).floor()),
        threshold=NO_THRESHOLD - if_chosen("solarise", NO_THRESHOLD * strength),
        equalised=is_chosen["equalise"],
    )


def crop(pixels: Tensor, indices: Tensor, draws: Draws, settings: Augmentation) -> Tensor:
    """Images from a storage, mirrored and shifted: uint8 (N, h, w, 3), indices (n,) -> uint8 (n, h, w, 3)."""
    shift, mirrored = (numbers.to(pixels.device, non_blocking=True) for numbers in (draws.shift, draws.flip))
    reflect = settings.padding == "reflect"
    return change.crop(pixels, indices, shift, mirrored, pad=settings.crop_padding, reflect=reflect)


def flip(images: Tensor, draws: Draws) -> Tensor:
    """Images (n, h, w, 3), mirrored as drawn."""
    return change.flip(images, draws.flip.to(images.device, non_blocking=True))


def augment(images: Tensor, draws: Draws, settings: Augmentation) -> Tensor:
    """Apply all changes after the crop and flip: uint8 (n, h, w, 3) -> float32 from 0 to 255, of the same shape.

    Each change is applied only to the images it was drawn for.
    """
    pixels, reflect = images.float(), settings.padding == "reflect"

    def apply(is_changed: Tensor, changed: Callable[..., Tensor], *numbers: Tensor) -> None:
        nonlocal pixels
        rows = torch.nonzero(is_changed).flatten()  # on the CPU: a GPU is not waited for
        if len(rows) == len(pixels):
            pixels = changed(pixels, *numbers)
        elif len(rows):
            pixels[rows] = changed(pixels[rows], *(values[rows] for values in numbers))

    is_unwarped = (
        (draws.rotation == 0) & (draws.zoom == 1) & (torch.cat([draws.shear, draws.translation], 1) == 0).all(1)
    )
    maps = change.affine_maps(draws.rotation, draws.shear, draws.zoom, draws.translation)
    apply(~is_unwarped, lambda part, own: change.warp(part, own, reflect=reflect), maps)
    apply(draws.equalised, change.equalise)
    apply(draws.bits < ALL_BITS, change.posterise, draws.bits)
    apply(draws.threshold < NO_THRESHOLD, change.solarise, draws.threshold)
    apply(draws.brightness != 1, change.brighten, draws.brightness)
    apply(draws.contrast != 1, change.contrast, draws.contrast)
    apply(draws.saturation != 1, change.saturate, draws.saturation)
    if settings.cutout:
        pixels = change.cut_out(pixels, draws.cutout, settings.cutout)
    return pixels
