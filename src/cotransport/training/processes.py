"""The device of this process, and the processes that train together with it.

Everything goes through Lightning Fabric, except for one process on a CPU that does not train: Fabric takes more than a
second to import, and a prediction should not wait for it.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from cotransport.data import Shard
from cotransport.errors import ConfigError
from cotransport.settings.sections import Device
from cotransport.system.machine import keep_freed_memory
from cotransport.training.threads import share_cores

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")
Precision: TypeAlias = Literal["32-true", "16-mixed", "bf16-mixed", "64-true"]


@lru_cache(maxsize=4)
def processes_for(device: Device) -> Processes:
    """The processes for these settings. The first call starts all of them."""
    return Processes(device)


class Processes:
    """This process and those that train together with it: device, precision, and communication between them."""

    def __init__(self, device: Device) -> None:
        device = self._settings = as_launched(device)
        share_cores(device)
        self._alone_on_cpu = _is_one_cpu_process(device)
        self.device = torch.device("cpu") if self._alone_on_cpu else self.fabric.device
        if self.device.type == "cpu":
            keep_freed_memory()

    @cached_property
    def fabric(self) -> Fabric:
        """Lightning Fabric, with all processes started."""
        for logger in ("lightning_fabric.utilities.distributed", "lightning_fabric.utilities.rank_zero"):
            logging.getLogger(logger).setLevel(logging.WARNING)  # no banner about the precision and the processes
        fabric = make_fabric(self._settings)
        fabric.launch()
        atexit.register(_leave_group)
        return fabric

    @property
    def shard(self) -> Shard:
        """This process's part of every batch."""
        return Shard() if self._alone_on_cpu else Shard(self.fabric.global_rank, self.fabric.world_size)

    @property
    def count(self) -> int:
        """The number of processes."""
        return self.shard.processes

    @property
    def is_first(self) -> bool:
        """Whether this is the process that decides, writes files and prints for all of them."""
        return self.shard.rank == 0

    @property
    def precision(self) -> Precision:
        """The precision of the computations."""
        return chosen_precision(self._settings)

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which networks compute in the chosen precision."""
        is_plain = self._alone_on_cpu and self.precision == "32-true"
        return nullcontext() if is_plain else self.fabric.autocast()

    def decide_once(self, decide: Callable[[], T]) -> T:
        """Call a function in the first process and return its value in all of them; its error is raised in all."""
        if self.count == 1:
            return decide()
        decision: T | Exception | None = None
        if self.is_first:
            try:
                decision = decide()
            except Exception as error:
                decision = error
        decision = self.broadcast(decision)
        if isinstance(decision, Exception):
            raise decision
        return decision  # type: ignore[return-value]  # the first process has decided

    def broadcast(self, value: T) -> T:
        """The first process's value, in all processes."""
        return value if self.count == 1 else self.fabric.broadcast(value)

    def wait_for_all(self) -> None:
        """Wait until every process has reached this call."""
        if self.count > 1:
            self.fabric.barrier()

    def reduce(self, tensor: Tensor, by: Literal["mean", "sum", "max"]) -> Tensor:
        """A tensor reduced over all processes."""
        if self.count == 1:
            return tensor
        reduced = self.fabric.all_reduce(tensor, reduce_op=by)
        assert isinstance(reduced, Tensor)
        return reduced

    def largest(self, value: int) -> int:
        """The largest of the processes' numbers."""
        if self.count == 1:
            return value
        return int(self.reduce(torch.tensor(float(value), device=self.device), "max").item())

    def synchronise(self) -> None:
        """Wait until the device has finished, so that a clock measures its work."""
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()


def as_launched(device: Device) -> Device:
    """The settings with torchrun's numbers of processes and machines, if it started this process.

    Under Slurm's srun, the settings must give them, because its tasks may also be unrelated commands.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return device
    processes = int(os.environ["LOCAL_WORLD_SIZE"])
    nodes = int(os.environ["WORLD_SIZE"]) // processes
    if (device.processes, device.nodes) not in {(1, 1), (processes, nodes)}:
        raise ConfigError(
            f"device: torchrun started {processes} processes on each of {nodes} machines, but the settings ask for "
            f"{device.processes} on each of {device.nodes}. Leave out device.processes and device.nodes"
        )
    return device.model_copy(update={"processes": processes, "nodes": nodes})


def check_device(device: Device) -> None:
    """Raise an error if this machine does not have the device that the settings name."""
    device = as_launched(device)
    if not _is_one_cpu_process(device):
        make_fabric(device)


def chosen_precision(device: Device) -> Precision:
    """The precision of the computations, after `auto` and `fastest` are resolved for this machine."""
    if device.precision not in {"auto", "fastest"}:
        return cast("Precision", device.precision)
    if device.accelerator != "cpu" and torch.cuda.is_available():
        is_native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        is_native = device.precision == "fastest" and _is_cpu(device) and _computes_in_bf16()
    return "bf16-mixed" if is_native else "32-true"


def make_fabric(device: Device) -> Fabric:
    """A Fabric for these settings. It has not started its processes yet."""
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy

    several = device.processes * device.nodes > 1
    try:
        return Fabric(
            accelerator=device.accelerator,
            devices=device.processes,
            num_nodes=device.nodes,
            precision=chosen_precision(device),
            # buffers are averaged once, at the end of a training, and not sent around in every step
            strategy=DDPStrategy(broadcast_buffers=False) if several else "auto",
        )
    except Exception as error:  # Lightning raises many kinds for a device that is not there
        raise ConfigError(f"device: {error}. Choose one that this machine has, for example accelerator: cpu") from None


def _is_one_cpu_process(device: Device) -> bool:
    """Whether the settings mean a single process on a CPU."""
    return device.processes * device.nodes == 1 and _is_cpu(device)


def _is_cpu(device: Device) -> bool:
    """Whether the settings mean a CPU."""
    has_accelerator = torch.cuda.is_available() or torch.backends.mps.is_available()
    return device.accelerator == "cpu" or (device.accelerator == "auto" and not has_accelerator)


def _computes_in_bf16() -> bool:
    """Whether this CPU has instructions for bfloat16, as far as torch can tell; without them, float32 is faster."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # earlier releases lack it
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


def _leave_group() -> None:
    """End the communication with other processes. Otherwise torch may abort this process while it exits."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
