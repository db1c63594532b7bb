from __future__ import annotations

import math
import os

import pytest
import torch
from torch import Tensor, nn

from cotransport.data import Batch, Vectors
from cotransport.networks.network import HeadAlone, Output
from cotransport.settings.sections import Device, Schedule
from cotransport.training import threads as module
from cotransport.training.objective import Moment
from cotransport.training.progress import TrainingProgress
from cotransport.training.threads import (
    FLOPS_PER_THREAD,
    forward_flops,
    share_cores,
    threads,
    training_threads,
    useful_threads,
)
from tests.conftest import blobs
from tests.helpers import CPU, always, cross_entropy, quick_trainer, small_network, trained

IMAGE = (3, 8, 8)
IMAGE_FLOPS = 2 * 36 * 8 * (3 * 9) + 2 * 16 * (8 * 36) + 2 * 2 * 16
"""Operations of `small_network` for one image, counted by hand: convolution, linear layer and head."""


@pytest.fixture
def eight_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight threads, where the user has not chosen their number."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)


@pytest.mark.parametrize(
    ("flops", "useful"),
    [(0, 1), (FLOPS_PER_THREAD, 1), (2 * FLOPS_PER_THREAD, 2), (7.9 * FLOPS_PER_THREAD, 7), (math.inf, 8)],
)
def test_each_thread_needs_enough_work(flops: float, useful: int) -> None:
    assert useful_threads(flops, 8) == useful


def test_operations_are_counted_for_one_image() -> None:
    network = small_network().train()
    assert forward_flops(network, IMAGE) == IMAGE_FLOPS
    assert network.training
    assert forward_flops(HeadAlone(network.head), (16,)) == 2 * 2 * 16


def test_counting_changes_nothing_in_the_network() -> None:
    network, twin = small_network().train(), small_network()
    forward_flops(network, IMAGE)
    for name, value in network.state_dict().items():
        assert torch.equal(value, twin.state_dict()[name])
    assert all(parameter.grad is None for parameter in network.parameters())


class Uncountable(nn.Module):
    """It accepts batches of more than one image only."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) == 1:
            raise RuntimeError("one image is not enough")
        return images


def test_operations_that_cannot_be_counted_are_infinite() -> None:
    network = Uncountable().train()
    assert forward_flops(network, IMAGE) == math.inf
    assert network.training


@pytest.mark.usefixtures("eight_threads")
def test_a_small_network_gets_one_thread() -> None:
    assert training_threads(small_network(), IMAGE, 16, Device()) == 1


@pytest.mark.usefixtures("eight_threads")
def test_a_step_is_a_forward_and_a_backward_pass_of_all_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass takes twice the operations of the forward pass."""
    monkeypatch.setattr(module, "FLOPS_PER_THREAD", IMAGE_FLOPS)
    assert [training_threads(small_network(), IMAGE, images, Device()) for images in (1, 2, 3)] == [3, 6, 8]


@pytest.mark.usefixtures("eight_threads")
def test_a_network_whose_operations_cannot_be_counted_gets_all_threads() -> None:
    assert training_threads(Uncountable(), IMAGE, 16, Device()) == 8


@pytest.mark.usefixtures("eight_threads")
def test_the_users_choice_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads in use, which `share_cores` has set by then."""
    assert training_threads(small_network(), IMAGE, 16, Device(threads=8)) == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert training_threads(small_network(), IMAGE, 16, Device()) == 8


def test_the_processes_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(module, "available_cores", lambda: 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    for processes in (1, 2, 3, 16):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        share_cores(Device(processes=processes))
        assert os.environ.get("OMP_NUM_THREADS") == (None if processes == 1 else str(chosen[-1]))
    assert chosen == [6, 4, 2, 1]
    share_cores(Device(processes=2))  # in the processes that Fabric starts, OMP_NUM_THREADS is set
    assert len(chosen) == 4
    share_cores(Device(threads=5))
    assert chosen[-1] == 5


@pytest.mark.parametrize("inside", [1, 2, 3])
def test_the_number_of_threads_is_restored(inside: int) -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="inside"), threads(inside):
        assert torch.get_num_threads() == inside
        raise ValueError("inside")
    assert torch.get_num_threads() == before


def used_threads(**settings: object) -> tuple[int, set[int]]:
    """The reported number of threads of a training, and the number in use in its steps."""
    used: set[int] = set()
    reports: list[TrainingProgress] = []

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        used.add(torch.get_num_threads())
        return cross_entropy(batch, output, moment)

    quick_trainer(listener=reports.append, **settings).fit(small_network(), blobs(2, 20), always(loss))
    (reported,) = {report.threads for report in reports}
    return reported, used


def test_a_training_uses_and_reports_recorded_threads() -> None:
    before = torch.get_num_threads()
    for count in (1, 2):
        assert used_threads(threads=count) == (count, {count})
    assert torch.get_num_threads() == before


def test_a_training_chooses_threads_by_the_work_of_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches have 16 images at most; with a batch size of 100, all 40 images there are."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threads(2):
        assert used_threads() == (1, {1})
        for batch_size, images in ((16, 16), (100, 40)):
            schedule = Schedule(epochs=1, batch_size=batch_size)
            monkeypatch.setattr(module, "FLOPS_PER_THREAD", 3 * images * IMAGE_FLOPS / 2)
            assert used_threads(schedule=schedule) == (2, {2})
            monkeypatch.setattr(module, "FLOPS_PER_THREAD", 3 * images * IMAGE_FLOPS / 2 + 1)
            assert used_threads(schedule=schedule) == (1, {1})


def test_a_head_alone_is_small_whatever_the_size_of_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    data, reports = blobs(2, 20), list[TrainingProgress]()
    features = type(data)(Vectors(torch.randn(40, 16)), data.labels, data.classes)
    with threads(2):
        trained(features, quick_trainer(listener=reports.append, device=CPU), HeadAlone(small_network().head))
    assert {report.threads for report in reports} == {1}
