"""The logs that a recipe asks for: what is logged, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from cotransport.errors import RunError
from cotransport.experiments.callback import Callback, StartedRun
from cotransport.experiments.results import Result, TaskResult, Transport
from cotransport.loggers.base import Logger
from cotransport.loggers.csv_logger import CsvLogger
from cotransport.loggers.mlflow_logger import MlflowLogger
from cotransport.loggers.tensorboard_logger import TensorBoardLogger
from cotransport.loggers.wandb_logger import WandbLogger
from cotransport.settings.sections import LoggerName
from cotransport.training.progress import TrainingProgress

EPOCH = ("task", "epoch", "loss", "accuracy", "learning_rate", "images_per_second")
"""Values that are logged at the end of each epoch."""
TASK = ("classes_seen", "top1", "top5", "head_top1", "ncm_top1", "train_seconds")
"""Values that are logged after each task, besides the accuracy on each task's classes."""
RUN = ("average_incremental_accuracy", "last_accuracy", "forgetting", "backward_transfer")
"""Values that are logged at the end of a run."""


class _Kind(NamedTuple):
    logger: Callable[[StartedRun], Logger]
    package: str | None
    """What it imports. The extra has the logger's name."""


LOGGERS: dict[LoggerName, _Kind] = {
    "csv": _Kind(CsvLogger, None),
    "tensorboard": _Kind(TensorBoardLogger, "tensorboard"),
    "wandb": _Kind(WandbLogger, "wandb"),
    "mlflow": _Kind(MlflowLogger, "mlflow"),
}


def loggers_for(names: Sequence[LoggerName]) -> list[Callback]:
    """Callbacks that log runs, by name. A logger whose package is not installed is an error."""
    for name in names:
        package = LOGGERS[name].package
        if package is not None and find_spec(package) is None:
            raise RunError(f"logging: {name} is not installed. pip install 'cotransport[{name}]'")
    return [TrainingLog(LOGGERS[name].logger) for name in dict.fromkeys(names)]


class TrainingLog(Callback):
    """Logs runs, one after the other, with a logger for each."""

    def __init__(self, logger: Callable[[StartedRun], Logger]) -> None:
        self._make = logger
        self._run: StartedRun | None = None
        self._logger: Logger | None = None
        self._step = 0
        self._is_done = False

    def run_started(self, run: StartedRun) -> None:
        """Start a logger, or continue the log of a resumed run."""
        self._run, self._step, self._is_done = run, run.steps_done, False
        self._logger = self._make(run)

    def epoch_done(self, progress: TrainingProgress, step: int) -> None:
        """Log an epoch's loss, accuracy and speed."""
        self._open().metrics({f"train/{name}": float(getattr(progress, name)) for name in EPOCH}, step)

    def task_done(self, result: TaskResult, step: int) -> None:
        """Log a task's evaluation, and its transport plan as an image."""
        self._step = step
        values = {name: getattr(result, name) for name in TASK}
        values |= {f"task_{number}": accuracy for number, accuracy in enumerate(result.per_task, start=1)}
        if result.transport is not None:
            numbers = [origin.effective_sources for origin in result.transport.origins]
            values["effective_sources"] = float(np.mean(numbers))
        logger = self._open()
        logger.metrics({f"test/{name}": float(value) for name, value in values.items() if value is not None}, step)
        if result.transport is not None and result.transport.plan and logger.keeps_images:
            self._log_plan(result.transport, len(result.per_task), step)

    def run_done(self, result: Result) -> None:
        """Log the summary of a run, and its report."""
        logger = self._open()
        logger.metrics({f"run/{name}": float(getattr(result, name)) for name in RUN}, self._step)
        if logger.keeps_files:
            from cotransport.report import write_report

            with TemporaryDirectory() as folder:
                logger.file(write_report([result], Path(folder)).page)
        self._is_done = True

    def run_ended(self) -> None:
        """Close the logger."""
        if self._logger is not None:
            logger, self._logger = self._logger, None
            logger.close(is_done=self._is_done)

    def _open(self) -> Logger:
        assert self._logger is not None
        return self._logger

    def _log_plan(self, transport: Transport, task: int, step: int) -> None:
        from cotransport.report.figures import draw_plan

        assert self._run is not None
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"task_{task}.png"
            if draw_plan(transport, self._run.classes, f"{self._run.label}, task {task}", path):
                self._open().image("plan", path, step)
