"""Mixup and CutMix: images that are mixed with another image of their batch, and so have two labels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cotransport.data.transformations import rectangles
from cotransport.settings.sections import Loss


class Mixture(NamedTuple):
    """The random numbers for a batch of n images, on the CPU."""

    partner: Tensor
    """int64 (n,): the position in the batch of the image that is mixed in; its own position if none is."""
    share: Tensor
    """float (n,): the partner's share of the mixed image, at most 0.5 before rectangles are rounded to pixels; 0 leaves
    an image as it is."""
    is_cut: Tensor
    """bool (n,): whether a rectangle of the partner is pasted (CutMix); otherwise the two are blended (Mixup)."""
    corner: Tensor
    """float (n, 2): where the rectangle lies, down and right, from 0 to 1."""

    def part(self, indices: Tensor) -> Mixture:
        """The numbers of the images at these positions."""
        return Mixture(*(numbers[indices] for numbers in self))


def draw_mixture(settings: Loss, count: int, generator: torch.Generator) -> Mixture | None:
    """Random numbers for a batch of `count` images; None if the settings ask for none.

    Shares are uniform from 0 to a half, so that an image stays mostly itself.
    """
    if not settings.mixup + settings.cutmix:
        return None
    kind, share = torch.rand(2, count, generator=generator)
    is_mixed = kind < settings.mixup + settings.cutmix
    return Mixture(
        partner=torch.where(is_mixed, torch.randperm(count, generator=generator), torch.arange(count)),
        share=torch.where(is_mixed, share / 2, 0.0),
        is_cut=kind < settings.cutmix,
        corner=torch.rand(count, 2, generator=generator),
    )


def mix(images: Tensor, partners: Tensor, mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Mixed images (n, h, w, 3), and the partners' shares (n,) of them.

    A rectangle has the image's proportions and lies inside it. Its share is that of its pixels.
    """
    height, width = images.shape[1:3]
    size = torch.tensor([height, width])
    extent = mixture.share.sqrt()[:, None] * size
    low = (mixture.corner * (size - extent)).round()
    mask = rectangles(low, (low + extent).round(), height, width)  # (n, h, w, 1)
    weight = torch.where(mixture.is_cut[:, None, None, None], mask.float(), mixture.share[:, None, None, None])
    return torch.lerp(images, partners, weight.to(images.device)), weight.mean(dim=(1, 2, 3)).to(images.device)
