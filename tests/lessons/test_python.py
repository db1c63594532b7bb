"""The command and Python teach a model in the same way: the same settings, held-out images and weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotransport import IncrementalClassifier
from cotransport.errors import CotransportWarning
from cotransport.learner import choice, suggestions
from cotransport.lessons.options import HELD_OUT, LessonOptions
from cotransport.lessons.records import read_report
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Device
from tests.conftest import blobs
from tests.helpers import same_weights
from tests.learner.test_first_network import installed, photographs
from tests.lessons.helpers import learn, write

CPU = Device(accelerator="cpu")
CHOSEN: dict[str, Any] = {"backbone": "resnet8", "schedule": {"batch_size": 8}}


@pytest.fixture(autouse=True)
def _short_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs are suggested for 36 images, and two for 50, in steps of 16."""
    monkeypatch.setattr(suggestions, "STEPS", 6)
    monkeypatch.setattr(suggestions, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(suggestions, "MOST_EPOCHS", 3)


def python(**settings: Any) -> IncrementalClassifier:
    return IncrementalClassifier(held_out=HELD_OUT, device=CPU, **settings)


def images(memory: Any) -> Iterator[tuple[int, bytes]]:
    """The class and the content of each image."""
    for number, own in enumerate(memory.exemplars):
        for place in range(len(own)):
            item = own.item(place)
            yield number, item.data if hasattr(item, "name") else item.tobytes()


def check_same(one: IncrementalClassifier, other: IncrementalClassifier) -> None:
    """Compare everything that the lessons have led to, tensor by tensor and image by image."""
    assert one.settings_ == other.settings_
    assert (one.state_.classes, one.state_.task_sizes) == (other.state_.classes, other.state_.task_sizes)
    assert one.state_.image_size == other.state_.image_size
    assert same_weights(one.state_.network, other.state_.network)
    assert list(images(one.state_.memory)) == list(images(other.state_.memory))
    assert len(one.state_.held_out)
    assert list(images(one.state_.held_out)) == list(images(other.state_.held_out))


def check_two_lessons(folder: Path, weeks: list[Path], **chosen: Any) -> IncrementalClassifier:
    """Teach the same two lessons by the command and from Python; returns the classifier from Python."""
    clf = python(**chosen)
    for week in weeks:
        learn(folder / "m", week, LessonOptions(chosen, device=CPU))
        clf.learn(week)
        check_same(clf, IncrementalClassifier.load(folder / "m", device=CPU))
    return clf


@pytest.fixture
def weeks(tmp_path: Path) -> list[Path]:
    """Lessons of 36 and 14 images to train on. All of them become exemplars."""
    return [write(blobs(2, 20), tmp_path / "1"), write(blobs(2, 8, first=2, seed=1), tmp_path / "2")]


class TestTwoLessons:
    def test_with_everything_left_to_the_images(self, tmp_path: Path, weeks: list[Path]) -> None:
        clf = check_two_lessons(tmp_path, weeks)
        assert (clf.settings_.method.name, clf.settings_.schedule.epochs) == ("coil-tuned", 2)
        assert clf.settings_.prediction.temperature == 1.0  # fewer than 20 images are held out

    @pytest.mark.parametrize(
        "chosen",
        [
            {"method": "coil", "backbone": "resnet8"},
            {"backbone": "resnet8", "schedule": {"learning_rate": 0.1}, "memory": {"total": 30}, "seed": 3},
            {"backbone": "resnet8", "image_size": 6, "head": {"linear_scale": 0.5}, "prediction": {"temperature": 2.0}},
        ],
    )
    def test_with_some_settings_chosen(self, tmp_path: Path, weeks: list[Path], chosen: dict[str, Any]) -> None:
        check_two_lessons(tmp_path, weeks, **chosen)

    def test_with_calibrated_probabilities(self, tmp_path: Path) -> None:
        weeks = [write(blobs(2, 110), tmp_path / "1"), write(blobs(1, 20, first=2, seed=1), tmp_path / "2")]
        clf = check_two_lessons(tmp_path, weeks, backbone="resnet8")
        assert clf.settings_.prediction.temperature != 1.0

    def test_with_copies_and_a_test_part(self, tmp_path: Path) -> None:
        write(blobs(2, 12), tmp_path / "1" / "train")
        write(blobs(2, 3, seed=5), tmp_path / "1" / "test")
        for name in ("train", "test"):  # an image of the training part that is also a test image, and one that is twice
            copied = tmp_path / "1" / "train" / "class 0" / "0.png"
            shutil.copy(copied, tmp_path / "1" / name / "class 0" / "copy.png")
        with pytest.warns(CotransportWarning, match="copies of others"):
            clf = check_two_lessons(tmp_path, [tmp_path / "1"], backbone="resnet8")
        assert [len(own) for own in clf.state_.held_out.exemplars] == [4, 3]

    @installed
    @pytest.mark.parametrize("good_enough", [0.0, 2.0])
    def test_after_a_trial(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good_enough: float) -> None:
        monkeypatch.setattr(choice, "GOOD_ENOUGH", good_enough)
        monkeypatch.setattr(choice, "FEWEST_TESTED", 2)
        weeks = [photographs(tmp_path / "1", 16), photographs(tmp_path / "2", 4, first=2)]
        clf = check_two_lessons(tmp_path, weeks)
        if not good_enough:
            assert (clf.settings_.method.name, clf.settings_.freeze_backbone) == ("analytic", True)
            assert clf.state_.features is not None


class TestTakingTurns:
    """A model is taught once by the command, and once from Python."""

    @pytest.fixture
    def expected(self, tmp_path: Path, weeks: list[Path]) -> IncrementalClassifier:
        """The command gives both lessons."""
        learn(tmp_path / "expected", weeks[0], LessonOptions(CHOSEN, device=CPU))
        learn(tmp_path / "expected", weeks[1], LessonOptions(device=CPU))
        return IncrementalClassifier.load(tmp_path / "expected", device=CPU)

    def test_python_goes_on(self, tmp_path: Path, weeks: list[Path], expected: IncrementalClassifier) -> None:
        learn(tmp_path / "m", weeks[0], LessonOptions(CHOSEN, device=CPU))
        clf = IncrementalClassifier.load(tmp_path / "m", device=CPU).set_params(held_out=HELD_OUT)
        check_same(clf.learn(weeks[1]), expected)

    def test_the_command_goes_on(self, tmp_path: Path, weeks: list[Path], expected: IncrementalClassifier) -> None:
        python(**CHOSEN).learn(weeks[0]).save(tmp_path / "m")
        learn(tmp_path / "m", weeks[1], LessonOptions(device=CPU))
        check_same(IncrementalClassifier.load(tmp_path / "m", device=CPU), expected)

    def test_a_version_from_python_has_no_report(self, tmp_path: Path, weeks: list[Path]) -> None:
        python(backbone="resnet8").learn(weeks[0]).save(tmp_path / "m")
        store = ModelStore(tmp_path / "m")
        assert read_report(store, store.manifest().version(1)) is None
