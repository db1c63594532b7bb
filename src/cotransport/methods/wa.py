"""WA: rehearsal with distillation, then the new weights aligned with the old ones (Zhao et al., 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from cotransport.config import Head
from cotransport.methods.base import Lesson
from cotransport.methods.distilling import Distilling
from cotransport.network import LinearHead, Network
from cotransport.training import Trainer


class ClippedHead(LinearHead):
    """A linear head without negative weights: on features that are not negative either, longer ones say more."""

    def forward(self, features: Tensor) -> Tensor:
        """Features (n, d) -> logits (n, classes); what a step of training has made negative is set to zero first."""
        if self.training:
            self.clip()
        return super().forward(features)

    @torch.no_grad()
    def clip(self) -> None:
        """Set negative weights to zero."""
        self.weight.clamp_(min=0)


class WA(Distilling):
    """Eq. 3, then one factor for the new classes' weights, so that they are as long as the old ones in the mean."""

    name = "wa"
    title = "WA"

    clip_weights: bool = True
    """Keep the weights from being negative, so that their lengths tell what the logits will be."""

    def make_head(self, dimension: int, settings: Head) -> LinearHead:
        """A linear head without bias."""
        return (ClippedHead if self.clip_weights else LinearHead)(dimension, factor=settings.linear_factor)

    def learn(self, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        """Train, then align."""
        super().learn(network, lesson, trainer)
        head = network.head
        if isinstance(head, ClippedHead):
            head.clip()  # after the last step
        if lesson.old_classes and lesson.new_classes:
            align(head.weight, lesson.old_slice, lesson.new_slice)


@torch.no_grad()
def align(weight: Tensor, old: slice, new: slice) -> None:
    """Scale the new classes' rows of a classifier (classes, d), in place, to the mean length of the old ones'.

    >>> weight = torch.tensor([[3.0, 4.0], [0.0, 10.0]])
    >>> align(weight, slice(0, 1), slice(1, 2))
    >>> weight.tolist()
    [[3.0, 4.0], [0.0, 5.0]]
    """
    lengths = weight.norm(dim=1)
    weight[new] *= lengths[old].mean() / lengths[new].mean()
