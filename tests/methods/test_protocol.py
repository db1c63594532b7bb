"""The protocol: while a task is learned, no network sees an image beyond the task's own and the memory's exemplars.

Every image that a `Network` gets is recorded by its pixels, so hidden copies are found too. Learners that leak show
that the check works.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from cotransport.data import DataSet, Images, LabelledImages, PixelImages, concatenate
from cotransport.experiments.stream import TaskStream
from cotransport.methods import Method, known_methods
from cotransport.methods.coil import Coil
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Budget
from cotransport.training.loop import Trainer
from cotransport.training.task_data import TaskData
from tests.conftest import blobs, classifier
from tests.helpers import pixels

METHODS = sorted(name for name, kind in known_methods().items() if not kind.needs_frozen_backbone)
TASKS = blobs(2, 12), blobs(2, 12, first=2, seed=1), blobs(2, 12, first=4, seed=2)
BUDGET = Budget(total=12)


class KeepsData(Coil):
    """Leaks like the authors' public code: class centres of old classes come from all their training data."""

    kept: ClassVar[list[LabelledImages]] = []

    def initialise(self, network: Network, data: TaskData, trainer: Trainer) -> Tensor | None:
        for earlier in self.kept:
            trainer.features(network, earlier.images)
        images = PixelImages(pixels(data.new.images).clone())
        self.kept.append(LabelledImages(images, data.new.labels, data.new.classes))
        return super().initialise(network, data, trainer)


class LooksAhead(Coil):
    """Leaks by looking at the next task."""

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        super().learn(network, data, trainer)
        if len(data.new.classes) < 6:
            trainer.features(network, TASKS[len(data.new.classes) // 2].images)


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[bytes]]:
    """All images that networks see, by their pixels."""
    shown: set[bytes] = set()
    original = Network.forward

    def forward(self: Network, images: Tensor, with_logits: bool = True) -> Output:
        shown.update(image.to(torch.uint8).contiguous().numpy().tobytes() for image in images.detach().cpu())
        return original(self, images, with_logits)

    with monkeypatch.context() as patched:
        patched.setattr(Network, "forward", forward)
        yield shown


def pictures(images: Images) -> set[bytes]:
    """The pixels of each image, channels first as networks see them."""
    return {image.contiguous().numpy().tobytes() for image in pixels(images).permute(0, 3, 1, 2)}


def forbidden_images(method: str | Method, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each task, the number of images that networks saw and must not see."""
    clf = classifier(method, memory=BUDGET)
    found = []
    exemplars: tuple[Images, ...] = ()
    for task in TASKS:
        allowed = pictures(concatenate([task.images, *exemplars]))
        with recorded(monkeypatch) as shown:
            clf.learn(task)
        assert shown >= pictures(task.images)
        found.append(len(shown - allowed))
        exemplars = tuple(images for images in clf.state_.memory.exemplars if len(images))
        if clf.settings_.method.budget(BUDGET) is not None:
            assert sum(map(len, exemplars)) <= 12
    return found


@pytest.mark.parametrize("method", METHODS)
def test_no_network_sees_more_than_task_and_memory(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert forbidden_images(method, monkeypatch) == [0, 0, 0]


def test_a_learner_that_keeps_copies_of_old_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    KeepsData.kept.clear()
    assert forbidden_images(KeepsData(), monkeypatch) == [0, 24 - 12, 48 - 12]


def test_a_learner_that_sees_future_tasks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forbidden_images(LooksAhead(), monkeypatch) == [24, 24, 0]


def test_a_task_holds_its_own_images_only() -> None:
    """The stream gives one task at a time, and a task does not lead to the others."""
    everything = blobs(6, 5)
    stream = TaskStream(DataSet(everything, blobs(6, 2, seed=1)), ((4, 2), (0, 5), (1, 3)))
    tasks = [pictures(task.train.images) for task in stream]
    assert [len(own) for own in tasks] == [10, 10, 10]
    assert not (tasks[0] & tasks[1] or tasks[0] & tasks[2] or tasks[1] & tasks[2])
    assert [sorted(set(task.train.labels.tolist())) for task in stream] == [[0, 1]] * 3
