from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data import EncodedImages, LabelledImages
from cotransport.errors import ConfigError, CotransportWarning, DataError, ModelError, TrainingError
from cotransport.lessons import lesson as production
from cotransport.lessons import suggestions
from cotransport.lessons.lesson import Change, Outcome, Wishes
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Augmentation, Budget, Device, Schedule
from cotransport.settings.validation import validated
from tests.conftest import blobs, classifier

QUICK = Wishes(
    {"backbone": "resnet8", "memory": {"per_class": 4}, "schedule": {"epochs": 6, "batch_size": 16}},
    device=Device(accelerator="cpu"),
)


def write(data: LabelledImages, folder: Path) -> Path:
    """Labelled images as files in a subfolder for each class."""
    for place in range(len(data)):
        path = folder / str(data.classes[data.labels[place]]) / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images.item(place)).save(path)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return write(blobs(2, 20), tmp_path / "first")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return write(blobs(2, 20, first=2, seed=1), tmp_path / "second")


def learn(model: Path, data: Path, wishes: Wishes = QUICK, **options: object) -> Outcome:
    return production.learn(model, str(data), wishes, **options)  # type: ignore[arg-type]


class TestLearn:
    def test_makes_a_model_and_extends_it(self, tmp_path: Path, first: Path, second: Path) -> None:
        one = learn(tmp_path / "m", first)
        assert (one.version, one.refused, one.already) == (1, None, False)
        assert one.report.forgetting is None
        assert [change.before for change in one.report.per_class] == [None, None]
        assert [change.images for change in one.report.per_class] == [2, 2]
        two = learn(tmp_path / "m", second)
        assert two.version == 2
        assert two.report.lesson.new_classes == ["class 2", "class 3"]
        assert [change.name for change in two.report.per_class] == [f"class {n}" for n in range(4)]
        assert all(change.before is not None for change in two.report.per_class[:2])
        assert two.report.forgetting is not None
        clf = IncrementalClassifier.load(tmp_path / "m")
        assert clf.score(blobs(4, 10, seed=7)) > 0.7
        assert not (tmp_path / "m" / "unfinished").exists()

    def test_held_out_images_are_never_trained_on(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first, replace(QUICK, chosen={**QUICK.chosen, "memory": {"per_class": 1000}}))
        snapshot = ModelStore(tmp_path / "m").read()
        trained, held = (
            {images.item(place).tobytes() for images in part.exemplars for place in range(len(images))}  # type: ignore[union-attr]
            for part in (snapshot.memory, snapshot.held_out)
        )
        assert len(trained) == 36
        assert len(held) == 4
        assert not trained & held

    def test_what_the_report_says_is_what_the_versions_do(self, tmp_path: Path, first: Path, second: Path) -> None:
        learn(tmp_path / "m", first)
        report = learn(tmp_path / "m", second).report
        held_out = ModelStore(tmp_path / "m").read().held_out
        for number, version in enumerate((1, 2)):
            clf = IncrementalClassifier.load(tmp_path / "m", version)
            for label, images in enumerate(held_out.exemplars[: 2 * version]):
                right = [name == clf.classes_[label] for name in clf.predict(images)]
                said = report.per_class[label].before if number == 0 else report.per_class[label].after
                assert said == 100 * np.mean(right)

    def test_known_classes_are_refused_and_the_choice_is_explained(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first)
        more = write(blobs(2, 6, first=1, seed=4), tmp_path / "more")
        with pytest.raises(DataError, match=r"class 'class 1': known already.*--known-classes extend"):
            learn(tmp_path / "m", more)
        outcome = learn(tmp_path / "m", more, replace(QUICK, known_classes="extend"))
        lesson = outcome.report.lesson
        assert (lesson.new_classes, lesson.extended_classes) == (["class 2"], ["class 1"])
        assert [change.images for change in outcome.report.per_class] == [2, 2, 1]

    def test_more_images_of_a_known_class_leave_what_is_held_out_alone(self, tmp_path: Path) -> None:
        """The same folder with some more files, as people do it."""
        folder = write(blobs(2, 30), tmp_path / "data")
        learn(tmp_path / "m", folder)
        held = ModelStore(tmp_path / "m").read().held_out
        write(blobs(2, 45), folder)  # the first 30 of a class may be others, but many are the same
        everything = {**QUICK.chosen, "memory": {"per_class": 1000}}
        learn(tmp_path / "m", folder, replace(QUICK, chosen=everything, known_classes="extend"))
        after = ModelStore(tmp_path / "m").read()
        trained, before, now = (
            [images.item(place).tobytes() for images in part.exemplars for place in range(len(images))]  # type: ignore[union-attr]
            for part in (after.memory, held, after.held_out)
        )
        assert not set(trained) & set(before)
        assert before == now

    def test_the_same_lesson_again_does_nothing(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first)
        again = learn(tmp_path / "m", first)
        assert (again.version, again.already) == (1, True)
        write(blobs(1, 1, seed=9), first)
        with pytest.raises(DataError, match="known already"):
            learn(tmp_path / "m", first)

    def test_a_version_that_forgets_too_much_is_not_promoted(self, tmp_path: Path, first: Path, second: Path) -> None:
        finetune = replace(QUICK, chosen={**QUICK.chosen, "method": "finetune"}, held_out=0.5)
        learn(tmp_path / "m", first, finetune)
        outcome = learn(tmp_path / "m", second, replace(finetune, max_forgetting=5))
        assert outcome.refused is not None
        assert "and 5 are allowed" in outcome.refused
        manifest = ModelStore(tmp_path / "m").manifest()
        assert manifest.current == 1
        assert manifest.version(2).refused == outcome.refused
        assert len(IncrementalClassifier.load(tmp_path / "m").classes_) == 2
        assert len(IncrementalClassifier.load(tmp_path / "m", 2).classes_) == 4
        again = learn(tmp_path / "m", second, replace(finetune, max_forgetting=5))
        assert (again.version, again.refused, again.already) == (2, outcome.refused, True)
        allowed = learn(tmp_path / "m", second, replace(finetune, max_forgetting=100))  # it need not be learned again
        assert (allowed.version, allowed.refused, allowed.already, allowed.promoted) == (2, None, True, True)
        assert ModelStore(tmp_path / "m").manifest().current == 2

    def test_wishes_stay_and_the_latest_word_counts(self, tmp_path: Path, first: Path, second: Path) -> None:
        learn(tmp_path / "m", first)
        learn(tmp_path / "m", second, replace(QUICK, chosen={"schedule": {"epochs": 2}}))
        clf = IncrementalClassifier.load(tmp_path / "m")
        assert isinstance(clf.schedule, Schedule)
        assert (clf.schedule.epochs, clf.schedule.batch_size, clf.memory) == (2, 16, Budget(per_class=4))

    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"backbone": "fast"}, "this model keeps resnet8. Begin a new model"),
            ({"image_size": 16}, "sees 8 x 8 pixels for life"),
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
    def test_wishes_that_cannot_be(
        self, chosen: dict[str, object], message: str, tmp_path: Path, first: Path, second: Path
    ) -> None:
        learn(tmp_path / "m", first)
        with pytest.raises(ConfigError, match=message):
            learn(tmp_path / "m", second, replace(QUICK, chosen=chosen))
        assert len(IncrementalClassifier.load(tmp_path / "m").classes_) == 2

    def test_a_model_saved_from_python_keeps_its_settings(self, tmp_path: Path, second: Path) -> None:
        classifier("replay", schedule=Schedule(epochs=3, batch_size=8)).learn(blobs(2, 8)).save(tmp_path / "m")
        outcome = learn(tmp_path / "m", second, Wishes(device=Device(accelerator="cpu")))
        assert outcome.report.lesson.epochs == 3
        assert [change.images for change in outcome.report.per_class] == [0, 0, 2, 2]
        assert outcome.report.forgetting is None  # nothing was held out when the first classes were learned
        with pytest.raises(ConfigError, match="what is forgotten cannot be measured"):
            classifier("replay").learn(blobs(2, 8)).save(tmp_path / "other")
            learn(tmp_path / "other", second, Wishes(max_forgetting=3, device=Device(accelerator="cpu")))

    def test_what_was_held_out_stays_when_it_is_saved_from_python(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first)
        clf = IncrementalClassifier.load(tmp_path / "m")
        assert clf.save(tmp_path / "m") == 2
        assert len(ModelStore(tmp_path / "m").read().held_out) == 4

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


class TestUnfinished:
    class Stop(BaseException):
        pass

    def stopped(self, model: Path, data: Path, wishes: Wishes = QUICK) -> None:
        """A lesson that ends after its first epoch."""

        class Stops(production.Silent):
            def figures(self, figures: object) -> None:
                if getattr(figures, "epoch_done"):  # noqa: B009
                    raise TestUnfinished.Stop

        every_step = replace(wishes, device=Device(accelerator="cpu", checkpoint_seconds=0))
        with pytest.raises(self.Stop):
            learn(model, data, every_step, observer=Stops())

    def test_another_lesson_waits_for_it(self, tmp_path: Path, first: Path, second: Path) -> None:
        self.stopped(tmp_path / "m", first)
        with pytest.raises(
            ModelError, match=rf"a lesson from {first} is not finished.*differs in data. Repeat.*--overwrite"
        ):
            learn(tmp_path / "m", second)
        with pytest.raises(ModelError, match="differs in settings"):
            learn(tmp_path / "m", first, replace(QUICK, chosen={**QUICK.chosen, "backbone": "resnet20"}))
        assert learn(tmp_path / "m", second, overwrite=True).version == 1

    def test_the_same_images_by_another_name_are_the_same_lesson(self, tmp_path: Path, first: Path) -> None:
        self.stopped(tmp_path / "m", first)
        first.rename(tmp_path / "moved")
        begun: list[int] = []

        class Watches(production.Silent):
            def figures(self, figures: object) -> None:
                begun.append(figures.step)  # type: ignore[attr-defined]

        learn(tmp_path / "m", tmp_path / "moved", observer=Watches())
        assert begun[0] > 0

    @pytest.mark.parametrize(
        ("chosen", "error"),
        [
            ({"schedule": {"epochs": 2, "learning_rate": 1e30, "shape": "constant"}}, TrainingError),
            ({"seed": -1}, ConfigError),
        ],
    )
    def test_a_lesson_that_cannot_be_given_leaves_nothing(
        self, chosen: dict[str, object], error: type[Exception], tmp_path: Path, first: Path, second: Path
    ) -> None:
        for folder in (first, second):
            with pytest.raises(error):
                learn(tmp_path / "m", folder, replace(QUICK, chosen={**QUICK.chosen, **chosen}))
            assert not (tmp_path / "m" / "unfinished").exists()
            learn(tmp_path / "m", folder)

    def test_it_goes_on_and_ends_the_same(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "whole", first)
        self.stopped(tmp_path / "m", first)
        begun: list[int] = []

        class Watches(production.Silent):
            def figures(self, figures: object) -> None:
                begun.append(figures.step)  # type: ignore[attr-defined]

        learn(tmp_path / "m", first, observer=Watches())
        assert begun[0] > 0
        one, two = (ModelStore(tmp_path / name).manifest().version(1).files for name in ("whole", "m"))
        assert one["weights.safetensors"] == two["weights.safetensors"]

    def test_with_other_images_it_begins_anew(self, tmp_path: Path, first: Path) -> None:
        self.stopped(tmp_path / "m", first)
        write(blobs(1, 1, seed=9), first)  # one is replaced
        learn(tmp_path / "whole", first)
        with pytest.warns(CotransportWarning, match="the images have changed .* begins anew"):
            learn(tmp_path / "m", first)
        one, two = (ModelStore(tmp_path / name).manifest().version(1).files for name in ("whole", "m"))
        assert one["weights.safetensors"] == two["weights.safetensors"]

    def test_with_the_same_images_written_again_it_goes_on(self, tmp_path: Path) -> None:
        for number in range(8):
            path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (80, 80), (number, 0, 0)).save(path)
        wishes = replace(QUICK, chosen={**QUICK.chosen, "image_size": 72})
        self.stopped(tmp_path / "m", tmp_path / "photos", wishes)
        for path in (tmp_path / "photos").rglob("*.png"):
            os.utime(path, (0, 0))
        assert learn(tmp_path / "m", tmp_path / "photos", wishes).version == 1  # and no warning

    def test_a_time_budget_is_kept_to(self, tmp_path: Path, first: Path) -> None:
        budget = replace(QUICK, chosen={**QUICK.chosen, "schedule": {"seconds_per_task": 3.0, "batch_size": 16}})
        self.stopped(tmp_path / "m", first, budget)
        record = tmp_path / "m" / "unfinished" / "lesson.json"
        epochs = json.loads(record.read_text())["epochs"]
        assert learn(tmp_path / "m", first, budget).report.lesson.epochs == epochs

    def test_killed_when_the_version_was_written_already(
        self, tmp_path: Path, first: Path, second: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(production.shutil, "rmtree", lambda *_, **__: None)
        learn(tmp_path / "m", first)
        monkeypatch.undo()
        assert (tmp_path / "m" / "unfinished" / "lesson.json").exists()
        assert production.info(tmp_path / "m")["unfinished"] is None
        assert learn(tmp_path / "m", first).already
        assert not (tmp_path / "m" / "unfinished").exists()
        (tmp_path / "m" / "unfinished").mkdir()  # killed when its record was removed, and nothing else yet
        assert learn(tmp_path / "m", first).already
        assert not (tmp_path / "m" / "unfinished").exists()
        assert learn(tmp_path / "m", second).version == 2

    def test_after_a_rollback_it_is_another_lesson(self, tmp_path: Path, first: Path, second: Path) -> None:
        learn(tmp_path / "m", first)
        learn(tmp_path / "m", second)
        self.stopped(tmp_path / "m", write(blobs(1, 20, first=7), tmp_path / "third"))
        production.rollback(tmp_path / "m")
        assert learn(tmp_path / "m", tmp_path / "third").version == 3
        assert ModelStore(tmp_path / "m").manifest().version(3).parent == 1
        production.rollback(tmp_path / "m")
        again = learn(tmp_path / "m", tmp_path / "third")  # it is there already
        assert (again.version, again.already) == (3, True)
        assert production.info(tmp_path / "m")["current"] == 3


class TestUse:
    @pytest.fixture
    def model(self, tmp_path: Path, first: Path, second: Path) -> Path:
        learn(tmp_path / "m", first)
        learn(tmp_path / "m", second)
        return tmp_path / "m"

    def test_predictions_agree_with_the_classifier(self, model: Path, first: Path) -> None:
        clf = IncrementalClassifier.load(model)
        paths = sorted(first.rglob("*.png"))
        found = list(production.predictions(clf, paths, top=2))
        assert [one.path for one in found] == [str(path) for path in paths]
        assert [one.classes[0][0] for one in found] == clf.predict(paths).tolist()
        shares = np.sort(clf.predict_proba(paths), axis=1)[:, ::-1][:, :2]
        np.testing.assert_allclose([[share for _, share in one.classes] for one in found], shares)

    def test_of_large_images_the_same_part_is_seen(self, tmp_path: Path) -> None:
        """From 65 pixels on, images are decoded on the fly, and their middle is looked at."""
        random = np.random.RandomState(0)
        paths = [tmp_path / f"{number}.png" for number in range(3)]
        for path in paths:
            Image.fromarray(random.randint(0, 255, (90, 120, 3), np.uint8)).save(path)
        clf = classifier("replay", image_size=72, schedule=Schedule(epochs=1, batch_size=4)).learn(
            paths, ["a", "b", "a"]
        )
        said = [[share for _, share in sorted(one.classes)] for one in production.predictions(clf, paths, top=2)]
        np.testing.assert_allclose(said, clf.predict_proba(paths), atol=1e-6)

    def test_a_bad_file_does_not_stop_the_others(self, model: Path, first: Path, tmp_path: Path) -> None:
        good = sorted(first.rglob("*.png"))
        (tmp_path / "bad.png").write_bytes(b"nonsense")
        truncated = tmp_path / "cut.png"
        truncated.write_bytes(good[0].read_bytes()[:-30])
        clf = IncrementalClassifier.load(model)
        paths = [good[0], tmp_path / "bad.png", good[1], truncated, tmp_path / "missing.png"] * 60  # in several chunks
        found = list(production.predictions(clf, paths))
        assert [one.error is None for one in found] == [True, False, True, False, False] * 60
        assert "bad.png: not an image" in str(found[1].error)
        (one,), (other,) = found[0].classes, found[-5].classes  # of chunks that differ in size, and so in rounding
        assert one == (other[0], pytest.approx(other[1], rel=1e-4))
        assert [one.classes[0][0] for one in found[::5]] == [clf.predict([good[0]])[0]] * 60

    def test_evaluate(self, model: Path, first: Path, tmp_path: Path) -> None:
        store = ModelStore(model)
        report = production.report_of(store.metrics(store.manifest().version(2)), "")
        assert [change.after for change in production.evaluate(model)] == [one.after for one in report.per_class]
        clf = IncrementalClassifier.load(model)
        found = production.evaluate(model, str(first))
        assert [(change.name, change.images) for change in found] == [("class 0", 20), ("class 1", 20)]
        assert production.mean(found, "after") == pytest.approx(100 * clf.score(str(first)))
        strange = write(blobs(1, 2, first=9), tmp_path / "strange")
        with pytest.raises(DataError, match="the class 'class 9' was never learned"):
            production.evaluate(model, str(strange))

    def test_rollback_and_forward(self, model: Path) -> None:
        assert production.rollback(model) == (2, 1)
        assert production.info(model)["current"] == 1
        with pytest.raises(ModelError, match="version 1 is the first one"):
            production.rollback(model)
        assert production.rollback(model, 2) == (1, 2)
        with pytest.raises(ModelError, match="there is no version 7"):
            production.rollback(model, 7)

    def test_a_damaged_version_does_not_spoil_the_others(self, model: Path, tmp_path: Path) -> None:
        production.rollback(model)
        (model / "versions" / "0002" / "metrics.json").write_text("{}")
        told = production.info(model)["versions"]
        assert told[0]["damaged"] is None
        assert "0002/metrics.json: damaged" in told[1]["damaged"]
        assert learn(model, write(blobs(1, 20, first=8), tmp_path / "new")).version == 3
        with pytest.raises(ModelError, match=r"0002/metrics\.json"):
            production.rollback(model, 2)

    def test_info(self, model: Path) -> None:
        facts = production.info(model)
        assert facts["classes"] == [f"class {number}" for number in range(4)]
        assert (facts["method"], facts["backbone"], facts["image_size"]) == ("COIL (tuned)", "resnet8", 8)
        assert [one["new_classes"] for one in facts["versions"]] == [["class 0", "class 1"], ["class 2", "class 3"]]
        assert [(one["exemplars"], one["held_out"]) for one in facts["versions"]] == [(8, 4), (16, 8)]
        files = [path for path in model.rglob("*.*") if path.is_file() and path.name not in {".lock", "manifest.json"}]
        assert facts["bytes"] == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([Change(name="a", images=10, before=90.0, after=80.0)], 80.0),
        (
            [
                Change(name="a", images=10, before=None, after=80.0),
                Change(name="b", images=30, before=None, after=40.0),
            ],
            50.0,
        ),
        ([Change(name="a", images=0, before=None, after=None)], None),
        ([], None),
    ],
)
def test_the_mean_is_over_images(changes: list[Change], expected: float | None) -> None:
    assert production.mean(changes, "after") == expected


class TestSuggestions:
    @pytest.mark.parametrize("size", [8, 224, 2560])
    def test_they_are_valid_for_images_of_any_size(self, size: int) -> None:
        data = replace(blobs(2, 2), images=EncodedImages.of([np.zeros((4, 4, 3), np.uint8)] * 4, size))
        found = suggestions.suggested(data, 0, gpu=False)
        assert validated(Augmentation, found["augmentation"], "augmentation").crop_padding == size // 8

    @pytest.mark.parametrize(("images", "batch"), [(4, 16), (600, 32), (1500, 64), (100_000, 128)])
    def test_batches_grow_with_the_images(self, images: int, batch: int) -> None:
        data = blobs(2, 2)
        found = suggestions.suggested(data, images - 4, gpu=False)
        assert found["schedule"]["batch_size"] == batch
        low, high = suggestions.EPOCHS
        assert low <= found["schedule"]["epochs"] <= high

    def test_grey_images_are_not_mirrored(self) -> None:
        data = blobs(2, 4)
        assert suggestions.suggested(data, 0, gpu=False)["augmentation"]["flip"]
        data.images.pixels[:] = data.images.pixels[..., :1]  # type: ignore[union-attr]
        assert not suggestions.suggested(data, 0, gpu=False)["augmentation"]["flip"]

    def test_large_images_are_made_small_without_a_gpu(self, tmp_path: Path) -> None:
        for number in range(4):
            path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (300, 200), (number, 0, 0)).save(path)
        wishes = replace(QUICK, chosen={"schedule": {"epochs": 1}})
        learn(tmp_path / "m", tmp_path / "photos", wishes)
        assert IncrementalClassifier.load(tmp_path / "m").state_.image_size == 64
