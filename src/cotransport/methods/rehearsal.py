"""Rehearsal with distillation: what iCaRL, BiC, WA and COIL have in common, and not a method of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import Tensor
from typing_extensions import Self

from cotransport import losses
from cotransport.data import Batch
from cotransport.methods.base import Lesson
from cotransport.methods.retrospection import Retrospection, Transporting
from cotransport.networks.network import Network, Output
from cotransport.training.loop import Moment, Objective, Trainer


class Distilling(Transporting):
    """Learns from new images, exemplars and the old model (Eq. 3 of the paper); with `rt_weight` also by Eq. 5."""

    distil_over: Literal["old", "all"] = "old"
    """Classes of the student's softmax in the distillation; `all` is the letter of Eq. 2."""
    combine: Literal["convex", "additive"] = "convex"
    """(1 - lambda) CE + lambda KD as in Eq. 3, or CE + lambda KD, which does not starve CE where epochs are few."""
    kd_weight: Annotated[float, Field(ge=0)] | None = None
    """lambda; by default the old classes' share of all classes."""

    @model_validator(mode="after")
    def _balance_is_one(self) -> Self:
        if self.combine == "convex" and self.kd_weight is not None and self.kd_weight > 1:
            raise ValueError(
                "kd_weight: above 1 the cross-entropy would count less than nothing. Use combine: additive"
            )
        return self

    def objective(self, network: Network, lesson: Lesson, trainer: Trainer) -> Objective:
        """Eq. 3 and, if asked for, Eq. 5; plain cross-entropy where there are no old or no new classes."""
        if not (lesson.old_classes and lesson.new_classes):
            return super().objective(network, lesson, trainer)
        teacher = network.frozen()  # the old model, and the new classes' weights as initialised
        retrospection = Retrospection(self, network, lesson, trainer) if self.rt_weight else None

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            taught = teacher(batch.images).logits
            total = self.taught_loss(lesson, batch, output, taught, moment)
            if retrospection is not None:
                total = total + retrospection(batch, output, taught[:, lesson.old_slice], moment)
            return total

        return Objective(loss, retrospection)

    def taught_loss(self, lesson: Lesson, batch: Batch, output: Output, taught: Tensor, moment: Moment) -> Tensor:
        """Eq. 3, for the teacher's logits (n, all classes)."""
        old, every = lesson.old_classes, output.logits.shape[1]
        return losses.rehearsal_loss(
            lesson.cross_entropy(output.logits, batch.labels),
            losses.distillation(
                output.logits, taught[:, lesson.old_slice], temperature=self.temperature, over=self.distil_over
            ),
            old / every if self.kd_weight is None else self.kd_weight,
            combine=self.combine,
        )
