"""Probabilities that can be trusted, and thresholds below which an answer is unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.errors import ModelError
from cotransport.lessons.confidence import measure_confidence
from cotransport.lessons.information import answer_threshold
from cotransport.lessons.records import Confidence, read_report
from cotransport.model.store import ModelStore
from cotransport.networks.calibration import fit_temperature
from tests.conftest import blobs, classifier
from tests.lessons.helpers import QUICK, choose, learn


class TestConfidence:
    def test_is_never_rounded_up(self) -> None:
        """A threshold above the probabilities would make them all unknown."""
        found = measure_confidence(torch.tensor([[0.99999, 0.00001]]), torch.tensor([0]))
        assert found.right == [0.9999]

    def test_is_the_probability_of_each_answer(self) -> None:
        probabilities = torch.tensor([[0.875, 0.125], [0.75, 0.25], [0.25, 0.75]])
        found = measure_confidence(probabilities, torch.tensor([0, 1, 1]))
        assert (found.right, found.wrong) == ([0.75, 0.875], [0.75])

    def test_its_error_by_hand(self) -> None:
        """Each of ten parts has one answer: |0.9 - 1| for eight of them, |0.6 - 0| for two."""
        found = Confidence(right=[0.9] * 8, wrong=[0.6] * 2)
        assert found.error == pytest.approx((8 * 10 + 2 * 60) / 10)
        assert Confidence(right=[], wrong=[]).error is None

    @pytest.mark.parametrize(
        ("at_least", "threshold", "answers", "right"), [(0.5, 0.2, 6, 4), (0.7, 0.5, 5, 4), (0.99, 0.8, 3, 3)]
    )
    def test_a_threshold_is_the_lowest_that_keeps_enough_answers_right(
        self, at_least: float, threshold: float, answers: int, right: int
    ) -> None:
        found = Confidence(right=[0.5, 0.8, 0.9, 0.9], wrong=[0.2, 0.6])
        assert found.threshold(at_least) == threshold
        assert found.choice(at_least) == pytest.approx((threshold, 100 * answers / 6, 100 * right / answers))

    def test_the_curve_goes_from_all_answers_to_the_surest_ones(self) -> None:
        """6 answers, 4 right; from 0.5 on 5 and 4; from 0.6 on 4 and 3; from 0.8 on 3; from 0.9 on 2."""
        found = Confidence(right=[0.5, 0.8, 0.9, 0.9], wrong=[0.2, 0.6]).curve()
        assert [one.threshold for one in found] == [0.2, 0.5, 0.6, 0.8, 0.9]
        assert [one.answered for one in found] == pytest.approx([100 * count / 6 for count in (6, 5, 4, 3, 2)])
        assert [one.right for one in found] == pytest.approx([400 / 6, 80, 75, 100, 100])
        assert Confidence(right=[], wrong=[]).curve() == []

    def test_parts_have_equal_sizes(self) -> None:
        """Twenty answers in parts of two; of the first two, one is right."""
        found = Confidence(right=[0.2, *[0.9] * 18], wrong=[0.1]).parts()
        assert [one.answers for one in found] == [2] * 10
        assert found[0] == pytest.approx((0.15, 0.5, 2))
        assert found[1] == pytest.approx((0.9, 1.0, 2))

    def test_equal_probabilities_are_not_separated(self) -> None:
        assert Confidence(right=[0.7, 0.7, 0.7], wrong=[0.7]).threshold(0.9) is None
        assert Confidence(right=[0.7, 0.7, 0.7], wrong=[0.7]).threshold(0.75) == 0.7
        assert Confidence(right=[], wrong=[]).threshold(0.5) is None


class TestModel:
    def test_a_lesson_calibrates_its_probabilities(self, tmp_path: Path, first: Path) -> None:
        """Half of the images are held out: 20 of them are enough."""
        learn(tmp_path / "m", first, replace(QUICK, held_out=0.5))
        store = ModelStore(tmp_path / "m")
        clf, held_out = IncrementalClassifier.load(tmp_path / "m"), store.read().held_out.labelled(store.read().classes)
        assert held_out is not None
        expected = fit_temperature(clf.scores(held_out).head, held_out.labels)
        assert clf.settings_.prediction.temperature == pytest.approx(expected)
        assert expected != 1.0
        report = read_report(store, store.manifest().version(1))
        assert report is not None
        highest = clf.predict_proba(held_out).max(axis=1)
        assert report.confidence is not None
        assert sorted([*report.confidence.right, *report.confidence.wrong]) == pytest.approx(sorted(highest), abs=1e-4)

    def test_a_chosen_temperature_stays(self, tmp_path: Path, first: Path) -> None:
        learn(tmp_path / "m", first, choose(prediction={"temperature": 3.0}))
        clf, store = IncrementalClassifier.load(tmp_path / "m"), ModelStore(tmp_path / "m")
        assert clf.settings_.prediction.temperature == 3.0
        held_out = store.read().held_out.labelled(store.read().classes)
        report = read_report(store, store.manifest().version(1))
        assert report is not None
        assert report.confidence is not None
        found = sorted([*report.confidence.right, *report.confidence.wrong])
        assert found == pytest.approx(sorted(clf.predict_proba(held_out).max(axis=1)), abs=2e-4)

    def test_a_model_from_python_is_calibrated_by_its_next_lesson(self, tmp_path: Path, second: Path) -> None:
        classifier("replay", prediction="auto").learn(blobs(2, 8)).save(tmp_path / "m")
        learn(tmp_path / "m", second, replace(QUICK, chosen={}, held_out=0.6))
        assert IncrementalClassifier.load(tmp_path / "m").settings_.prediction.temperature != 1.0

    def test_thresholds_come_from_the_lesson(self, model: Path, tmp_path: Path) -> None:
        store = ModelStore(model)
        report = read_report(store, store.manifest().version(2))
        assert report is not None
        assert report.confidence is not None
        assert answer_threshold(model, 0.01).probability == report.confidence.threshold(0.01)
        classifier("replay", prediction="auto").learn(blobs(2, 8)).save(tmp_path / "saved")
        with pytest.raises(ModelError, match="no record of its answers"):
            answer_threshold(tmp_path / "saved", 0.9)
