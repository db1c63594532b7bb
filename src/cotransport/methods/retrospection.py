"""Retrospective transport (Eq. 5): a part of COIL that iCaRL, BiC and WA can use too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from cotransport.methods.base import Part
from cotransport.settings.sections import Positive

if TYPE_CHECKING:
    from torch import Tensor

    from cotransport.data import Batch
    from cotransport.methods.mapping import ClassMapping
    from cotransport.networks.network import Network, Output
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Moment
    from cotransport.training.task_data import TaskData


class Retrospection(Part):
    """How the retrospective loss is computed, and its weight."""

    rt_weight: Annotated[float, Field(ge=0)] = 0.0
    """Factor of the retrospective loss, in addition to its growing weight (epoch / epochs)^2; 0 leaves the loss out."""
    rt_every: Positive = 10
    """Number of steps after which the retrospective plan is computed again; 1 is exactly Algorithm 1."""
    rt_images: Literal["all", "new"] = "all"
    """Images in the retrospective loss: all (Eq. 9), or those of the new classes only. A mixed image counts for the
    class of its larger part."""
    rt_scale: Literal["head", "one"] = "head"
    """Factor of the transported classifier's logits: the head's scale, or 1, as Eq. 5 is written. The head's scale
    makes the gradient about that many times larger."""
    rt_share: Literal["one", "new"] = "one"
    """Another factor of the retrospective loss: 1 (Eq. 9), or the new classes' share of all classes."""
    rt_centres: Literal["running", "exact"] = "running"
    """Where class centres come from: from the features of recent steps (`running`), or from a pass over all images for
    every plan (`exact`), which is slow and is not included in the measured speed of a time budget."""

    @property
    def needs_exemplars(self) -> bool:
        """The loss needs a class centre of every class."""
        return self.rt_weight > 0


class TransportBack:
    """Algorithm 1, line 6, during one training: the new classes' classifier, transported to the old classes.

    The plan is constant between two refreshes. The gradient reaches the embedding and the new classes' weights.
    """

    def __init__(
        self, settings: Retrospection, mapping: ClassMapping, network: Network, data: TaskData, trainer: Trainer
    ) -> None:
        from cotransport.training.running_centres import RunningCentres

        self._settings, self._mapping, self._network = settings, mapping, network
        self._data, self._trainer = data, trainer
        self._centres = RunningCentres(data.classes, network.dimension, trainer.processes, unit=mapping.unit)
        self._plan: Tensor | None = None

    def gamma(self, batch: Batch, moment: Moment) -> float:
        """The weight of the retrospective loss: rt_weight (epoch / epochs)^2, which is 0 in the first epoch.

        With `rt_images: new`, it is scaled by the share of the batch that the loss is a mean over, and with
        `rt_share: new` by the new classes' share of all classes.
        """
        gamma = self._settings.rt_weight * (moment.epoch / moment.epochs) ** 2
        if self._settings.rt_share == "new":
            gamma *= self._data.new_classes / self._data.classes
        if gamma and self._settings.rt_images == "new":
            return gamma * int((batch.labels >= self._data.old_classes).sum()) / len(batch.labels)
        return gamma

    def rows(self, batch: Batch) -> slice | Tensor:
        """The rows of a batch that are in the loss."""
        return batch.labels >= self._data.old_classes if self._settings.rt_images == "new" else slice(None)

    def observe(self, batch: Batch, output: Output, moment: Moment) -> None:
        """Update the class centres with a batch."""
        if self._settings.rt_weight and batch.weight:  # a process without images in a batch gets one of weight 0
            import torch

            with torch.autocast(output.features.device.type, enabled=False):
                self._centres.observe(output.features.detach(), batch.labels, moment, batch.mixed)

    def logits(self, output: Output, moment: Moment) -> Tensor:
        """Logits (n, old classes) of the transported classifier on the current embedding."""
        import torch

        head = self._network.head
        of_weights = head.logits if self._settings.rt_scale == "head" else head.products
        with torch.autocast(output.features.device.type, enabled=False):
            return of_weights(output.features, self.classifier(moment))

    def classifier(self, moment: Moment) -> Tensor:
        """The transported classifier (old classes, d). It is NaN, as the loss then is, if features are not finite."""
        import torch

        from cotransport.transport import transport_classifier

        weights = self._network.head.weight[self._data.new_slice]
        if self._plan is None or (moment.epoch * moment.steps + moment.step) % self._settings.rt_every == 0:
            centres = self._exact_centres() if self._settings.rt_centres == "exact" else self._centres.centres()
            if not bool(torch.isfinite(centres).all()):
                return weights.new_full((self._data.old_classes, weights.shape[1]), torch.nan)
            self._plan = self._mapping.plan(centres, self._data.new_slice, self._data.old_slice)
        return transport_classifier(self._plan.to(weights), weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The sums behind the class centres, and the current plan."""
        if not self._settings.rt_weight:
            return {}
        state = self._centres.state_dict()
        return state if self._plan is None else state | {"plan": self._plan}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume from a state."""
        if self._settings.rt_weight:
            self._centres.load_state_dict(state)
            self._plan = state["plan"].to(self._trainer.processes.device) if "plan" in state else None

    def _exact_centres(self) -> Tensor:
        from cotransport.transport import class_centres

        data, processes = self._data.everything, self._trainer.processes
        features = self._trainer.features(self._network, data.images).to(processes.device)
        labels = data.labels.to(features.device)
        return class_centres(features, labels, self._data.classes, unit=self._mapping.unit)
