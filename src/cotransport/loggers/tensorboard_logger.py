"""A log for TensorBoard, through Lightning Fabric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from cotransport.experiments.callback import StartedRun
from cotransport.loggers.base import LOGS, Logger


class TensorBoardLogger(Logger):
    """Writes event files into `logs/tensorboard`. A resumed run adds a file, and TensorBoard shows them as one."""

    keeps_files = False

    def __init__(self, run: StartedRun) -> None:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger as FabricLogger

        self._logger = FabricLogger(run.folder, name=LOGS, version="tensorboard")

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers."""
        self._logger.log_metrics(dict(values), step)

    def image(self, name: str, path: Path, step: int) -> None:
        """Write an image."""
        with Image.open(path) as image:
            self._logger.experiment.add_image(name, np.asarray(image.convert("RGB")), step, dataformats="HWC")

    def close(self, *, is_done: bool) -> None:
        """Write what is still buffered."""
        self._logger.finalize("success" if is_done else "interrupted")
