"""COIL: co-transport for class-incremental learning. The methods of `Coil` follow the lines of Algorithm 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator

from cotransport.methods.base import Method, cross_entropy_objective
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.rehearsal import Rehearsal
from cotransport.methods.retrospection import Retrospection, TransportBack

if TYPE_CHECKING:
    from torch import Tensor

    from cotransport.data import Batch
    from cotransport.networks.network import Network, Output
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Moment, Objective
    from cotransport.training.task_data import TaskData


class Coil(Method):
    """Rehearsal with distillation, prospective and retrospective transport. The defaults are the paper's
    loss weights and lengths; settings whose default is not the letter of an equation say so."""

    name = "coil"
    title = "COIL"

    mapping: ClassMapping = ClassMapping()
    rehearsal: Rehearsal = Rehearsal()
    retrospection: Retrospection = Retrospection(rt_weight=1.0)
    prospective_init: bool = True
    """Build the new classes' first weights (`pt_source` says from what), instead of drawing them at random."""
    pt_source: Literal["weights", "centres"] = "weights"
    """What the new classes' first weights are built from: the transported weights of old classes, or, for comparison,
    the centres of the new classes themselves (weight imprinting; Qi et al., 2018)."""
    pt_length: Literal["origin", "fresh"] = "origin"
    """Length of these first weights: that of the old classes' weights (the paper's calibration), or that of the
    random weights they replace. A cosine head predicts the same at any length, but long weights turn more slowly in
    training."""
    pt_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the prospective loss; 0 leaves the loss out."""
    pt_epochs: int | float = 5
    """Epochs with the prospective loss, from the first on: a whole number, or a decimal for a share of the training."""

    @field_validator("pt_epochs")
    @classmethod
    def _epochs_or_share(cls, value: int | float) -> int | float:
        if value < 0 or (isinstance(value, float) and value > 1):
            raise ValueError("give a whole number of epochs, or a share of them from 0 to 1")
        return value

    @property
    def transports(self) -> bool:
        """Whether new classes start with transported weights."""
        return self.prospective_init and self.pt_source == "weights"

    @property
    def needs_exemplars(self) -> bool:
        """Transport needs a class centre of every class."""
        return super().needs_exemplars or self.prospective_init

    def initialise(self, network: Network, data: TaskData, trainer: Trainer) -> Tensor | None:
        """Line 1: W_new = OT(exemplars, new images, W_old)."""
        import torch
        from torch.nn import functional as F

        from cotransport.transport import class_centres, transport_classifier

        if not (self.prospective_init and data.has_old_and_new):
            return None
        images, head = data.everything, network.head
        features = trainer.features(network, images.images)
        centres = class_centres(features, images.labels, data.classes, unit=self.mapping.unit)
        plan = self.mapping.plan(centres, data.old_slice, data.new_slice) if self.transports else None
        with torch.no_grad():
            old_weights, random_weights = head.weight[data.old_slice], head.weight[data.new_slice]
            old_length = old_weights.norm(dim=1).mean()
            if plan is not None:
                first_weights = transport_classifier(plan.to(old_weights), old_weights)
            else:
                first_weights = F.normalize(centres[data.new_slice].to(old_weights)) * old_length
            if self.pt_length == "fresh":
                first_weights *= random_weights.norm(dim=1).mean() / old_length
            head.weight[data.new_slice] = first_weights
        return plan

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Lines 2 to 10: SGD over the new images and exemplars together, with the objective of lines 5 to 8."""
        trainer.fit(network, data.everything, lambda trained: self.objective(trained, data, trainer))

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """Lines 5 to 8: the loss of a batch. In a first task, it is the cross-entropy alone."""
        from cotransport.losses import prospective_loss, retrospective_loss
        from cotransport.training.objective import Objective

        if not data.has_old_and_new:
            return cross_entropy_objective(data)
        teacher = network.frozen()  # the old model, and the new classes' weights as line 1 set them
        back = TransportBack(self.retrospection, self.mapping, network, data, trainer)
        old, temperature = data.old_slice, self.rehearsal.temperature

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            teacher_logits = teacher(batch.images).logits  # (n, all classes)
            rehearsal = self.rehearsal.loss(data, batch, output, teacher_logits)  # Eq. 3
            prospective: Tensor | float = 0.0
            if early := self.pt_weight * self._is_early(moment):
                prospective = prospective_loss(output.logits, teacher_logits, temperature=temperature)  # line 5, Eq. 4
            retrospective: Tensor | float = 0.0
            back.observe(batch, output, moment)
            if gamma := back.gamma(batch, moment):
                student, rows = back.logits(output, moment), back.rows(batch)  # line 6: with OT(new, old, W_new)
                retrospective = retrospective_loss(  # line 7, Eq. 5
                    student[rows], teacher_logits[:, old][rows], temperature=temperature
                )
            return rehearsal + early * prospective + gamma * retrospective  # line 8, Eq. 9

        return Objective(loss, back)

    def _is_early(self, moment: Moment) -> bool:
        if isinstance(self.pt_epochs, int):
            return moment.epoch < self.pt_epochs
        return moment.progress < self.pt_epochs


class CoilTuned(Coil):
    """COIL with loss weights and lengths of initial weights for few epochs and few new classes at a time (LOG.md)."""

    name = "coil-tuned"
    title = "COIL (tuned)"

    rehearsal: Rehearsal = Rehearsal(combine="additive")
    retrospection: Retrospection = Retrospection(rt_weight=0.3)
    pt_length: Literal["origin", "fresh"] = "fresh"
    pt_epochs: int | float = 0.03
