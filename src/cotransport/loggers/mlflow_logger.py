"""A log in MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cotransport.experiments.callback import StartedRun
from cotransport.loggers.base import Logger, log_folder, not_started, remembered_id

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

LONGEST_VALUE = 500
"""Longest text of a setting, in characters, that every MLflow server accepts."""
MOST_AT_ONCE = 100
"""Largest number of settings that MLflow accepts in one call."""


class MlflowLogger(Logger):
    """A run in the store that MLFLOW_TRACKING_URI names, by default the folder `mlruns` beside the runs.

    Its experiment is named after the recipe, unless MLFLOW_EXPERIMENT_NAME is set.
    """

    def __init__(self, run: StartedRun) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when the package is imported
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.entities import Metric
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        local = (run.folder.parent / "mlruns").absolute().as_uri()
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or local)
        try:
            self._id = remembered_id(run, "mlflow", lambda: _new_run(self._client, run))
            self._client.update_run(self._id, status="RUNNING")
        except MlflowException as error:
            remedy = (
                "Check MLFLOW_TRACKING_URI. If the store no longer has the run, remove "
                f"{log_folder(run) / 'mlflow-id.txt'} to start a new log"
            )
            raise not_started("mlflow", error, remedy) from None

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        now = int(1000 * time.time())
        self._client.log_batch(self._id, [self._metric(name, value, now, step) for name, value in values.items()])

    def image(self, name: str, path: Path, step: int) -> None:
        """Log an image as a file in a folder with its name."""
        self._client.log_artifact(self._id, str(path), name)

    def file(self, path: Path) -> None:
        """Log a file."""
        self._client.log_artifact(self._id, str(path))

    def close(self, *, is_done: bool) -> None:
        """End the run, or leave it marked as killed until it is resumed."""
        self._client.set_terminated(self._id, "FINISHED" if is_done else "KILLED")


def _new_run(client: MlflowClient, run: StartedRun) -> str:
    """Make a run with the recipe's settings, and return its id."""
    from mlflow.entities import Param

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.recipe.name
    experiment = client.get_experiment_by_name(name)
    number = client.create_experiment(name) if experiment is None else experiment.experiment_id
    made = str(client.create_run(number, run_name=run.folder.name).info.run_id)
    settings = {"label": run.label, "seed": str(run.seed), **dict(_flat(run.recipe.model_dump(mode="json")))}
    params = [Param(key, value[:LONGEST_VALUE]) for key, value in settings.items()]
    for first in range(0, len(params), MOST_AT_ONCE):
        client.log_batch(made, params=params[first : first + MOST_AT_ONCE])
    return made


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by dotted path, as text."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
