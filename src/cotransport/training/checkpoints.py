"""The state of a training that goes on, kept in a folder so that it can be taken up after any kind of end.

It knows nothing of what is trained: a checkpoint is named tensors and the step they belong to. Every process writes a
file of its own; a step counts when the files of all of them are there.
"""

from __future__ import annotations

import re
import time
import warnings
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from cotransport.errors import CotransportWarning
from cotransport.system.files import atomic_write, storage_errors
from cotransport.system.tensors import read_tensors, write_tensors

LEAST_RATIO = 50
"""Training lasts at least so many times as long as the writing of checkpoints."""
_NAME = re.compile(r"training-(\d+)-(\d+)-(\d+)of(\d+)\.safetensors")


class Checkpoint(NamedTuple):
    """What is needed to go on after a step."""

    steps: int
    """Steps that were done."""
    epochs: int
    """Epochs of the whole training."""
    tensors: dict[str, Tensor]


class Checkpoints:
    """The checkpoints of one lesson. A lesson may have several trainings, counted from 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trainings = 0
        self._written, self._took = time.perf_counter(), 0.0

    def next_training(self) -> int:
        """The number of a training that begins."""
        self._written = time.perf_counter()
        self._trainings += 1
        return self._trainings - 1

    def due(self, seconds: float) -> bool:
        """Whether it is time for the next one, if one is wanted so often; 0 is after every step, whatever it takes."""
        return not seconds or time.perf_counter() - self._written >= max(seconds, LEAST_RATIO * self._took)

    def write(self, training: int, checkpoint: Checkpoint, *, rank: int = 0, processes: int = 1) -> None:
        """Write a process's part. When all processes have, one of them calls `forget_older`."""
        begun = time.perf_counter()
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        name = f"training-{training}-{checkpoint.steps}-{rank}of{processes}.safetensors"
        with atomic_write(self.folder / name) as beside:
            write_tensors(beside, checkpoint.tensors, {"epochs": str(checkpoint.epochs)})
        self._written = time.perf_counter()
        self._took = self._written - begun

    def forget_older(self, training: int, steps: int) -> None:
        """Remove a training's checkpoints of other steps."""
        for path, number, done, *_ in self._files():
            if number == training and done != steps:
                path.unlink(missing_ok=True)

    def load(self, training: int, *, rank: int = 0, processes: int = 1) -> Checkpoint | None:
        """A process's part of the newest checkpoint that is complete; None if there is none, or it is damaged."""
        ranks: dict[int, set[int]] = {}
        for _, number, steps, of, count in self._files():
            if number == training and count == processes:
                ranks.setdefault(steps, set()).add(of)
        complete = [steps for steps, found in ranks.items() if found == set(range(processes))]
        if not complete:
            return None
        path = self.folder / f"training-{training}-{max(complete)}-{rank}of{processes}.safetensors"
        try:
            tensors, metadata = read_tensors(path)
            return Checkpoint(max(complete), int(metadata["epochs"]), tensors)
        except (KeyError, ValueError) as error:
            message = f"{path}: damaged ({error}). This training begins anew"
            warnings.warn(message, CotransportWarning, stacklevel=2)
            return None

    def _files(self) -> list[tuple[Path, int, int, int, int]]:
        """The files there are: training, steps, rank and processes."""
        found = []
        for path in sorted(self.folder.glob("training-*.safetensors")):
            if match := _NAME.fullmatch(path.name):
                training, steps, rank, processes = map(int, match.groups())
                found.append((path, training, steps, rank, processes))
        return found
