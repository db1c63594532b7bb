import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from cotransport import IncrementalClassifier
from cotransport.data import DataSet, LabelledImages
from cotransport.errors import ConfigError, DataError, RunError, TrainingError
from cotransport.experiments import run as experiment
from cotransport.experiments.recipe import Recipe, load_recipe
from cotransport.experiments.results import Result, TaskResult, find_results
from cotransport.experiments.stream import TaskStream
from cotransport.training.loop import TrainingProgress
from tests.conftest import blobs
from tests.lessons.test_lesson import write

QUICK = [
    "schedule.epochs=1",
    "stream={step: 4, order_seed: 1993}",
    "methods=[finetune, {name: replay, label: keeps some}]",
    "seeds=[1, 2]",
    "device.accelerator=cpu",
]


class Quiet:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.work: list[Sequence[float]] = []
        self.images: list[int] = []
        self.steps = 0

    def planned(self, runs: int, kept: Sequence[experiment.Run]) -> None:
        self.kept = [one.folder for one in kept]

    def run_begun(self, run: experiment.Run, work: Sequence[float], done: int = 0) -> None:
        self.begun.append(run.folder)
        self.work.append(work)

    def figures(self, figures: TrainingProgress) -> None:
        if figures.step == figures.steps:
            self.images.append(figures.images)

    def task_done(self, step: TaskResult) -> None:
        self.steps += 1


def recipe(*overrides: str) -> Recipe:
    return load_recipe("digits", [*QUICK, *overrides])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Quiet]:
    out = tmp_path_factory.mktemp("runs")
    watcher = Quiet()
    experiment.run(recipe(), out, watcher=watcher)
    return out, watcher


def test_a_result_for_every_method_and_seed(finished: tuple[Path, Quiet]) -> None:
    out, watcher = finished
    folders = ["finetune-seed1", "finetune-seed2", "keeps some-seed1", "keeps some-seed2"]
    assert sorted(path.name for path in out.iterdir()) == folders
    assert sorted(watcher.begun) == folders
    assert watcher.steps == 12


def test_the_contract_of_a_result(finished: tuple[Path, Quiet]) -> None:
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
    assert values["steps"][0]["top5"] == 100.0  # four classes
    curve = [step["top1"] for step in values["steps"]]
    assert values["average_incremental_accuracy"] == pytest.approx(sum(curve) / 3)
    assert values["last_accuracy"] == curve[-1]
    assert {"cotransport", "torch", "python", "device", "command"} <= set(values["environment"])
    counts = sum(sum(row) for row in values["confusion"])
    right = sum(values["confusion"][k][k] for k in range(10))
    assert 100 * right / counts == pytest.approx(curve[-1])


def test_no_nearest_mean_without_exemplars(finished: tuple[Path, Quiet]) -> None:
    result = Result.load(finished[0] / "finetune-seed1" / "result.json")
    assert all(step.ncm_top1 is None for step in result.steps)


def test_expected_work_is_what_is_done(finished: tuple[Path, Quiet]) -> None:
    watcher = finished[1]
    assert [images for work in watcher.work for images in work] == watcher.images


def test_finished_runs_are_kept(finished: tuple[Path, Quiet]) -> None:
    watcher = Quiet()
    results = experiment.run(recipe(), finished[0], watcher=watcher)
    assert watcher.begun == []
    assert len(results) == 4


def test_a_finished_run_of_another_recipe_is_not_mistaken(finished: tuple[Path, Quiet]) -> None:
    with pytest.raises(RunError, match=r"a run of another recipe \(it differs in schedule\).*--overwrite"):
        experiment.run(recipe("schedule.epochs=2"), finished[0], watcher=Quiet())


def test_where_it_runs_does_not_matter(finished: tuple[Path, Quiet]) -> None:
    experiment.run(recipe("device.workers=1", "logging.csv=true"), finished[0], watcher=Quiet())


def comparable(result: Result) -> dict[str, object]:
    values = result.model_dump()
    values.pop("environment")
    for step in values["steps"]:
        step.pop("train_seconds"), step.pop("images_per_second")
    return values


def test_an_unfinished_run_is_resumed_or_overwritten(tmp_path: Path, finished: tuple[Path, Quiet]) -> None:
    few = ("methods=[replay]", "seeds=[1]")

    class Stopped(Quiet):
        def task_done(self, step: TaskResult) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(recipe(*few), tmp_path, watcher=Stopped())
    with pytest.raises(RunError, match=r"replay-seed1: an unfinished run.*--resume.*--overwrite"):
        experiment.run(recipe(*few), tmp_path, watcher=Quiet())
    (resumed,) = experiment.run(recipe(*few), tmp_path, resume=True, watcher=Quiet())
    (again,) = experiment.run(recipe(*few), tmp_path, overwrite=True, watcher=Quiet())
    assert comparable(resumed) == comparable(again)
    twin = Result.load(finished[0] / "keeps some-seed1" / "result.json")
    assert again.curve == twin.curve


def test_an_unfinished_run_is_not_resumed_with_another_recipe(tmp_path: Path) -> None:
    (tmp_path / "replay-seed1").mkdir()
    started = tmp_path / "replay-seed1" / "recipe.json"
    started.write_text(json.dumps(recipe("methods=[replay]").model_dump(mode="json")), encoding="utf-8")
    with pytest.raises(RunError, match=r"a run of another recipe \(it differs in .*schedule"):
        experiment.run(
            recipe("methods=[replay]", "seeds=[1]", "schedule.epochs=2"), tmp_path, resume=True, watcher=Quiet()
        )
    started.write_text("[", encoding="utf-8")
    with pytest.raises(RunError, match=r"recipe\.json: damaged\. Start the run anew with --overwrite"):
        experiment.run(recipe("methods=[replay]", "seeds=[1]"), tmp_path, resume=True, watcher=Quiet())


def test_one_setting_of_the_augmentation_leaves_the_others_as_they_suit_the_data(tmp_path: Path) -> None:
    (result,) = experiment.run(
        recipe("methods=[finetune]", "seeds=[1]", "augmentation.brightness=0.1"), tmp_path, watcher=Quiet()
    )
    used = result.recipe["augmentation"]
    assert (used["brightness"], used["flip"], used["crop_padding"]) == (0.1, False, 1)


def test_the_metric_counts_everywhere(tmp_path: Path) -> None:
    (result,) = experiment.run(recipe("methods=[finetune]", "seeds=[1]", "metric=top5"), tmp_path, watcher=Quiet())
    last = result.steps[-1]
    assert result.last_accuracy == last.top5
    # the task's accuracies, weighted by their images, make up the whole
    images = [sum(map(sum, result.confusion[start:end])) for start, end in ((0, 4), (4, 8), (8, 10))]
    together = sum(a * n for a, n in zip(last.per_task, images, strict=True) if a is not None) / sum(images)
    assert together == pytest.approx(last.top5)


def test_a_class_without_training_images_is_found_before_the_first_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DataSet(blobs(2, 4), blobs(2, 2))
    hollow = LabelledImages(data.train.images, data.train.labels * 0, data.train.classes)
    monkeypatch.setattr(experiment, "load", lambda *_: DataSet(hollow, data.test))
    with pytest.raises(DataError, match="'class 1' has no training images"):
        experiment.run(recipe("stream={classes: [['0'], ['1']]}"), tmp_path, watcher=Quiet())
    assert not list(tmp_path.iterdir())


def test_a_failed_run_leaves_no_result(tmp_path: Path) -> None:
    wild = ("schedule.learning_rate=1e30", "schedule.shape=constant", "methods=[replay]", "seeds=[1]")
    with pytest.raises(TrainingError, match="not finite"):
        experiment.run(recipe(*wild), tmp_path, watcher=Quiet())
    assert not (tmp_path / "replay-seed1" / "result.json").exists()


def test_several_seeds_share_the_stream_but_not_the_result(finished: tuple[Path, Quiet]) -> None:
    one, two = (Result.load(finished[0] / f"keeps some-seed{seed}" / "result.json") for seed in (1, 2))
    assert one.class_order == two.class_order
    assert one.confusion != two.confusion


def test_logs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    experiment.run(
        recipe("methods=[finetune]", "seeds=[1]", "logging={csv: true, tensorboard: true}"), tmp_path, watcher=Quiet()
    )
    logs = tmp_path / "finetune-seed1" / "logs"
    header, *rows = (logs / "csv" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert "train/loss" in header
    assert "test/top1" in header
    assert len(rows) >= 3
    assert list((logs / "tensorboard").glob("events*"))


def test_evaluation_on_a_validation_split_leaves_the_test_images_alone(tmp_path: Path) -> None:
    (result,) = experiment.run(
        recipe("methods=[finetune]", "seeds=[1]", "data.validation=0.1"), tmp_path, watcher=Quiet()
    )
    # of 1,797 images a fifth is kept for testing, and a tenth of the rest is evaluated on
    assert sum(map(sum, result.confusion)) == pytest.approx(1797 * 0.8 * 0.1, abs=5)


def test_a_plan_reads_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("cotransport.data.sources.Digits.splits", never)
    plan = experiment.plan(recipe())
    assert [len(task) for task in plan.split] == [4, 4, 2]
    finetune, replay = plan.recipe.methods
    assert plan.exemplars(finetune) == ["0", "0", "0"]
    assert plan.exemplars(replay) == ["25", "12", "10"]


def test_finding_results(finished: tuple[Path, Quiet], tmp_path: Path) -> None:
    assert len(find_results(finished[0])) == 4
    assert len(find_results(finished[0] / "finetune-seed1")) == 1
    with pytest.raises(RunError, match="no finished run"):
        find_results(tmp_path)
    with pytest.raises(RunError, match="no such folder"):
        find_results(tmp_path / "nowhere")
    (tmp_path / "result.json").write_text('{"label": 3}', encoding="utf-8")
    with pytest.raises(RunError, match=r"result\.json: not a result of a run"):
        find_results(tmp_path)


ONE_METHOD = ["methods=[replay]", "seeds=[1]", "schedule.batch_size=128"]
BUDGET = [*ONE_METHOD, "schedule.seconds_per_task=1.5"]


def curves(results: list[Result]) -> list[list[float]]:
    return [result.curve for result in results]


def epochs(results: list[Result]) -> list[list[int | None]]:
    return [[step.epochs for step in result.steps] for result in results]


def test_a_run_with_a_time_budget_can_be_followed(tmp_path: Path) -> None:
    first = experiment.run(recipe(*BUDGET), tmp_path / "first", watcher=Quiet())
    assert json.loads((tmp_path / "first" / "replay-seed1" / "epochs.json").read_text()) == epochs(first)[0]
    again = experiment.run(recipe(*BUDGET, f"follow={tmp_path / 'first'}"), tmp_path / "again", watcher=Quiet())
    assert epochs(again) == epochs(first)
    assert curves(again) == curves(first)
    assert again[0].confusion == first[0].confusion


def test_a_resumed_run_follows_its_own_record(tmp_path: Path) -> None:
    class Stops(Quiet):
        def figures(self, figures: TrainingProgress) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(recipe(*BUDGET), tmp_path, watcher=Stops())
    record = tmp_path / "replay-seed1" / "epochs.json"
    assert len(json.loads(record.read_text())) == 1
    record.write_text("[3]")  # as if the machine had been faster then
    results = experiment.run(recipe(*BUDGET), tmp_path, resume=True, watcher=Quiet())
    assert epochs(results)[0][0] == 3
    assert epochs(results)[0] == json.loads(record.read_text())


def test_following_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no/replay-seed1/epochs.json: not there. Let follow name"):
        experiment.run(recipe(*ONE_METHOD, f"follow={tmp_path / 'no'}"), tmp_path / "out", watcher=Quiet())


@pytest.mark.parametrize("text", ["", "{}", "[1, 0]", '["2"]', "[1, 2"])
def test_a_damaged_record_of_epochs(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "before" / "replay-seed1"
    folder.mkdir(parents=True)
    (folder / "epochs.json").write_text(text)
    with pytest.raises(RunError, match=r"epochs.json: damaged. Let follow name"):
        experiment.run(recipe(*ONE_METHOD, f"follow={tmp_path / 'before'}"), tmp_path / "out", watcher=Quiet())


def test_following_an_unfinished_run(tmp_path: Path) -> None:
    folder = tmp_path / "before" / "replay-seed1"
    folder.mkdir(parents=True)
    (folder / "epochs.json").write_text("[1, 2]")
    with pytest.raises(RunError, match=r"epochs.json: of 2 tasks, but there are 3"):
        experiment.run(recipe(*ONE_METHOD, f"follow={tmp_path / 'before'}"), tmp_path / "out", watcher=Quiet())


def test_a_run_may_follow_itself(tmp_path: Path) -> None:
    """Overwritten, but with the same epochs; and nothing is removed before the record is read."""
    experiment.run(recipe(*ONE_METHOD), tmp_path, watcher=Quiet())
    record = tmp_path / "replay-seed1" / "epochs.json"
    record.write_text("[2, 1, 2]")
    results = experiment.run(recipe(*ONE_METHOD, f"follow={tmp_path}"), tmp_path, overwrite=True, watcher=Quiet())
    assert epochs(results) == [[2, 1, 2]]
    record.write_text("broken")
    with pytest.raises(RunError, match="damaged"):
        experiment.run(recipe(*ONE_METHOD, f"follow={tmp_path}"), tmp_path, overwrite=True, watcher=Quiet())
    assert (tmp_path / "replay-seed1" / "result.json").exists()


@pytest.fixture(scope="module")
def transported(tmp_path_factory: pytest.TempPathFactory) -> list[TaskResult]:
    out = tmp_path_factory.mktemp("transported")
    [result] = experiment.run(recipe("methods=[coil]", "seeds=[1]", "initial_accuracy=true"), out, watcher=Quiet())
    return Result.load(out / "coil-seed1" / "result.json").steps if result else []


def test_a_result_tells_what_new_classes_were_built_from(transported: list[TaskResult]) -> None:
    """Digits in tasks of 4, 4 and 2, so the plans are 4 x 4 and 8 x 2."""
    assert transported[0].transport is None
    for step, old, new in ((transported[1], 4, 4), (transported[2], 8, 2)):
        assert step.transport is not None
        plan = step.transport.plan
        assert (len(plan), len(plan[0])) == (old, new)
        assert [sum(row) for row in plan] == pytest.approx([1 / old] * old, abs=1e-6)
        for place, origin in enumerate(step.transport.origins):
            column = sorted((row[place] * new for row in plan), reverse=True)
            assert [source.share for source in origin.sources] == pytest.approx(column[:5], abs=1e-6)
            assert 1 <= origin.effective_sources <= old


def test_a_result_tells_how_new_classes_begin(transported: list[TaskResult]) -> None:
    assert transported[0].initial is None
    for step in transported[1:]:
        assert step.initial is not None
        assert set(step.initial) == {"pt", "ncm", "random"}
        for accuracy in step.initial.values():
            assert accuracy.among_new is not None
            assert accuracy.among_all is not None
            assert 0 <= accuracy.among_all <= accuracy.among_new <= 100
        assert (step.initial["ncm"].among_new or 0) > (step.initial["random"].among_new or 0)


def test_initial_accuracies_are_those_of_their_ways() -> None:
    """Counted by hand from an initialised classifier, a random one, and a loop over class means."""
    stream = TaskStream(DataSet(blobs(4, 8), blobs(4, 6, seed=1)), ((0, 1), (2, 3)))
    settings: dict[str, Any] = {"schedule": {"epochs": 3, "batch_size": 8}, "memory": {"per_class": 3}, "seed": 5}
    clf = IncrementalClassifier("coil", "resnet8", **settings).learn(stream[0].train)
    got = experiment.initial_accuracy(clf, stream[1])
    assert got is not None
    test = stream[1].seen_test
    new = [place for place, label in enumerate(test.labels.tolist()) if label >= 2]
    random = IncrementalClassifier({"name": "coil", "prospective_init": False}, "resnet8", **settings)
    random.state_ = clf.state_
    memory = clf.state_.memory.labelled(clf.state_.classes)
    assert memory is not None
    known = [F.normalize(clf.features(memory)[memory.labels == number]).mean(dim=0) for number in range(2)]
    train = stream[1].train
    fresh = [F.normalize(clf.features(train)[train.labels == number]).mean(dim=0) for number in range(2)]
    means = F.normalize(torch.stack([*known, *fresh]))
    ways = {
        "pt": clf.initialise(train).scores(test).head,
        "random": random.initialise(train).scores(test).head,
        "ncm": F.normalize(clf.features(test)) @ means.T,
    }
    for way, scores in ways.items():
        among_all = [int(scores[place].argmax()) == int(test.labels[place]) for place in new]
        among_new = [int(scores[place, 2:].argmax()) + 2 == int(test.labels[place]) for place in new]
        assert got[way].among_all == pytest.approx(100 * sum(among_all) / len(new))  # type: ignore[index]
        assert got[way].among_new == pytest.approx(100 * sum(among_new) / len(new))  # type: ignore[index]


def test_the_log_tells_how_diffuse_the_plan_is(tmp_path: Path) -> None:
    [result] = experiment.run(recipe("methods=[coil]", "seeds=[1]", "logging.csv=true"), tmp_path, watcher=Quiet())
    with (tmp_path / "coil-seed1" / "logs" / "csv" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        logged = [row["test/effective_sources"] for row in csv.DictReader(file)]
    expected = [
        sum(origin.effective_sources for origin in step.transport.origins) / len(step.transport.origins)
        for step in result.steps
        if step.transport is not None
    ]
    assert [float(value) for value in logged if value] == pytest.approx(expected)


def test_looking_at_new_classes_first_changes_nothing(transported: list[TaskResult], tmp_path: Path) -> None:
    [blind] = experiment.run(recipe("methods=[coil]", "seeds=[1]"), tmp_path, watcher=Quiet())
    assert [step.per_task for step in blind.steps] == [step.per_task for step in transported]
    assert all(step.initial is None for step in blind.steps)


def test_a_memory_that_is_too_small_is_refused_before_old_runs_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "coil-seed1" / "recipe.json"
    old.parent.mkdir()
    old.write_text("{}")
    with pytest.raises(ConfigError, match=r"memory: coil needs an exemplar of each of 10 classes"):
        experiment.run(recipe("methods=[coil]", "memory.total=9"), tmp_path, overwrite=True, watcher=Quiet())
    assert old.is_file()


def test_a_resumed_run_keeps_its_log(tmp_path: Path) -> None:
    few = (*ONE_METHOD, "logging.csv=true")

    class Stops(Quiet):
        def task_done(self, step: TaskResult) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.run(recipe(*few), tmp_path, watcher=Stops())
    experiment.run(recipe(*few), tmp_path, resume=True, watcher=Quiet())
    experiment.run(recipe(*few), tmp_path / "whole", watcher=Quiet())
    logs = sorted((tmp_path / "replay-seed1" / "logs").glob("*/metrics.csv"))
    assert [path.parent.name for path in logs] == ["csv", "csv-1"]
    rows = [row for path in logs for row in csv.DictReader(path.open())]
    whole = list(csv.DictReader((tmp_path / "whole" / "replay-seed1" / "logs" / "csv" / "metrics.csv").open()))
    assert [row["step"] for row in rows] == [row["step"] for row in whole]


def test_what_was_left_of_a_finished_run_goes(tmp_path: Path) -> None:
    experiment.run(recipe(*ONE_METHOD), tmp_path, watcher=Quiet())
    (tmp_path / "replay-seed1" / "progress").mkdir()
    experiment.run(recipe(*ONE_METHOD), tmp_path, watcher=Quiet())
    assert not (tmp_path / "replay-seed1" / "progress").exists()


class Stops(Quiet):
    def task_done(self, step: TaskResult) -> None:
        raise KeyboardInterrupt


def test_an_unfinished_run_is_not_resumed_with_other_images(tmp_path: Path) -> None:
    write(blobs(4, 6), tmp_path / "photos")
    some = recipe(*ONE_METHOD, f"data.source={tmp_path / 'photos'}", "stream.subset=4")
    with pytest.raises(KeyboardInterrupt):
        experiment.run(some, tmp_path / "out", watcher=Stops())
    write(blobs(4, 6, seed=1), tmp_path / "photos")
    with pytest.raises(RunError, match=r"replay-seed1: the images have changed since this run began.*--overwrite"):
        experiment.run(some, tmp_path / "out", resume=True, watcher=Quiet())
    write(blobs(4, 6), tmp_path / "photos")
    experiment.run(some, tmp_path / "out", resume=True, watcher=Quiet())


def test_damaged_progress(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        experiment.run(recipe(*ONE_METHOD), tmp_path, watcher=Stops())
    (tmp_path / "replay-seed1" / "progress" / "manifest.json").write_text("{")
    with pytest.raises(RunError, match=r"progress: damaged .*--overwrite"):
        experiment.run(recipe(*ONE_METHOD), tmp_path, resume=True, watcher=Quiet())
