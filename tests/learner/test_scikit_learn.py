"""The classifier as an estimator of scikit-learn: its own checks, clones, parameters and pipelines.

Scikit-learn's checks use tables of numbers. `Tables` turns each row into a small image and is otherwise the classifier
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.settings.sections import Budget, Schedule
from tests.conftest import blobs, classifier

SIDE = 4


def small_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())


class Tables(IncrementalClassifier):
    """The classifier for tables: each column of a row becomes the brightness of some pixels."""

    def __init__(self, method: Any = "auto", backbone: Any = "auto", *, device: Any = "auto", seed: int = 0) -> None:
        super().__init__(method, backbone, device=device, seed=seed)

    def fit(self, X: Any, y: Any = None) -> Tables:  # noqa: N803
        X, y = validate_data(self, X, y)  # noqa: N806
        check_classification_targets(y)
        fresh = clone(self).set_params(backbone=small_module())
        IncrementalClassifier.learn(fresh, pictures(X), y)
        self.state_, self.settings_ = fresh.state_, fresh.settings_
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Tables:  # noqa: N803
        if not hasattr(self, "state_"):
            return self.fit(X, y)
        X, y = validate_data(self, X, y, reset=False)  # noqa: N806
        super().partial_fit(pictures(X), y)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        return super().predict(self._checked(X))

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:  # noqa: N803
        # scikit-learn chooses its tolerance by the dtype. The network computes in float32, and batches of different
        # sizes are rounded differently
        return super().predict_proba(self._checked(X)).astype(np.float32)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        return float(np.average(self.predict(X) == y, weights=sample_weight))

    def _checked(self, X: Any) -> npt.NDArray[np.uint8]:  # noqa: N803
        self._state()
        return pictures(validate_data(self, X, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def pictures(X: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:  # noqa: N803
    """Images, uint8 (n, 4, 4, 3): the columns of each row, repeated until all pixels have a brightness."""
    light = np.round(255 / (1 + np.exp(-np.asarray(X, dtype=np.float64).clip(-50, 50)))).astype(np.uint8)
    return np.resize(light.T, (SIDE * SIDE, len(light))).T.reshape(-1, SIDE, SIDE, 1).repeat(3, axis=3)


@pytest.mark.sklearn
@parametrize_with_checks([Tables(device={"accelerator": "cpu"})])
def test_scikit_learns_own_checks(estimator: Tables, check: Callable[[Tables], None]) -> None:
    check(estimator)


def test_the_classifier_itself_takes_images_and_no_tables() -> None:
    tags = IncrementalClassifier().__sklearn_tags__()
    assert not tags.input_tags.two_d_array
    assert tags.input_tags.three_d_array
    assert tags.estimator_type == "classifier"


def test_a_clone_has_the_same_settings_and_has_learned_nothing() -> None:
    clf = classifier({"name": "coil", "reg": 0.1}, seed=5, image_size=8).learn(blobs(2, 10))
    twin = clone(clf)
    assert twin.get_params() == clf.get_params()
    assert not hasattr(twin, "state_")
    assert "reg" in repr(IncrementalClassifier({"name": "coil", "reg": 0.1}))
    with pytest.raises(NotFittedError):
        twin.predict(blobs(2, 1))
    assert twin.set_params(seed=6).get_params()["seed"] == 6


def test_a_clone_copies_a_users_own_module_with_its_weights() -> None:
    module = small_module()
    twin = clone(IncrementalClassifier("replay", module))
    assert twin.backbone is not module
    assert all(torch.equal(a, b) for a, b in zip(twin.backbone.parameters(), module.parameters(), strict=True))


def test_it_works_in_a_pipeline_and_in_cross_validation() -> None:
    data = blobs(3, 20)
    names = np.array(data.classes)[data.labels.numpy()]
    images = data.images.pixels.numpy()  # type: ignore[union-attr]
    pipeline = make_pipeline(FunctionTransformer(lambda inverted: 255 - inverted), classifier("replay"))
    pipeline.fit(255 - images, names)
    assert pipeline.score(255 - images, names) > 0.9
    assert (pipeline.predict(255 - images) == names).mean() > 0.9
    scores = cross_val_score(pipeline, 255 - images, names, cv=2)
    assert scores.min() > 0.6


class TestKeysOfSections:
    def test_can_be_set_and_the_others_stay(self) -> None:
        clf = IncrementalClassifier(backbone="fast", memory=Budget(total=9)).set_params(
            schedule__epochs=3, backbone__width=8, memory={"per_class": 2}, memory__per_class=3
        )
        assert (clf.schedule, clf.backbone) == ({"epochs": 3}, {"name": "fast", "width": 8})
        assert clf.memory == {"per_class": 3}
        clf.set_params(schedule__batch_size=16)
        assert clf.schedule == {"epochs": 3, "batch_size": 16}
        with pytest.raises(ValueError, match="Invalid parameter 'surprise'"):
            clf.set_params(surprise__epochs=3)

    def test_of_a_settings_object_all_are_kept(self) -> None:
        schedule = Schedule(epochs=3, learning_rate=0.3)
        clf = IncrementalClassifier(schedule=schedule).set_params(schedule__epochs=4)
        assert clf.schedule == {**schedule.model_dump(), "epochs": 4}

    def test_are_among_the_parameters(self) -> None:
        clf = IncrementalClassifier(method={"name": "coil", "reg": 0.1}, schedule=Schedule(epochs=3))
        params = clf.get_params()
        assert (params["method__reg"], params["schedule__epochs"]) == (0.1, 3)
        assert not any("__" in name for name in clf.get_params(deep=False))
        assert clf.set_params(**params).schedule is params["schedule"]  # what does not change stays what it is

    def test_are_searched(self) -> None:
        data = blobs(2, 8)
        images, names = data.images.pixels.numpy(), data.labels.numpy()  # type: ignore[union-attr]
        clf = IncrementalClassifier(backbone="resnet8", device={"accelerator": "cpu"})
        search = GridSearchCV(clf, {"schedule__epochs": [1, 2], "method__name": ["replay"]}, cv=2, error_score="raise")
        search.fit(images, names)
        settings = search.best_estimator_.settings_
        assert settings.schedule.epochs == search.best_params_["schedule__epochs"]
        assert (settings.method.name, settings.schedule.batch_size) == ("replay", 16)  # of what is suggested
        assert clf.schedule == "auto"
