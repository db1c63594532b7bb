from __future__ import annotations

from cotransport.methods.finetune import Finetune
from cotransport.settings.sections import Budget
from tests.conftest import blobs, classifier
from tests.helpers import same_weights


def test_keeps_no_exemplars() -> None:
    assert Finetune().budget(Budget(per_class=4)).quota(3) == 0
    clf = classifier("finetune").learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert len(clf.state_.memory) == 0


def test_is_replay_without_a_memory() -> None:
    finetune, replay = classifier("finetune"), classifier("replay", memory=Budget(per_class=0))
    for clf in (finetune, replay):
        clf.learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert same_weights(finetune.state_.network, replay.state_.network)
