"""Started by `test_two_processes.py`: every method in several processes, which Fabric starts as for a user.

Each process writes its tensors to OUT/<processes>-<rank>.pt.

python -m tests.methods.two_processes OUT PROCESSES METHOD...
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data.memory import herding
from cotransport.networks.backbones import build
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Augmentation, Backbone, Device, HeadSettings, Loss, Optimiser, Schedule
from cotransport.training.loop import Trainer
from cotransport.training.processes import processes_for
from tests.conftest import blobs
from tests.helpers import pixels


def without_norms() -> nn.Module:
    """A network whose result does not depend on how a batch is divided among processes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 16))


QUICK = Schedule(epochs=2, batch_size=8, learning_rate=0.02)


def learn_two_tasks(
    method: str, backbone: str | nn.Module, device: Device, schedule: Schedule = QUICK
) -> dict[str, torch.Tensor]:
    """Weights and exemplars after two tasks. The counts do not divide evenly: 21 images in steps of at most 8."""
    clf = IncrementalClassifier(
        method,
        backbone,
        memory={"per_class": 3},
        schedule=schedule,
        optimiser=Optimiser(),
        loss=Loss(),
        augmentation=Augmentation(crop_padding=1, flip=True, brightness=0.2),
        head=HeadSettings(),
        device=device,
        seed=4,
    )
    clf.learn(blobs(3, 7)).learn(blobs(2, 9, first=3, seed=1))
    tensors = {f"weight {name}": value for name, value in clf.state_.network.state_dict().items()}
    for number, images in enumerate(clf.state_.memory.exemplars):
        tensors[f"exemplars {number}"] = pixels(images)
    tensors["scores"] = clf.scores(blobs(5, 3, seed=2)).head
    return tensors


def choose_exemplars(device: Device) -> dict[str, torch.Tensor]:
    """Features and exemplars for given weights. The images do not fit into one chunk."""
    torch.manual_seed(1)
    network = Network(
        build(Backbone(name="resnet8"), 8), CosineHead(64, 10.0), torch.full((3,), 50.0), torch.full((3,), 60.0)
    )
    features = Trainer(task=0, seed=0, device=device).features(network, blobs(2, 300).images)
    return {"features": features, "exemplars": herding(features, 100)}


def main(out: Path, processes: int, methods: list[str]) -> None:
    """Write the tensors of this process."""
    device = Device(accelerator="cpu", processes=processes)
    rank = processes_for(device).shard.rank
    backbones: dict[str, str | nn.Module] = {"plain": without_norms(), "resnet8": "resnet8"}
    results = {
        (method, name): learn_two_tasks(method, backbone, device)
        for method in methods
        for name, backbone in backbones.items()
    }
    results["given", "weights"] = choose_exemplars(device)
    budget = QUICK.model_copy(update={"seconds_per_task": 1.0})
    results["time", "budget"] = learn_two_tasks("replay", "fast", device, budget)
    early = QUICK.model_copy(update={"epochs": 6, "enough": 0.3})
    results["early", "end"] = learn_two_tasks("replay", "fast", device, early)
    torch.save(results, out / f"{processes}-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
