"""BiC: rehearsal with distillation, then a correction of the bias to new classes (Wu et al., 2019)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import LabelledImages, concatenate
from cotransport.errors import CotransportWarning
from cotransport.methods.base import Lesson
from cotransport.methods.rehearsal import Distilling
from cotransport.networks.heads import CorrectedHead, Head
from cotransport.networks.network import Network
from cotransport.settings import sections as config
from cotransport.system.randomness import generator
from cotransport.training.loop import Trainer

_HELD_OUT = (0, 2)  # place of a task's random draws, beside those of its training


class BiC(Distilling):
    """Rehearsal with distillation, then two numbers that correct the new classes' logits, by images kept aside."""

    name = "bic"
    title = "BiC"

    validate_every: Annotated[int, Field(ge=2)] = 10
    """The second of a class's exemplars, and from there one of so many, is not trained on but validated with; and as
    many images of each new class, up to one of so many."""
    correction_prior: Annotated[float, Field(gt=0)] = 1.0
    """How much speaks for no correction, counted in images: it matters where there are few to validate with."""

    def make_head(self, dimension: int, settings: config.HeadSettings) -> Head:
        """A linear head with bias, and the corrections of all tasks so far."""
        return CorrectedHead(dimension, settings.linear_scale)

    def learn(self, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        """Train on most of the images; correct the new classes' logits by the others."""
        training, validation = self.split(lesson, generator(trainer.seed, trainer.task, *_HELD_OUT))
        super().learn(network, training, trainer)
        if validation is not None:
            self.correct(network, lesson, validation, trainer)
        elif lesson.old_classes and lesson.new_classes:
            message = (
                "bic: no image of the old or of the new classes can be spared to validate with, so the bias to new "
                "classes is not corrected. It takes two exemplars of an old class (memory.total or per_class) and two "
                "images of a new one"
            )
            warnings.warn(message, CotransportWarning, stacklevel=4)

    def split(self, lesson: Lesson, random: torch.Generator) -> tuple[Lesson, LabelledImages | None]:
        """The lesson without the images to validate with, and these; None if the old or the new classes have none.

        An exemplar that is the second, twelfth, ... of its class is kept aside in every lesson after its own, in which
        it was one image of many. A class with a single image is trained on it, and one with few keeps most.
        """
        memory, new = lesson.memory, lesson.new
        if memory is None or not lesson.new_classes:
            return lesson, None
        counts = memory.counts()
        place = torch.arange(len(memory)) - (counts.cumsum(0) - counts)[memory.labels]  # in the class's herding order
        exemplars = place % self.validate_every == 1
        wanted = int(memory.labels[exemplars].bincount().max()) if exemplars.any() else 0
        images = torch.zeros(len(new), dtype=torch.bool)
        for number in range(len(new.classes))[lesson.new_slice]:
            own = torch.nonzero(new.labels == number).flatten()
            spare = min(wanted, max(1, len(own) // self.validate_every), len(own) - 1)
            images[own[torch.randperm(len(own), generator=random)][:spare]] = True
        if not images.any():
            return lesson, None
        (old_kept, old_aside), (new_kept, new_aside) = _parted(memory, exemplars), _parted(new, images)
        labels = torch.cat([old_aside.labels, new_aside.labels])
        aside = LabelledImages(concatenate([old_aside.images, new_aside.images]), labels, new.classes)
        return replace(lesson, new=new_kept, memory=old_kept), aside

    def correct(self, network: Network, lesson: Lesson, validation: LabelledImages, trainer: Trainer) -> None:
        """Set the correction of the new classes; nothing else changes."""
        head = network.head
        assert isinstance(head, CorrectedHead)
        logits = trainer.outputs(network, validation.images).logits
        alpha, beta = bias_correction(logits, validation.labels, lesson.new_slice, prior=self.correction_prior)
        head.alpha[lesson.new_slice], head.beta[lesson.new_slice] = alpha, beta


def bias_correction(logits: Tensor, labels: Tensor, new: slice, *, prior: float = 1.0) -> tuple[float, float]:
    r"""The correction of the new classes' logits that fits images which were not trained on best.

    .. math:: \min_{\alpha, \beta} \; \sum_i w_i L_{CE}(q(x_i), y_i) + \frac{p}{2} ((\alpha - 1)^2 + \beta^2),
        \qquad q_k(x) = \alpha o_k(x) + \beta \text{ for new classes k, otherwise } o_k(x)

    where o are the logits (n, classes), w weighs all classes alike and sums to n, and p is the `prior`; for a class
    without images, the others of its kind, old or new, count the more. The problem is convex and has two unknowns, so
    it is solved to the end instead of being trained for some epochs.
    """
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
        away = (alpha - 1).square() + beta.square()
        value = (weights * F.cross_entropy(corrected, labels, reduction="none")).sum() + prior / 2 * away
        value.backward()
        return value  # type: ignore[no-any-return]

    solver.step(objective)  # type: ignore[no-untyped-call]
    alpha, beta = unknowns.tolist()
    return alpha, beta


def _parted(data: LabelledImages, chosen: Tensor) -> tuple[LabelledImages, LabelledImages]:
    """The images that are not chosen, and those that are."""
    return data.take(torch.nonzero(~chosen).flatten()), data.take(torch.nonzero(chosen).flatten())
