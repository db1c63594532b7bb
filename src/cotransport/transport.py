r"""The semantic mapping between classes by optimal transport (Eq. 6-8, Alg. 2), as pure functions on tensors.

The origin classes have a classifier, from which the goal classes get theirs. There are alpha origin classes and beta
goal classes, and the features have d dimensions. Nothing here knows of networks, tasks or training.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.errors import ConfigError, DataError

ITERATIONS = 1000
"""Most Sinkhorn iterations."""
TOLERANCE = 1e-9
"""The iterations stop earlier if the marginals differ by less than this."""


def class_centres(features: Tensor, labels: Tensor, num_classes: int, *, unit: bool = True) -> Tensor:
    r"""Eq. 7: the mean of each class's features.

    .. math:: v_n = \frac{\sum_i I(y_i = n) \phi(x_i)}{\sum_i I(y_i = n)}

    features : (n, d), the embedding :math:`\phi(x_i)`.
    labels : (n,), whole numbers from 0 to num_classes - 1.
    unit : use unit-length features, and scale their mean to unit length, so that no cost is above 4 for any network.
        If false, follow the equation literally.

    Returns (num_classes, d).

    >>> class_centres(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1, 1]), 2)
    tensor([[1., 0.],
            [0., 1.]])
    >>> class_centres(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1, 1]), 2, unit=False)
    tensor([[2., 0.],
            [0., 2.]])
    """
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise DataError(f"labels: give whole numbers from 0 to {num_classes - 1}, the number of classes less one")
    sums, counts = class_sums(features, labels, num_classes, unit=unit)
    return centres_of_sums(sums, counts, unit=unit)


def class_sums(
    features: Tensor, labels: Tensor, num_classes: int, *, unit: bool = True, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The two sums of Eq. 7, of features (num_classes, d) and of images (num_classes,). They add up over batches.

    weights : (n,), how much each image counts; by default 1.
    """
    if unit:
        features = F.normalize(features)
    counted = features.new_ones(len(labels)) if weights is None else weights.to(features)
    weighted = features if weights is None else features * counted[:, None]
    sums = features.new_zeros(num_classes, features.shape[1]).index_add_(0, labels, weighted)
    return sums, features.new_zeros(num_classes).index_add_(0, labels, counted)


def centres_of_sums(sums: Tensor, counts: Tensor, *, unit: bool = True) -> Tensor:
    """Eq. 7 from its two sums."""
    if bool((counts == 0).any()):
        missing = ", ".join(str(number) for number in torch.nonzero(counts == 0).flatten().tolist()[:5])
        raise DataError(f"no features of class {missing}. A class centre needs at least one image")
    return F.normalize(sums) if unit else sums / counts[:, None]


def transport_cost(origin_centres: Tensor, goal_centres: Tensor) -> Tensor:
    r"""Eq. 8: squared Euclidean distances between class centres.

    .. math:: C_{n,m} = \| v_n - v_m \|_2^2

    origin_centres : (alpha, d).
    goal_centres : (beta, d).

    Returns (alpha, beta).

    >>> transport_cost(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[0.0, 0.0]]))
    tensor([[25.],
            [ 1.]])
    """
    # not by inner products, which lose all digits if two centres are close to each other
    return torch.cdist(origin_centres, goal_centres, compute_mode="donot_use_mm_for_euclid_dist").square()


def transport_plan(cost: Tensor, reg: float) -> Tensor:
    r"""Eq. 6 with an entropy term: the cheapest plan that moves the origin classes' mass to the goal classes.

    .. math:: \min_T \langle T, C \rangle + reg \sum_{n,m} T_{n,m} (\log T_{n,m} - 1)
        \quad s.t. \quad T 1 = 1/\alpha, \quad T^\top 1 = 1/\beta, \quad T \geq 0

    cost : (alpha, beta), C.
    reg : strength of the entropy. A larger value spreads the mass of a class more evenly. Towards zero, the plan is
        that of the linear program; towards infinity, it is 1 / (alpha beta) everywhere.

    Returns (alpha, beta) with the cost's dtype and device, without gradient. POT's Sinkhorn algorithm in the log domain
    (Cuturi, 2013) solves it in float64, because in float32 the iterations never reach the tolerance. Afterwards, a
    little mass is moved so that both marginals hold for any `reg` (Altschuler et al., 2017, algorithm 2).

    >>> transport_plan(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), reg=0.01).round(decimals=4)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    >>> transport_plan(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), reg=1e6)
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]])
    """
    from ot.bregman import sinkhorn_log  # it takes a second to import, and the first task does not need it

    if cost.ndim != 2 or 0 in cost.shape:
        raise DataError(f"the cost must be of shape (alpha, beta), both above 0, not {tuple(cost.shape)}")
    if not bool(torch.isfinite(cost).all()):
        raise DataError("the cost must be finite. Check the features for infinite values and NaN")
    if not reg > 0:
        raise ConfigError(f"reg: give a number above 0, not {reg}")
    exact = cost.detach().cpu().double()
    alpha, beta = exact.shape
    rows, columns = exact.new_full((alpha,), 1 / alpha), exact.new_full((beta,), 1 / beta)
    plan: Tensor = sinkhorn_log(
        rows, columns, exact - exact.min(), reg, numItermax=ITERATIONS, stopThr=TOLERANCE, warn=False
    )
    if not bool(torch.isfinite(plan).all()):
        raise ConfigError(f"reg: {reg} is too small for costs up to {exact.max().item():g}. Give a larger one")
    plan = plan * (rows / plan.sum(dim=1)).clamp(max=1)[:, None]
    plan = plan * (columns / plan.sum(dim=0)).clamp(max=1)
    short, lacking = (rows - plan.sum(dim=1)).clamp_min(0), (columns - plan.sum(dim=0)).clamp_min(0)
    plan = plan + torch.outer(short, lacking) / short.sum().clamp_min(torch.finfo(short.dtype).tiny)
    feasible: Tensor = plan.to(cost)
    return feasible


def transport_classifier(plan: Tensor, origin_weights: Tensor) -> Tensor:
    r"""Algorithm 2, line 5: the goal classes' classifier, made from that of the origin classes.

    .. math:: W_g = c \, \beta \, T^\top \left( \frac{W_o}{\| W_o \|} \right)

    plan : (alpha, beta), T.
    origin_weights : (alpha, d), :math:`W_o`, a row for each class. If the head has a bias, it is not included.

    Returns (beta, d). Each row is a mean of unit-length origin rows, weighted by the plan. The factor c is the same for
    all rows, and gives them the mean length of the origin rows. The gradient flows to the origin weights. Origin rows
    shorter than a thousandth of the mean length are not scaled to unit length, so that the gradient stays bounded.

    >>> transport_classifier(torch.tensor([[0.5, 0.0], [0.0, 0.5]]), torch.tensor([[0.0, 2.0], [2.0, 0.0]]))
    tensor([[0., 2.],
            [2., 0.]])
    """
    lengths = origin_weights.norm(dim=1, keepdim=True)
    units = origin_weights / torch.maximum(lengths, (1e-3 * lengths.mean()).detach()).clamp_min(1e-12)
    mixed: Tensor = plan.shape[1] * plan.T @ units
    goal: Tensor = mixed * (lengths.mean() / mixed.norm(dim=1).mean().clamp_min(1e-12))
    return goal


def sources(plan: Tensor) -> Tensor:
    """The share that each origin class has in each goal class: the plan with columns that sum to one.

    >>> sources(torch.tensor([[0.5, 0.25], [0.0, 0.25]]))
    tensor([[1.0000, 0.5000],
            [0.0000, 0.5000]])
    """
    return plan * plan.shape[1]


def effective_sources(plan: Tensor) -> Tensor:
    r"""How many origin classes each goal class is made of: (beta,), the exponential of the shares' entropy.

    .. math:: n_m = \exp \left( - \sum_n s_{n,m} \log s_{n,m} \right), \quad s = \beta T

    >>> effective_sources(torch.tensor([[0.5, 0.25], [0.0, 0.25]]))
    tensor([1., 2.])
    """
    entropy: Tensor = torch.special.entr(sources(plan)).sum(dim=0)
    return entropy.exp()
