"""Rehearsal with distillation (Eq. 3): a part of iCaRL, BiC, WA and COIL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from cotransport.methods.base import Part, cross_entropy_objective

if TYPE_CHECKING:
    from torch import Tensor

    from cotransport.data import Batch
    from cotransport.methods.mapping import ClassMapping
    from cotransport.methods.retrospection import Retrospection
    from cotransport.networks.network import Network, Output
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Moment, Objective
    from cotransport.training.task_data import TaskData


class Rehearsal(Part):
    """Cross-entropy on new images and exemplars, balanced against distillation from the old model."""

    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Temperature of the softmax in all distillation losses."""
    distil_over: Literal["old", "all"] = "old"
    """Classes in the student's softmax of the distillation: the old ones, or all, exactly as in Eq. 2."""
    combine: Literal["convex", "additive", "ratio"] = "convex"
    """How cross-entropy (CE) and distillation (KD) are added. `convex`: (1 - lambda) CE + lambda KD, as in Eq. 3.
    `additive`: CE + lambda KD, which keeps the full weight of the cross-entropy. `ratio`: CE + lambda / (1 - lambda)
    KD, which is Eq. 3 divided by (1 - lambda): the same balance, and the full weight of the cross-entropy."""
    kd_weight: Annotated[float, Field(ge=0)] | None = None
    """The weight lambda of the distillation. By default, the old classes' share of all classes."""

    @model_validator(mode="after")
    def _keep_the_cross_entropy(self) -> Self:
        if self.combine == "convex" and self.kd_weight is not None and self.kd_weight > 1:
            raise ValueError("kd_weight: above 1 the cross-entropy would get a negative weight. Use combine: additive")
        if self.combine == "ratio" and self.kd_weight is not None and self.kd_weight >= 1:
            raise ValueError(
                "kd_weight: combine: ratio divides by 1 - kd_weight. Give less than 1, or use combine: additive"
            )
        return self

    def loss(self, data: TaskData, batch: Batch, output: Output, teacher_logits: Tensor) -> Tensor:
        """Eq. 3. The teacher's logits are (n, all classes)."""
        from cotransport.losses import distillation, rehearsal_loss

        old_logits = teacher_logits[:, data.old_slice]
        return rehearsal_loss(
            data.cross_entropy(output.logits, batch),
            distillation(output.logits, old_logits, temperature=self.temperature, over=self.distil_over),
            data.old_classes / data.classes if self.kd_weight is None else self.kd_weight,
            combine=self.combine,
        )


def distilled_objective(
    rehearsal: Rehearsal,
    retrospection: Retrospection,
    mapping: ClassMapping,
    network: Network,
    data: TaskData,
    trainer: Trainer,
) -> Objective:
    """Eq. 3 and, if its weight is not 0, Eq. 5: the objective of iCaRL, BiC and WA."""
    from cotransport.losses import retrospective_loss
    from cotransport.methods.retrospection import TransportBack
    from cotransport.training.objective import Objective

    if not data.has_old_and_new:
        return cross_entropy_objective(data)
    teacher = network.frozen()
    back = TransportBack(retrospection, mapping, network, data, trainer)

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        teacher_logits = teacher(batch.images).logits
        total = rehearsal.loss(data, batch, output, teacher_logits)
        back.observe(batch, output, moment)
        if gamma := back.gamma(batch, moment):
            student, old_logits = back.logits(output, moment), teacher_logits[:, data.old_slice]
            rows = back.rows(batch)
            total = total + gamma * retrospective_loss(
                student[rows], old_logits[rows], temperature=rehearsal.temperature
            )
        return total

    return Objective(loss, back)
