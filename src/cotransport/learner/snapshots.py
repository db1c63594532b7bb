"""A learner's state and settings as a snapshot for the model folder, and back."""

from __future__ import annotations

from torch import nn

from cotransport.learner.building import restored_network
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Device

_NETWORK, _PLAN = "network.", "plan"


def snapshot_of(state: State, settings: LearnerSettings) -> Snapshot:
    """A snapshot of a learner."""
    tensors = {f"{_NETWORK}{name}": tensor for name, tensor in state.network.state_dict().items()}
    if state.plan is not None:
        tensors[_PLAN] = state.plan
    return Snapshot(settings.plain(), state.classes, state.task_sizes, state.image_size, tensors, state.memory)


def restored(
    snapshot: Snapshot, *, backbone: nn.Module | None = None, device: Device = Device()
) -> tuple[State, LearnerSettings]:
    """The state and settings that are in a snapshot."""
    settings = LearnerSettings.from_plain(snapshot.settings, backbone=backbone, device=device)
    weights = {
        name.removeprefix(_NETWORK): tensor for name, tensor in snapshot.tensors.items() if name.startswith(_NETWORK)
    }
    network = restored_network(settings, weights, classes=len(snapshot.classes), image_size=snapshot.image_size)
    plan = snapshot.tensors.get(_PLAN)
    state = State(snapshot.classes, snapshot.task_sizes, snapshot.image_size, network.eval(), snapshot.memory, plan)
    return state, settings
