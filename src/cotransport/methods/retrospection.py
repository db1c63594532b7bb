"""Retrospective transport, a part of COIL that other methods can take too.

Class centres come from the features that training computes anyway, so that the loss costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from cotransport import losses
from cotransport.data import Batch
from cotransport.methods.base import Lesson, Method
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Positive
from cotransport.training.loop import Moment, Trainer
from cotransport.transport import (
    centres_of_sums,
    class_centres,
    class_sums,
    transport_classifier,
    transport_cost,
    transport_plan,
)


class Transporting(Method):
    """A method that relates old and new classes by transport, with the settings of both directions."""

    reg: Annotated[float, Field(gt=0)] = 0.45
    """Regulariser of the transport plan: the more, the more classes a class is mixed of."""
    centres: Literal["unit", "raw"] = "unit"
    """Class centres of unit-length features, or of the features as they are (the letter of Eq. 7)."""
    temperature: Annotated[float, Field(gt=0)] = 2.0
    """Of all distillation losses."""
    rt_weight: Annotated[float, Field(ge=0)] = 0.0
    """Factor of the retrospective loss, beside its own weight (epoch / epochs)^2, which is 0 in the first epoch; 0 is
    without it."""
    rt_every: Positive = 10
    """Steps after which the retrospective plan is computed again; 1 is the letter of Alg. 1."""
    rt_images: Literal["all", "new"] = "all"
    """Images that the retrospective loss looks at: all as in Eq. 9, or those of the new classes alone."""
    rt_centres: Literal["running", "exact"] = "running"
    """Centres from the features of the last steps, or from a pass over all images for every plan, which is slow and not
    foreseen in a time budget."""

    @property
    def needs_exemplars(self) -> bool:
        """Transport goes by class centres."""
        return super().needs_exemplars or self.rt_weight > 0

    def plan(self, centres: Tensor, origin: slice, goal: slice) -> Tensor:
        """The plan from some classes to others, by the centres (classes, d) of all."""
        return transport_plan(transport_cost(centres[origin], centres[goal]), self.reg)


class Retrospection:
    """Eq. 5 during one training: the new classifier, transported to the old classes, against the old model."""

    def __init__(self, settings: Transporting, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        self._settings, self._network, self._lesson, self._trainer = settings, network, lesson, trainer
        self._unit = settings.centres == "unit"
        self._classes = lesson.old_classes + lesson.new_classes
        self._sums = torch.zeros(self._classes, network.dimension, device=trainer.fabric.device)
        self._counts = torch.zeros(self._classes, device=trainer.fabric.device)
        self._plan: Tensor | None = None

    def __call__(self, batch: Batch, output: Output, teacher: Tensor, moment: Moment) -> Tensor:
        """The loss with its weight, which is zero in the first epoch; by then the centres of all classes are there.

        teacher : logits (n, old classes) of the old model.
        """
        settings, head = self._settings, self._network.head
        with torch.autocast(output.features.device.type, enabled=False):
            if batch.weight:  # a process without an image of its own has one that does not count
                self._observe(output.features.detach(), batch.labels, moment)
            weight = settings.rt_weight * (moment.epoch / moment.epochs) ** 2
            if weight == 0:
                return output.logits.new_zeros(())
            if self._plan is None or (moment.epoch * moment.steps + moment.step) % settings.rt_every == 0:
                centres = self._centres()
                if not bool(torch.isfinite(centres).all()):  # so the loss is not, and the training says where it began
                    return output.logits.new_full((), torch.nan)
                self._plan = settings.plan(centres, self._lesson.new_slice, self._lesson.old_slice)
            new_weights = head.weight[self._lesson.new_slice]
            transported = transport_classifier(self._plan.to(new_weights), new_weights)
            logits = head.logits(output.features, transported)
            if settings.rt_images == "new":
                new = batch.labels >= self._lesson.old_classes
                logits, teacher = logits[new], teacher[new]
                weight = weight * len(logits) / len(batch.labels)
                if not len(logits):
                    return output.logits.new_zeros(())
            return weight * losses.retrospective_loss(logits, teacher, temperature=settings.temperature)

    def state_dict(self) -> dict[str, Tensor]:
        """The sums behind the centres, and the plan in use."""
        state = {"sums": self._sums, "counts": self._counts}
        return state if self._plan is None else state | {"plan": self._plan}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        self._sums.copy_(state["sums"])
        self._counts.copy_(state["counts"])
        self._plan = state["plan"].to(self._sums.device) if "plan" in state else None

    def _observe(self, features: Tensor, labels: Tensor, moment: Moment) -> None:
        """Add a batch to the sums, in which a batch of an epoch ago has lost most of its weight."""
        sums, counts = class_sums(features.to(self._sums.dtype), labels, self._classes, unit=self._unit)
        kept = 1 - 1 / moment.steps
        self._sums.mul_(kept).add_(sums)
        self._counts.mul_(kept).add_(counts)

    def _centres(self) -> Tensor:
        if self._settings.rt_centres == "exact":
            data = self._lesson.everything
            features = self._trainer.features(self._network, data.images).to(self._sums)
            return class_centres(features, data.labels.to(features.device), self._classes, unit=self._unit)
        sums, counts = self._sums, self._counts
        if self._trainer.shard.processes > 1:  # each process has seen its own part of every batch
            sums, counts = self._trainer.reduced(sums.clone(), "sum"), self._trainer.reduced(counts.clone(), "sum")
        return centres_of_sums(sums, counts, unit=self._unit)
