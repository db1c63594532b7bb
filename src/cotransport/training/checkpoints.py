"""Checkpoints of a training, in a folder, so that the training can be resumed however it ended.

A checkpoint is a set of named tensors and the step they belong to. Every process writes its own file; a checkpoint is
complete when the files of all processes are there.
"""

from __future__ import annotations

import re
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from cotransport.errors import CotransportWarning
from cotransport.system.files import atomic_write, storage_errors
from cotransport.system.tensors import read_tensors, write_tensors

LEAST_RATIO = 50
"""Time between two checkpoints, at least, in multiples of the time to write one: at most 1/50 is spent on writing."""
_NAME = re.compile(r"training-(\d+)-(\d+)-(\d+)of(\d+)\.safetensors")


class Checkpoint(NamedTuple):
    """Everything needed to resume after a step."""

    steps: int
    """Steps done."""
    epochs: int
    """Epochs of the whole training."""
    tensors: dict[str, Tensor]
    seconds: float = 0.0
    """Time since the task began, when the checkpoint was written. Filled in by `Checkpoints`."""


class Checkpoints:
    """The checkpoints of one task. Learning a task may take several trainings, counted from 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds_before = 0.0
        """Time that interrupted processes spent on the task, up to the checkpoint that it is resumed from."""
        self._trainings = 0
        self._created = self._last_written = time.perf_counter()
        self._seconds_to_write = 0.0

    def next_training(self) -> int:
        """The number of the training that starts now."""
        self._last_written = time.perf_counter()
        self._trainings += 1
        return self._trainings - 1

    def due(self, seconds: float) -> bool:
        """Whether the next checkpoint is due, if one is wanted every `seconds`; 0 means after every step."""
        if not seconds:
            return True
        return time.perf_counter() - self._last_written >= max(seconds, LEAST_RATIO * self._seconds_to_write)

    def write(self, training: int, checkpoint: Checkpoint, *, rank: int = 0, processes: int = 1) -> None:
        """Write this process's part. After all processes have written theirs, one of them calls `remove_older`."""
        started = time.perf_counter()
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        name = f"training-{training}-{checkpoint.steps}-{rank}of{processes}.safetensors"
        with atomic_write(self.folder / name) as beside:
            seconds = self.seconds_before + started - self._created
            write_tensors(beside, checkpoint.tensors, {"epochs": str(checkpoint.epochs), "seconds": f"{seconds:.3f}"})
        self._last_written = time.perf_counter()
        self._seconds_to_write = self._last_written - started

    def remove_older(self, training: int, steps: int) -> None:
        """Remove the training's checkpoints of other steps. One that cannot be removed does no harm."""
        for path, number, done, *_ in self._files():
            if number == training and done != steps:
                with suppress(OSError):
                    path.unlink()

    def load(self, training: int, *, rank: int = 0, processes: int = 1) -> Checkpoint | None:
        """This process's part of the newest complete checkpoint; None if there is none or it is damaged."""
        ranks: dict[int, set[int]] = {}
        for _, number, steps, found_rank, count in self._files():
            if number == training and count == processes:
                ranks.setdefault(steps, set()).add(found_rank)
        complete = [steps for steps, found in ranks.items() if found == set(range(processes))]
        if not complete:
            return None
        path = self.folder / f"training-{training}-{max(complete)}-{rank}of{processes}.safetensors"
        try:
            tensors, metadata = read_tensors(path)
            seconds = float(metadata.get("seconds", "0"))  # earlier releases did not write it
            return Checkpoint(max(complete), int(metadata["epochs"]), tensors, seconds)
        except (KeyError, ValueError) as error:
            message = f"{path}: damaged ({error}). The training starts from the beginning"
            warnings.warn(message, CotransportWarning, stacklevel=2)
            return None

    def resume(self, checkpoint: Checkpoint) -> None:
        """Count the time before a checkpoint from which a training is resumed.

        What this process has done so far, such as a pass over the images, is a part of that time.
        """
        self.seconds_before = max(self.seconds_before, checkpoint.seconds - (time.perf_counter() - self._created))

    def _files(self) -> list[tuple[Path, int, int, int, int]]:
        """All checkpoint files, each with its training, steps, rank and number of processes."""
        found = []
        for path in sorted(self.folder.glob("training-*.safetensors")):
            if match := _NAME.fullmatch(path.name):
                training, steps, rank, processes = map(int, match.groups())
                found.append((path, training, steps, rank, processes))
        return found
