from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
import torch

from cotransport.errors import CotransportWarning
from cotransport.system.tensors import write_tensors
from cotransport.training import checkpoints
from cotransport.training.checkpoints import Checkpoint, Checkpoints


def checkpoint(steps: int) -> Checkpoint:
    strided = torch.arange(6.0).view(2, 3).T  # like channels-last weights
    return Checkpoint(steps, 7, {"a": strided, "b": torch.tensor(steps), "empty": torch.empty(0, 3)})


def resume(kept: Checkpoints) -> None:
    found = kept.load(0)
    assert found is not None
    kept.resume(found)


def test_the_newest_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "new" / "folder")
    assert kept.load(0) is None
    kept.write(0, checkpoint(3))
    kept.write(0, checkpoint(12))
    kept.remove_older(0, 12)
    found = kept.load(0)
    assert found is not None
    assert (found.steps, found.epochs) == (12, 7)
    assert found.tensors.keys() == checkpoint(12).tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in checkpoint(12).tensors.items())
    assert len(list(kept.folder.iterdir())) == 1


def test_the_time_before_an_interruption_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: now)
    first = Checkpoints(tmp_path)
    now += 30
    first.write(0, checkpoint(3))
    now += 500  # killed: what came after the checkpoint is repeated
    second = Checkpoints(tmp_path)
    now += 2  # a pass over the images, which the first process had made too
    resume(second)
    assert second.seconds_before + 2 == 30
    now += 8
    second.write(0, checkpoint(5))
    third = Checkpoints(tmp_path)
    resume(third)
    assert third.seconds_before == 38
    now += 100  # a second training in the same task
    assert third.load(1) is None
    assert third.seconds_before == 38


def test_a_checkpoint_without_times_is_read(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    write_tensors(tmp_path / "training-0-3-0of1.safetensors", checkpoint(3).tensors, {"epochs": "7"})
    resume(kept)
    assert kept.seconds_before == 0


def test_an_older_checkpoint_that_cannot_be_removed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    kept.write(0, checkpoint(3))
    kept.write(0, checkpoint(12))

    def fail(path: Path, **_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "unlink", fail)
    kept.remove_older(0, 12)
    found = kept.load(0)
    assert found is not None
    assert found.steps == 12


def test_a_checkpoint_is_complete_when_all_processes_have_written(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    for rank in (1, 0):
        kept.write(0, checkpoint(5), rank=rank, processes=2)
    kept.write(0, checkpoint(9), rank=1, processes=2)  # killed before the other process could write
    for rank in (0, 1):
        found = kept.load(0, rank=rank, processes=2)
        assert found is not None
        assert found.steps == 5
    assert kept.load(0, rank=0, processes=3) is None
    kept.write(0, checkpoint(9), rank=0, processes=2)
    found = kept.load(0, rank=1, processes=2)
    assert found is not None
    assert found.steps == 9


def test_the_trainings_of_a_task_have_separate_checkpoints(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    assert [kept.next_training(), kept.next_training()] == [0, 1]
    kept.write(1, checkpoint(2))
    kept.write(0, checkpoint(5))
    kept.remove_older(0, 5)
    found = [kept.load(training) for training in (0, 1)]
    assert [None if one is None else one.steps for one in found] == [5, 2]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 100], ids=["empty", "short", "large header"])
def test_a_damaged_checkpoint_gives_a_warning_and_is_not_used(content: bytes, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.write(0, checkpoint(5))
    next(tmp_path.iterdir()).write_bytes(content)
    with pytest.warns(CotransportWarning, match="damaged"):
        assert kept.load(0) is None


def test_writing_takes_at_most_a_fiftieth_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    kept = Checkpoints(tmp_path)
    assert kept.due(0)
    assert not kept.due(30)
    now[0] = 30
    assert kept.due(30)
    monkeypatch.setattr(checkpoints, "write_tensors", lambda *_: write_slowly(tmp_path, now))
    kept.write(0, checkpoint(1))  # takes 2 seconds, so the next one is due after 100 seconds
    now[0] += 99
    assert not kept.due(30)
    now[0] += 1
    assert kept.due(30)


def write_slowly(folder: Path, now: list[float]) -> None:
    (folder / ".training-0-1-0of1.safetensors.part").write_text("")
    now[0] += 2
