"""TensorBoard, Weights & Biases and MLflow themselves, without a network."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotransport.experiments.results import Result
from tests.experiments.helpers import REPLAY, StopsAfterTask, run_digits

SETTINGS = (*REPLAY, "methods=[coil]", "schedule.epochs=2")
RUN = "coil-seed1"
EPOCHS, PLANS = 6, 2
BLOCK, FULL, LAST = 2**15, 1, 4
"""Size of a block in wandb's files, and the kinds of parts that end a record."""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The place where wandb's own process would connect to. No process may connect to it or to another machine."""
    own_connect = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in {"127.0.0.1", "::1", "localhost"}, address
        own_connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    for name in ("WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        monkeypatch.setenv("WANDB_MODE", "offline")
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


def interrupted_and_resumed(out: Path, name: str) -> Result:
    with pytest.raises(KeyboardInterrupt):
        run_digits(*SETTINGS, f"logging={name}", out=out, listener=StopsAfterTask())
    [result] = run_digits(*SETTINGS, f"logging={name}", out=out, resume=True)
    return result


def test_tensorboard_shows_one_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = interrupted_and_resumed(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / RUN / "logs" / "tensorboard"))
    events.Reload()
    assert len(events.Scalars("train/loss")) == EPOCHS
    assert [event.value for event in events.Scalars("test/top1")] == pytest.approx(result.curve)
    assert len(events.Images("plan")) == PLANS


def test_mlflow_has_one_finished_run_with_plans_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    result = interrupted_and_resumed(tmp_path, "mlflow")
    from mlflow.tracking import MlflowClient

    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("digits")
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == (RUN, "FINISHED")
    assert run.data.params["schedule.epochs"] == "2"
    assert run.data.metrics["run/forgetting"] == pytest.approx(result.forgetting)
    assert len(client.get_metric_history(run.info.run_id, "train/loss")) == EPOCHS
    top1 = client.get_metric_history(run.info.run_id, "test/top1")
    assert [metric.value for metric in top1] == pytest.approx(result.curve)
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"plan", "report.html"}
    plans = client.list_artifacts(run.info.run_id, "plan")
    assert [file.path for file in plans] == ["plan/task_2.png", "plan/task_3.png"]


def test_wandb_keeps_both_parts_of_a_run_under_one_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    result = interrupted_and_resumed(tmp_path, "wandb")
    logs = tmp_path / RUN / "logs"
    parts = sorted((logs / "wandb").glob("offline-run-*"))
    assert {part.name.rpartition("-")[2] for part in parts} == {(logs / "wandb-id.txt").read_text(encoding="utf-8")}
    records = [record for part in parts for record in wandb_records(next(part.glob("*.wandb")))]
    history = [
        {item.key or item.nested_key[0]: item.value_json for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert sum("train/loss" in row for row in history) == EPOCHS
    top1 = [float(row["test/top1"]) for row in history if "test/top1" in row]
    assert top1 == pytest.approx(result.curve)
    assert sum("plan" in row for row in history) == PLANS
    assert len({row["step"] for row in history}) == EPOCHS
    assert len([*logs.rglob("plan_*.png")]) == PLANS
    artifacts = [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in records if record.HasField("artifact")]
    assert [artifact.type for artifact in artifacts] == ["report"]


def wandb_records(path: Path) -> list[Any]:
    """All records in the file of an offline run: a header of 7 bytes, then blocks as in LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    data, place, parts, records = path.read_bytes(), 7, b"", []
    while place < len(data):
        left = BLOCK - place % BLOCK
        if left < 7:  # too small for a header, so it is padding
            place += left
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)  # after the checksum
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {FULL, LAST}:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            records.append(record)
            parts = b""
    return records
