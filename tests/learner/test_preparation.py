"""What comes before and after the learning of a lesson. tests/lessons/test_python.py compares its two users."""

from __future__ import annotations

import pytest
from torch import nn

from cotransport.data.splits import Splits
from cotransport.learner import first_network
from cotransport.learner.choice import Way, may_suit
from cotransport.learner.first_network import way_of
from cotransport.learner.learning import learned
from cotransport.learner.preparation import prepare, with_held_out
from cotransport.settings.sections import Backbone, Device
from cotransport.training.feature_cache import digests_of
from cotransport.training.listener import NullListener
from tests.conftest import blobs
from tests.learner.helpers import Tasks, learner_settings

CPU = Device(accelerator="cpu")
BACKBONE = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())


def test_a_first_lesson_gets_what_suits_its_images() -> None:
    lesson = prepare(Splits(blobs(2, 10), None), None, {"seed": 4}, held_out=0.2, device=CPU, listener=NullListener())
    assert (lesson.train.counts().tolist(), lesson.test.counts().tolist()) == ([8, 8], [2, 2])
    assert (lesson.settings.method.name, lesson.settings.seed, lesson.features) == ("coil-tuned", 4, None)
    assert lesson.settings.schedule.epochs == 60  # 600 steps of 16 would be 600 epochs


def test_a_later_lesson_keeps_the_network_and_gets_a_schedule(two_tasks: Tasks) -> None:
    settings = learner_settings("replay", seed=3)
    state = learned(None, two_tasks[0], settings)
    lesson = prepare(
        Splits(two_tasks[1], None), (state, settings), {}, held_out=0.0, device=CPU, listener=NullListener()
    )
    assert (lesson.settings.method, lesson.settings.backbone) == (settings.method, settings.backbone)
    assert lesson.settings.seed == 3
    assert lesson.settings.schedule != settings.schedule
    assert len(lesson.test) == 0


@pytest.mark.parametrize(
    ("decided", "name", "is_frozen"),
    [
        ("frozen", "efficientnet-lite0", True),
        ("fine-tuned", "efficientnet-lite0", False),
        ("from scratch", "fast", False),
    ],
)
def test_what_was_decided_before_is_not_decided_again(
    decided: Way, name: str, is_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_network, "may_suit", lambda _: True)
    monkeypatch.setattr(first_network, "try_networks", None)
    assert not may_suit(blobs(2, 4))
    lesson = prepare(
        Splits(blobs(2, 4), None),
        None,
        {},
        held_out=0.0,
        device=CPU,
        listener=NullListener(),
        decided=decided,
    )
    backbone = lesson.settings.backbone
    assert isinstance(backbone, Backbone)
    assert (backbone.name, lesson.settings.freeze_backbone) == (name, is_frozen)
    assert way_of(lesson.settings.plain()) == decided


def test_features_of_kept_images_alone_are_kept(two_tasks: Tasks) -> None:
    settings = learner_settings("replay", BACKBONE, freeze_backbone=True, memory={"per_class": 3})
    train, test = two_tasks
    state = learned(None, train, settings)
    held_out = test.take(test.labels.new_tensor([0, 1]))
    after = with_held_out(state, held_out.renumbered(("class 2", "class 3")), settings)
    assert len(after.held_out) == 0  # of no known class

    own = train.take(test.labels.new_tensor([0, 30]))
    after = with_held_out(state, own, settings)
    assert [len(images) for images in after.held_out.exemplars] == [1, 1]
    assert after.features is not None
    kept = [*after.memory.exemplars, *after.held_out.exemplars]
    assert after.features.digests == {digest for images in kept for digest in digests_of(images)}
