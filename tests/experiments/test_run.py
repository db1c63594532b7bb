"""Whole runs: the results, the folders that they leave, and what is checked before the first task."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cotransport.data import DataSet, LabelledImages
from cotransport.errors import ConfigError, DataError, RunError, TrainingError
from cotransport.experiments import boundary as boundary_module
from cotransport.experiments import run as run_module
from cotransport.experiments.results import Result
from cotransport.networks.backbones import build
from cotransport.settings.sections import Backbone, Device
from cotransport.training.processes import Processes
from tests.conftest import blobs
from tests.experiments.helpers import REPLAY, Recorder, quick_recipe, run_digits

TWO_METHODS_TWO_SEEDS = (
    "stream={step: 4, order_seed: 1993}",
    "methods=[finetune, {name: replay, label: keeps some}]",
    "seeds=[1, 2]",
)
FOLDERS = ["finetune-seed1", "keeps some-seed1", "finetune-seed2", "keeps some-seed2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder, list[Result]]:
    """The folder of an experiment, what its listener has heard, and its results."""
    out, listener = tmp_path_factory.mktemp("runs"), Recorder()
    return out, listener, run_digits(*TWO_METHODS_TWO_SEEDS, out=out, listener=listener)


Finished = tuple[Path, Recorder, list[Result]]


def test_every_method_and_seed_has_a_result(finished: Finished) -> None:
    out, listener, results = finished
    assert [result.folder for result in results] == FOLDERS
    assert sorted(path.name for path in out.iterdir()) == sorted(FOLDERS)
    assert listener.titles == [
        "finetune, seed 1 (run 1 of 4)",
        "keeps some, seed 1 (run 2 of 4)",
        "finetune, seed 2 (run 3 of 4)",
        "keeps some, seed 2 (run 4 of 4)",
    ]
    assert (listener.jobs, listener.kept, listener.tasks_done) == (4, [], [0, 0, 0, 0])
    assert len(listener.summaries) == 12


def test_a_result_counts_the_trained_weights(finished: Finished) -> None:
    """Twin: the backbone's, 64 for each of ten classes, and the head's scale."""
    backbone = sum(weights.numel() for weights in build(Backbone(name="resnet8"), 8).parameters())
    assert {result.parameters for result in finished[2]} == {backbone + 10 * 64 + 1}


def test_the_environment_is_that_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkout may have another commit when a long run ends."""
    monkeypatch.setattr(sys, "argv", ["cotransport", "run", "first"])

    class Renames(Recorder):
        def task_done(self, summary: str, details: str) -> None:
            monkeypatch.setattr(sys, "argv", ["cotransport", "run", "second"])

    (result,) = run_digits(*REPLAY, out=tmp_path, listener=Renames())
    assert result.environment["command"] == "cotransport run first"


def test_a_result_has_the_promised_fields(finished: Finished) -> None:
    values = json.loads((finished[0] / "keeps some-seed2" / "result.json").read_text(encoding="utf-8"))
    assert values["label"] == "keeps some"
    assert values["method"] == "replay"
    assert values["seed"] == 2
    assert values["class_order_seed"] == 1993
    assert sorted(values["class_order"]) == list(range(10))
    assert values["classes"] == [str(number) for number in values["class_order"]]
    assert values["metric"] == "top1"
    assert [step["classes_seen"] for step in values["steps"]] == [4, 8, 10]
    assert [len(step["per_task"]) for step in values["steps"]] == [1, 2, 3]
    for step in values["steps"]:
        assert {"top1", "top5", "head_top1", "ncm_top1", "train_seconds", "images_per_second"} <= set(step)
        assert step["top1"] == step["head_top1"]
        assert step["top5"] >= step["top1"]
        assert step["ncm_top1"] is not None
        assert step["train_seconds"] > 0
        assert step["images_per_second"] > 0
    assert values["steps"][0]["top5"] == 100.0  # there are four classes
    curve = [step["top1"] for step in values["steps"]]
    assert values["average_incremental_accuracy"] == pytest.approx(sum(curve) / 3)
    assert values["last_accuracy"] == curve[-1]
    assert {"cotransport", "torch", "python", "device", "command"} <= set(values["environment"])
    images = sum(sum(row) for row in values["confusion"])
    correct = sum(values["confusion"][label][label] for label in range(10))
    assert 100 * correct / images == pytest.approx(curve[-1])


def test_returned_results_are_those_on_disk(finished: Finished) -> None:
    for result in finished[2]:
        assert Result.load(finished[0] / result.folder / "result.json") == result


def test_a_finished_run_leaves_its_result_only(finished: Finished) -> None:
    for folder in FOLDERS:
        assert [path.name for path in (finished[0] / folder).iterdir()] == ["result.json"]


def test_a_method_without_exemplars_has_no_nearest_mean(finished: Finished) -> None:
    assert all(step.ncm_top1 is None for step in finished[2][0].steps)
    assert "nearest mean –" in finished[1].summaries[0]


def test_the_listener_hears_the_accuracy_of_every_task(finished: Finished) -> None:
    _, listener, results = finished
    steps = [step for result in results for step in result.steps]
    for step, summary in zip(steps, listener.summaries, strict=True):
        assert summary.startswith(f"{step.top1:.1f} % on {step.classes_seen} classes (")


def test_where_the_nearest_mean_counts_the_head_is_shown_beside_it(tmp_path: Path) -> None:
    listener = Recorder()
    [result] = run_digits("methods=[icarl]", "stream={classes: [['1'], ['2', '3']]}", out=tmp_path, listener=listener)
    for step, summary, classes in zip(result.steps, listener.summaries, ("1 class", "3 classes"), strict=True):
        assert step.top1 == step.ncm_top1
        assert summary.startswith(f"{step.top1:.1f} % on {classes} (head {step.head_top1:.1f} %; ")


def test_the_expected_work_is_the_work_that_is_done(finished: Finished) -> None:
    listener = finished[1]
    seen = [progress.images for progress in listener.progress if progress.step == progress.steps]
    assert [images for work in listener.work for images in work] == seen


def test_seeds_share_the_stream_but_not_the_result(finished: Finished) -> None:
    _, one, _, two = finished[2]
    assert one.class_order == two.class_order
    assert one.confusion != two.confusion


def test_finished_runs_are_kept(finished: Finished) -> None:
    listener = Recorder()
    assert run_digits(*TWO_METHODS_TWO_SEEDS, out=finished[0], listener=listener) == finished[2]
    assert (listener.jobs, listener.kept, listener.titles) == (0, FOLDERS, [])


def test_only_runs_without_a_result_are_run(tmp_path: Path) -> None:
    [one] = run_digits(*REPLAY, out=tmp_path)
    listener = Recorder()
    first, second = run_digits(*REPLAY, "seeds=[1, 2]", out=tmp_path, listener=listener)
    assert first == one
    assert second.seed == 2
    assert (listener.jobs, listener.kept) == (1, ["replay-seed1"])
    assert listener.titles == ["replay, seed 2 (run 1 of 1)"]


def test_a_finished_run_of_another_recipe_is_refused(finished: Finished) -> None:
    with pytest.raises(RunError, match=r"a run of another recipe.* differs in schedule\..*--overwrite"):
        run_digits(*TWO_METHODS_TWO_SEEDS, "schedule.epochs=2", out=finished[0])
    with pytest.raises(RunError, match=r"a run of another recipe.* differs in method\..*--overwrite"):
        run_digits(*TWO_METHODS_TWO_SEEDS, "methods=[{name: replay, label: finetune}]", out=finished[0])


def test_a_recipe_may_differ_in_device_and_logging(finished: Finished) -> None:
    again = run_digits(*TWO_METHODS_TWO_SEEDS, "device.workers=1", "logging=csv", out=finished[0])
    assert again == finished[2]


def test_overwriting_discards_the_finished_run(tmp_path: Path) -> None:
    run_digits(*REPLAY, out=tmp_path)
    [result] = run_digits(*REPLAY, "schedule.epochs=2", out=tmp_path, overwrite=True)
    assert [step.epochs for step in result.steps] == [2, 2, 2]
    assert Result.load(tmp_path / "replay-seed1" / "result.json") == result


def test_an_unfinished_folder_beside_a_result_is_removed(tmp_path: Path) -> None:
    """It is there if the process was killed after the result was written and before the folder was removed."""
    run_digits(*REPLAY, out=tmp_path)
    (tmp_path / "replay-seed1" / "unfinished").mkdir()
    run_digits(*REPLAY, out=tmp_path)
    assert not (tmp_path / "replay-seed1" / "unfinished").exists()


def test_the_augmentation_suits_the_data_except_for_what_the_recipe_sets(tmp_path: Path) -> None:
    [result] = run_digits(
        "methods=[finetune]", "stream={tasks: 1, subset: 2}", "augmentation.brightness=0.1", out=tmp_path
    )
    used = result.recipe["augmentation"]
    assert (used["brightness"], used["flip"], used["crop_padding"]) == (0.1, False, 1)


def test_the_metric_counts_everywhere(tmp_path: Path) -> None:
    listener = Recorder()
    [result] = run_digits("methods=[finetune]", "stream={step: 4}", "metric=top5", out=tmp_path, listener=listener)
    last = result.steps[-1]
    assert result.last_accuracy == last.top5
    assert listener.summaries[-1].startswith(f"{last.top5:.1f} % on 10 classes")
    # the accuracies of the tasks, weighted by their images, give the accuracy on all images
    images = [sum(map(sum, result.confusion[start:end])) for start, end in ((0, 4), (4, 8), (8, 10))]
    together = sum(a * n for a, n in zip(last.per_task, images, strict=True) if a is not None) / sum(images)
    assert together == pytest.approx(last.top5)


def test_evaluation_on_a_validation_split_leaves_the_test_images_out(tmp_path: Path) -> None:
    [result] = run_digits("methods=[finetune]", "stream={tasks: 1}", "data.validation=0.1", out=tmp_path)
    # a fifth of 1,797 images is kept for testing, and a tenth of the others is evaluated on
    assert sum(map(sum, result.confusion)) == pytest.approx(1797 * 0.8 * 0.1, abs=5)


def test_a_class_without_training_images_is_found_before_the_first_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataSet(blobs(2, 4), blobs(2, 2))
    hollow = LabelledImages(data.train.images, data.train.labels * 0, data.train.classes)
    monkeypatch.setattr(run_module, "load_data_set", lambda *_: DataSet(hollow, data.test))
    with pytest.raises(DataError, match="'class 1' has no training images"):
        run_digits("stream={classes: [['0'], ['1']]}", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_memory_that_is_too_small_is_refused_before_old_runs_are_removed(tmp_path: Path) -> None:
    [result] = run_digits(*REPLAY, "methods=[coil]", out=tmp_path)
    with pytest.raises(ConfigError, match=r"memory: coil needs an exemplar of each of 5 classes"):
        run_digits(*REPLAY, "methods=[coil]", "memory.total=4", out=tmp_path, overwrite=True)
    assert Result.load(tmp_path / "coil-seed1" / "result.json") == result


def test_a_failed_run_leaves_no_result(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not finite"):
        run_digits(*REPLAY, "schedule.learning_rate=1e30", "schedule.shape=constant", out=tmp_path)
    assert not (tmp_path / "replay-seed1" / "result.json").exists()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "replay-seed1").touch()
    with pytest.raises(RunError, match=r"replay-seed1: a file is in the way.*--out"):
        run_digits(*REPLAY, out=tmp_path)
    with pytest.raises(RunError, match=r"inside: cannot be made.*--out"):
        run_digits(*REPLAY, out=tmp_path / "replay-seed1" / "inside")


class Follower(Processes):
    """A process that is not the first one, without the others."""

    is_first = False


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Follower(Device(accelerator="cpu"))
    for module in (run_module, boundary_module):
        monkeypatch.setattr(module, "processes_for", lambda _: process)


@pytest.mark.usefixtures("follower")
@pytest.mark.parametrize(
    "work",
    [
        lambda out, listener: run_digits(*REPLAY, "logging=csv", out=out, listener=listener),
        lambda _, listener: boundary_module.boundary(quick_recipe(*REPLAY), listener),
    ],
    ids=["run", "boundary"],
)
def test_only_the_first_process_reports_and_writes(work: Callable[[Path, Recorder], object], tmp_path: Path) -> None:
    listener = Recorder()
    assert work(tmp_path, listener)
    assert vars(listener) == vars(Recorder())
    assert not [*tmp_path.rglob("result.json"), *tmp_path.rglob("job.json"), *tmp_path.rglob("logs")]
