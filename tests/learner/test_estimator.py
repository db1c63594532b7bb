"""The classifier as its users see it: learn, predict, save and load."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data import LabelledImages
from cotransport.errors import ConfigError, CotransportWarning, DataError, ModelError
from cotransport.learner import suggestions
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import suggest
from cotransport.model.store import ModelStore
from cotransport.networks.calibration import fit_temperature
from cotransport.settings.sections import Backbone, Budget, Device, Optimiser, PredictionSettings, Schedule
from tests.conftest import blobs
from tests.helpers import pictures, same_weights
from tests.learner.helpers import Tasks, classifier, module

CPU = Device(accelerator="cpu")
SHORT = Schedule(epochs=1, batch_size=16)


def names(data: LabelledImages) -> list[str]:
    return [("ant", "cat", "bee")[label] for label in data.labels.tolist()]


class TestLearnAndPredict:
    def test_it_learns_predicts_and_scores(self, two_tasks: Tasks) -> None:
        clf = classifier()
        assert clf.learn(two_tasks[0]) is clf
        clf.learn(two_tasks[1])
        assert clf.classes_.tolist() == ["class 0", "class 1", "class 2", "class 3"]
        test = blobs(4, 10, seed=9)
        probabilities = clf.predict_proba(test)
        assert probabilities.shape == (40, 4)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        predicted = clf.predict(test)
        assert (predicted == clf.classes_[probabilities.argmax(axis=1)]).all()
        truth = np.array(test.classes)[test.labels.numpy()]
        assert clf.score(test) == (predicted == truth).mean() > 0.8

    def test_arrays_with_labels(self) -> None:
        data = blobs(3, 12)
        pixels = data.images.pixels.numpy()  # type: ignore[union-attr]
        clf = classifier().learn(pixels, names(data))
        assert clf.classes_.tolist() == ["ant", "bee", "cat"]
        assert set(clf.predict(pixels)) <= {"ant", "bee", "cat"}
        assert clf.score(pixels, names(data)) > 0.8

    def test_whole_numbers_as_labels(self) -> None:
        data = blobs(2, 12)
        pixels = data.images.pixels.numpy()  # type: ignore[union-attr]
        clf = classifier(schedule=SHORT).learn(pixels, data.labels.numpy() + 5)
        assert clf.classes_.tolist() == [5, 6]
        assert clf.predict(pixels[:1]).dtype.kind == "i"

    def test_folders_and_files(self, tmp_path: Path) -> None:
        data = blobs(2, 6)
        for i, label in enumerate(data.labels.tolist()):
            folder = tmp_path / "week1" / ("cat", "dog")[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images.item(i)).save(folder / f"{i}.png")  # type: ignore[arg-type]
        clf = classifier(schedule=SHORT).learn(str(tmp_path / "week1"))
        assert clf.classes_.tolist() == ["cat", "dog"]
        paths = sorted((tmp_path / "week1").rglob("*.png"))
        assert len(clf.predict(paths)) == 12
        assert clf.predict(str(paths[0])).tolist() == clf.predict([paths[0]]).tolist()

    def test_images_of_another_size_are_resized(self, two_tasks: Tasks) -> None:
        clf = classifier().learn(two_tasks[0])
        larger = two_tasks[0].images.pixels.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)  # type: ignore[union-attr]
        agree = clf.predict(larger.numpy()) == clf.predict(two_tasks[0])
        assert agree.mean() > 0.9
        clf.learn(larger.numpy(), ["large"] * len(larger))
        assert clf.state_.image_size == 8

    def test_a_known_class_is_refused_and_nothing_changes(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        before = clf.state_
        with pytest.raises(DataError, match=r"'class 0', 'class 1': known already.*known_classes='extend'"):
            clf.learn(two_tasks[0])
        assert clf.state_ is before
        with pytest.raises(ConfigError, match="known_classes: give 'refuse' or 'extend', not 'replace'"):
            clf.learn(two_tasks[0], known_classes="replace")  # type: ignore[arg-type]
        assert clf.learn(two_tasks[0], known_classes="extend").state_.task_sizes == (2, 0)

    def test_learn_has_no_plumbing(self) -> None:
        parameters = inspect.signature(IncrementalClassifier.learn).parameters
        assert list(parameters) == ["self", "images", "labels", "known_classes"]

    def test_partial_fit_adds_classes_and_images(self, two_tasks: Tasks) -> None:
        clf = classifier(memory=Budget(per_class=5))
        clf.partial_fit(two_tasks[0])
        clf.partial_fit(blobs(3, 8, seed=4))  # classes 0 and 1 again, and 2
        assert clf.classes_.tolist() == ["class 0", "class 1", "class 2"]
        assert clf.state_.task_sizes == (2, 1)
        assert [len(images) for images in clf.state_.memory.exemplars] == [5, 5, 5]
        clf.partial_fit(blobs(3, 8, seed=5), classes=["class 0"])  # accepted, and not needed
        assert clf.state_.task_sizes == (2, 1, 0)
        assert clf.score(blobs(3, 10, seed=6)) > 0.8

    def test_fit_starts_again(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        clf.fit(two_tasks[1])
        assert clf.classes_.tolist() == ["class 2", "class 3"]

    def test_a_users_own_module_can_be_taught_further_after_fit(self, two_tasks: Tasks) -> None:
        clf = classifier(backbone=module(), schedule=SHORT).fit(two_tasks[0]).learn(two_tasks[1])
        assert len(clf.classes_) == 4

    def test_initialise_is_the_first_half_of_learn(self, two_tasks: Tasks) -> None:
        clf = classifier("coil", schedule=SHORT).learn(two_tasks[0])
        before = clf.state_
        grown = clf.initialise(two_tasks[1])
        assert clf.state_ is before
        assert grown.classes_.tolist() == ["class 0", "class 1", "class 2", "class 3"]
        assert torch.equal(grown.state_.network.head.weight[:2], before.network.head.weight)
        assert grown.built_from() == clf.learn(two_tasks[1]).built_from() != {}

    def test_nothing_is_known_before_the_first_task(self) -> None:
        clf = classifier()
        for ask in (lambda: clf.predict(blobs(1, 1)), lambda: clf.classes_, lambda: clf.save("m"), clf.built_from):
            with pytest.raises(NotFittedError, match="call learn first"):
                ask()

    def test_labels_of_another_type_are_refused(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        pixels = two_tasks[1].images.pixels  # type: ignore[union-attr]
        with pytest.raises(DataError, match="some by whole numbers"):
            clf.learn(pixels, [7] * len(pixels))

    def test_images_of_classes_that_were_never_learned_count_as_wrong(self, two_tasks: Tasks) -> None:
        clf = classifier().learn(two_tasks[0])
        with pytest.warns(CotransportWarning, match="the class 'class 2' was never learned, nor 1 more"):
            assert clf.score(blobs(4, 10, seed=9)) <= 0.5

    def test_score_takes_weights(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        is_right = clf.predict(two_tasks[0]) == np.array(two_tasks[0].classes)[two_tasks[0].labels.numpy()]
        assert clf.score(two_tasks[0], sample_weight=is_right + 1e-9) == pytest.approx(1)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"schedule": {"epoch": 3}}, r"schedule: epoch: unknown key; did you mean 'epochs'"),
            ({"memory": 2000}, r"memory: give Budget\(\.\.\.\) or a dictionary"),
            ({"method": "repaly"}, r"'repaly' is not a method"),
            ({"method": 3}, r"3 is neither a method's name"),
            ({"image_size": -4}, r"image_size: give a whole number from 1 to .*, not -4"),
            ({"seed": -1}, r"seed: give a whole number from 0"),
            (
                {"backbone": nn.Sequential(nn.Flatten(), nn.Linear(7, 3))},
                r"backbone: does not take images of 8 x 8 pixels",
            ),
        ],
    )
    def test_wrong_ones_are_found_before_the_training(
        self, settings: dict[str, object], message: str, two_tasks: Tasks
    ) -> None:
        with pytest.raises(ConfigError, match=message):
            classifier().set_params(**settings).learn(two_tasks[0])

    def test_are_one_validated_value(self) -> None:
        clf = classifier({"name": "coil", "reg": 0.1}, memory={"per_class": 3}, seed=5)
        settings = clf.learn(blobs(2, 8)).settings_
        assert isinstance(settings, LearnerSettings)
        assert (settings.memory, settings.seed) == (Budget(per_class=3), 5)
        assert clf.get_params()["memory"] == {"per_class": 3}  # as it was given

    def test_a_users_own_module_is_copied(self, two_tasks: Tasks) -> None:
        own = nn.Sequential(nn.Flatten(), nn.Linear(192, 12))
        weights = own[1].weight.detach().clone()
        clf = classifier(backbone=own).learn(two_tasks[0]).learn(two_tasks[1])
        assert clf.state_.network.dimension == 12
        assert torch.equal(own[1].weight, weights)
        assert clf.score(blobs(4, 10, seed=3)) > 0.8

    def test_a_copy_from_settings_and_state_is_the_classifier(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        twin = clone(clf)
        twin.state_, twin.settings_ = copy.deepcopy(clf.state_), clf.settings_
        test = blobs(4, 6, seed=7)
        np.testing.assert_array_equal(twin.predict_proba(test), clf.predict_proba(test))
        clf.learn(two_tasks[1])
        twin.learn(two_tasks[1])
        np.testing.assert_array_equal(twin.predict_proba(test), clf.predict_proba(test))

    def test_it_can_be_copied_and_pickled_by_its_user(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        expected = clf.predict_proba(two_tasks[0])
        for twin in (copy.deepcopy(clf), pickle.loads(pickle.dumps(clf))):
            np.testing.assert_array_equal(twin.predict_proba(two_tasks[0]), expected)


class TestLeftToTheImages:
    """The settings are those that `cotransport learn` chooses: see tests/lessons/test_python.py."""

    def test_what_is_given_overrides_what_is_suggested_key_by_key(self, two_tasks: Tasks) -> None:
        clf = IncrementalClassifier(
            backbone="resnet8", schedule={"epochs": 1}, optimiser=Optimiser(momentum=0.5), device=CPU
        )
        first = clf.learn(two_tasks[0]).settings_
        suggested = suggest(two_tasks[0], 0, is_gpu=False)
        assert first.schedule == Schedule(**{**suggested["schedule"], "epochs": 1, "enough": None})  # not shortened
        assert first.optimiser == Optimiser(momentum=0.5)  # an object stays exactly what it is
        assert (first.method.name, first.memory) == ("coil-tuned", Budget(per_class=50))
        assert first.loss.balanced_softmax
        assert clf.get_params()["method"] == "auto"

    def test_later_lessons_get_a_schedule_of_their_own(self, two_tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(suggestions, "STEPS", 6)
        monkeypatch.setattr(suggestions, "FEWEST_EPOCHS", 1)
        clf = IncrementalClassifier(backbone="resnet8", device=CPU).learn(two_tasks[0])
        assert clf.settings_.schedule.epochs == 2  # 6 steps of 16 images, with 48 images
        assert clf.learn(two_tasks[1]).settings_.schedule.epochs == 1  # with 48 and as many exemplars

    def test_the_documented_arguments_are_enough(self, two_tasks: Tasks) -> None:
        clf = IncrementalClassifier(method="coil", backbone="resnet18", schedule={"epochs": 1}, device=CPU)
        settings = clf.learn(blobs(2, 4)).settings_
        assert (settings.method.name, settings.backbone) == ("coil", Backbone(name="resnet18"))

    def test_a_users_own_module_keeps_large_images(self) -> None:
        pooled = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten())
        images = np.random.RandomState(0).randint(0, 256, (6, 80, 80, 3)).astype(np.uint8)
        clf = IncrementalClassifier(backbone=pooled, freeze_backbone=True, device=CPU).learn(images, list("aabbcc"))
        assert (clf.settings_.method.name, clf.state_.image_size) == ("analytic", 80)
        clf = IncrementalClassifier(backbone=pooled, freeze_backbone=True, device=CPU, schedule={"epochs": 1})
        assert clf.learn(images, list("aabbcc")).settings_.method.name == "coil-tuned"

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"backbone": "fast"}, "backbone: this model keeps resnet8"),
            ({"backbone": nn.Identity()}, "backbone: this model keeps resnet8"),
            ({"image_size": 16}, "image_size: this model keeps 8 x 8 pixels"),
        ],
    )
    def test_a_network_cannot_be_changed_later(self, change: dict[str, Any], message: str, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0]).set_params(**change)
        with pytest.raises(ConfigError, match=message):
            clf.learn(two_tasks[1])

    def test_what_was_chosen_is_saved_and_the_rest_stays_open(self, two_tasks: Tasks, tmp_path: Path) -> None:
        clf = IncrementalClassifier("replay", "resnet8", schedule={"epochs": np.int64(1)}, device=CPU)
        clf.learn(two_tasks[0]).save(tmp_path / "m")
        loaded = IncrementalClassifier.load(tmp_path / "m", device=CPU)
        assert (loaded.schedule, loaded.memory, loaded.optimiser) == ({"epochs": 1}, "auto", "auto")
        loaded.learn(two_tasks[1])
        clf.learn(two_tasks[1])
        assert loaded.settings_ == clf.settings_
        assert same_weights(loaded.state_.network, clf.state_.network)

    def test_a_chosen_image_size_is_saved(self, two_tasks: Tasks, tmp_path: Path) -> None:
        clf = classifier(image_size=10, schedule=SHORT).learn(two_tasks[0])
        clf.save(tmp_path / "m")
        assert IncrementalClassifier.load(tmp_path / "m").image_size == 10


class TestHeldOut:
    def test_a_share_of_each_new_class_is_never_trained_on(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT, memory=Budget(per_class=24), held_out=0.25)
        clf.learn(two_tasks[0]).learn(two_tasks[1])
        assert [len(images) for images in clf.state_.held_out.exemplars] == [6, 6, 6, 6]
        assert [len(images) for images in clf.state_.memory.exemplars] == [18, 18, 18, 18]
        for held, kept in zip(clf.state_.held_out.exemplars, clf.state_.memory.exemplars, strict=True):
            assert not set(pictures(held)) & set(pictures(kept))

    def test_score_uses_them_where_no_images_are_given(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT, held_out=0.25).learn(two_tasks[0])
        held_out = clf.state_.held_out.labelled(clf.state_.classes)
        assert held_out is not None
        truth = np.array(held_out.classes)[held_out.labels.numpy()]
        assert clf.score() == (clf.predict(held_out) == truth).mean()
        with pytest.raises(DataError, match=r"no images were held out\. Pass images, or learn with held_out=0\.1"):
            classifier(schedule=SHORT).learn(two_tasks[0]).score()

    def test_probabilities_are_calibrated_on_them(self, two_tasks: Tasks) -> None:
        clf = classifier(prediction="auto", held_out=0.5).learn(two_tasks[0])
        held_out = clf.state_.held_out.labelled(clf.state_.classes)
        assert held_out is not None
        scores = clf.scores(held_out).head
        temperature = fit_temperature(scores, held_out.labels)
        assert temperature != 1.0
        expected = torch.softmax(scores.double() / temperature, dim=1)
        np.testing.assert_allclose(clf.predict_proba(held_out), expected.numpy())
        given = classifier(prediction={"temperature": 3.0}, held_out=0.5).learn(two_tasks[0])
        assert given.settings_.prediction.temperature == 3.0
        exact = classifier(prediction=PredictionSettings(), held_out=0.5).learn(two_tasks[0])
        assert exact.settings_.prediction.temperature == 1.0

    def test_they_are_saved_and_stay(self, two_tasks: Tasks, tmp_path: Path) -> None:
        clf = classifier(schedule=SHORT, held_out=0.25).learn(two_tasks[0])
        clf.save(tmp_path / "m")
        loaded = IncrementalClassifier.load(tmp_path / "m", device=CPU)
        assert loaded.score() == clf.score()
        loaded.learn(two_tasks[1]).save(tmp_path / "m")  # nothing of the new classes is held out
        held_out = ModelStore(tmp_path / "m").read().held_out
        assert [len(images) for images in held_out.exemplars] == [6, 6, 0, 0]

    @pytest.mark.parametrize("share", [-0.1, 1, "some", None, float("nan")])
    def test_another_share_is_an_error(self, share: Any, two_tasks: Tasks) -> None:
        with pytest.raises(ConfigError, match="held_out: give a share of at least 0 and below 1"):
            classifier(held_out=share).learn(two_tasks[0])


class TestVerbose:
    NOTES = "2 classes, 48 images to train on and 0 held out for testing"

    def test_nothing_is_shown_where_nobody_looks(self, two_tasks: Tasks, capfd: pytest.CaptureFixture[str]) -> None:
        classifier(schedule=SHORT).learn(two_tasks[0])
        assert capfd.readouterr() == ("", "")

    def test_what_was_chosen_is_shown_on_demand(self, two_tasks: Tasks, capfd: pytest.CaptureFixture[str]) -> None:
        classifier(schedule=SHORT, verbose=True).learn(two_tasks[0])
        shown = capfd.readouterr()
        assert shown.out == ""
        lines = [line.strip() for line in shown.err.splitlines()]
        assert lines[:2] == [self.NOTES, "Replay, backbone resnet8, 8 x 8 pixels, exemplars: 2,000 in all"]

    def test_another_value_is_an_error(self, two_tasks: Tasks) -> None:
        with pytest.raises(ConfigError, match="verbose: give 'auto', True or False, not 'loud'"):
            classifier(verbose="loud").learn(two_tasks[0])


class TestPredictor:
    def test_is_kept_until_the_state_or_the_settings_change(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        kept = clf.predictor()
        assert clf.predictor() is kept
        clf.set_params(seed=7)
        assert clf.predictor() is not kept
        kept = clf.predictor()
        clf.learn(two_tasks[1])
        assert clf.predictor() is not kept
        assert clf.predictor().state is clf.state_

    def test_predicting_changes_no_attribute(self, two_tasks: Tasks) -> None:
        clf = classifier("icarl", schedule=SHORT).learn(two_tasks[0])
        before = dict(vars(clf))
        clf.predict(two_tasks[0])
        assert vars(clf) == before

    def test_another_prediction_can_be_chosen_after_learning(self, two_tasks: Tasks) -> None:
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        scores = clf.scores(two_tasks[1])
        assert scores.ncm is not None
        assert (clf.predict(two_tasks[1]) == clf.classes_[scores.head.argmax(dim=1).numpy()]).all()
        clf.set_params(method={"name": "replay", "predict_with": "ncm"})
        assert (clf.predict(two_tasks[1]) == clf.classes_[scores.ncm.argmax(dim=1).numpy()]).all()

    def test_without_exemplars_class_means_cannot_be_chosen(self, two_tasks: Tasks) -> None:
        clf = classifier("finetune", schedule=SHORT).learn(two_tasks[0])
        clf.set_params(method={"name": "finetune", "predict_with": "ncm"})
        with pytest.raises(ConfigError, match="needs an exemplar of every class"):
            clf.predict(two_tasks[0])

    def test_other_statistics_of_colours_may_be_chosen(self, two_tasks: Tasks) -> None:
        statistics = [np.full((2, 3), value) for value in (50.0, 60.0)]
        clf = classifier(schedule=SHORT, normalisation=statistics[0]).learn(two_tasks[0])
        clf.predict(two_tasks[0])
        clf.set_params(normalisation=statistics[1])
        assert clf.predict(two_tasks[0]).shape == (48,)


class TestSaveAndLoad:
    def test_what_is_saved_is_loaded(self, two_tasks: Tasks, tmp_path: Path) -> None:
        clf = classifier({"name": "coil", "reg": 0.1}, schedule=SHORT, seed=3).learn(two_tasks[0])
        assert clf.save(tmp_path / "m") == 1
        clf.learn(two_tasks[1])
        assert clf.save(str(tmp_path / "m")) == 2
        test = blobs(4, 5, seed=2)
        loaded = IncrementalClassifier.load(tmp_path / "m", device=Device(accelerator="cpu"))
        np.testing.assert_array_equal(loaded.predict_proba(test), clf.predict_proba(test))
        assert loaded.settings_ == clf.settings_
        assert loaded.built_from() == clf.built_from()
        first = IncrementalClassifier.load(tmp_path / "m", 1, device={"accelerator": "cpu"})
        assert first.classes_.tolist() == ["class 0", "class 1"]
        assert ModelStore(tmp_path / "m").manifest().version(2).parent == 1

    def test_whole_numbers_as_names_stay_whole_numbers(self, tmp_path: Path) -> None:
        images = blobs(2, 6).images.pixels  # type: ignore[union-attr]
        classifier(schedule=SHORT).learn(images, [7] * 6 + [3] * 6).save(tmp_path / "m")
        assert IncrementalClassifier.load(tmp_path / "m").classes_.tolist() == [3, 7]

    def test_a_folder_of_something_else_is_refused(self, two_tasks: Tasks, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_text("")
        clf = classifier(schedule=SHORT).learn(two_tasks[0])
        for place in (tmp_path / "photos", tmp_path / "photos" / "a.jpg"):
            with pytest.raises(ModelError):
                clf.save(place)
            with pytest.raises(ModelError):
                IncrementalClassifier.load(place)
        with pytest.raises(ModelError, match="no such folder"):
            IncrementalClassifier.load(tmp_path / "nowhere")

    def test_a_users_own_module_is_given_again(self, two_tasks: Tasks, tmp_path: Path) -> None:
        clf = classifier(backbone=module(), schedule=SHORT).learn(two_tasks[0])
        clf.save(tmp_path / "m")
        with pytest.raises(ModelError, match=r"load\(..., backbone=module\)"):
            IncrementalClassifier.load(tmp_path / "m")
        own = module(seed=1)
        before = [parameter.clone() for parameter in own.parameters()]
        loaded = IncrementalClassifier.load(tmp_path / "m", backbone=own)
        assert torch.equal(loaded.scores(blobs(2, 3)).head, clf.scores(blobs(2, 3)).head)
        assert all(torch.equal(a, b) for a, b in zip(before, own.parameters(), strict=True))
        other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 6), nn.ReLU())
        with pytest.raises(ModelError, match="Give a module of the same architecture"):
            IncrementalClassifier.load(tmp_path / "m", backbone=other)

    def test_buffers_of_a_users_module_may_be_of_any_dtype_and_infinite(self, tmp_path: Path) -> None:
        def masked() -> nn.Module:
            made = nn.Sequential(nn.Flatten(), nn.Linear(8 * 8 * 3, 4))
            made.register_buffer("mask", torch.full((2,), float("-inf"), dtype=torch.float64))
            return made

        data = blobs(2, 8)
        clf = classifier(backbone=masked(), schedule=SHORT).learn(data)
        clf.save(tmp_path / "m")
        again = IncrementalClassifier.load(tmp_path / "m", backbone=masked(), device=Device(accelerator="cpu"))
        np.testing.assert_array_equal(again.predict_proba(data), clf.predict_proba(data))
        assert again.state_.network.backbone.get_buffer("mask").dtype == torch.float64

    @pytest.mark.parametrize("backbone", ["fast", nn.Identity()])
    def test_no_module_is_needed_where_the_backbone_has_a_name(
        self, backbone: Any, two_tasks: Tasks, tmp_path: Path
    ) -> None:
        classifier(schedule=SHORT).learn(two_tasks[0]).save(tmp_path / "m")
        with pytest.raises(ConfigError, match="nothing if it was made with a name"):
            IncrementalClassifier.load(tmp_path / "m", backbone=backbone)
