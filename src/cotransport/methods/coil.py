"""COIL: co-transport for class-incremental learning (Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from cotransport import losses
from cotransport.data import Batch
from cotransport.errors import ConfigError
from cotransport.methods.base import Lesson
from cotransport.methods.retrospection import Retrospection, Transporting
from cotransport.network import Network, Output
from cotransport.training import Moment, Objective, Trainer
from cotransport.transport import class_centres, transport_classifier


class Coil(Transporting):
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
    distil_over: Literal["old", "all"] = "old"
    """Classes of the student's softmax in the distillation; `all` is the letter of Eq. 2."""
    combine: Literal["convex", "additive"] = "convex"
    """(1 - lambda) CE + lambda KD as in Eq. 3, or CE + lambda KD, which does not starve CE where epochs are few."""
    kd_weight: Annotated[float, Field(ge=0)] | None = None
    """lambda; by default the old classes' share of all classes."""

    @field_validator("pt_epochs")
    @classmethod
    def _epochs_or_share(cls, value: int | float) -> int | float:
        if value < 0 or (isinstance(value, float) and value > 1):
            raise ValueError("give a whole number of epochs, or a share of them from 0 to 1")
        return value

    @model_validator(mode="after")
    def _balance_is_one(self) -> Coil:
        if self.combine == "convex" and self.kd_weight is not None and self.kd_weight > 1:
            raise ValueError(
                "kd_weight: above 1 the cross-entropy would count less than nothing. Use combine: additive"
            )
        return self

    def initialise(self, network: Network, lesson: Lesson, trainer: Trainer) -> Tensor | None:
        """Algorithm 1, line 1: W_new = OT(exemplars, new images, W_old)."""
        if not (self.prospective_init and lesson.old_classes and lesson.new_classes):
            return None
        check_exemplars(lesson)
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

    def objective(self, network: Network, lesson: Lesson, trainer: Trainer) -> Objective:
        """Algorithm 1, lines 4 to 8: Eq. 9, and plain cross-entropy where there are no old or no new classes."""
        if not (lesson.old_classes and lesson.new_classes):
            return super().objective(network, lesson, trainer)
        if self.rt_weight:
            check_exemplars(lesson)
        teacher = network.frozen()  # the old model, and the new classes' weights as initialised
        retrospection = Retrospection(self, network, lesson, trainer) if self.rt_weight else None
        weight = lesson.old_classes / network.head.classes if self.kd_weight is None else self.kd_weight

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            taught = teacher(batch.images).logits
            old_taught = taught[:, lesson.old_slice]
            total = losses.rehearsal_loss(
                lesson.cross_entropy(output.logits, batch.labels),
                losses.distillation(output.logits, old_taught, temperature=self.temperature, over=self.distil_over),
                weight,
                combine=self.combine,
            )
            if self.pt_weight and self._is_early(moment):
                total = total + self.pt_weight * losses.prospective_loss(
                    output.logits, taught, temperature=self.temperature
                )
            if retrospection is not None:
                total = total + retrospection(batch, output, old_taught, moment)
            return total

        return loss

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


def check_exemplars(lesson: Lesson) -> None:
    """Transport goes by class centres, so every class needs an image."""
    if not bool((lesson.everything.counts() > 0).all()):
        raise ConfigError(
            "memory: transport needs an exemplar of every old class, and some have none. "
            "Raise memory.total or per_class, or use a method without transport"
        )
