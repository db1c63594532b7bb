"""What chance alone can do to a share of images, or a loss, that is measured on a few. Nothing here needs torch."""

from __future__ import annotations

import math

from cotransport.overview import Verdict

DEVIATIONS = 1.96
"""Standard deviations of an interval that contains the true value with a probability of 95 %."""
RARE = 0.05
"""Probability below which a loss is not put down to chance."""
RARE_DEVIATIONS = 1.645
"""Standard deviations of a normal distribution that are exceeded with that probability."""
MANY = 500
"""From more changed images than this, their distribution is as good as normal."""


def likely_loss(lost: int, gained: int, images: int) -> tuple[float, float]:
    """Between which points of accuracy the true loss lies, with a probability of 95 % (Agresti and Min, 2005).

    Both accuracies are measured on the same images.

    lost, gained : images that were recognised before and are not now, and the other way round.

    >>> [round(bound, 1) for bound in likely_loss(0, 0, 20)], [round(bound) for bound in likely_loss(30, 2, 100)]
    ([-8.9, 8.9], [18, 37])
    """
    lost_, gained_, images_ = lost + 0.5, gained + 0.5, images + 2
    difference = lost_ - gained_
    half = DEVIATIONS * math.sqrt(lost_ + gained_ - difference**2 / images_)
    return 100 * (difference - half) / images_, 100 * (difference + half) / images_


def likely_share(hits: int, images: int) -> tuple[float, float]:
    """Between which percentages the true share of hits lies, with a probability of 95 % (Wilson, 1927).

    >>> [round(bound) for bound in likely_share(9, 10)], [round(bound) for bound in likely_share(0, 0)]
    ([60, 98], [0, 100])
    """
    if not images:
        return 0.0, 100.0
    share, square = hits / images, DEVIATIONS**2 / images
    half = math.sqrt(square * (share * (1 - share) + square / 4))
    return 100 * (share + square / 2 - half) / (1 + square), 100 * (share + square / 2 + half) / (1 + square)


def is_beyond_chance(lost: int, gained: int) -> bool:
    """Whether a loss of this size is rare if images are lost and gained at random (sign test).

    >>> is_beyond_chance(4, 0), is_beyond_chance(5, 0), is_beyond_chance(5, 3), is_beyond_chance(0, 9)
    (False, True, False, False)
    """
    changed = lost + gained
    if changed > MANY:
        return (lost - gained) / math.sqrt(changed) > RARE_DEVIATIONS
    as_bad = sum(math.comb(changed, count) for count in range(lost, changed + 1))
    return bool(as_bad / 2**changed < RARE)  # both are integers, which may be large


def verdict(lost: int, gained: int) -> Verdict | None:
    """What a change of accuracy means; None if no image was lost or gained.

    >>> verdict(0, 0), verdict(5, 0), verdict(0, 5), verdict(2, 1)
    (None, 'loss', 'gain', 'chance')
    """
    if not lost and not gained:
        return None
    if is_beyond_chance(lost, gained):
        return "loss"
    return "gain" if is_beyond_chance(gained, lost) else "chance"
