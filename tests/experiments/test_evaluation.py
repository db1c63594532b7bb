"""Accuracies after a task and before it, and what new classes were built from."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cotransport import IncrementalClassifier, metrics
from cotransport.data import DataSet
from cotransport.experiments import evaluation
from cotransport.experiments.evaluation import evaluate, initial_accuracy, none_if_nan, transport_record
from cotransport.experiments.results import TaskResult
from cotransport.experiments.stream import TaskStream
from cotransport.settings.sections import Augmentation, HeadSettings, Loss, Optimiser, Schedule
from tests.conftest import blobs
from tests.experiments.helpers import run_digits

SETTINGS: dict[str, Any] = {
    "schedule": Schedule(epochs=3, batch_size=8),
    "memory": {"per_class": 3},
    "optimiser": Optimiser(),
    "loss": Loss(),
    "augmentation": Augmentation(),
    "head": HeadSettings(),
    "device": {"accelerator": "cpu"},
    "seed": 5,
}
STREAM = TaskStream(DataSet(blobs(4, 8), blobs(4, 6, seed=1)), ((0, 1), (2, 3)))


@cache
def learned(method: str, tasks: int) -> IncrementalClassifier:
    """A classifier that has learned the first tasks of the stream."""
    classifier = IncrementalClassifier(method, "resnet8", **SETTINGS)
    for task in range(tasks):
        classifier.learn(STREAM[task].train)
    return classifier


@pytest.mark.parametrize("method", ["replay", "icarl", "finetune"])
def test_accuracies_are_those_of_the_predictions(method: str) -> None:
    """Counted by hand, image by image."""
    classifier, test = learned(method, 2), STREAM[1].seen_test
    found, cells = evaluate(classifier.predictor(), test, (2, 2))
    predicted = [int(str(name).rpartition(" ")[2]) for name in classifier.predict(test)]
    labels = test.labels.tolist()
    correct = [one == other for one, other in zip(predicted, labels, strict=True)]
    assert found.classes_seen == 4
    assert found.top1 == pytest.approx(100 * sum(correct) / 24)
    assert found.per_task == pytest.approx([100 * sum(correct[:12]) / 12, 100 * sum(correct[12:]) / 12])
    assert found.top5 == 100  # there are four classes
    head = classifier.scores(test).head.argmax(dim=1)
    assert found.head_top1 == pytest.approx(100 * float((head == test.labels).float().mean()))
    confusion = np.zeros((4, 4), dtype=int)
    for truth, answer in zip(labels, predicted, strict=True):
        confusion[truth, answer] += 1
    np.testing.assert_array_equal(metrics.confusion_matrix(cells, 4), confusion)
    assert found.test_images == 24


@pytest.mark.parametrize("method", ["replay", "icarl", "finetune"])
def test_an_evaluation_in_parts_gives_the_same_numbers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, test = learned(method, 2).predictor(), STREAM[1].seen_test
    whole, cells = evaluate(predictor, test, (2, 2), "top5")
    monkeypatch.setattr(evaluation, "LARGEST_SCORES", 5 * 4)  # five images at a time, and four at the end
    in_parts, same_cells = evaluate(predictor, test, (2, 2), "top5")
    assert in_parts == whole
    np.testing.assert_array_equal(same_cells, cells)


def test_the_prediction_that_counts_is_the_methods_own() -> None:
    test = STREAM[1].seen_test
    by_mean, _ = evaluate(learned("icarl", 2).predictor(), test, (2, 2))
    assert by_mean.top1 == by_mean.ncm_top1
    by_head, _ = evaluate(learned("replay", 2).predictor(), test, (2, 2))
    assert by_head.top1 == by_head.head_top1
    assert by_head.ncm_top1 is not None
    assert evaluate(learned("finetune", 2).predictor(), test, (2, 2))[0].ncm_top1 is None


def test_the_metric_decides_what_counts_for_a_task() -> None:
    found, _ = evaluate(learned("finetune", 2).predictor(), STREAM[1].seen_test, (2, 2), "top5")
    assert found.per_task == [100, 100]
    assert found.top1 is not None
    assert found.top1 < 100


def test_a_task_without_test_images_has_no_accuracy() -> None:
    test = STREAM[1].seen_test
    old = test.take(torch.nonzero(test.labels < 2).flatten())
    found, _ = evaluate(learned("replay", 2).predictor(), old, (2, 2))
    assert found.per_task[1] is None
    assert found.per_task[0] == pytest.approx(found.top1)


def test_initial_accuracies_are_those_of_the_three_classifiers() -> None:
    """Counted by hand from an initialised classifier, a random one, and a loop over class means."""
    classifier = learned("coil", 1)
    found = initial_accuracy(classifier.state_, classifier.settings_, STREAM[1])
    assert found is not None
    train, test = STREAM[1].train, STREAM[1].seen_test
    new = [place for place, label in enumerate(test.labels.tolist()) if label >= 2]
    random = IncrementalClassifier({"name": "coil", "prospective_init": False}, "resnet8", **SETTINGS)
    random.state_, random.settings_ = classifier.state_, classifier.settings_
    memory = classifier.state_.memory.labelled(classifier.state_.classes)
    assert memory is not None
    old_means, new_means = (
        [F.normalize(classifier.features(data)[data.labels == number]).mean(dim=0) for number in range(2)]
        for data in (memory, train)
    )
    means = F.normalize(torch.stack([*old_means, *new_means]))
    expected = {
        "pt": classifier.initialise(train).scores(test).head,
        "random": random.initialise(train).scores(test).head,
        "ncm": F.normalize(classifier.features(test)) @ means.T,
    }
    assert set(found) == set(expected)
    for name, scores in expected.items():
        among_all = [int(scores[place].argmax()) == int(test.labels[place]) for place in new]
        among_new = [int(scores[place, 2:].argmax()) + 2 == int(test.labels[place]) for place in new]
        assert found[name].among_all == pytest.approx(100 * sum(among_all) / len(new))  # type: ignore[index]
        assert found[name].among_new == pytest.approx(100 * sum(among_new) / len(new))  # type: ignore[index]


@pytest.mark.parametrize("method", ["replay", "icarl"])
def test_a_method_that_does_not_transport_has_no_initial_accuracy(method: str) -> None:
    classifier = learned(method, 1)
    assert initial_accuracy(classifier.state_, classifier.settings_, STREAM[1]) is None
    assert transport_record(classifier.initialise(STREAM[1].train).state_) is None


def test_the_record_of_a_transport_names_the_sources() -> None:
    classifier = learned("coil", 1).initialise(STREAM[1].train)
    record = transport_record(classifier.state_)
    assert record is not None
    assert [origin.name for origin in record.origins] == ["class 2", "class 3"]
    for origin, shares in zip(record.origins, classifier.built_from().values(), strict=True):
        assert {source.name: source.share for source in origin.sources} == pytest.approx(shares)
        assert origin.sources[0].share >= origin.sources[1].share
    assert transport_record(learned("coil", 1).state_) is None


def test_equal_shares_are_named_in_the_order_of_arrival() -> None:
    """As a stable sort of all shares would give."""
    state = learned("coil", 1).initialise(STREAM[1].train).state_
    old, new = 40, 3
    plan = torch.randint(1, 4, (old, new), generator=torch.Generator().manual_seed(0)).double()
    names = tuple(f"class {number}" for number in range(old + new))
    record = transport_record(replace(state, classes=names, plan=plan))
    assert record is not None
    for column, origin in zip(plan.T.tolist(), record.origins, strict=True):
        expected = sorted(range(old), key=lambda place: -column[place])[:5]
        assert [source.name for source in origin.sources] == [names[place] for place in expected]
        assert [source.share for source in origin.sources] == [new * column[place] for place in expected]


def test_with_many_classes_a_record_names_the_sources_and_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    state = learned("coil", 1).initialise(STREAM[1].train).state_
    whole = transport_record(state)
    monkeypatch.setattr(evaluation, "MANY_CLASSES", 3)
    short = transport_record(state)
    assert whole is not None
    assert short is not None
    assert (short.plan, short.origins) == ([], whole.origins)


def test_an_undefined_value_is_none() -> None:
    assert none_if_nan(math.nan) is None
    assert none_if_nan(0.0) == 0.0


@pytest.fixture(scope="module")
def transported(tmp_path_factory: pytest.TempPathFactory) -> list[TaskResult]:
    """A run of COIL whose new classes are also evaluated before training."""
    out = tmp_path_factory.mktemp("transported")
    [result] = run_digits("stream={step: 4}", "methods=[coil]", "initial_accuracy=true", out=out)
    return result.steps


def test_a_result_says_what_new_classes_were_built_from(transported: list[TaskResult]) -> None:
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


def test_a_result_says_how_new_classes_start(transported: list[TaskResult]) -> None:
    assert transported[0].initial is None
    for step in transported[1:]:
        assert step.initial is not None
        assert set(step.initial) == {"pt", "ncm", "random"}
        for accuracy in step.initial.values():
            assert accuracy.among_new is not None
            assert accuracy.among_all is not None
            assert 0 <= accuracy.among_all <= accuracy.among_new <= 100
        assert (step.initial["ncm"].among_new or 0) > (step.initial["random"].among_new or 0)


def test_measuring_the_initial_accuracy_changes_nothing(
    transported: list[TaskResult], tmp_path_factory: pytest.TempPathFactory
) -> None:
    [result] = run_digits("stream={step: 4}", "methods=[coil]", out=tmp_path_factory.mktemp("unmeasured"))
    assert [step.per_task for step in result.steps] == [step.per_task for step in transported]
    assert all(step.initial is None for step in result.steps)
