"""Runs that were stopped: what is on disk meanwhile, and that they resume to the same result or say why not."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cotransport.errors import RunError
from cotransport.experiments import evaluation as evaluation_module
from cotransport.experiments import run as run_module
from cotransport.experiments.results import Archive
from cotransport.experiments.run import run
from cotransport.model.folder import ModelFolder
from cotransport.networks.network import HeadAlone
from cotransport.report import origins as origins_module
from cotransport.report import write_report
from cotransport.system import signals
from cotransport.system.tensors import read_tensors, write_tensors
from cotransport.training.listener import NullListener
from cotransport.training.progress import TrainingProgress
from tests.conftest import blobs
from tests.experiments.helpers import (
    REPLAY,
    Recorder,
    StopsAfterTask,
    StopsBeforeFirstStep,
    comparable,
    quick_recipe,
    run_digits,
)
from tests.helpers import Passes
from tests.lessons.helpers import write

JOB = Path("replay-seed1", "unfinished", "job.json")


def stop(*overrides: str, out: Path, listener: Recorder) -> None:
    """Run until the listener stops it."""
    with pytest.raises(KeyboardInterrupt):
        run_digits(*overrides, out=out, listener=listener)


def read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_unfinished_run_is_resumed_or_overwritten(tmp_path: Path) -> None:
    stop(*REPLAY, out=tmp_path, listener=StopsAfterTask())
    with pytest.raises(RunError, match=r"replay-seed1: an unfinished run.*--resume.*--overwrite"):
        run_digits(*REPLAY, out=tmp_path)
    listener = Recorder()
    [resumed] = run_digits(*REPLAY, out=tmp_path, resume=True, listener=listener)
    assert (listener.jobs, listener.kept, listener.tasks_done) == (1, [], [1])
    assert len(listener.summaries) == 2
    [again] = run_digits(*REPLAY, out=tmp_path, overwrite=True)
    assert comparable(resumed.model_dump()) == comparable(again.model_dump())


@pytest.mark.parametrize("method", ["coil", "bic", "oracle"])
def test_every_kind_of_memory_and_head_is_resumed(method: str, tmp_path: Path) -> None:
    """The oracle's memory is not stored: it is all images seen, which the data has."""
    settings = (f"data.source={write(blobs(4, 8), tmp_path / 'photos')}", "stream={step: 2}", f"methods=[{method}]")
    stop(*settings, out=tmp_path / "stopped", listener=StopsAfterTask())
    [resumed] = run_digits(*settings, out=tmp_path / "stopped", resume=True)
    [whole] = run_digits(*settings, out=tmp_path / "whole")
    assert comparable(resumed.model_dump()) == comparable(whole.model_dump())


FROZEN = ("backbone=efficientnet-lite0", "data.image_size=32", "freeze_backbone=true", "prediction.flip=false")


@pytest.mark.parametrize("method", ["analytic", "coil-tuned"])
def test_a_run_on_frozen_features_is_resumed(method: str, tmp_path: Path) -> None:
    photos = f"data.source={write(blobs(4, 8), tmp_path / 'photos')}"
    settings = (photos, "stream={step: 2}", f"methods=[{method}]", *FROZEN)
    stop(*settings, out=tmp_path / "stopped", listener=StopsAfterTask())
    [resumed] = run_digits(*settings, out=tmp_path / "stopped", resume=True)
    [whole] = run_digits(*settings, out=tmp_path / "whole")
    assert comparable(resumed.model_dump()) == comparable(whole.model_dump())


@pytest.mark.parametrize("method", ["bic", "icarl", "analytic"])
def test_predictions_are_averaged_over_mirror_images_of_frozen_features(method: str, tmp_path: Path) -> None:
    photos = f"data.source={write(blobs(4, 8), tmp_path / 'photos')}"
    settings = (photos, "stream={step: 2}", f"methods=[{method}]", *FROZEN)
    [result] = run_digits(*settings, "prediction.flip=true", "schedule.epochs=1", out=tmp_path)
    assert len(result.steps) == 2


def test_frozen_features_are_computed_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, photos = Passes(monkeypatch), f"data.source={write(blobs(4, 8), tmp_path / 'photos')}"
    run_digits(photos, "stream={step: 2}", "methods=[analytic, icarl]", "seeds=[1, 2]", *FROZEN, out=tmp_path)
    assert sum(images for images, network in passes.seen if not isinstance(network, HeadAlone)) == 32


def test_a_run_keeps_its_work_in_one_folder_until_it_is_finished(tmp_path: Path) -> None:
    stop(*REPLAY, out=tmp_path, listener=StopsAfterTask())
    assert [path.name for path in (tmp_path / "replay-seed1").iterdir()] == ["unfinished"]
    unfinished = tmp_path / "replay-seed1" / "unfinished"
    assert {path.name for path in unfinished.iterdir()} == {"job.json", "state"}
    assert "state/manifest.json" in files(unfinished)
    run_digits(*REPLAY, out=tmp_path, resume=True)
    assert files(tmp_path) == {"replay-seed1/result.json"}


def test_epochs_and_threads_are_recorded_before_the_first_step(tmp_path: Path) -> None:
    listener = StopsBeforeFirstStep()
    stop(*REPLAY, "device.threads=1", out=tmp_path, listener=listener)
    assert files(tmp_path) == {str(JOB)}
    record = read(tmp_path / JOB)
    assert record["trainings"] == {"0": {"epochs": 1, "threads": 1}}
    assert set(record) == {"request", "data", "fingerprint", "trainings", "precision"}
    assert (record["data"], record["precision"]) == ("digits", "32-true")


def test_the_record_says_how_a_resumed_training_goes_on(tmp_path: Path) -> None:
    stop(*REPLAY, out=tmp_path, listener=StopsBeforeFirstStep())
    record = read(tmp_path / JOB)
    record["trainings"] = {"0": {"epochs": 3, "threads": 1}}  # as if a time budget had bought more on another machine
    (tmp_path / JOB).write_text(json.dumps(record), encoding="utf-8")
    [result] = run_digits(*REPLAY, out=tmp_path, resume=True)
    assert [step.epochs for step in result.steps] == [3, 1, 1]
    assert result.environment["threads"] == 1


class StopsAtStep(Recorder):
    """Ends the program in the middle of the first training, or sends it a signal there."""

    def __init__(self, step: int, number: signal.Signals | None = None) -> None:
        super().__init__()
        self.step, self.number = step, number

    def training(self, progress: TrainingProgress) -> None:
        super().training(progress)
        if progress.step >= self.step and self.number is None:
            raise KeyboardInterrupt
        if progress.step == self.step and self.number is not None:
            signal.raise_signal(self.number)


TWO_EPOCHS = (*REPLAY, "schedule.epochs=2", "device.checkpoint_seconds=0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of two epochs a task without a disturbance."""
    [result] = run_digits(*TWO_EPOCHS, out=tmp_path_factory.mktemp("whole"))
    return comparable(result.model_dump())


def test_a_training_resumes_from_its_checkpoint(tmp_path: Path, whole: dict[str, Any]) -> None:
    stopped = StopsAtStep(3)  # the end of the first epoch; the second step's checkpoint is there
    stop(*TWO_EPOCHS, out=tmp_path, listener=stopped)
    assert stopped.progress[0].step == 0
    assert "replay-seed1/unfinished/0/training-0-2-0of1.safetensors" in files(tmp_path)
    listener = Recorder()
    [resumed] = run_digits(*TWO_EPOCHS, out=tmp_path, listener=listener, resume=True)
    assert listener.progress[0].step == 2
    assert comparable(resumed.model_dump()) == whole


def test_the_time_before_an_interruption_is_in_the_result(tmp_path: Path) -> None:
    stop(*TWO_EPOCHS, out=tmp_path, listener=StopsAtStep(3))
    checkpoint = tmp_path / "replay-seed1" / "unfinished" / "0" / "training-0-2-0of1.safetensors"
    tensors, metadata = read_tensors(checkpoint)
    assert float(metadata["seconds"]) > 0
    write_tensors(checkpoint, tensors, {**metadata, "seconds": "100000"})
    [resumed] = run_digits(*TWO_EPOCHS, out=tmp_path, resume=True)
    first, second, *_ = (step.train_seconds for step in resumed.steps)
    assert second < 100_000 < first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint_and_stops(number: signal.Signals, tmp_path: Path, whole: dict[str, Any]) -> None:
    with signals.handled(), pytest.raises(signals.Interrupted) as stopped:
        run_digits(*TWO_EPOCHS, "device.checkpoint_seconds=1000", out=tmp_path, listener=StopsAtStep(3, number))
    assert stopped.value.exit_code == 128 + number
    assert "replay-seed1/unfinished/0/training-0-3-0of1.safetensors" in files(tmp_path)
    [resumed] = run_digits(*TWO_EPOCHS, out=tmp_path, resume=True)
    assert comparable(resumed.model_dump()) == whole


def test_a_signal_between_two_tasks_waits_until_the_state_is_saved(tmp_path: Path) -> None:
    class Signals(Recorder):
        def task_done(self, summary: str, details: str) -> None:
            super().task_done(summary, details)
            signal.raise_signal(signal.SIGTERM)

    stopped, resumed = Signals(), Recorder()
    with signals.handled(), pytest.raises(signals.Interrupted):
        run_digits(*REPLAY, out=tmp_path, listener=stopped)
    assert len(stopped.summaries) == 1
    run_digits(*REPLAY, out=tmp_path, listener=resumed, resume=True)
    assert resumed.tasks_done == [1]


def test_an_unfinished_run_is_not_resumed_with_another_recipe(tmp_path: Path) -> None:
    stop(*REPLAY, out=tmp_path, listener=StopsBeforeFirstStep())
    with pytest.raises(RunError, match=r"a run of another recipe.* differs in schedule, loss\..*--overwrite"):
        run_digits(*REPLAY, "schedule.epochs=2", "loss.label_smoothing=0.1", out=tmp_path, resume=True)
    with pytest.raises(RunError, match=r"a run of another recipe.* differs in method\..*--overwrite"):
        run_digits(*REPLAY, "methods=[{name: wa, label: replay}]", out=tmp_path, resume=True)
    assert (tmp_path / JOB).is_file()


@pytest.mark.parametrize("text", ["[", "[]", "{}", '{"request": 1}'])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / JOB).parent.mkdir(parents=True)
    (tmp_path / JOB).write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"job\.json: damaged .*--overwrite"):
        run_digits(*REPLAY, out=tmp_path, resume=True)


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    stop(*REPLAY, out=tmp_path, listener=StopsAfterTask())
    (tmp_path / JOB.parent / "state" / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"state: damaged .*--overwrite"):
        run_digits(*REPLAY, out=tmp_path, resume=True)
    (tmp_path / JOB).write_text("[", encoding="utf-8")
    assert len(run_digits(*REPLAY, out=tmp_path, overwrite=True)) == 1


def test_an_unfinished_run_is_not_resumed_with_other_images(tmp_path: Path) -> None:
    photos = write(blobs(4, 6), tmp_path / "photos")
    recipe = quick_recipe(*REPLAY, f"data.source={photos}", "stream.subset=4")
    with pytest.raises(KeyboardInterrupt):
        run(recipe, tmp_path / "out", listener=StopsAfterTask())
    write(blobs(4, 6, seed=1), photos)
    with pytest.raises(RunError, match=r"replay-seed1: the images have changed since this run .*--overwrite"):
        run(recipe, tmp_path / "out", resume=True, listener=NullListener())
    write(blobs(4, 6), photos)
    assert len(run(recipe, tmp_path / "out", resume=True, listener=NullListener())) == 1


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"overwrite": True}])
def test_a_run_of_another_process_is_left_alone(options: dict[str, bool], tmp_path: Path) -> None:
    store = ModelFolder(tmp_path / "replay-seed1" / "unfinished" / "state")
    with store.locked(), pytest.raises(RunError, match=r"replay-seed1: another process is running it\. Wait"):
        run_digits(*REPLAY, out=tmp_path, **options)  # type: ignore[arg-type]
    assert (store.path / ".lock").exists()
    run_digits(*REPLAY, out=tmp_path, **options)  # type: ignore[arg-type]


def test_a_run_with_very_many_classes_lists_the_cells_of_its_confusion_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five classes are many here. The matrix is the one that a dense result has."""
    [dense] = run_digits(*REPLAY, "methods=[coil]", "data.test_images=60", out=tmp_path / "dense")
    for module in (run_module, evaluation_module, origins_module):
        monkeypatch.setattr(module, "MANY_CLASSES", 4)
    with pytest.raises(KeyboardInterrupt):
        run_digits(*REPLAY, "methods=[coil]", "data.test_images=60", out=tmp_path, listener=StopsAfterTask())
    [listed] = run_digits(*REPLAY, "methods=[coil]", "data.test_images=60", out=tmp_path, resume=True)
    assert listed.confusion == []
    assert listed.confusion_cells is not None
    assert sum(count for *_, count in listed.confusion_cells) == 60
    np.testing.assert_array_equal(listed.cells, dense.cells)
    assert [step.test_images for step in listed.steps] == [60] * 3
    plans = [step.transport and len(step.transport.plan) for step in listed.steps]
    assert plans == [None, 2, 0]
    page = write_report([listed], tmp_path / "report").page.read_text(encoding="utf-8")
    assert "tested on a sample of 60 images" in page
    assert Archive.of([listed]).runs[0].cells is None
