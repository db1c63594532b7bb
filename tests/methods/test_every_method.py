"""Checks that every method that trains passes. A new method is found automatically; it needs no line here."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages, PixelImages
from cotransport.learner.learning import learned
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.methods import known_methods
from cotransport.settings.sections import Budget, Device, HeadSettings, Schedule
from cotransport.training.checkpoints import Checkpoint, Checkpoints
from cotransport.training.loop import TrainingControl
from cotransport.training.progress import TrainingProgress
from tests import conftest
from tests.conftest import blobs
from tests.helpers import Killed, pixels, same_state

METHODS = sorted(name for name, kind in known_methods().items() if not kind.needs_frozen_backbone)
FIRST, SECOND = blobs(2, 12), blobs(2, 12, first=2, seed=1)
every_method = pytest.mark.parametrize("method", METHODS)


def classifier(method: str, **settings: object) -> IncrementalClassifier:
    defaults = {
        "memory": Budget(per_class=6),
        "schedule": Schedule(epochs=2, batch_size=16, learning_rate=0.1),
        "seed": 3,
    }
    return conftest.classifier(method, **(defaults | settings))


def settings_of(method: str, **settings: object) -> LearnerSettings:
    return LearnerSettings.validate(classifier(method, **settings).get_params(deep=False))


@lru_cache
def after_first_task(method: str) -> State:
    """Learned once for all tests."""
    return learned(None, FIRST, settings_of(method))


@lru_cache
def after_second_task(method: str) -> State:
    """Learned in one go, once for all tests."""
    return learned(after_first_task(method), SECOND, settings_of(method))


@every_method
def test_learns_two_tasks(method: str, two_tasks: tuple[LabelledImages, LabelledImages]) -> None:
    clf = classifier(method, schedule=Schedule(epochs=8, batch_size=16, learning_rate=0.1)).learn(two_tasks[0])
    assert clf.score(blobs(2, 10, seed=8)) > 0.9
    clf.learn(two_tasks[1])
    assert clf.score(blobs(2, 10, first=2, seed=9)) > 0.8


@every_method
def test_learning_does_not_change_the_state_before(method: str) -> None:
    before = after_first_task(method)
    twin = copy.deepcopy(before)
    learned(before, SECOND, settings_of(method))
    assert same_state(before, twin)
    assert before.classes == FIRST.classes


@every_method
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 1.0])
def test_resumes_after_any_step_with_the_same_result(method: str, share: float, tmp_path: Path) -> None:
    """Killed after the first step, at the end of an epoch, within the next, and after the last step."""
    settings = settings_of(method, device=Device(accelerator="cpu", checkpoint_seconds=0))
    before, reports = after_first_task(method), list[TrainingProgress]()

    class Dies(Checkpoints):
        def write(self, training: int, checkpoint: Checkpoint, **process: int) -> None:
            super().write(training, checkpoint, **process)
            self.remove_older(training, checkpoint.steps)
            if checkpoint.steps == max(1, round(share * reports[-1].steps)):
                raise Killed

    with pytest.raises(Killed):
        learned(before, SECOND, settings, control=TrainingControl(reports.append, checkpoints=Dies(tmp_path)))
    (left,) = tmp_path.iterdir()
    reports.clear()
    control = TrainingControl(reports.append, checkpoints=Checkpoints(tmp_path))
    resumed = learned(before, SECOND, settings, control=control)
    assert reports[0].step == int(left.name.split("-")[2]) > 0
    assert same_state(after_second_task(method), resumed)


@every_method
def test_is_the_same_after_saving_and_loading(method: str, tmp_path: Path) -> None:
    clf = classifier(method)
    clf.state_, clf.settings_ = after_first_task(method), settings_of(method)
    assert clf.save(tmp_path / "model") == 1
    loaded = IncrementalClassifier.load(tmp_path / "model", device=Device(accelerator="cpu"))
    loaded.learn(SECOND)
    clf.state_ = after_second_task(method)
    assert same_state(clf.state_, loaded.state_)
    assert loaded.save(tmp_path / "model") == 2
    again = IncrementalClassifier.load(tmp_path / "model")
    test = blobs(4, 10, seed=8)
    assert same_state(clf.state_, again.state_)
    assert torch.equal(clf.scores(test).head, again.scores(test).head)
    np.testing.assert_array_equal(clf.predict_proba(test), again.predict_proba(test))
    assert again.built_from() == clf.built_from()


@every_method
def test_classes_keep_their_order(method: str) -> None:
    clf = classifier(method)
    clf.state_, clf.settings_ = after_second_task(method), settings_of(method)
    assert clf.classes_.tolist() == [*FIRST.classes, *SECOND.classes]
    assert clf.predict_proba(FIRST).shape == (24, 4)


@every_method
def test_a_seed_determines_the_result(method: str) -> None:
    """Whatever the surroundings have drawn."""
    again = classifier(method)
    for task, noise in ((FIRST, 71), (SECOND, 72)):
        torch.manual_seed(noise)
        np.random.seed(noise)
        again.learn(task)
    assert same_state(after_second_task(method), again.state_)
    other = classifier(method, seed=4).learn(FIRST).learn(SECOND)
    assert not same_state(again.state_, other.state_)


@every_method
def test_one_new_class_and_uneven_tasks(method: str) -> None:
    clf = classifier(method)
    for first, classes in ((0, 1), (1, 3), (4, 1), (5, 2)):
        clf.learn(blobs(classes, 7, first=first, seed=first))
    assert clf.state_.task_sizes == (1, 3, 1, 2)
    probabilities = clf.predict_proba(blobs(7, 2))
    assert probabilities.shape == (14, 7)
    assert np.isfinite(probabilities).all()


@every_method
@pytest.mark.filterwarnings("ignore:bic:cotransport.errors.CotransportWarning")
def test_one_image_in_a_class(method: str) -> None:
    clf = classifier(method).learn(blobs(2, 1)).learn(blobs(1, 1, first=2))
    assert np.isfinite(clf.predict_proba(blobs(3, 2))).all()


@every_method
def test_known_classes_may_get_more_images(method: str) -> None:
    clf = classifier(method)
    clf.partial_fit(blobs(2, 6)).partial_fit(blobs(3, 6, seed=1)).partial_fit(blobs(3, 6, seed=2))
    assert clf.state_.task_sizes == (2, 1, 0)
    assert np.isfinite(clf.predict_proba(blobs(3, 2))).all()


@every_method
def test_sees_no_data_beyond_task_and_memory(method: str) -> None:
    """A task's images may be overwritten after it is learned, and do not matter before it comes."""
    watched, first, second = classifier(method), _copied(FIRST), _copied(SECOND)
    _overwrite(second)
    watched.learn(first)
    _overwrite(first)
    pixels(second.images).copy_(pixels(SECOND.images))
    watched.learn(second)
    assert same_state(after_second_task(method), watched.state_)


def test_the_check_above_catches_a_learner_that_keeps_its_data() -> None:
    """It must fail for a learner that uses the images of an old task again."""
    leaking, first, second = classifier("replay"), _copied(FIRST), _copied(SECOND)
    leaking.learn(first)
    views = tuple(first.images.first(6) for _ in range(2))  # they share the task's storage
    leaking.state_.memory._exemplars = views
    _overwrite(first)
    leaking.learn(second)
    assert not same_state(after_second_task("replay"), leaking.state_)


@every_method
def test_keeps_no_more_than_its_memory(method: str) -> None:
    clf = classifier(method, memory=Budget(total=8)).learn(FIRST).learn(SECOND)
    allowed = known_methods()[method]().budget(Budget(total=8))
    counts = [len(images) for images in clf.state_.memory.exemplars]
    assert counts == ([12] * 4 if allowed is None else [allowed.quota(4)] * 4)


@every_method
def test_a_head_is_made_again_from_settings_and_tensors(method: str) -> None:
    """As a saved model needs it: the method's head, grown at once, with the stored tensors."""
    clf = classifier(method, head={"linear_scale": 0.5}).learn(blobs(2, 8)).learn(blobs(1, 8, first=2))
    head = clf.state_.network.head
    again = known_methods()[method]().make_head(clf.state_.network.dimension, HeadSettings())
    again.grow(3)
    again.load_state_dict(head.state_dict())
    features = clf.features(blobs(3, 4))
    assert torch.equal(again.eval()(features), head(features))


def _copied(data: LabelledImages) -> LabelledImages:
    return LabelledImages(PixelImages(pixels(data.images).clone()), data.labels, data.classes)


def _overwrite(data: LabelledImages) -> None:
    pixels(data.images).fill_(255)
