"""COIL: co-transport for class-incremental learning (Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from cotransport import losses
from cotransport.data import Batch
from cotransport.methods.base import Lesson
from cotransport.methods.rehearsal import Distilling
from cotransport.networks.network import Network, Output
from cotransport.training.loop import Moment, Trainer
from cotransport.transport import class_centres, transport_classifier


class Coil(Distilling):
    """Rehearsal with distillation, prospective and retrospective transport. The defaults are the paper's setting."""

    name = "coil"
    title = "COIL"

    prospective_init: bool = True
    """Begin with new classes' weights that are transported from the old ones, instead of random ones."""
    pt_length: Literal["origin", "fresh"] = "origin"
    """Length of the transported weights: that of the old classes' (the paper's calibration), or that of the random ones
    they replace. A cosine head has the same opinion at any length, but long weights turn slowly."""
    pt_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the prospective loss; 0 is without it."""
    pt_epochs: int | float = 5
    """Epochs with the prospective loss: a whole number, or a share of the training for short schedules."""
    rt_weight: Annotated[float, Field(ge=0)] = 1.0

    @field_validator("pt_epochs")
    @classmethod
    def _epochs_or_share(cls, value: int | float) -> int | float:
        if value < 0 or (isinstance(value, float) and value > 1):
            raise ValueError("give a whole number of epochs, or a share of them from 0 to 1")
        return value

    @property
    def needs_exemplars(self) -> bool:
        """Transport goes by class centres, in both directions."""
        return super().needs_exemplars or self.prospective_init

    def initialise(self, network: Network, lesson: Lesson, trainer: Trainer) -> Tensor | None:
        """Algorithm 1, line 1: W_new = OT(exemplars, new images, W_old)."""
        if not (self.prospective_init and lesson.old_classes and lesson.new_classes):
            return None
        data, head = lesson.everything, network.head
        features = trainer.features(network, data.images)
        centres = class_centres(features, data.labels, head.classes, unit=self.centres == "unit")
        plan = self.plan(centres, lesson.old_slice, lesson.new_slice)
        with torch.no_grad():
            old_weights, fresh_weights = head.weight[lesson.old_slice], head.weight[lesson.new_slice]
            transported = transport_classifier(plan.to(old_weights), old_weights)
            if self.pt_length == "fresh":
                transported *= fresh_weights.norm(dim=1).mean() / old_weights.norm(dim=1).mean()
            head.weight[lesson.new_slice] = transported
        return plan

    def taught_loss(self, lesson: Lesson, batch: Batch, output: Output, taught: Tensor, moment: Moment) -> Tensor:
        """Algorithm 1, lines 4 to 8: Eq. 9, which is Eq. 3 and Eq. 4; Eq. 5 is added as to any distilling method."""
        total = super().taught_loss(lesson, batch, output, taught, moment)
        if self.pt_weight and self._is_early(moment):
            prospective = losses.prospective_loss(output.logits, taught, temperature=self.temperature)
            total = total + self.pt_weight * prospective
        return total

    def _is_early(self, moment: Moment) -> bool:
        if isinstance(self.pt_epochs, int):
            return moment.epoch < self.pt_epochs
        return moment.progress < self.pt_epochs


class CoilTuned(Coil):
    """COIL with the settings that measured best where epochs are few: see LOG.md."""

    name = "coil-tuned"
    title = "COIL (tuned)"

    pt_length: Literal["origin", "fresh"] = "fresh"
    pt_epochs: int | float = 0.03
    rt_weight: Annotated[float, Field(ge=0)] = 0.3
    combine: Literal["convex", "additive"] = "additive"
