"""WA: after a task, the weights of the new classes have the same mean length as those of the old classes."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.errors import CotransportWarning
from cotransport.methods import Method
from cotransport.methods.wa import WA, align
from cotransport.networks.heads import ClippedHead, LinearHead
from cotransport.settings.sections import HeadSettings
from tests.conftest import blobs, classifier


def after_two_tasks(method: object = "wa") -> IncrementalClassifier:
    return classifier(method).learn(blobs(3, 8)).learn(blobs(2, 8, first=3))


def test_alignment_by_hand() -> None:
    """Old lengths 5 and 1, mean 3; new lengths 2, 4 and 12, mean 6: a factor of 1/2."""
    weight = torch.tensor([[3.0, 4.0], [1.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, -12.0]])
    align(weight, slice(0, 2), slice(2, 5))
    assert weight.tolist() == [[3.0, 4.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -6.0]]


def test_new_weights_that_are_all_zero_stay_zero() -> None:
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    align(weight, slice(0, 1), slice(1, 2))
    assert weight.tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_clipping_that_does_not_suit_the_backbone_gives_one_warning() -> None:
    signed = {"name": "resnet8", "dimension": 4}
    for clip in (True, False):
        clf = classifier({"name": "wa", "clip_weights": clip}).set_params(backbone=signed)
        with pytest.warns(CotransportWarning, match="negative features") if clip else nullcontext():
            clf.learn(blobs(3, 8))
        clf.learn(blobs(2, 8, first=3))  # no second warning


def test_mean_lengths_are_equal_after_every_task() -> None:
    clf = classifier("wa").learn(blobs(3, 8))
    for first, classes in ((3, 2), (5, 1)):
        clf.learn(blobs(classes, 8, first=first))
        lengths = clf.state_.network.head.weight.norm(dim=1)
        assert lengths[first:].mean().item() == pytest.approx(lengths[:first].mean().item(), rel=1e-5)


def test_alignment_is_the_only_step_after_training() -> None:
    """The same training without alignment has the same old weights, and new weights with the same directions."""

    class Unaligned(WA):
        learn = Method.learn

    plain, without = WA(clip_weights=False), Unaligned(clip_weights=False)
    aligned, unaligned = (after_two_tasks(method).state_.network.state_dict() for method in (plain, without))
    ours, theirs = aligned.pop("head.weight"), unaligned.pop("head.weight")
    assert torch.equal(ours[:3], theirs[:3])
    factors = ours[3:] / theirs[3:]
    assert factors.std().item() < 1e-5 < abs(factors.mean().item() - 1)
    assert all(torch.equal(aligned[name], unaligned[name]) for name in aligned)


def test_weights_are_not_negative() -> None:
    """They are set to zero, in every step and at the end, where a plain head has negative weights."""
    weights, plain = (
        after_two_tasks({"name": "wa", "clip_weights": clip}).state_.network.head.weight.detach()
        for clip in (True, False)
    )
    assert (weights >= 0).all()
    assert (weights == 0).any()
    assert (plain < 0).any()
    head = ClippedHead(2)
    head.weight = nn.Parameter(torch.tensor([[1.0, -1.0]]))
    assert head.eval()(torch.tensor([[2.0, 3.0]])).tolist() == [[-1.0]]
    assert head.train()(torch.tensor([[2.0, 3.0]])).tolist() == [[2.0]]


def test_the_first_task_is_not_aligned() -> None:
    clf = classifier("wa").learn(blobs(3, 8))
    assert clf.state_.network.head.weight.norm(dim=1).std().item() > 1e-4


def test_images_of_known_classes_only_do_not_align() -> None:
    clf = after_two_tasks()
    clf.partial_fit(blobs(2, 4, seed=3))
    lengths = clf.state_.network.head.weight.norm(dim=1)
    assert lengths[3:].mean().item() != pytest.approx(lengths[:3].mean().item(), rel=1e-5)


@pytest.mark.parametrize(("clip", "kind"), [(True, ClippedHead), (False, LinearHead)])
def test_the_head_has_the_settings_scale_and_no_bias(clip: bool, kind: type[LinearHead]) -> None:
    head = WA(clip_weights=clip).make_head(4, HeadSettings(linear_scale=0.5))
    assert type(head) is kind
    assert head.scale.item() == 0.5
    assert head.bias is None
