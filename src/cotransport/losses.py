"""The paper's losses, a pure function each. Logits are (n, classes), labels (n,); a loss is the mean over the batch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, log_prior: Tensor | None = None) -> Tensor:
    r"""Eq. 1: cross-entropy over all classes seen.

    .. math:: L_{CE}(x, y) = \sum_{k=1}^{|\mathcal{Y}_b|} - I(y = k) \log S_k(W_b^\top \phi(x))

    where S is the softmax. Two settings go beyond the equation: with `smoothing` s, the target is (1 - s) of the
    indicator and s of the uniform distribution; with `log_prior` (classes,), the logarithms of the classes' shares of
    the training images are added to the logits (class-balanced softmax, Ren et al., 2020).

    >>> import torch
    >>> round(cross_entropy(torch.zeros(1, 4), torch.tensor([2])).exp().item(), 4)
    4.0
    """
    if log_prior is not None:
        logits = logits + log_prior
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)
