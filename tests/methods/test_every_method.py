"""Checks that every method passes. A new method is found by itself; it needs no line here."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages, PixelImages
from cotransport.methods import known_methods
from cotransport.settings.sections import Budget, Device, Schedule
from cotransport.training.checkpoints import Checkpoint, Checkpoints
from cotransport.training.loop import TrainingProgress
from tests import conftest
from tests.conftest import blobs

METHODS = sorted(known_methods())
Tasks = tuple[LabelledImages, LabelledImages]
every_method = pytest.mark.parametrize("method", METHODS)


def classifier(method: str, **settings: object) -> IncrementalClassifier:
    defaults = {
        "memory": Budget(per_class=6),
        "schedule": Schedule(epochs=8, batch_size=16, learning_rate=0.1),
        "seed": 3,
    }
    return conftest.classifier(method, **(defaults | settings))


def same_state(first: IncrementalClassifier, second: IncrementalClassifier) -> bool:
    ours, theirs = (clf.state_.network.state_dict().values() for clf in (first, second))
    exemplars = zip(first.state_.memory.exemplars, second.state_.memory.exemplars, strict=True)
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)) and all(
        torch.equal(a.pixels, b.pixels)  # type: ignore[union-attr]
        for a, b in exemplars
    )


@every_method
def test_learns_two_tasks(method: str, two_tasks: Tasks) -> None:
    clf = classifier(method).learn(two_tasks[0])
    assert clf.score(blobs(2, 10, seed=8)) > 0.9
    clf.learn(two_tasks[1])
    newest = blobs(2, 10, first=2, seed=9)
    assert clf.score(newest) > 0.8


class Killed(BaseException):
    """As if the process had ended there."""


@every_method
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 1.0])
def test_goes_on_after_any_step_as_if_nothing_had_been(
    method: str, share: float, two_tasks: Tasks, tmp_path: Path
) -> None:
    """Killed after the first step, at the end of an epoch, within the next, and after the last step."""
    settings = {
        "schedule": Schedule(epochs=2, batch_size=16, learning_rate=0.1),
        "device": Device(accelerator="cpu", checkpoint_seconds=0),
    }
    whole = classifier(method, **settings).learn(two_tasks[0])
    killed = copy.copy(whole)
    before, told = killed.state_, list[TrainingProgress]()

    class Dies(Checkpoints):
        def write(self, training: int, checkpoint: Checkpoint, **process: int) -> None:
            super().write(training, checkpoint, **process)
            self.forget_older(training, checkpoint.steps)
            if checkpoint.steps == max(1, round(share * told[-1].steps)):
                raise Killed

    with pytest.raises(Killed):
        killed.learn(two_tasks[1], checkpoints=Dies(tmp_path), listener=told.append)
    assert killed.state_ is before
    (left,) = (path for path in tmp_path.iterdir())
    told.clear()
    killed.learn(two_tasks[1], checkpoints=Checkpoints(tmp_path), listener=told.append)
    assert told[0].step == int(left.name.split("-")[2]) > 0
    whole.learn(two_tasks[1])
    assert same_state(whole, killed)


@every_method
def test_is_the_same_after_saving_and_loading(method: str, two_tasks: Tasks, tmp_path: Path) -> None:
    clf = classifier(method, schedule=Schedule(epochs=2, batch_size=16, learning_rate=0.1))
    clf.learn(two_tasks[0])
    assert clf.save(tmp_path / "model") == 1
    loaded = IncrementalClassifier.load(tmp_path / "model", device=Device(accelerator="cpu"))
    for twin in (clf, loaded):
        twin.learn(two_tasks[1])
    assert same_state(clf, loaded)
    assert loaded.save(tmp_path / "model") == 2
    again = IncrementalClassifier.load(tmp_path / "model")
    test = blobs(4, 10, seed=8)
    assert same_state(clf, again)
    assert torch.equal(clf.scores(test).head, again.scores(test).head)
    np.testing.assert_array_equal(clf.predict_proba(test), again.predict_proba(test))
    assert again.built_from() == clf.built_from()


@every_method
def test_labels_once_seen_stay(method: str, two_tasks: Tasks) -> None:
    clf = classifier(method).learn(two_tasks[0])
    before = clf.classes_.tolist()
    clf.learn(two_tasks[1])
    assert clf.classes_.tolist() == before + list(two_tasks[1].classes)
    assert clf.predict_proba(two_tasks[0]).shape[1] == 4


@every_method
def test_deterministic_for_a_seed(method: str, two_tasks: Tasks) -> None:
    twins = []
    for noise in (0, 1):
        torch.manual_seed(noise)  # what the surroundings draw must not matter
        np.random.seed(noise)
        twins.append(classifier(method, schedule=Schedule(epochs=2, batch_size=16)))
        twins[-1].learn(two_tasks[0]).learn(two_tasks[1])
    assert same_state(*twins)
    other = classifier(method, seed=4, schedule=Schedule(epochs=2, batch_size=16))
    assert not same_state(twins[0], other.learn(two_tasks[0]).learn(two_tasks[1]))


@every_method
def test_one_new_class_and_uneven_tasks(method: str) -> None:
    clf = classifier(method, schedule=Schedule(epochs=2, batch_size=16))
    for first, classes in ((0, 1), (1, 3), (4, 1), (5, 2)):
        clf.learn(blobs(classes, 7, first=first, seed=first))
    assert clf.state_.task_sizes == (1, 3, 1, 2)
    probabilities = clf.predict_proba(blobs(7, 2))
    assert probabilities.shape == (14, 7)
    assert np.isfinite(probabilities).all()


@every_method
@pytest.mark.filterwarnings("ignore:bic. no image:cotransport.errors.CotransportWarning")
def test_one_image_in_a_class(method: str) -> None:
    clf = classifier(method, schedule=Schedule(epochs=2, batch_size=16))
    clf.learn(blobs(2, 1)).learn(blobs(1, 1, first=2))
    assert np.isfinite(clf.predict_proba(blobs(3, 2))).all()


@every_method
def test_known_classes_may_get_more_images(method: str) -> None:
    clf = classifier(method, schedule=Schedule(epochs=2, batch_size=16))
    clf.partial_fit(blobs(2, 6)).partial_fit(blobs(3, 6, seed=1)).partial_fit(blobs(3, 6, seed=2))
    assert clf.state_.task_sizes == (2, 1, 0)
    assert np.isfinite(clf.predict_proba(blobs(3, 2))).all()


@every_method
def test_sees_no_data_beyond_task_and_memory(method: str, two_tasks: Tasks) -> None:
    """Once a task is learned, its images may be overwritten; before a task comes, they may not matter."""
    honest, watched = (classifier(method, schedule=Schedule(epochs=2, batch_size=16)) for _ in range(2))
    honest.learn(two_tasks[0]).learn(two_tasks[1])

    first, second = (_copied(task) for task in two_tasks)
    future = second.images.pixels.clone()  # type: ignore[union-attr]
    _overwrite(second)
    watched.learn(first)
    _overwrite(first)
    second.images.pixels.copy_(future)  # type: ignore[union-attr]
    watched.learn(second)
    assert same_state(honest, watched)


@every_method
def test_keeps_no_more_than_its_memory(method: str, two_tasks: Tasks) -> None:
    clf = classifier(method, memory=Budget(total=8)).learn(two_tasks[0]).learn(two_tasks[1])
    allowed = known_methods()[method]().budget(Budget(total=8))
    counts = [len(images) for images in clf.state_.memory.exemplars]
    assert counts == ([24] * 4 if allowed is None else [allowed.quota(4)] * 4)


def test_the_protocol_check_catches_a_learner_that_keeps_its_data(two_tasks: Tasks) -> None:
    """The check above must fail for a learner that goes back to an old task's images."""
    first, second = (_copied(task) for task in two_tasks)
    honest = classifier("replay", schedule=Schedule(epochs=2, batch_size=16))
    leaking = classifier("replay", schedule=Schedule(epochs=2, batch_size=16))
    honest.learn(two_tasks[0]).learn(two_tasks[1])
    leaking.learn(first)
    views = tuple(first.images.first(6) for _ in range(2))  # shares the task's storage, as a leaking learner would
    leaking.state_.memory._exemplars = views
    _overwrite(first)
    leaking.learn(second)
    assert not same_state(honest, leaking)


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[tuple[str, str], dict[str, torch.Tensor]]]:
    """What one process, and each of two, end with."""
    out = tmp_path_factory.mktemp("processes")
    root = Path(__file__).parent.parent.parent
    environment = {key: value for key, value in os.environ.items() if key not in {"LOCAL_RANK", "WORLD_SIZE"}}
    for processes in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "tests.two_processes", str(out), processes, *METHODS],
            cwd=root,
            env=environment,
            check=True,
            timeout=300,
        )
    return {path.stem: torch.load(path) for path in sorted(out.glob("*.pt"))}


@every_method
@pytest.mark.parametrize("backbone", ["plain", "resnet8"])
def test_two_processes_hold_the_same(method: str, backbone: str, in_processes: dict) -> None:  # type: ignore[type-arg]
    first, second = in_processes["2-0"][method, backbone], in_processes["2-1"][method, backbone]
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_two_processes_agree_on_what_a_time_budget_buys(in_processes: dict) -> None:  # type: ignore[type-arg]
    first, second = in_processes["2-0"]["time", "budget"], in_processes["2-1"]["time", "budget"]
    assert all(torch.equal(first[name], second[name]) for name in first)


@every_method
def test_two_processes_learn_what_one_learns(method: str, in_processes: dict) -> None:  # type: ignore[type-arg]
    one, two = in_processes["1-0"][method, "plain"], in_processes["2-0"][method, "plain"]
    for name in one:
        if not name.startswith("exemplars"):  # weights that differ in the last digits may choose others
            torch.testing.assert_close(one[name], two[name], rtol=1e-3, atol=1e-4)


def test_given_weights_choose_the_same_exemplars_in_any_number_of_processes(in_processes: dict) -> None:  # type: ignore[type-arg]
    one, two = in_processes["1-0"]["given", "weights"], in_processes["2-0"]["given", "weights"]
    torch.testing.assert_close(one["features"], two["features"])
    assert torch.equal(one["exemplars"], two["exemplars"])


def _copied(data: LabelledImages) -> LabelledImages:
    return LabelledImages(PixelImages(data.images.pixels.clone()), data.labels, data.classes)  # type: ignore[union-attr]


def _overwrite(data: LabelledImages) -> None:
    data.images.pixels.fill_(255)  # type: ignore[union-attr]
