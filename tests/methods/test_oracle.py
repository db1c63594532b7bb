from __future__ import annotations

import torch

from cotransport.methods.oracle import Oracle
from cotransport.settings.sections import Budget
from tests.conftest import blobs, classifier
from tests.helpers import pictures


def test_keeps_every_image() -> None:
    assert Oracle().budget(Budget(per_class=4)) is None
    first, second = blobs(2, 8), blobs(2, 8, first=2)
    clf = classifier("oracle").learn(first).learn(second)
    kept = [picture for images in clf.state_.memory.exemplars for picture in pictures(images)]
    assert sorted(kept) == sorted(pictures(first.images) + pictures(second.images))


def test_every_task_starts_with_a_fresh_network() -> None:
    """The weights before the second training do not depend on the first training."""
    assert Oracle.from_scratch
    weights = []
    for images in (blobs(2, 8), blobs(2, 8, seed=9)):
        clf = classifier("oracle", normalisation="imagenet").learn(images)
        grown = clf.initialise(blobs(2, 8, first=2)).state_.network
        assert not torch.equal(grown.head.weight[:2], clf.state_.network.head.weight)
        weights.append(grown.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
