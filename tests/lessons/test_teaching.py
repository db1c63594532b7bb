"""Lessons: what they teach, what they report, and which version becomes current."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, CotransportWarning, DataError
from cotransport.learner.prediction import predict_files
from cotransport.lessons.comparison import evaluate
from cotransport.lessons.information import describe, rollback
from cotransport.lessons.options import LessonOptions
from cotransport.model.store import ModelStore
from cotransport.networks.network import HeadAlone
from cotransport.settings.sections import Budget, Device, Fit, Schedule
from cotransport.training.listener import NullListener
from tests.conftest import blobs, classifier
from tests.helpers import Passes
from tests.lessons.helpers import QUICK, choose, image_bytes, learn, write

FORMAT_1 = Path(__file__).parent.parent / "models" / "format-1" / "model"
CPU = Device(accelerator="cpu")


def write_wide(folder: Path, names: Sequence[str], side: int) -> Path:
    """Images three times as wide as high. What tells the classes apart, a colour, lies outside the central square."""
    random = np.random.RandomState(side)
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for place in range(12):
            pixels = np.full((side, 3 * side, 3), 128, np.uint8)
            pixels[:, :side, number] = pixels[:, 2 * side :, number] = random.randint(200, 256)
            pixels[:, side : 2 * side] = random.randint(0, 256)
            Image.fromarray(pixels).save(folder / name / f"{place}.png")
    return folder


class TestFit:
    @pytest.mark.parametrize(("fit", "side", "size"), [("pad", 8, None), ("stretch", 8, None), ("stretch", 40, 66)])
    def test_reaches_training_evaluation_and_prediction(
        self, fit: Fit, side: int, size: int | None, tmp_path: Path
    ) -> None:
        images, model = write_wide(tmp_path / "wide", ["red", "green"], side), tmp_path / "m"
        options = choose(prediction={"fit": fit}, image_size=size, augmentation={"min_area": 0.8}, method="replay")
        learn(model, images, options)
        clf = IncrementalClassifier.load(model)
        files = sorted(images.rglob("*.png"))
        answers = [answer.classes[0][0] for answer in predict_files(clf.predictor(), files)]
        share = np.mean([answer == file.parent.name for answer, file in zip(answers, files, strict=True)])
        per_class = evaluate(model, str(images)).per_class
        assert clf.settings_.prediction.fit == fit
        assert clf.score(images) == share
        assert np.mean([one.after for one in per_class]) == pytest.approx(100 * share)
        assert share > 0.9

    def test_stays_the_same_in_a_model(self, tmp_path: Path) -> None:
        images, model = write_wide(tmp_path / "wide", ["red", "green"], 8), tmp_path / "m"
        learn(model, images, choose(prediction={"fit": "pad"}))
        more = write_wide(tmp_path / "more", ["a", "b", "blue"], 9)
        with pytest.raises(ConfigError, match=r"prediction\.fit: this model keeps pad"):
            learn(model, more, choose(prediction={"fit": "crop"}))
        learn(model, more)
        assert IncrementalClassifier.load(model).settings_.prediction.fit == "pad"

    def test_what_is_not_seen_is_said(self, tmp_path: Path) -> None:
        class Notes(NullListener):
            def __init__(self) -> None:
                self.heard: list[str] = []

            def note(self, text: str, hint: str = "") -> None:
                self.heard.append(text)

        images = write_wide(tmp_path / "wide", ["red", "green"], 70)
        for fit, said in (("crop", 1), ("pad", 0)):
            listener = Notes()
            options = choose(prediction={"fit": fit}, schedule={"epochs": 1})
            learn(tmp_path / fit, images, options, listener=listener)
            assert sum(note.endswith("leaves out about 67 % of an average image") for note in listener.heard) == said


class TestLearn:
    def test_makes_a_model_and_extends_it(self, tmp_path: Path, first: Path, second: Path) -> None:
        one = learn(tmp_path / "m", first)
        assert (one.version, one.refused, one.already, one.parent) == (1, None, False, None)
        assert one.report.accuracy_lost is None
        assert [change.before for change in one.report.per_class] == [None, None]
        assert [change.images for change in one.report.per_class] == [2, 2]
        two = learn(tmp_path / "m", second)
        assert (two.version, two.parent) == (2, 1)
        assert two.report.lesson.new_classes == ["class 2", "class 3"]
        assert [change.name for change in two.report.per_class] == [f"class {n}" for n in range(4)]
        assert all(change.before is not None for change in two.report.per_class[:2])
        assert two.report.accuracy_lost is not None
        clf = IncrementalClassifier.load(tmp_path / "m")
        assert clf.score(blobs(4, 10, seed=7)) > 0.7
        assert not (tmp_path / "m" / "unfinished").exists()

    def test_held_out_images_are_never_trained_on(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first, choose(memory={"per_class": 1000}))
        snapshot = ModelStore(tmp_path / "m").read()
        trained, held_out = (set(image_bytes(part)) for part in (snapshot.memory, snapshot.held_out))
        assert (len(trained), len(held_out)) == (36, 4)
        assert not trained & held_out

    def test_the_report_says_what_the_versions_do(self, model: Path) -> None:
        store = ModelStore(model)
        report = store.metrics(store.manifest().version(2))
        held_out = store.read().held_out
        for version, when in ((1, "before"), (2, "after")):
            clf = IncrementalClassifier.load(model, version)
            for label, images in enumerate(held_out.exemplars[: 2 * version]):
                is_right = clf.predict(images) == clf.classes_[label]
                assert report["per_class"][label][when] == 100 * np.mean(is_right)
        old = report["per_class"][:2]  # each with two held-out images
        assert report["old_before"] == np.mean([one["before"] for one in old])
        assert report["old_after"] == np.mean([one["after"] for one in old])
        assert report["forgetting"] == report["old_before"] - report["old_after"]
        assert report["accuracy"] == np.mean([one["after"] for one in report["per_class"]])

    def test_a_listener_hears_of_the_lesson(self, tmp_path: Path, first: Path) -> None:
        heard: list[str] = []

        class Listener(NullListener):
            def job_started(self, title: str, notes: object, work: object, tasks_done: int) -> None:
                heard.append(f"{title}{notes[0]}, {work}, {tasks_done}")  # type: ignore[index]

            def training(self, progress: object) -> None:
                heard.append("training")

        learn(tmp_path / "m", first, listener=Listener())
        assert heard[0] == "2 classes, 36 images to train on and 4 held out for testing, [1.0], 0"
        assert heard[1:] == ["training"] * (len(heard) - 1)
        assert len(heard) > 6

    def test_test_images_of_the_data_are_held_out(self, tmp_path: Path) -> None:
        write(blobs(2, 10), tmp_path / "data" / "train")
        write(blobs(2, 60, seed=1), tmp_path / "data" / "test")
        report = learn(tmp_path / "m", tmp_path / "data").report
        assert report.lesson.images == 20
        assert [change.images for change in report.per_class] == [50, 50]

    def test_a_class_of_one_image_is_learned_and_not_tested(self, tmp_path: Path) -> None:
        write(blobs(1, 1), tmp_path / "data")
        write(blobs(1, 8, first=1), tmp_path / "data")
        with pytest.warns(CotransportWarning, match="has one image"):
            report = learn(tmp_path / "m", tmp_path / "data").report
        assert [(change.images, change.after is None) for change in report.per_class] == [(0, True), (1, False)]

    def test_wrong_data_makes_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="no such folder"):
            learn(tmp_path / "m", tmp_path / "nowhere")
        damaged = write(blobs(2, 8), tmp_path / "data") / "class 0" / "damaged.png"
        damaged.write_bytes(b"no image")
        with pytest.raises(DataError, match="damaged"):
            learn(tmp_path / "m", tmp_path / "data")
        assert not (tmp_path / "m").exists()

    def test_a_frozen_backbone_sees_every_image_once(
        self, beginner: Path, second: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frozen, third = choose(freeze_backbone=True), write(blobs(2, 20, first=4), tmp_path / "third")
        learn(beginner, second, frozen)
        passes = Passes(monkeypatch)
        outcome = learn(beginner, third, frozen)
        images = [count for count, network in passes.seen if not isinstance(network, HeadAlone)]
        assert images == [36, 4]  # the new images, and those of them that are held out
        store = ModelStore(beginner)
        assert store.manifest().format == 2
        weights = (store.version_folder(version) / "weights.safetensors" for version in (1, outcome.version))
        whole, head = (path.stat().st_size for path in weights)
        assert head < whole / 10  # the backbone is stored once
        assert (outcome.report.lesson.kept, outcome.report.lesson.held_out) == (8, 4)
        accuracies = {one.name: one.after for one in evaluate(beginner).per_class}
        assert accuracies == {one.name: one.after for one in outcome.report.per_class}


class TestKnownClasses:
    def test_are_refused_and_the_choice_is_explained(self, beginner: Path, tmp_path: Path) -> None:
        more = write(blobs(2, 6, first=1, seed=4), tmp_path / "more")
        with pytest.raises(DataError, match=r"class 'class 1': known already.*--known-classes extend"):
            learn(beginner, more)
        outcome = learn(beginner, more, replace(QUICK, known_classes="extend"))
        lesson = outcome.report.lesson
        assert (lesson.new_classes, lesson.extended_classes) == (["class 2"], ["class 1"])
        assert [change.images for change in outcome.report.per_class] == [2, 2, 1]

    def test_are_refused_before_any_image_is_read(self, beginner: Path, tmp_path: Path) -> None:
        for name in ("class 1", "class 2"):
            (tmp_path / "more" / name).mkdir(parents=True)
            (tmp_path / "more" / name / "a.png").write_bytes(b"not an image")
        with pytest.raises(DataError, match="class 'class 1': known already"):
            learn(beginner, tmp_path / "more")

    def test_more_images_of_them_leave_what_is_held_out_alone(self, tmp_path: Path) -> None:
        """The user adds some files to the same folder."""
        folder = write(blobs(2, 30), tmp_path / "data")
        learn(tmp_path / "m", folder)
        before = image_bytes(ModelStore(tmp_path / "m").read().held_out)
        write(blobs(2, 45), folder)  # some images are replaced, many stay
        learn(tmp_path / "m", folder, replace(choose(memory={"per_class": 1000}), known_classes="extend"))
        after = ModelStore(tmp_path / "m").read()
        assert not set(image_bytes(after.memory)) & set(before)
        assert image_bytes(after.held_out) == before

    def test_can_be_extended_without_a_new_class(self, beginner: Path, tmp_path: Path) -> None:
        more = write(blobs(2, 6, seed=4), tmp_path / "more")
        outcome = learn(beginner, more, replace(QUICK, known_classes="extend"))
        assert (outcome.version, outcome.report.lesson.new_classes) == (2, [])
        assert ModelStore(beginner).read().task_sizes == (2, 0)


class TestAgain:
    def test_the_same_lesson_does_nothing(self, beginner: Path, first: Path) -> None:
        again = learn(beginner, first)
        assert (again.version, again.already, again.made_current) == (1, True, False)
        other_settings = learn(beginner, first, choose(seed=5))
        assert (other_settings.version, other_settings.already) == (1, True)
        write(blobs(1, 1, seed=9), first)  # one image is another one
        with pytest.raises(DataError, match="known already"):
            learn(beginner, first)

    def test_after_a_rollback_the_same_lesson_makes_its_version_current(self, model: Path, second: Path) -> None:
        rollback(model)
        again = learn(model, second)
        assert (again.version, again.already, again.made_current, again.parent) == (2, True, True, 1)
        assert describe(model)["current"] == 2

    def test_the_images_of_the_current_version_are_recognised_whichever_release_has_taught_them(
        self, tmp_path: Path
    ) -> None:
        model = Path(shutil.copytree(FORMAT_1, tmp_path / "m"))
        second = write(blobs(2, 12, first=2, seed=1), tmp_path / "second")
        again = learn(model, second, LessonOptions(device=CPU))
        assert (again.version, again.already) == (2, True)


class TestPromotion:
    def test_a_version_that_loses_too_much_is_not_made_current(self, tmp_path: Path, first: Path, second: Path) -> None:
        finetune = replace(choose(method="finetune"), held_out=0.5)
        learn(tmp_path / "m", first, finetune)
        outcome = learn(tmp_path / "m", second, replace(finetune, max_forgetting=5))
        assert outcome.refused is not None
        assert "the classes known before lose" in outcome.refused
        assert "and 5 are allowed" in outcome.refused
        manifest = ModelStore(tmp_path / "m").manifest()
        assert manifest.current == 1
        assert manifest.version(2).refused == outcome.refused
        assert len(IncrementalClassifier.load(tmp_path / "m").classes_) == 2
        assert len(IncrementalClassifier.load(tmp_path / "m", 2).classes_) == 4
        again = learn(tmp_path / "m", second, replace(finetune, max_forgetting=5))
        assert (again.version, again.refused, again.already) == (2, outcome.refused, True)
        allowed = learn(tmp_path / "m", second, replace(finetune, max_forgetting=100))  # it is not learned again
        assert (allowed.version, allowed.refused, allowed.already, allowed.made_current) == (2, None, True, True)
        assert ModelStore(tmp_path / "m").manifest().current == 2

    def test_a_loss_that_may_be_chance_does_not_refuse(self, tmp_path: Path, first: Path, second: Path) -> None:
        """Of one image of each class, even all may be lost by chance."""
        finetune = replace(choose(method="finetune"), held_out=0.05)
        learn(tmp_path / "m", first, finetune)
        outcome = learn(tmp_path / "m", second, replace(finetune, max_forgetting=0))
        assert outcome.refused is None
        assert outcome.report.likely_loss is not None
        low, high = outcome.report.likely_loss
        assert low <= 0 < high

    def test_without_held_out_images_nothing_can_be_measured(self, tmp_path: Path, second: Path) -> None:
        classifier("replay").learn(blobs(2, 8)).save(tmp_path / "m")
        with pytest.raises(ConfigError, match="the accuracy lost cannot be measured"):
            learn(tmp_path / "m", second, LessonOptions(max_forgetting=3, device=CPU))

    def test_a_first_lesson_cannot_lose_anything(self, tmp_path: Path, first: Path) -> None:
        assert learn(tmp_path / "m", first, replace(QUICK, max_forgetting=0)).refused is None


class TestChoices:
    def test_stay_for_later_lessons_and_the_latest_counts(self, beginner: Path, second: Path) -> None:
        learn(beginner, second, replace(QUICK, chosen={"schedule": {"epochs": 2}}))
        settings = IncrementalClassifier.load(beginner).settings_
        schedule = settings.schedule
        assert (schedule.epochs, schedule.batch_size, settings.memory) == (2, 16, Budget(per_class=4))

    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"backbone": "fast"}, "this model keeps resnet8. Start a new model"),
            ({"image_size": 16}, "this model keeps 8 x 8 pixels"),
            ({"method": "wa"}, "needs another head"),
            ({"epochs": 3}, "epochs: unknown setting"),
            ({"schedule": {"epoch": 3}}, "did you mean 'epochs'"),
            ({"schedule": 5}, "schedule: give one of its keys"),
            ({"head": None}, "head: give one of its keys"),
            ({"schedule": {"learning_rate": "abc"}}, "learning_rate"),
            ({"schedule": {"epochs": 10**5000}}, "a very long number|epochs"),
            ({"backbone": 5}, "backbone: give a section"),
            ({"method": 5}, "method"),
            ({"seed": -1}, "seed"),
        ],
    )
    def test_that_cannot_be_leave_the_model_as_it_is(
        self, chosen: dict[str, object], message: str, beginner: Path, second: Path
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            learn(beginner, second, replace(QUICK, chosen=chosen))
        assert len(IncrementalClassifier.load(beginner).classes_) == 2
        assert not (beginner / "unfinished").exists()

    def test_an_image_size_is_chosen_once(self, tmp_path: Path, first: Path, second: Path) -> None:
        learn(tmp_path / "m", first, choose(image_size=16))
        learn(tmp_path / "m", second)
        assert ModelStore(tmp_path / "m").read().image_size == 16


class TestModelsFromPython:
    def test_keep_their_settings(self, tmp_path: Path, second: Path) -> None:
        classifier("replay", schedule=Schedule(epochs=3, batch_size=8)).learn(blobs(2, 8)).save(tmp_path / "m")
        outcome = learn(tmp_path / "m", second, LessonOptions(device=CPU))
        assert outcome.report.lesson.epochs == 3
        assert [change.images for change in outcome.report.per_class] == [0, 0, 2, 2]
        assert outcome.report.accuracy_lost is None  # nothing was held out when the first classes were learned

    def test_that_are_saved_into_a_taught_model_keep_what_was_held_out(self, beginner: Path) -> None:
        clf = IncrementalClassifier.load(beginner)
        assert clf.save(beginner) == 2
        assert len(ModelStore(beginner).read().held_out) == 4
        other = classifier("replay").learn(blobs(2, 4, first=5))  # its classes are others
        other.save(beginner)
        assert len(ModelStore(beginner).read().held_out) == 0
