"""Batched changes to images. Each takes a batch and one value per image, and works on any device.

Images are (n, h, w, 3): uint8 in `crop` and `flip`, and float32 from 0 to 255 in all others. Values are (n,) unless a
function says otherwise, and may be on the CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

GREY = (0.299, 0.587, 0.114)
"""The colours' shares of a grey value (ITU-R BT.601, as in Pillow)."""


def crop(pixels: Tensor, indices: Tensor, shift: Tensor, mirrored: Tensor, *, pad: int, reflect: bool) -> Tensor:
    """Gather images from a storage, mirrored and shifted. The new pixels at the edge are the padding.

    pixels : uint8 (N, h, w, 3).
    indices : (n,), of the images to gather.
    shift : int64 (n, 2): how many pixels the window is shifted down and right, at most `pad`.
    mirrored : bool (n,).
    """
    chosen = flip(pixels.index_select(0, indices), mirrored)
    count, height, width, _ = chosen.shape
    if not pad:
        return chosen
    padded = _pad(chosen, pad, reflect=reflect)
    image, row = padded.stride()[:2]
    # all windows are views of the padded images: pixels are copied only when one window of each image is chosen
    windows = padded.as_strided((count, 2 * pad + 1, 2 * pad + 1, height, 3 * width), (image, row, 3, row, 1))
    down, right = shift.unbind(dim=1)
    right = torch.where(mirrored, -right, right)
    rows = torch.arange(count, device=pixels.device)
    return windows[rows, down + pad, right + pad].view(chosen.shape)


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror the images for which `mirrored` is true, left to right."""
    count = len(images)
    both = torch.cat([images, images.flip(2)])
    return both.index_select(0, torch.arange(count, device=images.device) + count * mirrored)  # copies whole images


def affine_maps(rotation: Tensor, shear: Tensor, zoom: Tensor, translation: Tensor) -> Tensor:
    """The maps (n, 2, 3) from a place in the new image to its place in the old one, for `warp`.

    Places are (right, down) from the centre, in half sides.

    rotation : degrees, anticlockwise.
    shear : (n, 2), along the horizontal and the vertical axis.
    zoom : factor; above 1, the image is enlarged.
    translation : (n, 2), to the right and down, in sides.
    """
    angle = rotation * (math.pi / 180)
    cosine, sine = angle.cos(), angle.sin()
    turn = torch.stack([torch.stack([cosine, -sine], dim=1), torch.stack([sine, cosine], dim=1)], dim=1)
    slant = torch.eye(2).repeat(len(angle), 1, 1)
    slant[:, 0, 1], slant[:, 1, 0] = shear.unbind(dim=1)
    matrix = turn @ slant / zoom[:, None, None]
    return torch.cat([matrix, -2 * matrix @ translation[:, :, None]], dim=2)


def warp(images: Tensor, maps: Tensor, *, reflect: bool) -> Tensor:
    """Rotate, shear, zoom and translate by affine maps (n, 2, 3), with bilinear interpolation."""
    _, height, width, _ = images.shape
    maps = maps.to(images)
    right = (torch.arange(width, device=images.device) + 0.5) * (2 / width) - 1
    down = (torch.arange(height, device=images.device) + 0.5) * (2 / height) - 1
    in_row, in_column = maps[:, None, None, :, 0] * right[:, None], maps[:, None, None, :, 1] * down[:, None, None]
    places = in_row + (in_column + maps[:, None, None, :, 2])  # (n, h, w, 2)
    mode = "reflection" if reflect else "zeros"
    warped = F.grid_sample(images.permute(0, 3, 1, 2), places, padding_mode=mode, align_corners=False)
    return warped.permute(0, 2, 3, 1).contiguous()


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply the pixels."""
    return (images * _spread(factor, images)).clamp_(0, 255)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply the differences from the image's mean grey."""
    mean = _grey(images).mean(dim=(1, 2))[:, None, None, None]
    return torch.lerp(mean, images, _spread(factor, images)).clamp_(0, 255)


def saturate(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply each pixel's differences from its grey."""
    return torch.lerp(_grey(images)[..., None], images, _spread(factor, images)).clamp_(0, 255)


def posterise(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` bits of each colour, 1 to 8."""
    step = _spread(2.0 ** (8 - bits), images)
    return (images / step).floor_() * step


def solarise(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert colours at or above the threshold."""
    return torch.where(images < _spread(threshold, images), images, 255 - images)


def equalise(images: Tensor) -> Tensor:
    """Give each colour of each image a flat histogram, as Pillow's `ImageOps.equalize` does."""
    count, height, width, colours = images.shape
    values = images.round().long().permute(0, 3, 1, 2).reshape(count * colours, height * width)
    histogram = torch.zeros(len(values), 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(1, values, torch.ones_like(values))
    highest = histogram.gather(1, values.amax(dim=1, keepdim=True))
    step = (height * width - highest) // 255  # pixels for each level; if 0, the colour is only rounded
    below = histogram.cumsum(dim=1) - histogram
    table = ((below + step // 2) // step.clamp_min(1)).clamp_max(255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    levels = table.gather(1, values).reshape(count, colours, height, width).to(images.dtype)
    return levels.permute(0, 2, 3, 1).contiguous()


def rectangles(low: Tensor, high: Tensor, height: int, width: int) -> Tensor:
    """Masks (n, h, w, 1) of rectangles from corner `low` up to corner `high`, both (n, 2): down and right, in pixels.

    A pixel belongs to a rectangle if its centre lies in it.
    """
    down = torch.arange(height, device=low.device) + 0.5
    right = torch.arange(width, device=low.device) + 0.5
    in_height = (down >= low[:, :1]) & (down < high[:, :1])
    in_width = (right >= low[:, 1:]) & (right < high[:, 1:])
    return (in_height[:, :, None] & in_width[:, None, :])[..., None]


def cut_out(images: Tensor, centre: Tensor, side: float) -> Tensor:
    """Fill a square with the image's mean colour.

    centre : (n, 2), down and right, from 0 to 1.
    side : of the square, as a share of the image's side.
    """
    size = torch.tensor(images.shape[1:3])
    middle, half = centre * size, side * size / 2
    mask = rectangles((middle - half).round(), (middle + half).round(), *images.shape[1:3]).to(images.device)
    return torch.where(mask, images.mean(dim=(1, 2), keepdim=True), images)


def _spread(values: Tensor, images: Tensor) -> Tensor:
    """Values (n,), shaped to broadcast over the images."""
    return values.to(images)[:, None, None, None]


def _grey(images: Tensor) -> Tensor:
    return images @ torch.tensor(GREY, dtype=images.dtype, device=images.device)


def _pad(images: Tensor, pad: int, *, reflect: bool) -> Tensor:
    """Images with padding: (n, h, w, 3) -> (n, h + 2 pad, w + 2 pad, 3)."""
    if not reflect:
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
