"""BiC: rehearsal with distillation, then a correction of the bias towards new classes (Wu et al., 2019)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cotransport.errors import CotransportWarning
from cotransport.methods.base import Method
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.rehearsal import Rehearsal, distilled_objective
from cotransport.methods.retrospection import Retrospection
from cotransport.settings.sections import HeadSettings

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from cotransport.data import LabelledImages
    from cotransport.networks.heads import Head
    from cotransport.networks.network import Network
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Objective
    from cotransport.training.task_data import TaskData

_VALIDATION = (0, 2)  # place of a task's random draws, beside those of its training


class BiC(Method):
    """Rehearsal with distillation, then a correction of the new classes' logits, fitted on validation images."""

    name = "bic"
    title = "BiC"

    validate_every: Annotated[int, Field(ge=2)] = 10
    """One in this many images of each class is used for validation and not for training: of an old class its second
    exemplar, and every `validate_every`-th after it; of a new class at most as many images as of an old one."""
    correction_prior: Annotated[float, Field(gt=0)] = 1.0
    """Strength of the prior towards no correction, counted in images. It matters with few validation images."""
    rehearsal: Rehearsal = Rehearsal()
    retrospection: Retrospection = Retrospection()
    mapping: ClassMapping = ClassMapping()

    def make_head(self, dimension: int, settings: HeadSettings) -> Head:
        """A linear head with bias, and the corrections of all tasks so far."""
        from cotransport.networks.heads import CorrectedHead

        return CorrectedHead(dimension, settings.linear_scale)

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """Eq. 3, and Eq. 5 if its weight is not 0."""
        return distilled_objective(self.rehearsal, self.retrospection, self.mapping, network, data, trainer)

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Train on most of the images; fit the correction of the new classes' logits on the others."""
        from cotransport.system.randomness import generator

        training, validation = self.split(data, generator(trainer.seed, trainer.task, *_VALIDATION))
        super().learn(network, training, trainer)
        if validation is not None:
            self.correct(network, data, validation, trainer)
        elif data.has_old_and_new:
            message = (
                "bic: no image of the old or of the new classes can be spared for validation, so the bias towards new "
                "classes is not corrected. Keep at least two exemplars of each class (memory.total or "
                "memory.per_class), and give at least two images of each new class"
            )
            warnings.warn(message, CotransportWarning, stacklevel=4)

    def split(self, data: TaskData, random: Generator) -> tuple[TaskData, LabelledImages | None]:
        """The data without validation images, and the validation images; None if old or new classes have none.

        With the default settings, the second, twelfth, ... exemplar of a class is used for validation in all tasks
        after the one that brought the class. A single image is trained on, and so are most images of a small class.
        """
        import torch

        from cotransport.data import LabelledImages, concatenate

        memory, new = data.memory, data.new
        if memory is None or not data.new_classes:
            return data, None
        counts = memory.counts()
        position = torch.arange(len(memory)) - (counts.cumsum(0) - counts)[memory.labels]  # in its herding order
        exemplars = position % self.validate_every == 1
        wanted = int(memory.labels[exemplars].bincount().max()) if exemplars.any() else 0
        images = torch.zeros(len(new), dtype=torch.bool)
        for number in range(len(new.classes))[data.new_slice]:
            own = torch.nonzero(new.labels == number).flatten()
            spare = min(wanted, max(1, len(own) // self.validate_every), len(own) - 1)
            images[own[torch.randperm(len(own), generator=random)][:spare]] = True
        if not images.any():
            return data, None
        (old_kept, old_aside), (new_kept, new_aside) = _divide(memory, exemplars), _divide(new, images)
        labels = torch.cat([old_aside.labels, new_aside.labels])
        aside = LabelledImages(concatenate([old_aside.images, new_aside.images]), labels, new.classes)
        return replace(data, new=new_kept, memory=old_kept), aside

    def correct(self, network: Network, data: TaskData, validation: LabelledImages, trainer: Trainer) -> None:
        """Set the correction of the new classes; nothing else changes."""
        from cotransport.networks.heads import CorrectedHead

        head = network.head
        assert isinstance(head, CorrectedHead)
        logits = trainer.predictions(network, validation.images).logits
        alpha, beta = bias_correction(logits, validation.labels, data.new_slice, prior=self.correction_prior)
        head.alpha[data.new_slice], head.beta[data.new_slice] = alpha, beta


def bias_correction(logits: Tensor, labels: Tensor, new: slice, *, prior: float = 1.0) -> tuple[float, float]:
    r"""The correction of the new classes' logits that fits validation images best.

    .. math:: \min_{\alpha, \beta} \; \sum_i w_i L_{CE}(q(x_i), y_i) + \frac{p}{2} ((\alpha - 1)^2 + \beta^2),
        \qquad q_k(x) = \alpha o_k(x) + \beta \text{ for new classes k, otherwise } o_k(x)

    where o are the logits (n, classes), w gives all classes the same weight and sums to n, and p is the `prior`. The
    weight of a class without images goes to the other old (or new) classes. The problem is convex and has two unknowns,
    so it is solved exactly instead of being trained for some epochs.
    """
    import torch
    from torch.nn import functional as F

    logits, unknowns = logits.double(), torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    weights = 1 / labels.bincount().double()[labels]
    is_new = torch.zeros(logits.shape[1], dtype=torch.bool)
    is_new[new] = True
    for kind in (is_new, ~is_new):
        weights[kind[labels]] *= kind.sum() / weights[kind[labels]].sum()
    weights *= len(labels) / weights.sum()
    solver = torch.optim.LBFGS([unknowns], max_iter=200, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        solver.zero_grad()
        alpha, beta = unknowns
        corrected = logits.clone()
        corrected[:, new] = alpha * logits[:, new] + beta
        distance = (alpha - 1).square() + beta.square()  # from no correction
        value = (weights * F.cross_entropy(corrected, labels, reduction="none")).sum() + prior / 2 * distance
        value.backward()
        return value  # type: ignore[no-any-return]

    solver.step(objective)  # type: ignore[no-untyped-call]
    alpha, beta = unknowns.tolist()
    return alpha, beta


def _divide(data: LabelledImages, chosen: Tensor) -> tuple[LabelledImages, LabelledImages]:
    """The images that are not chosen, and those that are."""
    import torch

    return data.take(torch.nonzero(~chosen).flatten()), data.take(torch.nonzero(chosen).flatten())
