"""Jobs on this machine, as many at a time as it has room for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cotransport.engines.job import Ended, EngineJob
from cotransport.experiments.preparation import runs_of
from cotransport.experiments.recipe import Recipe
from cotransport.settings.sections import Device
from cotransport.system.machine import available_cores, available_memory

MEMORY = 5 << 29
"""Approximate bytes of memory that a job on the CPU needs: 2.5 GiB with large images, as `make bench` measures it."""
SECONDS_BETWEEN_POLLS = 0.1
SECONDS_TO_END = 5.0
"""Time that a process has to end by itself after the second signal."""


@dataclass
class _Slot:
    """Room for one job at a time."""

    gpus: str | None
    """The GPUs that its jobs see, as CUDA_VISIBLE_DEVICES gives them; None for all."""
    job: EngineJob | None = None
    process: subprocess.Popen[bytes] | None = None


class LocalEngine:
    """Runs jobs as child processes of this one.

    jobs : the number of jobs at a time.
    gpus : the GPUs that the jobs see, one entry for each in turn; empty if they use none.
    """

    def __init__(self, jobs: int, gpus: Sequence[str] = ()) -> None:
        self._slots = [_Slot(gpus[number % len(gpus)] if gpus else None) for number in range(jobs)]
        self._queue: list[EngineJob] = []

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)  # the second signal, if a process has had one before
        end = time.monotonic() + SECONDS_TO_END
        for process in self._processes():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._queue) or any(slot.job for slot in self._slots)

    def submit(self, jobs: Sequence[EngineJob]) -> None:
        """Take on jobs. They start when there is room for them."""
        self._queue += jobs

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most this long. Returns the jobs that have ended since the last call."""
        end = time.monotonic() + seconds
        while True:
            ended = [one for slot in self._slots if (one := _ended(slot))]
            for slot in self._slots:
                if slot.job is None and self._queue:
                    slot.job = self._queue.pop(0)
                    slot.process = slot.job.start(**({} if slot.gpus is None else {"CUDA_VISIBLE_DEVICES": slot.gpus}))
            if ended or time.monotonic() >= end:
                return ended
            time.sleep(SECONDS_BETWEEN_POLLS)

    def stop(self, number: signal.Signals) -> None:
        """Start no more jobs, and forward a signal to those that run."""
        self._queue.clear()
        for process in self._processes():
            if process.poll() is None:
                process.send_signal(number)

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [slot.process for slot in self._slots if slot.process is not None]


def _ended(slot: _Slot) -> Ended | None:
    """The job of a slot, if its process has ended. The slot is free then."""
    if slot.job is None or slot.process is None or (code := slot.process.poll()) is None:
        return None
    ended = Ended(slot.job, code)
    slot.job = slot.process = None
    return ended


def jobs_at_a_time(recipes: Sequence[Recipe]) -> int:
    """As many jobs as cores, memory and GPUs allow, but no more than there are runs.

    It does not depend on what is finished already, so that a resumed job gets the same share of the cores.
    """
    devices = [recipe.device for recipe in recipes]
    runs = sum(len(runs_of(recipe)) for recipe in recipes)
    room = [runs, available_cores() // max(device.processes * (device.threads or 1) for device in devices)]
    memory = available_memory()
    if memory is not None:
        room.append(memory // (MEMORY * max(device.processes for device in devices)))
    if any(uses_gpu(device) for device in devices):
        room.append(len(gpu_groups(max(device.processes for device in devices))))
    return max(1, min(room))


def uses_gpu(device: Device) -> bool:
    """Whether these settings use a GPU of this machine."""
    if device.accelerator == "cpu":
        return False
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


def gpu_groups(processes: int) -> list[str]:
    """The GPUs of this machine in groups with one for each process of a job, as CUDA_VISIBLE_DEVICES gives them.

    If there are too few, one group has all of them.
    """
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    found = [part.strip() for part in visible.split(",") if part.strip()] or list(
        map(str, range(torch.cuda.device_count()))
    )
    groups = [found[first : first + processes] for first in range(0, len(found) - processes + 1, processes)]
    return [",".join(group) for group in groups or [found]]
