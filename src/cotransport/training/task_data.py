"""The images of one task, as a method sees them while it learns the task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cotransport import losses
from cotransport.data import Batch, LabelledImages, Mixed, concatenate
from cotransport.settings.sections import Loss


@dataclass(frozen=True)
class TaskData:
    """New images and exemplars of the classes seen before. A method sees no other data.

    Labels are class numbers in order of arrival. Both parts name all classes seen.
    """

    new: LabelledImages
    """The task's images. They may include more images of classes seen before."""
    memory: LabelledImages | None
    """Exemplars of the classes seen before."""
    old_classes: int
    """The number of classes seen before."""
    new_classes: int
    """The number of classes seen for the first time."""
    loss: Loss

    @property
    def classes(self) -> int:
        """The number of all classes seen."""
        return self.old_classes + self.new_classes

    @property
    def has_old_and_new(self) -> bool:
        """Whether there are both classes seen before and new ones."""
        return bool(self.old_classes and self.new_classes)

    @property
    def old_slice(self) -> slice:
        """The classes seen before, among all."""
        return slice(0, self.old_classes)

    @property
    def new_slice(self) -> slice:
        """The new classes, among all."""
        return slice(self.old_classes, self.classes)

    @cached_property
    def everything(self) -> LabelledImages:
        """New images and exemplars together."""
        if self.memory is None:
            return self.new
        images = concatenate([self.new.images, self.memory.images])
        return LabelledImages(images, torch.cat([self.new.labels, self.memory.labels]), self.new.classes)

    def cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        """Eq. 1, with label smoothing and balanced softmax as the settings say, and with the labels of mixed images."""
        prior = self._log_prior.to(logits.device) if self.loss.balanced_softmax else None
        targets = batch.labels if batch.mixed is None else _probabilities(batch.labels, batch.mixed, logits)
        return losses.cross_entropy(logits, targets, smoothing=self.loss.label_smoothing, log_prior=prior)

    @cached_property
    def _log_prior(self) -> Tensor:
        counts = self.everything.counts().clamp_min(1).float()
        return (counts / counts.sum()).log()


def _probabilities(labels: Tensor, mixed: Mixed, logits: Tensor) -> Tensor:
    """The probability of each class (n, classes) in mixed images."""
    targets = torch.zeros_like(logits).scatter_(1, labels[:, None], (1 - mixed.share)[:, None].to(logits))
    return targets.scatter_add_(1, mixed.labels[:, None], mixed.share[:, None].to(logits))
