"""Accuracy on held-out images, before and after a lesson, and on other data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.data.memory import Memory
from cotransport.errors import CotransportWarning, DataError, ModelError
from cotransport.lessons.comparison import compare, evaluate
from cotransport.lessons.records import mean_accuracy, read_report
from cotransport.model.store import ModelStore
from tests.conftest import blobs, classifier
from tests.lessons.helpers import write


class TestCompare:
    def test_each_class_is_tested_by_both_classifiers(self, model: Path) -> None:
        before, after = (IncrementalClassifier.load(model, number) for number in (1, 2))
        held_out = ModelStore(model).read().held_out
        found, confusions, *_ = compare(before.predictor(), after.predictor(), held_out)
        assert [(one.name, one.images) for one in found] == [(f"class {number}", 2) for number in range(4)]
        for number, images in enumerate(held_out.exemplars):
            assert found[number].after == 100 * np.mean(after.predict(images) == f"class {number}")
            now = after.predict(images) == f"class {number}"
            if number < 2:
                then = before.predict(images) == f"class {number}"
                assert found[number].before == 100 * np.mean(then)
                assert (found[number].lost, found[number].gained) == ((then & ~now).sum(), (now & ~then).sum())
            else:
                assert found[number].before is None
                assert (found[number].lost, found[number].gained) == (None, None)
        assert sum(one.images for one in confusions) == sum(one.images * (100 - one.after) / 100 for one in found)  # type: ignore[operator]

    def test_the_most_frequent_confusions_come_first(self) -> None:
        clf = classifier("finetune").learn(blobs(2, 12)).learn(blobs(2, 12, first=2))
        test = blobs(4, 6, seed=8)
        held_out = Memory(tuple(test.images.take(torch.nonzero(test.labels == n).flatten()) for n in range(4)))
        _, confusions, *_ = compare(None, clf.predictor(), held_out)
        predicted = clf.predict(test)
        counts = [one.images for one in confusions]
        assert counts == sorted(counts, reverse=True)
        assert confusions  # finetuning forgets the first classes
        for one in confusions:
            own = np.array(test.classes)[test.labels.numpy()] == one.name
            assert one.images == (predicted[own] == one.predicted).sum()

    def test_a_first_lesson_has_nothing_before_it(self, beginner: Path) -> None:
        clf = IncrementalClassifier.load(beginner)
        found, *_ = compare(None, clf.predictor(), ModelStore(beginner).read().held_out)
        assert [one.before for one in found] == [None, None]
        assert all(one.after is not None for one in found)

    def test_a_class_without_held_out_images_has_no_accuracy(self, model: Path) -> None:
        before, after = (IncrementalClassifier.load(model, number).predictor() for number in (1, 2))
        images = ModelStore(model).read().held_out.exemplars
        held_out = Memory((images[0], images[1].first(0), images[2].first(0), images[3]))
        found, *_ = compare(before, after, held_out)
        assert [one.images for one in found] == [2, 0, 0, 2]
        assert [one.after is None for one in found] == [False, True, True, False]
        assert [one.before is None for one in found] == [False, True, True, True]
        assert [one.after for one in compare(before, after, Memory()).per_class] == [None] * 4


class TestEvaluate:
    def test_held_out_images_give_what_the_lesson_reported(self, model: Path) -> None:
        store = ModelStore(model)
        report = read_report(store, store.manifest().version(2))
        assert report is not None
        assert [one.after for one in evaluate(model).per_class] == [one.after for one in report.per_class]

    def test_an_earlier_version_can_be_evaluated(self, model: Path) -> None:
        assert [one.name for one in evaluate(model, version=1).per_class] == ["class 0", "class 1"]

    def test_other_data_can_be_evaluated(self, model: Path, first: Path) -> None:
        found, confidence, chosen_on = evaluate(model, str(first))
        assert chosen_on == evaluate(model).chosen_on == evaluate(model).confidence  # as `predict --unknown` has it
        assert len(confidence.right) + len(confidence.wrong) == 40
        assert [(one.name, one.images) for one in found] == [("class 0", 20), ("class 1", 20)]
        clf = IncrementalClassifier.load(model)
        assert mean_accuracy(found, "after") == pytest.approx(100 * clf.score(str(first)))

    def test_classes_that_were_never_learned_are_an_error(self, model: Path, tmp_path: Path) -> None:
        strange = write(blobs(1, 2, first=9), tmp_path / "strange")
        with pytest.raises(DataError, match="the class 'class 9' was never learned"):
            evaluate(model, str(strange))

    def test_an_earlier_version_skips_what_it_does_not_know(self, model: Path, tmp_path: Path) -> None:
        both = write(blobs(4, 5, seed=7), tmp_path / "both")
        with pytest.warns(
            CotransportWarning, match="2 classes are not known to this version and left out: class 2, class 3"
        ):
            found = evaluate(model, str(both), version=1).per_class
        assert [(one.name, one.images) for one in found] == [("class 0", 5), ("class 1", 5)]
        old = write(blobs(2, 5, seed=7), tmp_path / "old")
        assert found == evaluate(model, str(old), version=1).per_class
        strange = write(blobs(1, 2, first=9), tmp_path / "strange")
        with pytest.raises(DataError, match="the class 'class 9' was never learned"):
            evaluate(model, str(strange), version=1)

    def test_a_model_without_held_out_images_needs_data(self, tmp_path: Path, first: Path) -> None:
        classifier("replay").learn(blobs(2, 8)).save(tmp_path / "saved")
        with pytest.raises(ModelError, match="no images were held out"):
            evaluate(tmp_path / "saved")
        assert len(evaluate(tmp_path / "saved", str(first)).per_class) == 2
