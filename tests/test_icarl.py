"""iCaRL: the prediction is the nearest mean of the exemplars' features, and the head is reported beside it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from cotransport.config import Budget
from cotransport.errors import ConfigError
from cotransport.experiment import check_memory, evaluate
from cotransport.recipe import load_recipe
from tests.conftest import blobs, classifier


def test_predicts_the_nearest_mean() -> None:
    """Twin: distances to the means of the exemplars' unit-length features, class by class."""
    clf = classifier("icarl").learn(blobs(3, 8)).learn(blobs(2, 8, first=3))
    test = blobs(5, 12, seed=7)
    features = F.normalize(clf.features(test))
    distances = []
    for exemplars in clf.state_.memory.exemplars:
        mean = F.normalize(F.normalize(clf.features(exemplars)).mean(dim=0), dim=0)
        distances.append((features - mean).norm(dim=1))
    nearest = torch.stack(distances, dim=1).argmin(dim=1)
    assert clf.predict(test).tolist() == [clf.classes_[number] for number in nearest.tolist()]
    assert clf.predict_proba(test).argmax(axis=1).tolist() == nearest.tolist()


def test_the_mean_counts_and_the_head_is_reported() -> None:
    clf = classifier("icarl").learn(blobs(3, 8))
    with torch.no_grad():
        clf.state_.network.head.weight.copy_(clf.state_.network.head.weight.flip(0))  # the head errs, the means do not
    step, _ = evaluate(clf, blobs(3, 10, seed=7), [3])
    assert step.top1 == step.ncm_top1
    assert step.head_top1 != step.ncm_top1


def test_without_exemplars_it_does_not_begin() -> None:
    with pytest.raises(ConfigError, match="needs an exemplar of every class"):
        classifier("icarl", memory=Budget(total=2)).learn(blobs(3, 8))


def test_an_experiment_whose_memory_will_be_too_small_does_not_begin() -> None:
    recipe = load_recipe("digits", ["memory.total=6", "methods=[replay, icarl]"])
    with pytest.raises(ConfigError, match=r"memory: icarl needs an exemplar of each of 10 classes"):
        check_memory(recipe, 10)
    check_memory(recipe, 6)


def test_probabilities_by_the_mean_have_a_scale_with_any_head() -> None:
    """Cosines to the means times the head's scale: the learned one, or that of the settings for a linear head."""
    for name in ("icarl", "wa"):
        clf = classifier({"name": name, "predict_with": "ncm"}, head={"scale": 7.0}).learn(blobs(3, 8))
        scale = 7.0 if name == "wa" else clf.state_.network.head.scale.item()
        test = blobs(3, 2, seed=7)
        means = [F.normalize(F.normalize(clf.features(own)).mean(0), dim=0) for own in clf.state_.memory.exemplars]
        cosines = F.normalize(clf.features(test)) @ torch.stack(means).T
        torch.testing.assert_close(clf.scores(test).ncm, scale * cosines)
