from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError
from cotransport.experiments import boundary
from cotransport.experiments.recipe import load_recipe
from tests.conftest import blobs
from tests.experiments.test_run import Quiet

QUICK = ["schedule.epochs=3", "device.accelerator=cpu"]


def test_regions_are_those_of_the_nearest_direction() -> None:
    """Directions east and north: the border is the diagonal, and everything west of south is nearer to north."""
    view = boundary.View(
        classes=("east", "north"),
        features=np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]]),
        labels=np.array([0, 1, 0, 0]),
        weights=np.array([[1.0, 0.0], [0.0, 1.0]]),
    )
    assert view.regions(np.array([[3.0, 1.0], [1.0, 3.0], [-1.0, 0.0]])).tolist() == [0, 1, 1]
    assert view.accuracy([0]) == pytest.approx(200 / 3)
    assert view.accuracy([1]) == 100
    assert np.isnan(view.accuracy([2]))


@pytest.fixture(scope="module")
def found() -> boundary.Boundary:
    return boundary.boundary(load_recipe("digits-boundary", QUICK), Quiet())


def test_old_classes_are_trained_and_new_ones_transported(found: boundary.Boundary) -> None:
    assert found.old.classes == ("0", "1", "2")
    assert found.grown.classes == ("0", "1", "2", "3", "4")
    np.testing.assert_allclose(found.old.weights, found.grown.weights[:3])
    assert np.linalg.norm(found.grown.features, axis=1) == pytest.approx(1)
    assert set(found.old.labels.tolist()) == {0, 1, 2}
    assert found.transport is not None
    assert [origin.name for origin in found.transport.origins] == ["3", "4"]
    for origin, weights in zip(found.transport.origins, found.grown.weights[3:], strict=True):
        mixed = sum(source.share * found.old.weights[int(source.name)] for source in origin.sources)
        np.testing.assert_allclose(mixed / np.linalg.norm(mixed), weights, atol=1e-5)


def test_regions_agree_with_the_classifier() -> None:
    """What the figure shades is what the head would say."""
    from cotransport.data import DataSet
    from cotransport.experiments.stream import TaskStream

    stream = TaskStream(DataSet(blobs(4, 8), blobs(4, 6, seed=1)), ((0, 1), (2, 3)))
    clf = IncrementalClassifier(
        "coil", {"name": "resnet8", "dimension": 2}, schedule={"epochs": 3, "batch_size": 8}, head={"scale": 2.0}
    )
    grown = clf.learn(stream[0].train).initialise(stream[1].train)
    view = boundary._view(grown, stream, 1)
    assert view.regions(view.features).tolist() == grown.scores(stream[1].seen_test).head.argmax(dim=1).tolist()


def test_a_class_without_test_images_has_no_accuracy(tmp_path: Path) -> None:
    view = boundary.View(
        classes=("seen", "unseen", "beside"),
        features=np.array([[1.0, 0.0], [1.0, 0.0]]),
        labels=np.array([0, 2]),
        weights=np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]]),
    )
    assert view.accuracy_text(1) == "–\N{NO-BREAK SPACE}%"
    boundary.draw(boundary.Boundary(view, view, None), tmp_path)
    assert boundary._apart([np.array([1.0, 0.0]), np.array([1.0, 0.0])])[1] != 0


def test_two_dimensions_take_single_images() -> None:
    clf = IncrementalClassifier("coil", {"name": "resnet8", "dimension": 2}, schedule={"epochs": 2, "batch_size": 1})
    assert len(clf.learn(blobs(2, 1)).learn(blobs(1, 1, first=2)).classes_) == 3


def test_it_is_drawn(found: boundary.Boundary, tmp_path: Path) -> None:
    path = boundary.draw(found, tmp_path / "here")
    assert path == tmp_path / "here" / "boundary.png"
    assert path.read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "here" / "boundary.svg").read_text(encoding="utf-8")


def test_one_task_is_not_enough() -> None:
    with pytest.raises(ConfigError, match="no new classes"):
        boundary.boundary(load_recipe("digits", [*QUICK, "stream.tasks=1"]), Quiet())
