"""Small networks, trainers and comparisons for the tests of training and methods."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cotransport import losses
from cotransport.data import Batch, Images, LabelledImages, PixelImages
from cotransport.learner import prediction
from cotransport.learner.state import State
from cotransport.methods import Method
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Augmentation, Device, Loss, Schedule
from cotransport.training import inference
from cotransport.training.loop import Trainer, TrainingControl
from cotransport.training.objective import Moment, Objective
from cotransport.training.task_data import TaskData
from tests.conftest import blobs, classifier

CPU = Device(accelerator="cpu")
STILL = Augmentation(crop_padding=0, flip=False)
"""No augmentation."""
OLD, NEW = slice(0, 3), slice(3, 5)
"""The classes of `second_task`."""


class Killed(BaseException):
    """Raised in place of a kill of the process."""


class Passes:
    """Notes the number of images and the network of each evaluation pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen, self._outputs = list[tuple[int, Network]](), inference.outputs
        for place in (inference, prediction):
            monkeypatch.setattr(place, "outputs", self)

    def __call__(self, network: Network, images: Images, device: Device, **options: Any) -> Output:
        self.seen.append((len(images), network))
        return self._outputs(network, images, device, **options)


def small_network(*, norm: bool = True, dropout: float = 0.0) -> Network:
    """A network for the images of `blobs`, with two classes. It always has the same weights."""
    torch.manual_seed(3)
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(8 * 36, 16),
    )
    head = CosineHead(16, 10.0)
    head.grow(2)
    return Network(backbone, head, torch.full((3,), 100.0), torch.full((3,), 60.0))


def quick_trainer(**settings: object) -> Trainer:
    """A trainer of three epochs. Takes the fields of `Trainer` and of `TrainingControl`."""
    schedule = Schedule(epochs=3, batch_size=16, learning_rate=0.05)
    control = {field.name: settings.pop(field.name) for field in fields(TrainingControl) if field.name in settings}
    defaults: dict[str, object] = {"task": 0, "seed": 1, "schedule": schedule, "device": CPU}
    return Trainer(**(defaults | {"control": TrainingControl(**control)} | settings))  # type: ignore[arg-type]


def cross_entropy(batch: Batch, output: Output, moment: Moment) -> Tensor:
    """A loss for objectives."""
    return losses.cross_entropy(output.logits, batch.labels)


def always(loss: Callable[[Batch, Output, Moment], Tensor]) -> Callable[[Network], Objective]:
    """What `Trainer.fit` takes: the same objective for any network."""
    return lambda network: Objective(loss)


def trained(data: LabelledImages, trainer: Trainer, network: Network | None = None) -> Network:
    """A network after a training with cross-entropy."""
    network = network or small_network()
    trainer.fit(network, data, always(cross_entropy))
    return network


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two networks are equal to the last bit."""
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def same_state(first: State, second: State) -> bool:
    """Whether two states have equal weights and exemplars, to the last bit."""
    exemplars = zip(first.memory.exemplars, second.memory.exemplars, strict=True)
    return same_weights(first.network, second.network) and all(
        torch.equal(pixels(ours), pixels(theirs)) for ours, theirs in exemplars
    )


def pixels(images: Images) -> Tensor:
    """Pixels (n, h, w, 3) of images in memory."""
    assert isinstance(images, PixelImages)
    return images.pixels


def pictures(images: Images) -> list[bytes]:
    """The pixels of each image, to compare collections of images."""
    return sorted(image.contiguous().numpy().tobytes() for image in pixels(images))


@lru_cache
def three_classes(method: str) -> State:
    """The state of a method that has learned three classes. Do not change it."""
    return classifier(method, head={"linear_scale": 0.5}).learn(blobs(3, 8)).state_


def second_task(first: State) -> tuple[Network, TaskData]:
    """The network of `three_classes`, grown by two classes with random weights; and the data of two new classes."""
    new = blobs(2, 8, first=3)
    names = (*first.classes, *new.classes)
    network = copy.deepcopy(first.network).eval()
    torch.manual_seed(5)
    network.head.grow(2)
    data = LabelledImages(new.images, new.labels + 3, names)
    return network, TaskData(data, first.memory.labelled(names), old_classes=3, new_classes=2, loss=Loss())


def whole_batch(data: TaskData) -> Batch:
    """All images of a task in one batch."""
    everything = data.everything
    return Batch(pixels(everything.images).permute(0, 3, 1, 2), everything.labels, weight=1.0, total=len(everything))


def trained_on(method: Method, network: Network, data: TaskData, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """The images of each training of a method. Nothing is trained."""
    used: list[list[bytes]] = []

    def fit(self: Trainer, network: Network, data: LabelledImages, objective: object) -> None:
        used.append(pictures(data.images))

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "fit", fit)
        method.learn(network, data, quick_trainer(task=1))
    return used


def move_weights(network: Network) -> None:
    """Change all weights a little, as a training does."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.05).add_(0.01)


def soft_cross_entropy(student: Tensor, teacher: Tensor, temperature: float = 2.0) -> Tensor:
    """Cross-entropy of two softmaxes, written out. The teacher may know the first classes only."""
    log_student = (student / temperature).log_softmax(dim=1)[:, : teacher.shape[1]]
    return -((teacher / temperature).softmax(dim=1) * log_student).sum(dim=1).mean()


def run_python(*arguments: str, **environment: str) -> str:
    """What a fresh Python process prints. It runs in the folder of the checkout."""
    inherited = {key: value for key, value in os.environ.items() if key not in {"LOCAL_RANK", "WORLD_SIZE"}}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=Path(__file__).parent.parent,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout
