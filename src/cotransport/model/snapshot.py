"""A classifier as it is written to a model folder and read from it."""

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
    memory: Memory
    held_out: Memory = Memory()
    """Images of each class that were never trained on. They measure what was learned and forgotten."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
