"""Features are computed once for each image, and thrown away with it."""

from __future__ import annotations

import pytest
import torch

from cotransport.settings.sections import View
from cotransport.training import inference
from cotransport.training.feature_cache import FeatureCache, digests_of
from tests.conftest import blobs
from tests.helpers import CPU, Passes, small_network


def test_every_image_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = small_network(), blobs(2, 6).images
    expected = inference.outputs(network, images, CPU).features
    passes, cache = Passes(monkeypatch), FeatureCache(View())
    torch.testing.assert_close(cache.features(network, images.first(8), CPU), expected[:8])
    torch.testing.assert_close(cache.features(network, images, CPU), expected)
    order = torch.tensor([11, 3, 3, 0])
    assert torch.equal(cache.features(network, images.take(order), CPU), cache.features(network, images, CPU)[order])
    assert [count for count, _ in passes.seen] == [8, 4]
    assert cache.digests == set(digests_of(images))
    assert cache.features(network, images.first(0), CPU).shape == (0, network.dimension)


def test_an_image_that_comes_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, images = Passes(monkeypatch), blobs(2, 6).images.take(torch.tensor([1, 1, 2]))
    found = FeatureCache(View()).features(small_network(), images, CPU)
    assert [count for count, _ in passes.seen] == [2]
    assert (torch.equal(found[0], found[1]), torch.equal(found[1], found[2])) == (True, False)


def test_only_complete_answers_for_the_same_crop_are_given() -> None:
    network, images, cache = small_network(), blobs(2, 6).images, FeatureCache(View())
    assert cache.known(images, View()) is None
    found = cache.features(network, images.first(6), CPU)
    known = cache.known(images.first(6), View())
    assert known is not None
    assert torch.equal(known, found)
    assert cache.known(images.first(7), View()) is None
    assert cache.known(images.first(6), View(crop=0.5)) is None
    assert cache.known(images.first(6), View(fit="pad")) is None
    assert cache.known(images.first(0), View()) is None


def test_features_are_thrown_away_with_their_images() -> None:
    network, images, cache = small_network(), blobs(2, 6).images, FeatureCache(View())
    cache.features(network, images.first(4), CPU)
    cache.features(network, images, CPU)
    kept = cache.only(set(digests_of(images.take(torch.tensor([0, 1, 2, 3, 9])))))
    assert kept.parts[0][1] is cache.parts[0][1]  # unchanged, so it is not stored again
    assert [len(digests) for digests, _ in kept.parts] == [4, 1]
    known = kept.known(images.take(torch.tensor([9])), View())
    assert known is not None
    assert torch.equal(known, cache.features(network, images, CPU)[[9]])
    assert cache.only(set()).parts == ()


def test_a_copy_grows_on_its_own() -> None:
    network, images, cache = small_network(), blobs(2, 6).images, FeatureCache(View())
    cache.features(network, images.first(2), CPU)
    twin = cache.copy()
    twin.features(network, images, CPU)
    assert (len(cache.digests), len(twin.digests)) == (2, 12)


def test_features_of_another_cache_are_taken_over() -> None:
    network, images, cache = small_network(), blobs(2, 6).images, FeatureCache(View())
    other = FeatureCache(View())
    other.features(network, images.first(4), CPU)
    own = cache.features(network, images.take(torch.tensor([3, 5])), CPU)
    cache.add(other)
    assert cache.digests == set(digests_of(images.take(torch.tensor([0, 1, 2, 3, 5]))))
    found = cache.features(network, images.first(6).take(torch.tensor([0, 3])), CPU)
    assert torch.equal(found[0], other.parts[0][1][0])
    assert torch.equal(found[1], own[0])  # known before
