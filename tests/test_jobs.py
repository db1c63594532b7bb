"""The record of a job, what resumes from it, and what protects it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cotransport import jobs
from cotransport.errors import ConfigError, ModelError, StorageError
from cotransport.jobs import Job, JobRecord, TrainingRecord
from cotransport.model.folder import ModelFolder
from cotransport.settings.sections import Device
from cotransport.system import signals
from cotransport.training.processes import Processes, processes_for
from cotransport.training.progress import TrainingProgress
from tests.imports import imported

FORMAT_1 = Path(__file__).parent / "models" / "format-1" / "model"
RECORD = JobRecord(
    request={"parent": 1, "settings": {"seed": 0}}, data="photos", fingerprint="abc", precision="32-true"
)
FIRST = processes_for(Device(accelerator="cpu"))
FOLLOWER = cast(Processes, SimpleNamespace(is_first=False, precision="32-true"))
"""A process that leaves all decisions to the first one."""


def progress(step: int = 0, epochs: int = 3, threads: int = 2) -> TrainingProgress:
    return TrainingProgress(
        task=0,
        epoch=1,
        epochs=epochs,
        step=step,
        steps=9,
        images=0,
        loss=0.5,
        cross_entropy=0.5,
        accuracy=50.0,
        learning_rate=0.1,
        images_per_second=100.0,
        seconds_left=1.0,
        epoch_done=False,
        threads=threads,
        compile_seconds=None,
    )


def test_a_job_does_not_resume_in_another_precision(tmp_path: Path) -> None:
    """Another machine may choose another one, and would not end with the same result."""
    Job(tmp_path / "job", RECORD.model_copy(update={"precision": None}), FIRST).save()
    found = jobs.read_record(tmp_path / "job")
    assert found is not None
    assert (found.precision, found.id) == ("32-true", RECORD.id)
    Job(tmp_path / "job", found, FIRST)
    other = processes_for(Device(accelerator="cpu", precision="bf16-mixed"))
    with pytest.raises(ConfigError, match=r"device\.precision: .*job was started in 32-true .* in bf16-mixed\. Set it"):
        Job(tmp_path / "job", found, other)


class TestId:
    def test_is_the_hash_of_request_and_fingerprint(self) -> None:
        text = '[{"parent": 1, "settings": {"seed": 0}}, "abc"]'
        assert RECORD.id == hashlib.sha256(text.encode()).hexdigest()

    def test_stays_the_same_whatever_the_images_are_called_and_whatever_was_settled(self) -> None:
        other = JobRecord(
            request={"settings": {"seed": 0}, "parent": 1},  # in another order
            data="moved/photos",
            fingerprint="abc",
            trainings={0: TrainingRecord(epochs=3)},
        )
        assert other.id == RECORD.id

    @pytest.mark.parametrize(
        "change", [{"fingerprint": "abd"}, {"request": {"parent": 2, "settings": {"seed": 0}}}, {"request": {}}]
    )
    def test_differs_for_another_job(self, change: dict[str, Any]) -> None:
        assert RECORD.model_copy(update=change).id != RECORD.id

    def test_survives_the_disk(self, tmp_path: Path) -> None:
        Job(tmp_path / "unfinished", RECORD, FIRST).save()
        found = jobs.read_record(tmp_path / "unfinished")
        assert found == RECORD
        assert found is not None
        assert found.id == RECORD.id

    @pytest.mark.parametrize(
        ("version", "parent", "expected"),
        [
            ("0001", None, "35c6c8b71ba4bb6cc2f8909359855d1dd7bdb105603b75e12c82df05e491cdc2"),
            ("0002", 1, "40e6ccb373188a8523e3f5b530a7a2e00dfa562e6cebf660b9322eb0000e084a"),
        ],
    )
    def test_is_the_one_that_the_release_before_gave_to_the_same_lesson(
        self, version: str, parent: int | None, expected: str
    ) -> None:
        """The ids come from the last release without this module, for the lessons in `models/format-1`."""
        folder = FORMAT_1 / "versions" / version
        settings = json.loads((folder / "model.json").read_text())["settings"]
        fingerprint = json.loads((folder / "metrics.json").read_text())["lesson"]["data_id"]
        request = {"parent": parent, "held_out": 0.2, "known_classes": "refuse", "settings": settings}
        assert JobRecord(request=request, data="elsewhere", fingerprint=fingerprint).id == expected


@pytest.mark.parametrize(
    ("wanted", "found", "names"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, []),
        ({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3}, ["b", "c"]),
        ({"a": 1}, {"a": 1, "from a later release": 2}, []),
        ({"a": 1}, {}, ["a"]),
    ],
)
def test_differences_are_named(wanted: dict[str, Any], found: dict[str, Any], names: list[str]) -> None:
    assert jobs.differences(wanted, found) == names


def test_the_error_for_another_job_names_the_folder_the_differences_and_the_remedy() -> None:
    error = jobs.difference_error(ModelError, Path("m"), "a lesson is not finished", ["data", "seed"], hint="Repeat it")
    assert isinstance(error, ModelError)
    assert str(error) == "m: a lesson is not finished, and the new request differs in data, seed. Repeat it"


class TestReadRecord:
    def test_gives_nothing_where_no_job_was_started(self, tmp_path: Path) -> None:
        assert jobs.read_record(tmp_path) is None
        assert jobs.read_record(tmp_path / "nowhere") is None

    def test_keeps_whole_numbers_as_keys_of_trainings(self, tmp_path: Path) -> None:
        trainings = {0: TrainingRecord(epochs=3, threads=2), 11: TrainingRecord(epochs=1)}
        record = RECORD.model_copy(update={"trainings": trainings})
        Job(tmp_path, record, FIRST).save()
        found = jobs.read_record(tmp_path)
        assert found == record
        assert found is not None
        assert list(found.trainings) == [0, 11]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "3",
            "{}",
            '{"request": [], "data": "a", "fingerprint": "b"}',
            '{"request": {}, "data": "a", "fingerprint": 3}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": 5}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"zero": {"epochs": 3}}}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"-1.5": {"epochs": 3}}}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"0": {"epochs": 0}}}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"0": {"epochs": "3"}}}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"0": {"epochs": 3, "threads": 0}}}',
            '{"request": {}, "data": "a", "fingerprint": "b", "trainings": {"' + "9" * 5000 + '": {"epochs": 3}}}',
            "[" * 100 + "]" * 100,
        ],
    )
    def test_a_damaged_record_is_a_value_error_of_one_line(self, text: str, tmp_path: Path) -> None:
        (tmp_path / jobs.JOB).write_text(text)
        with pytest.raises(ValueError) as error:
            jobs.read_record(tmp_path)
        assert "\n" not in str(error.value)

    def test_what_is_not_a_file_is_a_value_error(self, tmp_path: Path) -> None:
        (tmp_path / "folder" / jobs.JOB).mkdir(parents=True)
        with pytest.raises(ValueError, match="not a file"):
            jobs.read_record(tmp_path / "folder")
        if hasattr(os, "mkfifo"):
            os.mkfifo(tmp_path / jobs.JOB)
            with pytest.raises(ValueError, match="not a file"):
                jobs.read_record(tmp_path)

    def test_imports_no_torch(self, tmp_path: Path) -> None:
        Job(tmp_path, RECORD, FIRST).save()
        script = f"""
from pathlib import Path
from cotransport.jobs import read_record
assert read_record(Path({str(tmp_path)!r})).id == {RECORD.id!r}"""
        assert imported(script, ["torch", "numpy", "lightning_fabric", "sklearn"]) == []


@pytest.mark.parametrize("epochs", [0, -1, 1.5, "3", None])
def test_recorded_epochs_must_be_a_whole_number_above_0(epochs: Any) -> None:
    with pytest.raises(ValueError, match="epochs"):
        TrainingRecord(epochs=epochs)


class TestJob:
    def test_its_first_training_settles_epochs_and_threads_before_anything_else(self, tmp_path: Path) -> None:
        job, heard = Job(tmp_path / "job", RECORD, FIRST), list[TrainingProgress]()
        control = job.control(0, heard.append)
        assert (control.epochs, control.threads) == (None, None)
        assert not job.folder.exists()  # nothing counts as started yet
        assert control.listener is not None
        for step in range(3):
            control.listener(progress(step))
        assert [one.step for one in heard] == [0, 1, 2]
        assert job.last_progress is heard[-1]
        found = jobs.read_record(job.folder)
        assert found is not None
        assert found.trainings == {0: TrainingRecord(epochs=3, threads=2)}

    def test_a_resumed_training_gets_what_was_settled(self, tmp_path: Path) -> None:
        settled = RECORD.model_copy(update={"trainings": {1: TrainingRecord(epochs=7, threads=1)}})
        job = Job(tmp_path / "job", settled, FIRST)
        control = job.control(1, lambda _: None)
        assert (control.epochs, control.threads) == (7, 1)
        assert control.checkpoints is not None
        assert control.checkpoints.folder == tmp_path / "job" / "1"
        assert job.control(2, lambda _: None).epochs is None

    def test_each_task_is_heard_anew(self, tmp_path: Path) -> None:
        job = Job(tmp_path / "job", RECORD, FIRST)
        for task, epochs in enumerate((3, 5)):
            listener = job.control(task, lambda _: None).listener
            assert job.last_progress is None
            assert listener is not None
            listener(progress(epochs=epochs))
        assert {task: one.epochs for task, one in job.record.trainings.items()} == {0: 3, 1: 5}
        assert jobs.read_record(job.folder) == job.record

    def test_settling_again_replaces_the_record(self, tmp_path: Path) -> None:
        job = Job(tmp_path, RECORD, FIRST)
        job.settle(0, TrainingRecord(epochs=2))
        job.settle(0, TrainingRecord(epochs=4))
        assert job.record.trainings == {0: TrainingRecord(epochs=4)}
        assert RECORD.trainings == {}

    def test_checkpoints_are_removed_without_the_record(self, tmp_path: Path) -> None:
        job = Job(tmp_path / "job", RECORD, FIRST)
        for task in (0, 1):
            job.settle(task, TrainingRecord(epochs=2))
            (job.folder / str(task)).mkdir()
        (job.folder / "state").mkdir()
        job.remove_checkpoints()
        assert sorted(path.name for path in job.folder.iterdir()) == [jobs.JOB, "state"]
        job.remove_checkpoints()  # there are none any more

    def test_a_finished_job_leaves_no_folder(self, tmp_path: Path) -> None:
        job = Job(tmp_path / "job", RECORD, FIRST)
        job.remove()  # it was never saved
        job.save()
        job.remove()
        assert not job.folder.exists()
        jobs.remove_job(job.folder)

    def test_only_the_first_process_writes_and_removes(self, tmp_path: Path) -> None:
        follower = Job(tmp_path / "job", RECORD, FOLLOWER)
        follower.settle(0, TrainingRecord(epochs=2))
        assert not follower.folder.exists()
        assert follower.record.trainings == {0: TrainingRecord(epochs=2)}
        Job(tmp_path / "job", RECORD, FIRST).save()
        (tmp_path / "job" / "0").mkdir()
        follower.remove_checkpoints()
        follower.remove()
        assert (tmp_path / "job" / "0").is_dir()
        assert jobs.read_record(tmp_path / "job") == RECORD

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError, match=r"file/job: cannot be written"):
            Job(tmp_path / "file" / "job", RECORD, FIRST).save()


class TestUninterrupted:
    def test_a_signal_stops_the_process_after_the_block(self) -> None:
        done: list[str] = []
        with signals.handled(), pytest.raises(signals.Interrupted) as stopped:
            with jobs.uninterrupted():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("the block")
            done.append("what follows")
        assert done == ["the block"]
        assert stopped.value.exit_code == 143

    def test_without_a_signal_nothing_happens(self) -> None:
        with signals.handled(), jobs.uninterrupted():
            assert not signals.requested()

    def test_a_second_signal_does_not_wait(self) -> None:
        done: list[str] = []
        with signals.handled(), pytest.raises(signals.Interrupted), jobs.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("after the first")
            os.kill(os.getpid(), signal.SIGINT)
            done.append("after the second")
        assert done == ["after the first"]

    def test_an_error_of_the_block_is_raised_even_if_a_signal_came(self) -> None:
        with signals.handled(), pytest.raises(KeyError), jobs.uninterrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            raise KeyError


def test_a_lock_keeps_other_writers_out_and_is_given_back_after_an_error(tmp_path: Path) -> None:
    model = ModelFolder(tmp_path / "model")
    with pytest.raises(KeyError), jobs.locked(model, FIRST):
        with pytest.raises(ModelError, match="another process is writing"), ModelFolder(model.path).locked():
            pass
        raise KeyError
    with ModelFolder(model.path).locked():
        pass
