"""WA: rehearsal with distillation, then the new weights aligned with the old ones (Zhao et al., 2020)."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from cotransport.errors import CotransportWarning
from cotransport.methods.base import Lesson
from cotransport.methods.rehearsal import Distilling
from cotransport.networks.heads import ClippedHead, Head, LinearHead
from cotransport.networks.network import Network
from cotransport.settings import sections as config
from cotransport.training.loop import Trainer

IMAGES_LOOKED_AT = 64
"""Images of the first task by which the backbone's features are judged, at most."""


class WA(Distilling):
    """Rehearsal with distillation, then a factor that makes new weights as long as the old ones in the mean."""

    name = "wa"
    title = "WA"

    clip_weights: bool = True
    """Keep the weights from being negative, so that their lengths tell what the logits will be. For backbones whose
    features are not negative either, as those that end in a ReLU."""

    def make_head(self, dimension: int, settings: config.HeadSettings) -> Head:
        """A linear head without bias."""
        return (ClippedHead if self.clip_weights else LinearHead)(dimension, settings.linear_scale)

    def learn(self, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        """Train, then align."""
        super().learn(network, lesson, trainer)
        head = network.head
        if isinstance(head, ClippedHead):
            head.clip()  # after the last step
            if not lesson.old_classes:
                _check_features(network, lesson, trainer)
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
    if lengths[new].any():  # clipping may have left nothing of them
        weight[new] *= lengths[old].mean() / lengths[new].mean()


def _check_features(network: Network, lesson: Lesson, trainer: Trainer) -> None:
    """Warn, after the first task, where clipping does not suit the backbone."""
    if bool((trainer.features(network, lesson.new.images.first(IMAGES_LOOKED_AT)) < 0).any()):
        message = (
            "wa: the backbone gives negative features, and with those, weights that may not be negative tell classes "
            "apart less well. Begin anew with the method's clip_weights set to false"
        )
        warnings.warn(message, CotransportWarning, stacklevel=5)
