"""WA: after a task, the new classes' weights are as long in the mean as the old ones'."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.errors import CotransportWarning
from cotransport.methods import known_methods
from cotransport.methods.rehearsal import Distilling
from cotransport.methods.wa import WA, align
from cotransport.networks.heads import ClippedHead, CosineHead, LinearHead
from cotransport.settings.sections import HeadSettings
from tests.conftest import blobs, classifier


def learned(method: object = "wa") -> IncrementalClassifier:
    return classifier(method).learn(blobs(3, 8)).learn(blobs(2, 8, first=3))


def test_alignment_by_hand() -> None:
    """Old lengths 5 and 1, mean 3; new lengths 2, 4 and 12, mean 6: a factor of 1/2."""
    weight = torch.tensor([[3.0, 4.0], [1.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, -12.0]])
    align(weight, slice(0, 2), slice(2, 5))
    assert weight.tolist() == [[3.0, 4.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -6.0]]


def test_weights_that_were_clipped_to_nothing_stay_nothing() -> None:
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    align(weight, slice(0, 1), slice(1, 2))
    assert weight.tolist() == [[3.0, 4.0], [0.0, 0.0]]


def test_clipping_that_does_not_suit_the_backbone_is_told() -> None:
    signed = {"name": "resnet8", "dimension": 4}
    for clip in (True, False):
        clf = classifier({"name": "wa", "clip_weights": clip}).set_params(backbone=signed)
        with pytest.warns(CotransportWarning, match="negative features") if clip else nullcontext():
            clf.learn(blobs(3, 8))
        clf.learn(blobs(2, 8, first=3))  # told once


def test_mean_lengths_are_equal_after_every_task() -> None:
    clf = classifier("wa").learn(blobs(3, 8))
    for first, classes in ((3, 2), (5, 1)):
        clf.learn(blobs(classes, 8, first=first))
        lengths = clf.state_.network.head.weight.norm(dim=1)
        assert lengths[first:].mean().item() == pytest.approx(lengths[:first].mean().item(), rel=1e-5)


def test_alignment_is_all_that_comes_after_distillation() -> None:
    """The same training without alignment has the same old weights, and new ones of the same directions."""

    class Unaligned(WA):
        learn = Distilling.learn

    plain, without = WA(clip_weights=False), Unaligned(clip_weights=False)
    aligned, unaligned = (learned(method).state_.network.state_dict() for method in (plain, without))
    ours, theirs = aligned.pop("head.weight"), unaligned.pop("head.weight")
    assert torch.equal(ours[:3], theirs[:3])
    factors = ours[3:] / theirs[3:]
    assert factors.std().item() < 1e-5 < abs(factors.mean().item() - 1)
    assert all(torch.equal(aligned[name], unaligned[name]) for name in aligned)


def test_weights_are_not_negative() -> None:
    """In every step and at the end, by a projection: zero where a plain head would go below."""
    weights, plain = (
        learned({"name": "wa", "clip_weights": clip}).state_.network.head.weight.detach() for clip in (True, False)
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


def test_more_images_of_known_classes_align_nothing() -> None:
    clf = learned()
    clf.partial_fit(blobs(2, 4, seed=3))
    lengths = clf.state_.network.head.weight.norm(dim=1)
    assert lengths[3:].mean().item() != pytest.approx(lengths[:3].mean().item(), rel=1e-5)


def test_the_head_is_the_methods_choice() -> None:
    heads = {name: known_methods()[name]().make_head(4, HeadSettings()) for name in known_methods()}
    linear = {name: head for name, head in heads.items() if isinstance(head, LinearHead)}
    assert set(linear) == {"bic", "wa"}
    assert {name for name, head in linear.items() if head.bias is not None} == {"bic"}
    assert all(isinstance(head, CosineHead) for name, head in heads.items() if name not in linear)
