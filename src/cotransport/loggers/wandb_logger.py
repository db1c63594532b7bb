"""A log in Weights & Biases."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cotransport.experiments.callback import StartedRun
from cotransport.loggers.base import Logger, log_folder, not_started, remembered_id

PROJECT = "cotransport"


class WandbLogger(Logger):
    """A run of the project in WANDB_PROJECT, by default `cotransport`. WANDB_MODE=offline keeps it on the disk.

    Its group is the recipe. Resumed runs have the same id; offline, each part is a folder of its own.
    """

    def __init__(self, run: StartedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when the package is imported
        import wandb

        self._wandb = wandb
        is_offline = os.environ.get("WANDB_MODE") in {"offline", "dryrun"}
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                group=run.recipe.name,
                name=run.folder.name,
                id=remembered_id(run, "wandb", lambda: secrets.token_hex(4)),
                resume=None if is_offline else "allow",
                dir=log_folder(run),
                config={**run.recipe.model_dump(mode="json"), "label": run.label, "seed": run.seed},
                settings=wandb.Settings(console="off", silent=True),
            )
        except wandb.errors.Error as error:
            raise not_started("wandb", error, "Log in with `wandb login`, or set WANDB_MODE=offline") from None
        # wandb drops numbers of steps that it has seen before, so the step is logged as a number like the others
        self._run.define_metric("*", step_metric="step")

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self._run.log({"step": step, **values})

    def image(self, name: str, path: Path, step: int) -> None:
        """Log an image."""
        self._run.log({"step": step, name: self._wandb.Image(str(path))})

    def file(self, path: Path) -> None:
        """Log a file as an artefact of the run."""
        artifact = self._wandb.Artifact(f"{path.stem}-{self._run.id}", type=path.stem)
        artifact.add_file(str(path), name=path.name, policy="immutable")
        self._run.log_artifact(artifact)

    def close(self, *, is_done: bool) -> None:
        """Finish the run, or leave it marked as failed until it is resumed."""
        self._run.finish(exit_code=0 if is_done else 1)
