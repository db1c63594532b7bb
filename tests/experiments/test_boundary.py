"""Decision boundaries in two dimensions: which method they show, and that they are the classifier's own."""

from __future__ import annotations

import numpy as np
import pytest

from cotransport.errors import ConfigError
from cotransport.experiments.boundary import Boundary, View, boundary
from cotransport.experiments.recipe import load_recipe
from cotransport.experiments.results import Transport
from cotransport.training.listener import NullListener
from tests.conftest import blobs, classifier
from tests.experiments.helpers import QUICK, Recorder


def found(*overrides: str, listener: Recorder | None = None) -> Boundary:
    return boundary(load_recipe("digits-boundary", [*QUICK, *overrides]), listener or NullListener())


def test_regions_are_those_of_the_nearest_direction() -> None:
    """Directions east and north: the border is the diagonal, and everything west of south is nearer to north."""
    view = View(
        classes=("east", "north"),
        features=np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]]),
        labels=np.array([0, 1, 0, 0]),
        weights=np.array([[1.0, 0.0], [0.0, 1.0]]),
    )
    assert view.regions(np.array([[3.0, 1.0], [1.0, 3.0], [-1.0, 0.0]])).tolist() == [0, 1, 1]
    assert view.accuracy([0]) == pytest.approx(200 / 3)
    assert view.accuracy([1]) == 100
    assert np.isnan(view.accuracy([2]))


def transported_weights(transport: Transport, old: View) -> list[np.ndarray]:
    """Directions of the new classes, mixed by hand from their sources."""
    mixed = [
        sum(source.share * old.weights[old.classes.index(source.name)] for source in origin.sources)
        for origin in transport.origins
    ]
    return [weights / np.linalg.norm(weights) for weights in mixed]


def test_old_classes_are_trained_and_new_ones_transported() -> None:
    listener = Recorder()
    figure = found("schedule.epochs=3", listener=listener)
    assert figure.old.classes == ("0", "1", "2")
    assert figure.grown.classes == ("0", "1", "2", "3", "4")
    np.testing.assert_allclose(figure.old.weights, figure.grown.weights[:3])
    assert np.linalg.norm(figure.grown.features, axis=1) == pytest.approx(1)
    assert set(figure.old.labels.tolist()) == {0, 1, 2}
    assert figure.transport is not None
    assert [origin.name for origin in figure.transport.origins] == ["3", "4"]
    for mixed, weights in zip(transported_weights(figure.transport, figure.old), figure.grown.weights[3:], strict=True):
        np.testing.assert_allclose(mixed, weights, atol=1e-5)
    # the listener hears of one job with one task
    assert (listener.jobs, listener.titles, len(listener.work[0])) == (1, ["coil, seed 1"], 1)
    assert sum(progress.epoch_done for progress in listener.progress) == 3


def test_a_method_that_transports_is_preferred() -> None:
    """iCaRL knows retrospective transport, but starts new classes with random weights."""
    listener = Recorder()
    figure = found("methods=[icarl, {name: coil, prospective_init: false, label: plain}, coil]", listener=listener)
    assert listener.titles == ["coil, seed 1"]
    assert figure.transport is not None
    for mixed, weights in zip(transported_weights(figure.transport, figure.old), figure.grown.weights[3:], strict=True):
        np.testing.assert_allclose(mixed, weights, atol=1e-5)


@pytest.mark.parametrize("methods", ["[icarl, wa]", "[{name: coil, prospective_init: false, label: icarl}]"])
def test_without_a_method_that_transports_the_first_one_is_shown(methods: str) -> None:
    listener = Recorder()
    figure = found(f"methods={methods}", listener=listener)
    assert listener.titles == ["icarl, seed 1"]
    assert figure.transport is None


def test_regions_agree_with_the_classifier() -> None:
    """The figure shades what the head predicts: learned again through the classifier's own interface."""
    from cotransport import IncrementalClassifier
    from cotransport.data import load_data_set, open_source
    from cotransport.experiments.boundary import SCALE
    from cotransport.experiments.preparation import with_augmentation
    from cotransport.experiments.stream import TaskStream, split_classes
    from cotransport.settings.sections import Augmentation, HeadSettings

    recipe = load_recipe("digits-boundary", [*QUICK, "stream={classes: [['7', '1'], ['4', '9']]}"])
    figure = boundary(recipe, NullListener())
    source = open_source(recipe.data)
    recipe = with_augmentation(recipe, source)
    stream = TaskStream(load_data_set(source, recipe.data), split_classes(source.classes, recipe.stream))
    twin = IncrementalClassifier(
        "coil",
        recipe.backbone,
        memory=recipe.memory,
        schedule=recipe.schedule,
        optimiser=recipe.optimiser,
        loss=recipe.loss,
        augmentation=recipe.augmentation or Augmentation(),
        head=HeadSettings(scale=SCALE),
        prediction=recipe.prediction,
        device=recipe.device,
        seed=1,
    )
    grown = twin.learn(stream[0].train).initialise(stream[1].train)
    for view, learner, task in ((figure.old, twin, stream[0]), (figure.grown, grown, stream[1])):
        predicted = learner.scores(task.seen_test).head.argmax(dim=1).tolist()
        assert view.regions(view.features).tolist() == predicted
        assert view.labels.tolist() == task.seen_test.labels.tolist()
        assert view.classes == tuple(learner.classes_)


def test_two_dimensions_learn_from_single_images() -> None:
    learner = classifier("coil").set_params(backbone={"name": "resnet8", "dimension": 2}, schedule={"batch_size": 1})
    assert len(learner.learn(blobs(2, 1)).learn(blobs(1, 1, first=2)).classes_) == 3


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ("stream={tasks: 1}", "no new classes"),
        ("stream={classes: [['1'], ['2']]}", "one old class alone has no boundary"),
    ],
)
def test_too_few_classes_are_refused(stream: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        found(stream)
