"""What a method is: settings, and what it does with a lesson. It keeps no state; learning changes the network.

To add a method, write one file beside this one with a subclass of `Method`. Its fields are its settings, validated in
recipes like all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from pydantic import field_validator
from torch import Tensor

from cotransport import losses
from cotransport.data import Batch, LabelledImages, concatenate
from cotransport.networks.heads import CosineHead, Head
from cotransport.networks.network import Network, Output
from cotransport.settings import sections as config
from cotransport.settings.sections import Budget, Loss
from cotransport.settings.validation import Settings
from cotransport.training.loop import Moment, Objective, Trainer


@dataclass(frozen=True)
class Lesson:
    """All that a method sees of the data while it learns a task: new images and exemplars, and nothing else.

    Labels are class numbers in order of arrival; `classes` of both parts are all classes seen.
    """

    new: LabelledImages
    memory: LabelledImages | None
    """Exemplars of the classes seen before."""
    old_classes: int
    new_classes: int
    loss: Loss

    @property
    def old_slice(self) -> slice:
        """The classes seen before, among all."""
        return slice(0, self.old_classes)

    @property
    def new_slice(self) -> slice:
        """The classes that are new, among all."""
        return slice(self.old_classes, self.old_classes + self.new_classes)

    @cached_property
    def everything(self) -> LabelledImages:
        """New images and exemplars together."""
        if self.memory is None:
            return self.new
        images = concatenate([self.new.images, self.memory.images])
        return LabelledImages(images, torch.cat([self.new.labels, self.memory.labels]), self.new.classes)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Eq. 1 with the run's settings for smoothing and balance."""
        prior = self._log_prior.to(logits.device) if self.loss.balanced_softmax else None
        return losses.cross_entropy(logits, labels, smoothing=self.loss.label_smoothing, log_prior=prior)

    @cached_property
    def _log_prior(self) -> Tensor:
        counts = self.everything.counts().clamp_min(1).float()
        return (counts / counts.sum()).log()


class Method(Settings):
    """A way to learn classes one task after the other."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The name as people write it."""
    from_scratch: ClassVar[bool] = False
    """Whether every task starts with a fresh network."""

    label: str | None = None
    """The name in results and figures, where it is not the method's own."""
    predict_with: Literal["head", "ncm"] = "head"
    """Which prediction counts: the trained head, or the nearest class mean."""

    @field_validator("label")
    @classmethod
    def _names_a_folder(cls, label: str | None) -> str | None:
        if label is not None and (not label.isprintable() or set(label) & set("/\\") or label[:1] in {"", ".", " "}):
            raise ValueError("a label names a folder: no slashes, nothing unprintable, no dot or space in front")
        return label

    def dumped(self) -> dict[str, Any]:
        """Name and settings, from which `make_method` makes it again."""
        return {"name": self.name, **self.model_dump(mode="json")}

    @property
    def needs_exemplars(self) -> bool:
        """Whether the method cannot do without an exemplar of every class."""
        return self.predict_with == "ncm"

    def budget(self, budget: Budget) -> Budget | None:
        """The memory this method keeps of what it is allowed; None is everything."""
        return budget

    def make_head(self, dimension: int, settings: config.HeadSettings) -> Head:
        """The head of a new network, without classes yet."""
        return CosineHead(dimension, settings.scale)

    def initialise(self, network: Network, lesson: Lesson, trainer: Trainer) -> Tensor | None:
        """Set the new classes' weights before training. The head has grown already, with random weights.

        Returns the plan (old classes, new classes) by which they were transported, None if they were not.
        """
        return None

    def learn(self, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        """Train the network on a lesson: by default all of its images, with the method's objective."""
        trainer.fit(network, lesson.everything, lambda trained: self.objective(trained, lesson, trainer))

    def objective(self, network: Network, lesson: Lesson, trainer: Trainer) -> Objective:
        """What is minimised, for a network at the task's start: by default the cross-entropy."""

        def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
            return lesson.cross_entropy(output.logits, batch.labels)

        return Objective(loss)
