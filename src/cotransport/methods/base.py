"""What a method is: its settings, and what it does with a task's data. It has no state: learning changes the network.

To add a method, write one file beside this one with a subclass of `Method`. Its fields are its settings, validated in
recipes like all others. A method may hold parts, such as `Rehearsal`. In a recipe, the settings of a part are written
like the method's own.

Modules of methods import torch inside functions only, so that `cotransport methods` answers at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import field_validator

from cotransport.settings.inline import InlineSections
from cotransport.settings.sections import Budget, HeadSettings, Loss
from cotransport.settings.validation import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from cotransport.data import Batch
    from cotransport.networks.heads import Head
    from cotransport.networks.network import Network, Output
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Moment, Objective
    from cotransport.training.task_data import TaskData


class Part(Settings):
    """A part that several methods can hold, with its settings."""

    @property
    def needs_exemplars(self) -> bool:
        """Whether the part needs at least one exemplar of every class."""
        return False


class Method(InlineSections):
    """A way to learn classes, one task after another."""

    name: ClassVar[str]
    title: ClassVar[str]
    """The name as people write it."""
    from_scratch: ClassVar[bool] = False
    """Whether every task starts with a fresh network."""
    needs_frozen_backbone: ClassVar[bool] = False
    """Whether the backbone must not change from the first task on."""

    label: str | None = None
    """The name in results and figures; by default the method's own name."""
    predict_with: Literal["head", "ncm"] = "head"
    """Which prediction counts: the trained head, or the nearest class mean."""
    balanced_softmax: bool | None = None
    """Whether the cross-entropy of this method has class-balanced softmax; by default as `loss.balanced_softmax` says.
    A method that corrects the bias towards new classes after training, such as WA, may do better without it."""

    @field_validator("label")
    @classmethod
    def _names_a_folder(cls, label: str | None) -> str | None:
        if label is not None and (not label.isprintable() or set(label) & set("/\\") or label[:1] in {"", ".", " "}):
            raise ValueError("a label names a folder: no slashes, nothing unprintable, no dot or space in front")
        return label

    def dumped(self) -> dict[str, Any]:
        """Name and settings, from which `make_method` makes an equal method."""
        return {"name": self.name, **self.model_dump(mode="json")}

    @property
    def transports(self) -> bool:
        """Whether the method transports the old classes' weights to new classes before training."""
        return False

    @property
    def needs_exemplars(self) -> bool:
        """Whether the method needs at least one exemplar of every class."""
        return self.predict_with == "ncm" or any(part.needs_exemplars for part in self._parts())

    def _parts(self) -> list[Part]:
        held = (getattr(self, name) for name in self.inline_sections())
        return [part for part in held if isinstance(part, Part)]

    def budget(self, budget: Budget) -> Budget | None:
        """The memory that this method uses, given the allowed memory; None if it keeps every image."""
        return budget

    def loss_settings(self, loss: Loss) -> Loss:
        """The settings of this method's cross-entropy, given those that all methods share."""
        if self.balanced_softmax is None:
            return loss
        return loss.model_copy(update={"balanced_softmax": self.balanced_softmax})

    def make_head(self, dimension: int, settings: HeadSettings) -> Head:
        """The head of a new network, without classes yet."""
        from cotransport.networks.heads import CosineHead

        return CosineHead(dimension, settings.scale)

    def initialise(self, network: Network, data: TaskData, trainer: Trainer) -> Tensor | None:
        """Set the new classes' weights before training. The head already has them, with random values.

        Returns the transport plan (old classes, new classes) behind the weights; None if they stay random.
        """
        return None

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Train the network on a task: by default on all of its images, with the method's objective."""
        trainer.fit(network, data.everything, lambda trained: self.objective(trained, data, trainer))

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """What is minimised, for a network at the task's start: by default the cross-entropy."""
        return cross_entropy_objective(data)


def cross_entropy_objective(data: TaskData) -> Objective:
    """Eq. 1 alone: the objective of a first task, and of a task without new classes."""
    from cotransport.training.objective import Objective

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        return data.cross_entropy(output.logits, batch)

    return Objective(loss)
