"""Lessons that were stopped: what resumes, what starts again, and what is removed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cotransport import jobs
from cotransport.errors import ConfigError, CotransportWarning, DataError, ModelError, TrainingError
from cotransport.lessons import teaching
from cotransport.lessons.comparison import compare
from cotransport.lessons.information import describe, rollback
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Device
from cotransport.system import signals
from cotransport.training.progress import TrainingProgress
from tests.conftest import blobs
from tests.lessons.helpers import (
    QUICK,
    Steps,
    StopAfterAnEpoch,
    choose,
    learn,
    stop_after_an_epoch,
    write,
)

LARGE = choose(image_size=72, schedule={"epochs": 3, "batch_size": 4})
"""Options of a lesson on `photos`."""


def weights_of(model: Path) -> object:
    """The checksum of the first version's weights."""
    return ModelStore(model).manifest().version(1).files["weights.safetensors"]


def photos(folder: Path) -> Path:
    """Images that are too large for memory, so that they are decoded during the training."""
    for number in range(8):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 80), (number, 0, 0)).save(path)
    return folder


class TestResume:
    def test_a_lesson_resumes_and_ends_the_same(self, tmp_path: Path, taught_models: Path, first: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        assert sorted(path.name for path in (tmp_path / "m" / "unfinished").iterdir()) == ["0", "job.json"]
        steps = Steps()
        learn(tmp_path / "m", first, listener=steps)
        assert steps.done[0] > 0
        assert weights_of(tmp_path / "m") == weights_of(taught_models / "one")

    def test_the_same_images_in_another_folder_are_the_same_lesson(self, tmp_path: Path, first: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        first.rename(tmp_path / "moved")
        steps = Steps()
        learn(tmp_path / "m", tmp_path / "moved", listener=steps)
        assert steps.done[0] > 0

    def test_files_with_other_dates_are_the_same_lesson(self, tmp_path: Path) -> None:
        folder, options = photos(tmp_path / "photos"), LARGE
        stop_after_an_epoch(tmp_path / "m", folder, options)
        for path in folder.rglob("*.png"):
            os.utime(path, (0, 0))
        steps = Steps()
        assert learn(tmp_path / "m", folder, options, listener=steps).version == 1  # without a warning
        assert steps.done[0] > 0

    @pytest.mark.filterwarnings("ignore:schedule.seconds_per_task")  # on a busy machine, one epoch takes longer
    def test_epochs_from_a_time_budget_are_kept(self, tmp_path: Path, first: Path) -> None:
        budget = choose(schedule={"seconds_per_task": 1.0, "batch_size": 16})
        stop_after_an_epoch(tmp_path / "m", first, budget)
        record = jobs.read_record(tmp_path / "m" / "unfinished")
        assert record is not None
        path = tmp_path / "m" / "unfinished" / jobs.JOB
        settled = json.loads(path.read_text())
        settled["trainings"]["0"]["epochs"] = 3  # as if the machine had been slower then
        for checkpoint in (tmp_path / "m" / "unfinished" / "0").iterdir():
            checkpoint.unlink()
        path.write_text(json.dumps(settled))
        assert record.trainings[0].epochs != 3
        assert learn(tmp_path / "m", first, budget).report.lesson.epochs == 3

    def test_images_that_cannot_be_read_for_a_while_do_not_cost_what_was_trained(self, tmp_path: Path) -> None:
        folder, options = photos(tmp_path / "photos"), LARGE
        stop_after_an_epoch(tmp_path / "m", folder, options)
        record = jobs.read_record(tmp_path / "m" / "unfinished")

        class Vanish(Steps):
            """Removes an image once the training has resumed."""

            def training(self, progress: object) -> None:
                for path in folder.rglob("3.png"):
                    path.rename(tmp_path / "vanished.png")

        every_step = replace(options, device=Device(accelerator="cpu", workers=0))
        with pytest.raises(DataError, match=r"3\.png"):
            learn(tmp_path / "m", folder, every_step, listener=Vanish())
        assert jobs.read_record(tmp_path / "m" / "unfinished") == record
        (tmp_path / "vanished.png").rename(folder / "b" / "3.png")
        steps = Steps()
        learn(tmp_path / "m", folder, options, listener=steps)
        assert steps.done[0] > 0


class TestSignals:
    def test_in_a_training_save_a_checkpoint_first(self, tmp_path: Path, taught_models: Path, first: Path) -> None:
        class Interrupt(Steps):
            """Sends a signal to this process after the first epoch."""

            def training(self, progress: TrainingProgress) -> None:
                if progress.epoch_done:
                    os.kill(os.getpid(), signal.SIGTERM)

        with signals.handled(), pytest.raises(signals.Interrupted):
            learn(tmp_path / "m", first, listener=Interrupt())
        assert len(list((tmp_path / "m" / "unfinished" / "0").glob("training-*.safetensors"))) == 1
        steps = Steps()
        learn(tmp_path / "m", first, listener=steps)
        assert steps.done[0] > 0
        assert weights_of(tmp_path / "m") == weights_of(taught_models / "one")

    def test_after_the_training_wait_until_the_version_is_written(
        self, tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def compare_and_interrupt(*arguments: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return compare(*arguments)

        monkeypatch.setattr(teaching, "compare", compare_and_interrupt)
        with signals.handled(), pytest.raises(signals.Interrupted):
            learn(tmp_path / "m", first)
        assert describe(tmp_path / "m")["current"] == 1
        assert not (tmp_path / "m" / "unfinished").exists()


class TestStartAgain:
    def test_a_lesson_with_other_images(self, tmp_path: Path, first: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        write(blobs(1, 1, seed=9), first)  # one image is replaced
        learn(tmp_path / "whole", first)
        with pytest.warns(CotransportWarning, match=r"the images have changed .*, so it starts again"):
            learn(tmp_path / "m", first)
        assert weights_of(tmp_path / "m") == weights_of(tmp_path / "whole")

    def test_a_lesson_with_a_damaged_record(self, tmp_path: Path, first: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        (tmp_path / "m" / "unfinished" / jobs.JOB).write_text("{")
        steps = Steps()
        learn(tmp_path / "m", first, listener=steps)
        assert steps.done[0] == 0

    def test_a_lesson_that_an_earlier_release_has_started(self, tmp_path: Path, beginner: Path, second: Path) -> None:
        """It kept another record, `lesson.json`, and its checkpoints beside it."""
        (beginner / "unfinished").mkdir()
        (beginner / "unfinished" / "lesson.json").write_text('{"id": "ab", "data": "photos", "epochs": 3}')
        (beginner / "unfinished" / "training-0-3-0of1.safetensors").write_bytes(b"")
        assert describe(beginner)["unfinished"] is None
        assert learn(beginner, second).version == 2
        assert not (beginner / "unfinished").exists()


class TestOtherLessons:
    def test_wait_for_it_or_overwrite_it(self, tmp_path: Path, first: Path, second: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        message = rf"a lesson from {first} is not finished.* differs in data\. Repeat its command.*--overwrite"
        with pytest.raises(ModelError, match=message):
            learn(tmp_path / "m", second)
        with pytest.raises(ModelError, match="differs in settings"):
            learn(tmp_path / "m", first, choose(backbone="resnet20"))
        with pytest.raises(ModelError, match="differs in held_out, known_classes"):
            learn(tmp_path / "m", first, replace(QUICK, held_out=0.2, known_classes="extend"))
        assert jobs.read_record(tmp_path / "m" / "unfinished") is not None
        assert learn(tmp_path / "m", second, overwrite=True).version == 1
        assert describe(tmp_path / "m")["classes"] == ["class 2", "class 3"]

    def test_overwriting_the_same_lesson_starts_it_again(self, tmp_path: Path, first: Path) -> None:
        stop_after_an_epoch(tmp_path / "m", first)
        steps = Steps()
        learn(tmp_path / "m", first, overwrite=True, listener=steps)
        assert steps.done[0] == 0

    def test_after_a_rollback_the_same_images_are_another_lesson(self, model: Path, tmp_path: Path) -> None:
        third = write(blobs(1, 20, first=7), tmp_path / "third")
        stop_after_an_epoch(model, third)
        rollback(model)
        assert learn(model, third).version == 3
        assert ModelStore(model).manifest().version(3).parent == 1
        rollback(model)
        again = learn(model, third)
        assert (again.version, again.already, again.made_current) == (3, True, True)
        assert describe(model)["current"] == 3


class TestLeftovers:
    @pytest.mark.parametrize(
        ("chosen", "error"),
        [
            ({"schedule": {"epochs": 2, "learning_rate": 1e30, "shape": "constant"}}, TrainingError),
            ({"seed": -1}, ConfigError),
        ],
    )
    def test_a_lesson_that_can_never_be_finished_leaves_none(
        self, chosen: dict[str, object], error: type[Exception], tmp_path: Path, first: Path, second: Path
    ) -> None:
        for folder in (first, second):
            with pytest.raises(error):
                learn(tmp_path / "m", folder, choose(**chosen))
            assert not (tmp_path / "m" / "unfinished").exists()
            learn(tmp_path / "m", folder)

    def test_of_a_process_that_was_killed_after_its_version_was_written_are_removed(
        self, tmp_path: Path, first: Path, second: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs.shutil, "rmtree", lambda *_, **__: None)
        learn(tmp_path / "m", first)
        monkeypatch.undo()
        unfinished = tmp_path / "m" / "unfinished"
        assert (unfinished / jobs.JOB).exists()
        assert describe(tmp_path / "m")["unfinished"] is None
        assert learn(tmp_path / "m", first).already
        assert not unfinished.exists()
        unfinished.mkdir()  # killed when the record was removed, and nothing else yet
        assert learn(tmp_path / "m", first).already
        assert not unfinished.exists()
        assert learn(tmp_path / "m", second).version == 2

    def test_a_lesson_that_stops_before_its_training_leaves_none(self, tmp_path: Path, beginner: Path) -> None:
        empty = tmp_path / "empty"
        (empty / "class 9").mkdir(parents=True)
        with pytest.raises(DataError):
            learn(beginner, empty, listener=StopAfterAnEpoch())
        assert not (beginner / "unfinished").exists()
