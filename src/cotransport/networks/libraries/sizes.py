"""A limit on the size of networks that are built from untrusted settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from cotransport.errors import ModelError

SLACK = 2**22
"""Numbers that a network may have besides its stored weights, such as a classifier that is removed again."""
MODULES, MODULES_PER_TENSOR = 1000, 50
"""Modules that a network may have, and for each stored tensor. Some of them, such as activations, have no weights."""


@contextmanager
def limited_size(tensors: int, numbers: int) -> Iterator[None]:
    """Raise a ModelError as soon as the modules built in this context have far more weights than are stored.

    tensors, numbers : of the stored weights.
    """
    left = {"tensors": 2 * tensors + MODULES, "numbers": 2 * numbers + SLACK}
    left["modules"] = MODULES_PER_TENSOR * tensors + MODULES

    def spend(**costs: int) -> None:
        for name, cost in costs.items():
            left[name] -= cost
            if left[name] < 0:
                raise ModelError("the network is larger than the stored weights. Restore the model from a backup")

    def tensor_added(module: nn.Module, name: str, tensor: Tensor | None) -> None:
        if tensor is not None:
            spend(tensors=1, numbers=tensor.numel())

    def module_added(module: nn.Module, name: str, submodule: nn.Module | None) -> None:
        spend(modules=1)

    handles = [
        register_module_parameter_registration_hook(tensor_added),
        register_module_buffer_registration_hook(tensor_added),
        register_module_module_registration_hook(module_added),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
