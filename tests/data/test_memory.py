import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Images
from cotransport.data.memory import Memory, herding, herding_in_one_pass
from tests.conftest import blobs


def literal_herding(features: Tensor, quota: int) -> list[int]:
    """The definition, step by step."""
    units = F.normalize(features.double())
    mean = units.mean(dim=0)
    chosen: list[int] = []
    for k in range(1, min(quota, len(units)) + 1):
        best, nearest = -1, float("inf")
        for candidate in range(len(units)):
            if candidate in chosen:
                continue
            together = (units[candidate] + sum(units[c] for c in chosen)) / k
            distance = float((mean - together).norm())
            if distance < nearest - 1e-12:
                best, nearest = candidate, distance
        chosen.append(best)
    return chosen


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 14), st.integers(0, 10_000))
def test_herding_follows_its_definition(count: int, dimension: int, quota: int, seed: int) -> None:
    features = torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed))
    assert herding(features, quota).tolist() == literal_herding(features, quota)


def test_ties_go_to_the_lower_index() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    # all have the same distance from the mean; two different ones make up the mean; then the same again
    assert herding(features, 4).tolist() == [0, 1, 2, 3]


def test_herding_by_hand() -> None:
    # unit vectors at 0, 90 and 30 degrees have the mean (0.622, 0.5). The third, (0.866, 0.5), is nearest to it. Its
    # mean with the first is (0.933, 0.25), 0.40 away, and with the second (0.433, 0.75), 0.31 away
    features = torch.tensor([[5.0, 0.0], [0.0, 2.0], [3**0.5, 1.0]])
    assert herding(features, 3).tolist() == [2, 1, 0]


def test_a_shorter_quota_is_a_prefix() -> None:
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    assert herding(features, 5).tolist() == herding(features, 12).tolist()[:5]


def random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 14), st.integers(1, 5), st.integers(0, 10_000))
def test_one_pass_with_room_for_the_whole_class_is_exact(
    count: int, dimension: int, quota: int, chunk: int, seed: int
) -> None:
    features = torch.randn(count, dimension, generator=random(seed))
    found = herding_in_one_pass(features.split(chunk), quota, candidates=12, random=random())
    assert found.tolist() == herding(features, quota).tolist()


def test_one_pass_does_not_depend_on_the_chunks() -> None:
    features = torch.randn(100, 8, generator=random())
    found = [herding_in_one_pass(features.split(size), 5, 20, random(1)).tolist() for size in (1, 7, 100)]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 5
    assert herding_in_one_pass(features.split(7), 5, 2, random(1)).shape == (5,)


def test_one_pass_comes_close_to_the_mean_of_all_features() -> None:
    """Much closer than exemplars at random, and not much further than exact herding."""
    features = torch.randn(2000, 16, generator=random()) + 0.5
    units = F.normalize(features.double())

    def distance(chosen: Tensor) -> float:
        return float((units[chosen].mean(dim=0) - units.mean(dim=0)).norm())

    at_random = min(distance(torch.randperm(2000, generator=random(seed))[:20]) for seed in range(20))
    found = [distance(herding_in_one_pass(features.split(256), 20, 200, random(seed))) for seed in range(5)]
    assert distance(herding(features, 20)) <= min(found)
    assert max(found) < at_random / 2


def test_one_pass_samples_all_images_alike() -> None:
    """If every candidate is chosen, the mean place of 2,000 is 49.5, with a standard error of 0.65."""
    features = torch.randn(100, 4, generator=random())
    places = [herding_in_one_pass(features.split(30), 10, 10, random(seed)) for seed in range(200)]
    assert abs(float(torch.cat(places).double().mean()) - 49.5) < 4 * 0.65


def test_a_memory_does_not_change() -> None:
    first = Memory().updated({0: blobs(1, 6).images}, quota=6)
    second = first.updated({1: blobs(1, 6).images}, quota=3)
    assert [len(images) for images in first.exemplars] == [6]
    assert [len(images) for images in second.exemplars] == [3, 3]
    with pytest.raises(AttributeError):
        first.exemplars = ()  # type: ignore[misc]


def test_a_smaller_memory_keeps_a_prefix_and_copies_nothing() -> None:
    images = blobs(1, 6).images
    shrunk = Memory((images,)).updated({}, quota=2).exemplars[0]
    assert shrunk.pixels.data_ptr() == images.pixels.data_ptr()  # type: ignore[union-attr]
    assert (shrunk.pixels == images.pixels[:2]).all()  # type: ignore[union-attr]


def test_a_memory_as_labelled_images() -> None:
    memory = Memory((blobs(1, 2).images, blobs(1, 1).images))
    data = memory.labelled(("a", "b"))
    assert data is not None
    assert data.labels.tolist() == [0, 0, 1]
    assert data.classes == ("a", "b")
    assert len(data.images) == 3


def test_an_empty_memory_has_no_labelled_images() -> None:
    assert Memory().labelled(()) is None
    assert Memory((blobs(1, 2).images.first(0),)).labelled(("a",)) is None


def test_exemplars_given_as_a_function_are_loaded_once() -> None:
    calls = []

    def load() -> tuple[Images, ...]:
        calls.append(1)
        return (blobs(1, 2).images,)

    memory = Memory(load)
    assert not calls
    assert len(memory) == len(memory.exemplars[0]) == 2
    assert len(calls) == 1
