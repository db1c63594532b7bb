"""The logs that a recipe asks for, in the folder `logs` of a run."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cotransport.errors import RunError
from cotransport.experiments.results import TaskResult
from cotransport.settings.sections import Logging
from cotransport.training.progress import TrainingProgress

if TYPE_CHECKING:
    from lightning_fabric.loggers.csv_logs import CSVLogger
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

LOGGED = ("task", "epoch", "loss", "accuracy", "learning_rate", "images_per_second")
"""Values that are logged at the end of each epoch."""


class TrainingLog:
    """Writes progress and results as CSV and for TensorBoard."""

    def __init__(self, settings: Logging, folder: Path, steps_done: int = 0) -> None:
        self._loggers: list[CSVLogger | TensorBoardLogger] = []
        self._steps_before = self.steps_done = steps_done
        if settings.csv:
            from lightning_fabric.loggers.csv_logs import CSVLogger

            names = (f"csv-{number}" if number else "csv" for number in count())  # the logger empties existing folders
            name = next(name for name in names if not (folder / "logs" / name).exists())
            self._loggers.append(CSVLogger(folder, name="logs", version=name))
        if settings.tensorboard:
            from lightning_fabric.loggers.tensorboard import TensorBoardLogger

            try:
                logger = TensorBoardLogger(folder, name="logs", version="tensorboard")
                _ = logger.experiment
            except ModuleNotFoundError:
                raise RunError(
                    "logging.tensorboard: TensorBoard is not installed. pip install 'cotransport[tensorboard]'"
                ) from None
            self._loggers.append(logger)

    def training(self, progress: TrainingProgress) -> None:
        """Count the steps, and log the end of an epoch."""
        self.steps_done = self._steps_before + progress.step
        if progress.epoch_done:
            self._write({f"train/{name}": float(getattr(progress, name)) for name in LOGGED})

    def task_done(self, result: TaskResult) -> None:
        """Log a task's evaluation."""
        values = {name: getattr(result, name) for name in ("classes_seen", "top1", "top5", "ncm_top1")}
        if result.transport is not None:
            numbers = [origin.effective_sources for origin in result.transport.origins]
            values["effective_sources"] = float(np.mean(numbers))
        self._write({f"test/{name}": float(value) for name, value in values.items() if value is not None})
        self._steps_before = self.steps_done

    def close(self) -> None:
        """Write what is still buffered."""
        for logger in self._loggers:
            logger.finalize("success")

    def _write(self, values: dict[str, float]) -> None:
        for logger in self._loggers:
            logger.log_metrics(dict(values), step=self.steps_done)
