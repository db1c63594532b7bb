"""Removing a class: its weights, images and features go, and the other classes stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, ModelError, StorageError
from cotransport.lessons.comparison import evaluate
from cotransport.lessons.information import describe, rollback
from cotransport.lessons.ownership import check, rename
from cotransport.lessons.removal import remove
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Device
from tests.conftest import blobs, classifier
from tests.lessons.helpers import image_bytes, learn, stop_after_an_epoch, write
from tests.model.helpers import full_disk

TEST = blobs(4, 5, seed=7)
KEPT = [0, 2, 3]
FROZEN = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())


class TestRemove:
    def test_the_other_classes_stay_as_they_are(self, model: Path) -> None:
        before, stored = IncrementalClassifier.load(model), ModelStore(model).read()
        removed = remove(model, "class 1")
        assert (removed.version, removed.held_by) == (3, [1, 2])
        after, now = IncrementalClassifier.load(model), ModelStore(model).read()
        assert after.classes_.tolist() == ["class 0", "class 2", "class 3"]
        assert now.task_sizes == (1, 2)
        torch.testing.assert_close(after.scores(TEST).head, before.scores(TEST).head[:, KEPT])
        for memory, earlier in ((now.memory, stored.memory), (now.held_out, stored.held_out)):
            expected = [image_bytes(type(memory)((earlier.exemplars[number],))) for number in KEPT]
            assert [image_bytes(type(memory)((own,))) for own in memory.exemplars] == expected
        assert removed.images == sum(len(part.exemplars[1]) for part in (stored.memory, stored.held_out)) == 6
        assert not (model / "images" / "0003.parquet").exists()  # no image is stored again
        assert check(model) == []

    def test_the_report_is_measured_again(self, model: Path) -> None:
        report = remove(model, "class 1").report
        assert report is not None
        measured = evaluate(model).per_class
        assert [(one.name, one.images, one.after) for one in report.per_class] == [
            (one.name, one.images, one.after) for one in measured
        ]
        assert [one.name for one in measured] == ["class 0", "class 2", "class 3"]
        assert report.lesson.data == "class 1 removed"
        facts = describe(model)
        assert (facts["current"], facts["versions"][2]["parent"]) == (3, 2)
        assert facts["versions"][2]["accuracy"] == report.accuracy

    def test_accuracy_before_is_that_of_the_version_before(self, model: Path) -> None:
        earlier = {one.name: one.after for one in evaluate(model).per_class}
        report = remove(model, "class 0").report
        assert report is not None
        assert {one.name: one.before for one in report.per_class} == {
            name: value for name, value in earlier.items() if name != "class 0"
        }

    def test_it_can_be_undone_and_learned_again(self, model: Path, second: Path) -> None:
        remove(model, "class 3")
        again = write(blobs(1, 20, first=3, seed=1), second.parent / "again")
        assert learn(model, again).version == 4
        assert describe(model)["classes"] == ["class 0", "class 1", "class 2", "class 3"]
        assert ModelStore(model).read().task_sizes == (2, 1, 1)
        assert rollback(model, 2) == (4, 2)
        assert len(IncrementalClassifier.load(model).classes_) == 4

    def test_the_same_lesson_can_follow(self, model: Path, second: Path) -> None:
        for name in ("class 2", "class 3"):
            remove(model, name)
        outcome = learn(model, second)
        assert (outcome.version, outcome.already) == (5, False)

    def test_the_plan_loses_a_row_or_a_column(self, model: Path) -> None:
        before = IncrementalClassifier.load(model).built_from()
        remove(model, "class 1")
        after = IncrementalClassifier.load(model).built_from()
        assert {new: shares["class 0"] for new, shares in after.items()} == pytest.approx(
            {new: shares["class 0"] for new, shares in before.items()}
        )
        remove(model, "class 2")
        after = IncrementalClassifier.load(model).built_from()
        assert list(after) == ["class 3"]
        assert after["class 3"] == pytest.approx({"class 0": before["class 3"]["class 0"]})
        remove(model, "class 3")
        assert IncrementalClassifier.load(model).built_from() == {}

    def test_a_class_that_had_another_name(self, model: Path) -> None:
        rename(model, "class 1", "tabby")
        assert remove(model, "tabby").held_by == [1, 2, 3]

    @pytest.mark.parametrize("method", ["finetune", "replay", "icarl", "wa", "bic", "coil"])
    def test_every_kind_of_head(self, method: str, tmp_path: Path) -> None:
        clf = classifier(method).learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
        clf.save(tmp_path / "m")
        assert remove(tmp_path / "m", "class 1").report is None
        after = IncrementalClassifier.load(tmp_path / "m", device=Device(accelerator="cpu"))
        torch.testing.assert_close(after.scores(TEST).head, clf.scores(TEST).head[:, KEPT])
        after.learn(blobs(1, 8, first=1, seed=3))
        assert after.classes_.tolist() == ["class 0", "class 2", "class 3", "class 1"]

    def test_features_of_its_images_go_too(self, tmp_path: Path) -> None:
        clf = classifier("replay", freeze_backbone=True, normalisation="imagenet").set_params(backbone=FROZEN)
        clf.learn(blobs(2, 8)).learn(blobs(2, 8, first=2)).save(tmp_path / "m")
        remove(tmp_path / "m", "class 1", backbone=FROZEN)
        after = IncrementalClassifier.load(tmp_path / "m", backbone=FROZEN).state_
        assert after.features is not None
        assert len(after.features.digests) == len(after.memory) == 12
        assert clf.state_.features is not None
        assert after.features.digests < clf.state_.features.digests

    @pytest.mark.parametrize(
        ("name", "message"),
        [("cat", "'cat': the model does not know this class. It knows: class 0, class 1"), ("", "does not know")],
    )
    def test_mistakes_change_nothing(self, beginner: Path, name: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            remove(beginner, name)
        assert describe(beginner)["current"] == 1

    def test_the_last_class_stays(self, beginner: Path) -> None:
        remove(beginner, "class 0")
        assert (IncrementalClassifier.load(beginner).predict(TEST) == "class 1").all()
        with pytest.raises(
            ConfigError, match=r"the only class of this model\. To empty the model, roll back to version 0"
        ):
            remove(beginner, "class 1")

    def test_an_unfinished_lesson_comes_first(self, beginner: Path, second: Path) -> None:
        stop_after_an_epoch(beginner, second)
        with pytest.raises(ModelError, match="a lesson is not finished"):
            remove(beginner, "class 0")

    def test_a_folder_that_is_no_model_gets_no_lock(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="not a model"):
            remove(tmp_path, "a")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("fails_at", [0, 3, 6, 8])
    def test_a_full_disk_at_any_moment_leaves_the_version_before(
        self, fails_at: int, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            full_disk(patch, fails_at)
            with pytest.raises(StorageError, match="No space left on device"):
                remove(model, "class 1")
        assert describe(model)["current"] == 2
        assert check(model) == []
        assert remove(model, "class 1").version == 3
        assert sorted(path.name for path in (model / "versions").iterdir()) == ["0001", "0002", "0003"]


def test_analytic_gives_nearly_the_classifier_that_never_learned_the_class(tmp_path: Path) -> None:
    """Weights of the other classes stay; the removed class stays in the covariance alone."""

    def learned(*numbers: int) -> IncrementalClassifier:
        clf = classifier("analytic", freeze_backbone=True, normalisation="imagenet").set_params(backbone=FROZEN)
        for number in numbers:
            clf.learn(blobs(1, 30, first=number, seed=number))
        return clf

    clf, never = learned(0, 1, 2, 3), learned(0, 2, 3)
    clf.save(tmp_path / "m")
    remove(tmp_path / "m", "class 1", backbone=FROZEN)
    after = IncrementalClassifier.load(tmp_path / "m", backbone=FROZEN)
    head, twin = after.state_.network.head, never.state_.network.head
    np.testing.assert_array_equal(head.sums, twin.sums)
    np.testing.assert_array_equal(head.counts, twin.counts)
    torch.testing.assert_close(after.scores(TEST).head, clf.scores(TEST).head[:, KEPT])
    test = blobs(4, 20, seed=9).select_classes(KEPT)
    assert after.score(test) == never.score(test) == 1
