"""WA: rehearsal with distillation, then new weights aligned with old ones (Zhao et al., 2020)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from cotransport.errors import CotransportWarning
from cotransport.methods.base import Method
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.rehearsal import Rehearsal, distilled_objective
from cotransport.methods.retrospection import Retrospection
from cotransport.settings.sections import HeadSettings

if TYPE_CHECKING:
    from torch import Tensor

    from cotransport.networks.heads import Head
    from cotransport.networks.network import Network
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Objective
    from cotransport.training.task_data import TaskData

IMAGES_CHECKED = 64
"""Images of the first task, at most, whose features are checked for negative values."""


class WA(Method):
    """Rehearsal with distillation, then one factor that brings new weights to the mean length of old ones."""

    name = "wa"
    title = "WA"

    clip_weights: bool = True
    """Clip negative weights to zero, so that the length of a weight vector reflects the size of its logits. This suits
    backbones without negative features, such as those that end in a ReLU."""
    rehearsal: Rehearsal = Rehearsal()
    retrospection: Retrospection = Retrospection()
    mapping: ClassMapping = ClassMapping()

    def make_head(self, dimension: int, settings: HeadSettings) -> Head:
        """A linear head without bias."""
        from cotransport.networks.heads import ClippedHead, LinearHead

        return (ClippedHead if self.clip_weights else LinearHead)(dimension, settings.linear_scale)

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """Eq. 3, and Eq. 5 if its weight is not 0."""
        return distilled_objective(self.rehearsal, self.retrospection, self.mapping, network, data, trainer)

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Train, then align."""
        from cotransport.networks.heads import ClippedHead

        super().learn(network, data, trainer)
        head = network.head
        if isinstance(head, ClippedHead):
            head.clip()  # after the last step
            if not data.old_classes:
                _warn_about_negative_features(network, data, trainer)
        if data.has_old_and_new:
            align(head.weight, data.old_slice, data.new_slice)


def align(weight: Tensor, old: slice, new: slice) -> None:
    """Scale the new classes' rows of a classifier (classes, d), in place, to the mean length of the old rows.

    >>> import torch
    >>> weight = torch.tensor([[3.0, 4.0], [0.0, 10.0]])
    >>> align(weight, slice(0, 1), slice(1, 2))
    >>> weight.tolist()
    [[3.0, 4.0], [0.0, 5.0]]
    """
    import torch

    with torch.no_grad():
        lengths = weight.norm(dim=1)
        if lengths[new].any():  # clipping may have set all of them to zero
            weight[new] *= lengths[old].mean() / lengths[new].mean()


def _warn_about_negative_features(network: Network, data: TaskData, trainer: Trainer) -> None:
    """Warn, after the first task, if clipped weights do not suit the backbone."""
    if bool((trainer.features(network, data.new.images.first(IMAGES_CHECKED)) < 0).any()):
        message = (
            "wa: the backbone gives negative features, and weights that cannot be negative separate classes less well "
            "on them. Start a new model with the method's clip_weights set to false"
        )
        warnings.warn(message, CotransportWarning, stacklevel=5)
