"""The limit on the size of networks from settings that nobody has checked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cotransport.errors import ModelError
from cotransport.networks.libraries.sizes import MODULES, SLACK, limited_size


def test_a_network_of_the_stored_size_may_be_built() -> None:
    with limited_size(2, 4 * 4 + 4):
        nn.Linear(4, 4)


def test_too_many_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="the network is larger than"), limited_size(2, 8), torch.device("meta"):
        nn.Linear(SLACK, 2)


def test_layers_without_end_are_refused() -> None:
    made: list[int] = []

    def layers() -> object:
        while True:
            made.append(0)
            yield nn.Identity()

    with pytest.raises(ModelError, match="the network is larger than"), limited_size(0, 0):
        nn.ModuleList(nn.Sequential(layer) for layer in layers())  # type: ignore[attr-defined]
    assert len(made) <= MODULES + 1


def test_the_limit_ends_with_the_block() -> None:
    with limited_size(0, 0):
        pass
    assert nn.Linear(SLACK + 1, 1).weight.numel() > SLACK
