"""The protocol: while a task is learned, no network sees an image beyond the task's own and the memory's exemplars.

Every image that goes through a `Network` is recorded by its pixels, so a copy kept aside counts as well. The check is
checked with learners that leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from cotransport import IncrementalClassifier
from cotransport.data import Images, LabelledImages, concatenate
from cotransport.methods import Lesson, Method, known_methods
from cotransport.methods.coil import Coil
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Budget, Device, Schedule
from cotransport.training.loop import Trainer
from tests.conftest import blobs

METHODS = sorted(known_methods())
TASKS = blobs(2, 12), blobs(2, 12, first=2, seed=1), blobs(2, 12, first=4, seed=2)
BUDGET = Budget(total=12)


class KeepsData(Coil):
    """Leaks as the authors' public code does: class centres of old classes from all their training data."""

    kept: ClassVar[list[LabelledImages]] = []

    def initialise(self, network: Network, lesson: Lesson, trainer: Trainer) -> Tensor | None:
        for earlier in self.kept:
            trainer.features(network, earlier.images)
        pixels = lesson.new.images.pixels.clone()  # type: ignore[union-attr]
        self.kept.append(LabelledImages(type(lesson.new.images)(pixels), lesson.new.labels, lesson.new.classes))  # type: ignore[call-arg]
        return super().initialise(network, lesson, trainer)


class LooksAhead(Coil):
    """Leaks by a look at the task after this one."""

    def learn(self, network: Network, lesson: Lesson, trainer: Trainer) -> None:
        super().learn(network, lesson, trainer)
        if len(lesson.new.classes) < 6:
            trainer.features(network, TASKS[len(lesson.new.classes) // 2].images)


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[bytes]]:
    """All images that networks are shown, by their pixels."""
    shown: set[bytes] = set()
    original = Network.forward

    def forward(self: Network, images: Tensor) -> Output:
        shown.update(image.to(torch.uint8).contiguous().numpy().tobytes() for image in images.detach().cpu())
        return original(self, images)

    with monkeypatch.context() as patched:
        patched.setattr(Network, "forward", forward)
        yield shown


def pictures(images: Images) -> set[bytes]:
    pixels = images.pixels.permute(0, 3, 1, 2)  # type: ignore[union-attr]
    return {image.contiguous().numpy().tobytes() for image in pixels}


def trespasses(method: str | Method, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each task, the number of images that were seen and must not have been."""
    clf = IncrementalClassifier(
        method,
        "resnet8",
        memory=BUDGET,
        schedule=Schedule(epochs=2, batch_size=16),
        augmentation=Augmentation(crop_padding=0, flip=False),
        device=Device(accelerator="cpu"),
    )
    found = []
    exemplars: tuple[Images, ...] = ()
    for task in TASKS:
        allowed = pictures(concatenate([task.images, *exemplars]))
        with recorded(monkeypatch) as shown:
            clf.learn(task)
        assert shown >= pictures(task.images)
        found.append(len(shown - allowed))
        exemplars = tuple(images for images in clf.state_.memory.exemplars if len(images))
        keeps = clf.method if isinstance(clf.method, Method) else known_methods()[str(clf.method)]()
        if keeps.budget(BUDGET) is not None:
            assert sum(map(len, exemplars)) <= 12
    return found


@pytest.mark.parametrize("method", METHODS)
def test_no_network_sees_more_than_task_and_memory(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trespasses(method, monkeypatch) == [0, 0, 0]


def test_a_learner_that_keeps_copies_of_old_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    KeepsData.kept.clear()
    assert trespasses(KeepsData(), monkeypatch) == [0, 24 - 12, 48 - 12]


def test_a_learner_that_sees_future_tasks_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trespasses(LooksAhead(), monkeypatch) == [24, 24, 0]


def test_a_task_holds_its_own_images_only() -> None:
    """The stream hands out one task at a time; what it hands out has no way to the others."""
    from cotransport.data import DataSet
    from cotransport.experiments.stream import TaskStream

    everything = blobs(6, 5)
    stream = TaskStream(DataSet(everything, blobs(6, 2, seed=1)), ((4, 2), (0, 5), (1, 3)))
    tasks = [pictures(task.train.images) for task in stream]
    assert [len(own) for own in tasks] == [10, 10, 10]
    assert not (tasks[0] & tasks[1] or tasks[0] & tasks[2] or tasks[1] & tasks[2])
    assert [sorted(set(task.train.labels.tolist())) for task in stream] == [[0, 1]] * 3
