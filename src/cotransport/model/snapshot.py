"""What a model folder stores of one version of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from cotransport.data import Label
from cotransport.data.memory import Memory


@dataclass(frozen=True)
class Snapshot:
    """Settings, classes, weights, exemplars and held-out images of one version."""

    settings: Mapping[str, Any]
    classes: tuple[Label, ...]
    task_sizes: tuple[int, ...]
    image_size: int
    tensors: Mapping[str, Tensor]
    """All tensors by name."""
    memory: Memory
    held_out: Memory = Memory()
    """Images of each class that are never trained on, to measure what is learned and lost."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    """The names of tensors that later versions will have too. They are stored once."""
    chosen: Mapping[str, Any] | None = None
    """The settings that the user has chosen, by section. None if that is not known."""
