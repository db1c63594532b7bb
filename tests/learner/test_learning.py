"""Learning a task: from one state to the next, or not at all."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cotransport.data import EncodedImages, LabelledImages, PixelImages, as_labelled
from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, CotransportWarning, DataError, TrainingError
from cotransport.learner import learning
from cotransport.learner.learning import check_new_classes, initialised, learned
from cotransport.learner.prediction import Predictor
from cotransport.learner.state import State
from cotransport.model.manifest import LONGEST_NAME
from cotransport.networks.network import HeadAlone
from cotransport.settings.sections import Budget, Schedule
from cotransport.training.checkpoints import Checkpoints
from cotransport.training.feature_cache import digests_of
from cotransport.training.loop import TrainingControl
from cotransport.training.progress import TrainingProgress
from tests.conftest import blobs
from tests.helpers import Passes
from tests.learner.helpers import Tasks, classifier, learner_settings, module

SHORT = Schedule(epochs=2, batch_size=16, learning_rate=0.05)
QUICK = learner_settings(schedule=SHORT)


def weights(state: State) -> dict[str, torch.Tensor]:
    return copy.deepcopy(state.network.state_dict())


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class TestLearned:
    def test_a_state_follows_from_another_that_stays_as_it_was(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], QUICK)
        before = weights(first)
        second = learned(first, two_tasks[1], QUICK)
        assert (first.classes, first.task_sizes) == (("class 0", "class 1"), (2,))
        assert (second.classes[2:], second.task_sizes) == (("class 2", "class 3"), (2, 2))
        assert same(weights(first), before)
        assert not second.network.training

    def test_everything_learned_is_in_the_state(self, two_tasks: Tasks) -> None:
        """From a copy of a state, the next one is the same."""
        first = learned(None, two_tasks[0], QUICK)
        one, two = (learned(state, two_tasks[1], QUICK) for state in (first, copy.deepcopy(first)))
        assert same(weights(one), weights(two))

    def test_another_seed_gives_other_weights(self, two_tasks: Tasks) -> None:
        one, two = (learned(None, two_tasks[0], learner_settings(schedule=SHORT, seed=seed)) for seed in (1, 2))
        assert not same(weights(one), weights(two))

    def test_a_failed_task_leaves_the_state_before(self, two_tasks: Tasks) -> None:
        clf = classifier().learn(two_tasks[0])
        before, probabilities = clf.state_, clf.predict_proba(two_tasks[0])
        kept = weights(before)
        clf.set_params(schedule=Schedule(epochs=2, batch_size=16, learning_rate=1e30, shape="constant"))
        with pytest.raises(TrainingError, match="not finite"):
            clf.learn(two_tasks[1])
        assert clf.state_ is before
        assert same(weights(before), kept)
        np.testing.assert_array_equal(clf.predict_proba(two_tasks[0]), probabilities)

    def test_a_frozen_backbone_stays_and_the_head_learns(self, two_tasks: Tasks) -> None:
        settings = learner_settings(backbone=module(), freeze_backbone=True, schedule=SHORT)
        first = learned(None, two_tasks[0], settings)
        second = learned(first, two_tasks[1], settings)
        own = settings.backbone.state_dict()  # type: ignore[union-attr]
        for state in (first, second):
            assert all(torch.equal(state.network.backbone.state_dict()[name], tensor) for name, tensor in own.items())
        assert not torch.equal(second.network.head.weight[:2], first.network.head.weight)

    def test_a_frozen_backbone_sees_every_image_once(self, two_tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
        passes, settings = Passes(monkeypatch), learner_settings("icarl", backbone=module(), freeze_backbone=True)
        first = learned(None, two_tasks[0], settings)
        second = learned(first, two_tasks[1], settings)
        seen = [count for count, network in passes.seen if not isinstance(network, HeadAlone)]
        assert seen == [len(task) for task in two_tasks[:2]]
        assert second.features is not None
        kept = [one for images in second.memory.exemplars for one in digests_of(images)]
        assert second.features.digests == set(kept)
        exact = Predictor(replace(second, features=None), settings)
        torch.testing.assert_close(Predictor(second, settings).class_means, exact.class_means)
        seen_before = len(passes.seen)
        assert Predictor(second, settings).class_means is not None
        assert [network for _, network in passes.seen[seen_before:] if not isinstance(network, HeadAlone)] == []

    def test_a_backbone_that_is_trained_again_forgets_the_features(self, two_tasks: Tasks) -> None:
        frozen = learner_settings(backbone=module(), freeze_backbone=True, schedule=SHORT)
        first = learned(None, two_tasks[0], frozen)
        assert first.features is not None
        assert learned(first, two_tasks[1], replace(frozen, freeze_backbone=False)).features is None

    @pytest.mark.parametrize(("method", "rates"), [("replay", [0.2, 0.1, 0.1]), ("oracle", [0.2, 0.2, 0.2])])
    def test_a_network_that_learns_on_may_have_another_learning_rate(self, method: str, rates: list[float]) -> None:
        schedule = Schedule(epochs=1, batch_size=40, shape="constant", learning_rate=0.2, later_learning_rate=0.1)
        settings, state, found = learner_settings(method, schedule=schedule), None, []
        for task in range(3):
            heard: list[TrainingProgress] = []
            data = blobs(1, 12, first=task)
            state = learned(state, data, settings, control=TrainingControl(listener=heard.append))
            found.append(heard[-1].learning_rate)
        assert found == rates

    def test_a_classifier_of_one_kind_cannot_get_another_head(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], QUICK)
        with pytest.raises(ConfigError, match="method: WA with these settings needs another head"):
            learned(first, two_tasks[1], learner_settings("wa"))

    def test_a_teacher_has_the_networks_memory_format(self) -> None:
        settings = learner_settings(backbone={"name": "fast", "width": 8}, schedule=Schedule(epochs=1, batch_size=24))
        network = learned(None, blobs(2, 12), settings).network
        for name, layer in network.frozen().backbone.named_modules():
            if isinstance(layer, torch.nn.Conv2d):
                assert layer.weight.is_contiguous(memory_format=torch.channels_last), name


class TestControl:
    def test_recorded_epochs_overrule_the_schedule(self, two_tasks: Tasks) -> None:
        heard: list[TrainingProgress] = []
        learned(None, two_tasks[0], QUICK, control=TrainingControl(listener=heard.append, epochs=5))
        assert {progress.epochs for progress in heard} == {5}
        assert heard[-1].step == heard[-1].steps == 15

    def test_a_training_resumes_from_its_checkpoint_and_ends_the_same(self, two_tasks: Tasks, tmp_path: Path) -> None:
        settings = learner_settings(schedule=SHORT, device={"accelerator": "cpu", "checkpoint_seconds": 0})
        whole = learned(None, two_tasks[0], settings)

        class Stopped(BaseException):
            pass

        def stop(progress: TrainingProgress) -> None:
            if progress.epoch_done:
                raise Stopped

        with pytest.raises(Stopped):
            learned(None, two_tasks[0], settings, control=TrainingControl(stop, checkpoints=Checkpoints(tmp_path)))
        heard: list[TrainingProgress] = []
        control = TrainingControl(heard.append, checkpoints=Checkpoints(tmp_path))
        resumed = learned(None, two_tasks[0], settings, control=control)
        assert heard[0].step > 0
        assert same(weights(resumed), weights(whole))


class TestInitialised:
    def test_knows_the_new_classes_and_is_not_trained(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], QUICK)
        grown = initialised(first, two_tasks[1], QUICK)
        assert grown.classes == ("class 0", "class 1", "class 2", "class 3")
        old = weights(first)
        for name, value in weights(grown).items():
            assert torch.equal(value[:2] if name == "head.weight" else value, old[name])

    def test_gives_the_plan_that_learning_starts_from(self, two_tasks: Tasks) -> None:
        settings = learner_settings("coil", schedule=SHORT)
        first = learned(None, two_tasks[0], settings)
        grown, second = (step(first, two_tasks[1], settings) for step in (initialised, learned))
        assert grown.plan is not None
        assert second.plan is not None
        assert torch.equal(grown.plan, second.plan)
        assert list(grown.built_from()) == ["class 2", "class 3"]


class TestImages:
    def test_of_known_classes_are_refused(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], QUICK)
        with pytest.raises(DataError, match=r"'class 0', 'class 1': known already.*known_classes='extend'"):
            learned(first, two_tasks[0], QUICK)

    def test_of_known_classes_are_learned_from_if_asked_for(self, two_tasks: Tasks) -> None:
        settings = learner_settings(memory=Budget(per_class=5), schedule=SHORT)
        state = learned(None, two_tasks[0], settings)
        state = learned(state, blobs(3, 8, seed=4), settings, extend=True)  # classes 0 and 1 again, and 2
        assert (state.classes, state.task_sizes) == (("class 0", "class 1", "class 2"), (2, 1))
        assert [len(images) for images in state.memory.exemplars] == [5, 5, 5]
        state = learned(state, blobs(3, 8, seed=5), settings, extend=True)
        assert state.task_sizes == (2, 1, 0)

    def test_a_class_without_any_is_refused(self, two_tasks: Tasks) -> None:
        data = two_tasks[0]
        named = LabelledImages(data.images, data.labels, (*data.classes, "ghost"))
        with pytest.raises(DataError, match="'ghost' has no images"):
            learned(None, named, QUICK)
        with pytest.raises(DataError, match=r"no images\. Give at least one"):
            learned(None, LabelledImages(data.images.first(0), data.labels[:0], ()), QUICK)

    def test_names_must_be_of_one_type_and_short(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], QUICK)
        data = two_tasks[1]
        with pytest.raises(DataError, match="some by whole numbers"):
            learned(first, LabelledImages(data.images, data.labels, (7, 8)), QUICK)
        long = LabelledImages(data.images, data.labels, ("a", "b" * (LONGEST_NAME + 1)))
        with pytest.raises(DataError, match="a name of 1,001 characters"):
            learned(first, long, QUICK)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "x"], r"^class 'a': known already. Leave it out, or add the images to it"),
        (["b", "a"], r"^classes 'b', 'a': known already. Leave them out, or add the images to them"),
        ("abcdefgh", r"^classes 'a', 'b', 'c', 'd', 'e' and 2 more: known already"),
    ],
)
def test_known_classes_are_named(classes: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_new_classes(classes, "abcdefg")
    check_new_classes(["x", "y"], "abcdefg")


class TestMemory:
    def test_is_shared_equally_and_shrinks_from_the_end(self, two_tasks: Tasks) -> None:
        settings = learner_settings(memory=Budget(total=9), schedule=SHORT)
        first = learned(None, two_tasks[0], settings)
        assert [len(images) for images in first.memory.exemplars] == [4, 4]
        second = learned(first, two_tasks[1], settings)
        assert [len(images) for images in second.memory.exemplars] == [2, 2, 2, 2]
        for class_before, class_after in zip(first.memory.exemplars, second.memory.exemplars, strict=False):
            assert torch.equal(class_before.pixels[:2], class_after.pixels)  # type: ignore[union-attr]

    def test_exemplars_are_chosen_from_a_sample(self, two_tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
        def exemplars(**budget: int) -> list[bytes]:
            settings = learner_settings(memory=Budget(per_class=3, **budget), schedule=SHORT)
            return [bytes(images.pixels.numpy()) for images in learned(None, two_tasks[0], settings).memory.exemplars]  # type: ignore[union-attr]

        monkeypatch.setattr(learning, "PART", 5)
        everything, sample = exemplars(candidates=1000), exemplars(candidates=3)
        assert everything == exemplars()
        assert [len(images) for images in sample] == [len(images) for images in everything]
        assert sample != everything
        assert sample == exemplars(candidates=3)

    def test_a_budget_that_leaves_no_exemplars_is_a_warning(self, two_tasks: Tasks) -> None:
        with pytest.warns(CotransportWarning, match="no exemplar for each of 2 classes"):
            classifier(memory=Budget(total=1), schedule=SHORT).learn(two_tasks[0])

    @pytest.mark.parametrize("method", [{"name": "finetune", "predict_with": "ncm"}, "icarl", "coil"])
    def test_a_method_that_needs_exemplars_says_so_before_the_training(self, method: object, two_tasks: Tasks) -> None:
        settings = learner_settings(method, memory=Budget(total=1))
        with pytest.raises(ConfigError, match=r"memory: .* needs an exemplar of every class. Raise memory\.total"):
            learned(None, two_tasks[0], settings)

    def test_classes_that_were_learned_without_exemplars_are_named(self, two_tasks: Tasks) -> None:
        first = learned(None, two_tasks[0], learner_settings("finetune", schedule=SHORT))
        with pytest.raises(ConfigError, match=r"there is none of 'class 0', 'class 1'. Give images of them too"):
            learned(first, two_tasks[1], learner_settings("coil", schedule=SHORT))

    def test_exemplars_survive_their_files(self, tmp_path: Path) -> None:
        random, paths = np.random.RandomState(0), []
        for i in range(8):
            paths.append(tmp_path / f"{i}.png")
            Image.fromarray(random.randint(0, 255, (80 + i, 90, 3)).astype(np.uint8)).save(paths[-1])
        settings = learner_settings(memory=Budget(per_class=2), schedule=Schedule(epochs=1, batch_size=8))
        state = learned(None, as_labelled(paths[:4], ["a", "a", "b", "b"], 72), settings)
        assert isinstance(state.memory.exemplars[0], EncodedImages)
        for path in paths[:4]:
            path.unlink()
        state = learned(state, as_labelled(paths[4:], ["c", "c", "d", "d"], 72), settings)
        assert len(state.memory) == 8

    def test_large_files_for_a_small_network_are_decoded_once(self, tmp_path: Path) -> None:
        paths = [tmp_path / f"{i}.png" for i in range(4)]
        for i, path in enumerate(paths):
            Image.new("RGB", (100, 100), (60 * i, 0, 0)).save(path)
        clf = classifier(image_size=16, schedule=Schedule(epochs=1, batch_size=4))
        clf.learn(paths[:2], ["a", "b"]).learn(paths[2:], ["c", "d"])
        assert clf.state_.image_size == 16
        assert all(isinstance(images, PixelImages) and images.size == 16 for images in clf.state_.memory.exemplars)


def test_a_method_without_a_memory_sees_no_exemplars_of_an_earlier_method() -> None:
    before = learned(None, blobs(2, 8), learner_settings(method="replay"))
    assert len(before.memory)
    finetune = learner_settings(method="finetune")
    after = learned(before, blobs(2, 8, first=2), finetune)
    empty = Memory(tuple(images.first(0) for images in before.memory.exemplars))
    without = learned(replace(before, memory=empty), blobs(2, 8, first=2), finetune)
    assert torch.equal(after.network.head.weight, without.network.head.weight)
