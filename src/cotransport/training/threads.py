"""The number of CPU threads: no more than the work keeps busy.

Threads of one process wait for each other after every layer. Beside other busy processes, several threads train a small
network more slowly than one, because all wait for the one that has lost its core. LOG.md has the measurements.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cotransport.settings.sections import Device
from cotransport.system.machine import available_cores

FLOPS_PER_THREAD = 1_000_000_000
"""Floating-point operations of a training step that each thread gets at least."""
BACKWARD = 2
"""Operations of a backward pass, in multiples of those of its forward pass."""


def share_cores(device: Device) -> None:
    """Give each process of this machine its share of the cores, or the number of threads that the user has chosen."""
    if is_fixed(device) and device.threads is None:
        return
    share = max(1, available_cores() // device.processes)
    threads = device.threads or min(torch.get_num_threads(), share)
    torch.set_num_threads(threads)
    if device.processes > 1:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # for the processes that Fabric starts


def is_fixed(device: Device) -> bool:
    """Whether the user has chosen the number of threads."""
    return device.threads is not None or "OMP_NUM_THREADS" in os.environ


def useful_threads(flops: float, available: int) -> int:
    """The number of threads that a step of `flops` floating-point operations keeps busy.

    >>> [useful_threads(flops, available=8) for flops in (1e6, 2.4e9, 1e12)]
    [1, 2, 8]
    """
    return max(1, int(min(available, flops / FLOPS_PER_THREAD)))  # flops may be infinite


def training_threads(network: nn.Module, image_shape: tuple[int, ...], images: int, device: Device) -> int:
    """The number of threads for training with `images` images in a step, unless the user has chosen one."""
    available = torch.get_num_threads()
    if available == 1 or is_fixed(device):
        return available
    return useful_threads((1 + BACKWARD) * images * forward_flops(network, image_shape), available)


def forward_flops(network: nn.Module, image_shape: tuple[int, ...]) -> float:
    """Floating-point operations of the forward pass of one image; infinity if they cannot be counted."""
    from torch.utils.flop_counter import FlopCounterMode

    training = network.training
    network.eval()
    place = next(network.parameters(), torch.empty(0))
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, *image_shape, device=place.device, dtype=place.dtype))
        return float(counter.get_total_flops())
    except Exception:  # a user's module may do anything that the counter cannot follow
        return float("inf")
    finally:
        network.train(training)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside, and afterwards with the same number as before."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)
