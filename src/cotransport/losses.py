"""The paper's losses as pure functions. Logits are (n, classes), labels (n,); a loss is the mean over the batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, log_prior: Tensor | None = None) -> Tensor:
    r"""Eq. 1: cross-entropy over all classes seen.

    .. math:: L_{CE}(x, y) = \sum_{k=1}^{|\mathcal{Y}_b|} - I(y = k) \log S_k(W_b^\top \phi(x))

    where S is the softmax. `labels` may also be probabilities (n, classes). Two options go beyond the equation. With
    `smoothing` s, the target is (1 - s) times the indicator plus s times the uniform distribution. With `log_prior`
    (classes,), the logarithms of the classes' shares of the training images are added to the logits (class-balanced
    softmax, Ren et al., 2020).

    >>> import torch
    >>> round(cross_entropy(torch.zeros(1, 4), torch.tensor([2])).exp().item(), 4)
    4.0
    """
    if log_prior is not None:
        logits = logits + log_prior
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def distillation(
    logits: Tensor, teacher: Tensor, *, temperature: float = 2.0, over: Literal["old", "all"] = "old"
) -> Tensor:
    r"""Eq. 2: keep the old classes' probabilities close to those of the teacher.

    .. math:: L_{KD}(x) = \sum_{k=1}^{|\mathcal{Y}_{b-1}|}
        - S_k(\bar{W}_{old}^\top \bar\phi(x)) \log S_k(W_b^\top \phi(x))

    logits : (n, all classes), the old ones first.
    teacher : (n, old classes).
    temperature : divides all logits (the paper's first footnote on the loss).
    over : the classes of the student's softmax. `all` follows the equation. With `old`, the probability of new classes
        is left to the cross-entropy.

    >>> import torch
    >>> certain = torch.tensor([[100.0, 0.0]])
    >>> round(distillation(torch.zeros(1, 4), certain).exp().item(), 4)
    2.0
    >>> round(distillation(torch.zeros(1, 4), certain, over="all").exp().item(), 4)
    4.0
    """
    old = teacher.shape[1]
    if over == "old":
        return soft_cross_entropy(logits[:, :old], teacher, temperature)
    probabilities = F.softmax(teacher / temperature, dim=1)
    return -(probabilities * F.log_softmax(logits / temperature, dim=1)[:, :old]).sum(dim=1).mean()


def rehearsal_loss(
    cross_entropy: Tensor,
    distillation: Tensor,
    weight: float,
    *,
    combine: Literal["convex", "additive", "ratio"] = "convex",
) -> Tensor:
    r"""Eq. 3: balance new and old knowledge.

    .. math:: L(x, y) = (1 - \lambda) L_{CE}(x, y) + \lambda L_{KD}(x)

    weight : :math:`\lambda`; in the paper the old classes' share of all classes.
    combine : `additive` does not reduce the cross-entropy: :math:`L_{CE} + \lambda L_{KD}`. `ratio` divides the
        equation by :math:`1 - \lambda`, which keeps its balance: :math:`L_{CE} + \frac{\lambda}{1 - \lambda} L_{KD}`.

    >>> import torch
    >>> rehearsal_loss(torch.tensor(4.0), torch.tensor(8.0), 0.25)
    tensor(5.)
    >>> rehearsal_loss(torch.tensor(4.0), torch.tensor(8.0), 0.25, combine="additive")
    tensor(6.)
    >>> rehearsal_loss(torch.tensor(4.0), torch.tensor(9.0), 0.25, combine="ratio")
    tensor(7.)
    """
    if combine == "ratio":
        return cross_entropy + weight / (1 - weight) * distillation
    kept = 1 - weight if combine == "convex" else 1.0
    return kept * cross_entropy + weight * distillation


def prospective_loss(logits: Tensor, teacher: Tensor, *, temperature: float = 2.0) -> Tensor:
    r"""Eq. 4: at first, predict like the transported classifier on the frozen embedding.

    .. math:: L_{PT}(x) = \sum_{k=1}^{|\mathcal{Y}_b|}
        - S_k([\bar{W}_{old}, \bar{W}_{new}]^\top \bar\phi(x)) \log S_k(W_b^\top \phi(x))

    logits, teacher : (n, all classes).

    >>> import torch
    >>> round(prospective_loss(torch.zeros(1, 4), torch.zeros(1, 4)).exp().item(), 4)
    4.0
    """
    return soft_cross_entropy(logits, teacher, temperature)


def retrospective_loss(logits: Tensor, teacher: Tensor, *, temperature: float = 2.0) -> Tensor:
    r"""Eq. 5: the new classifier, transported back to the old classes, predicts like the old model.

    .. math:: L_{RT}(x) = \sum_{k=1}^{|\mathcal{Y}_{b-1}|}
        - S_k(\bar{W}_{old}^\top \bar\phi(x)) \log S_k(\hat{W}_{old}^\top \phi(x))

    logits : (n, old classes), of the transported classifier :math:`\hat{W}_{old}` on the current embedding.
    teacher : (n, old classes).

    >>> import torch
    >>> round(retrospective_loss(torch.zeros(1, 4), torch.zeros(1, 4)).exp().item(), 4)
    4.0
    """
    return soft_cross_entropy(logits, teacher, temperature)


def soft_cross_entropy(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Cross-entropy of the student's softmax against the teacher's, both softened by the temperature.

    logits, teacher : (n, classes).
    """
    return F.cross_entropy(logits / temperature, F.softmax(teacher / temperature, dim=1))
