"""iCaRL: the nearest mean of the exemplars' features is the prediction. The head is reported beside it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional as F

from cotransport.errors import ConfigError
from cotransport.experiments.dry_run import dry_run
from cotransport.experiments.evaluation import evaluate
from cotransport.experiments.preparation import check_memory
from cotransport.experiments.recipe import load_recipe
from cotransport.settings.sections import Budget
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
        clf.state_.network.head.weight.copy_(
            clf.state_.network.head.weight.flip(0)
        )  # the head is wrong, the means are not
    found, _ = evaluate(clf.predictor(), blobs(3, 10, seed=7), [3])
    assert found.top1 == found.ncm_top1
    assert found.head_top1 != found.ncm_top1


def test_a_memory_without_room_for_every_class_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs an exemplar of every class"):
        classifier("icarl", memory=Budget(total=2)).learn(blobs(3, 8))


def test_a_classifier_without_exemplars_of_old_classes_cannot_continue_with_it() -> None:
    """It could not predict any more. Images of the old classes solve it."""
    clf = classifier("finetune").learn(blobs(2, 8)).set_params(method="icarl")
    with pytest.raises(ConfigError, match=r"iCaRL .* none of 'class 0', 'class 1'.*partial_fit"):
        clf.learn(blobs(1, 8, first=2))
    assert len(clf.classes_) == 2
    clf.partial_fit(blobs(3, 8))
    assert len(clf.predict(blobs(3, 2))) == 6


@pytest.mark.parametrize(
    "method, needed",
    [("icarl", True), ("replay", False), ("wa", False), ("{name: wa, rt_weight: 1}", True), ("coil", True)],
)
def test_a_dry_run_checks_the_memory_of_methods_that_need_exemplars(method: str, needed: bool) -> None:
    recipe = load_recipe("digits", ["memory.total=6", f"methods=[{method}]"])
    with pytest.raises(ConfigError, match="needs an exemplar") if needed else nullcontext():
        dry_run(recipe)


def test_an_experiment_whose_memory_will_be_too_small_does_not_start() -> None:
    recipe = load_recipe("digits", ["memory.total=6", "methods=[replay, icarl]"])
    with pytest.raises(ConfigError, match=r"memory: icarl needs an exemplar of each of 10 classes"):
        check_memory(recipe, 10)
    check_memory(recipe, 6)


def test_scores_of_the_nearest_mean_have_a_scale_with_any_head() -> None:
    """Cosines to the means, times the learned scale of a cosine head, or the setting's scale for a linear head."""
    for name in ("icarl", "wa"):
        clf = classifier({"name": name, "predict_with": "ncm"}, head={"scale": 7.0}).learn(blobs(3, 8))
        scale = 7.0 if name == "wa" else clf.state_.network.head.scale.item()
        test = blobs(3, 2, seed=7)
        means = [F.normalize(F.normalize(clf.features(own)).mean(0), dim=0) for own in clf.state_.memory.exemplars]
        cosines = F.normalize(clf.features(test)) @ torch.stack(means).T
        torch.testing.assert_close(clf.scores(test).ncm, scale * cosines)
