"""Analytic: the same classifier in any order of arrival, against scikit-learn, and without images."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages
from cotransport.errors import ConfigError
from cotransport.methods import make_method
from cotransport.networks.calibration import fit_temperature
from cotransport.networks.heads import DiscriminantHead
from cotransport.settings.sections import Budget, Device
from tests.conftest import blobs, classifier
from tests.helpers import same_state

BACKBONE = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())
TASKS = [blobs(2, 9), blobs(1, 5, first=2, seed=1), blobs(2, 7, first=3, seed=2)]
TEST = blobs(5, 10, seed=8)


def analytic(**settings: object) -> IncrementalClassifier:
    """With a normalisation that does not depend on the first images."""
    fixed = {"freeze_backbone": True, "normalisation": "imagenet"}
    return classifier("analytic", **fixed, **settings).set_params(backbone=BACKBONE)


def learned(tasks: list[LabelledImages], clf: IncrementalClassifier | None = None) -> IncrementalClassifier:
    clf = clf or analytic()
    for task in tasks:
        clf.learn(task)
    return clf


class TestHead:
    @pytest.mark.parametrize("power", [0.5, 1.0])
    @pytest.mark.parametrize("shrinkage", [0.01, 0.3, 1.0])
    def test_against_scikit_learn(self, shrinkage: float, power: float) -> None:
        """Twin: scikit-learn's discriminant with the same covariance and equal priors."""
        random = np.random.RandomState(0)
        labels = random.randint(0, 4, 60)
        original = random.randn(60, 5) @ random.randn(5, 5) + 2 * labels[:, None]
        features = np.sign(original) * np.abs(original) ** power
        head = DiscriminantHead(5, power)
        head.grow(4)
        head.observe(torch.from_numpy(original), torch.from_numpy(labels))
        head.solve(shrinkage)
        means = np.stack([features[labels == number].mean(axis=0) for number in range(4)])
        centred = features - means[labels]
        covariance = centred.T @ centred / (60 - 4)
        shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 5 * np.eye(5)
        twin = LinearDiscriminantAnalysis(solver="lsqr", priors=[0.25] * 4, covariance_estimator=_Fixed(shrunk))
        twin.fit(features, labels)
        with torch.no_grad():
            found = head(torch.from_numpy(original).float()).softmax(dim=1)
        np.testing.assert_allclose(found.numpy(), twin.predict_proba(features), atol=1e-4)

    def test_a_class_with_one_image_and_constant_features(self) -> None:
        head = DiscriminantHead(3)
        head.grow(2)
        head.observe(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 1]))
        head.solve(0.1)
        assert torch.isfinite(head(torch.eye(3))).all()


class TestCalibration:
    @pytest.mark.parametrize(("classes", "images"), [(20, 3), (20, 5), (50, 2)])
    def test_new_images_are_right_as_often_as_the_probabilities_say(self, classes: int, images: int) -> None:
        """Gaussian classes in 60 dimensions. The best temperature for many new images is within a factor of 2."""
        random = torch.Generator().manual_seed(classes * images)
        mix = torch.randn(60, 60, generator=random)
        means = torch.randn(classes, 60, generator=random) * 3

        def drawn(each: int) -> tuple[torch.Tensor, torch.Tensor]:
            labels = torch.arange(classes).repeat(each)
            return means[labels] + torch.randn(len(labels), 60, generator=random) @ mix, labels

        head = DiscriminantHead(60)
        head.grow(classes)
        head.observe(*drawn(images))
        head.solve(0.6)
        features, labels = drawn(2000)
        with torch.no_grad():
            before = head(features)
            head.calibrate(0.6)
            after = head(features)
        assert fit_temperature(before, labels) > 2
        assert 0.5 < fit_temperature(after, labels) < 1.5
        assert torch.equal(before.argmax(dim=1), after.argmax(dim=1))

    def test_one_image_of_each_class_says_nothing_about_their_spread(self) -> None:
        head = DiscriminantHead(3)
        head.grow(2)
        head.observe(torch.eye(3)[:2], torch.tensor([0, 1]))
        head.solve(0.6)
        before = head.weight.clone()
        head.calibrate(0.6)
        assert torch.equal(head.weight, before)

    def test_equal_images_give_finite_weights(self) -> None:
        head = DiscriminantHead(3)
        head.grow(2)
        head.observe(torch.eye(3)[:2].repeat(4, 1), torch.tensor([0, 1]).repeat(4))
        head.solve(0.6)
        head.calibrate(0.6)
        assert torch.isfinite(head(torch.eye(3))).all()


class _Fixed:
    """A covariance estimator that returns what it is given. scikit-learn weights it by the priors of the classes."""

    def __init__(self, covariance: np.ndarray) -> None:
        self.covariance_ = covariance

    def fit(self, features: np.ndarray) -> _Fixed:
        return self

    def get_params(self, deep: bool = True) -> dict[str, object]:
        return {"covariance": self.covariance_}


def test_any_order_of_arrival_gives_the_same_classifier() -> None:
    at_once = analytic().learn(
        np.concatenate([np.asarray(task.images.pixels) for task in TASKS]),  # type: ignore[union-attr]
        [task.classes[label] for task in TASKS for label in task.labels],
    )
    for order in permutations(TASKS):
        clf = learned(list(order))
        columns = [at_once.classes_.tolist().index(name) for name in clf.classes_]
        found, expected = clf.scores(TEST).head, at_once.scores(TEST).head[:, columns]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_more_images_of_known_classes_give_the_same_classifier() -> None:
    halves = [blobs(3, 6), blobs(3, 6, seed=1)]
    clf = analytic().partial_fit(halves[0]).partial_fit(halves[1])
    both = np.concatenate([np.asarray(half.images.pixels) for half in halves])  # type: ignore[union-attr]
    whole = analytic().learn(both, [half.classes[label] for half in halves for label in half.labels])
    torch.testing.assert_close(clf.scores(TEST).head, whole.scores(TEST).head, rtol=1e-4, atol=1e-4)


def test_it_learns_and_keeps_no_image() -> None:
    clf = learned(TASKS, analytic(memory=Budget(per_class=5)))
    assert clf.score(TEST) > 0.8
    assert len(clf.state_.memory) == 0


def test_it_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    clf = learned(TASKS[:2])
    clf.save(tmp_path / "model")
    loaded = IncrementalClassifier.load(tmp_path / "model", backbone=BACKBONE, device=Device(accelerator="cpu"))
    assert same_state(learned(TASKS[2:], clf).state_, learned(TASKS[2:], loaded).state_)
    assert loaded.state_.network.head.sums.dtype == torch.float64


def test_a_backbone_that_is_trained_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Analytic keeps sums of features and no images.*efficientnet-lite0"):
        classifier("analytic").learn(TASKS[0])


def test_the_sums_stay_in_float64_wherever_the_weights_go() -> None:
    head = DiscriminantHead(3)
    head.grow(2)
    head.to(torch.float16)
    assert (head.weight.dtype, head.sums.dtype, head.products_sum.dtype) == (torch.float16, *[torch.float64] * 2)
    assert set(head.state_dict()) == {"weight", "bias", "scale", "power", "sums", "counts", "products_sum"}
    head.to("meta")
    assert (head.weight.device.type, head.sums.device.type) == ("meta", "cpu")


def test_the_power_never_changes() -> None:
    clf = learned(TASKS[:1]).set_params(method={"name": "analytic", "power": 1.0})
    with pytest.raises(ConfigError, match=r"method\.power: the sums of this model are of features to the power 0\.5"):
        clf.learn(TASKS[1])


def test_there_are_no_class_means() -> None:
    with pytest.raises(ConfigError, match="this method keeps none"):
        make_method({"name": "analytic", "predict_with": "ncm"})


def test_shrinkage_is_a_share() -> None:
    with pytest.raises(ConfigError, match="shrinkage"):
        make_method({"name": "analytic", "shrinkage": 0})
