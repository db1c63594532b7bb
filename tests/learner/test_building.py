"""Networks for a learner: what a new one takes from the images, and what a stored one must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.building import new_network, restored_network
from cotransport.learner.settings import LearnerSettings
from cotransport.networks import backbones
from cotransport.networks.fast_net import FastNet
from cotransport.networks.network import Network
from cotransport.settings.sections import BACKBONE_NAMES, Loss, Schedule
from cotransport.training.task_data import TaskData
from tests.conftest import blobs
from tests.learner.helpers import classifier, learner_settings, module

FAST = {"name": "fast", "width": 4}
ONE_EPOCH = Schedule(epochs=1, batch_size=24)


def fresh(settings: LearnerSettings, seed: int = 0) -> Network:
    """A new network for the images of two classes."""
    return new_network(settings, TaskData(blobs(2, 12, seed=seed), None, 0, 2, Loss()), None, task=0)


class TestNewNetwork:
    def test_has_no_classes_and_is_the_same_for_the_same_seed(self) -> None:
        one, two, other = (fresh(learner_settings(seed=seed)).state_dict() for seed in (3, 3, 4))
        assert fresh(learner_settings()).head.classes == 0
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert not all(torch.equal(one[name], other[name]) for name in one)

    def test_normalises_by_the_images_or_as_the_user_says(self) -> None:
        images = blobs(2, 12).images.pixels.double()  # type: ignore[union-attr]
        network = fresh(learner_settings())
        torch.testing.assert_close(network.mean.flatten().double(), images.mean(dim=(0, 1, 2)), rtol=1e-5, atol=0)
        given = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
        network = fresh(learner_settings(normalisation=given))
        assert (network.mean.flatten().tolist(), network.deviation.flatten().tolist()) == ([1, 2, 3], [4, 5, 6])

    def test_the_fast_nets_stem_is_set_by_the_images(self) -> None:
        settings = learner_settings(backbone=FAST)
        stems = [fresh(settings, seed).state_dict()["backbone.stem"] for seed in (0, 0, 1)]
        assert torch.equal(stems[0], stems[1])
        assert not torch.equal(stems[0], stems[2])

    def test_a_users_own_module_is_copied_and_not_touched(self) -> None:
        own = FastNet(8, 8)
        stem = own.stem.clone()
        network = fresh(learner_settings(backbone=own))
        assert network.backbone is not own
        assert torch.equal(network.state_dict()["backbone.stem"], stem)
        assert torch.equal(own.stem, stem)

    @pytest.mark.parametrize(
        ("backbone", "message"),
        [
            (nn.Sequential(nn.Flatten(), nn.Linear(7, 3)), "backbone: does not take images of 8 x 8 pixels"),
            (nn.Identity(), r"backbone: must map images .* but one image gave \(1, 3, 8, 8\)"),
            ("resnet9", "'resnet9' is not known; did you mean 'resnet8'"),
        ],
    )
    def test_a_backbone_that_cannot_be_used_is_an_error(self, backbone: object, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            fresh(learner_settings(backbone=backbone))

    def test_random_weights_are_not_frozen(self) -> None:
        with pytest.raises(ConfigError, match="freeze_backbone: this backbone starts with random weights"):
            fresh(learner_settings(freeze_backbone=True))
        fresh(learner_settings(freeze_backbone=True, backbone=module()))


def test_the_fast_nets_stem_is_set_by_the_first_task_and_stays() -> None:
    clf = classifier("replay", FAST, schedule=ONE_EPOCH).learn(blobs(2, 12))
    stem = clf.state_.network.state_dict()["backbone.stem"].clone()
    clf.learn(blobs(2, 12, first=2, seed=1))
    assert torch.equal(clf.state_.network.state_dict()["backbone.stem"], stem)


def test_a_fresh_network_for_a_later_task_keeps_what_was_taken_from_the_first_tasks_images() -> None:
    clf = classifier("oracle", FAST, schedule=ONE_EPOCH).learn(blobs(2, 12))
    first = clf.state_.network.state_dict()
    clf.learn(blobs(2, 12, first=2, seed=1)).learn(blobs(2, 12, first=4, seed=2))
    for name in ("mean", "deviation", "backbone.stem"):
        assert torch.equal(clf.state_.network.state_dict()[name], first[name])


class TestRestoredNetwork:
    @staticmethod
    def stored(settings: LearnerSettings, classes: int = 4) -> dict[str, Tensor]:
        """The weights of a network with some classes."""
        network = fresh(settings)
        network.head.grow(classes)
        return network.state_dict()

    @staticmethod
    def restored(settings: LearnerSettings, tensors: dict[str, Tensor]) -> Network:
        return restored_network(settings, tensors, classes=4, image_size=8)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
    def test_has_the_stored_weights_in_their_dtype(self, dtype: torch.dtype) -> None:
        settings = learner_settings()
        tensors = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in self.stored(settings).items()
        }
        found = self.restored(settings, tensors).state_dict()
        assert found.keys() == tensors.keys()
        assert all(
            torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items()
        )

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda weight: weight * float("nan"), "not numbers"),
            (lambda weight: weight.to(torch.float8_e4m3fn), "mixed or unsupported dtypes"),
            (lambda weight: weight.double(), "mixed or unsupported dtypes"),
            (lambda weight: weight.int(), r"do not fit the network, first at 'head\.weight'"),
            (lambda weight: weight[:, :3], r"do not fit the network, first at 'head\.weight'.*Restore the model"),
        ],
    )
    def test_refuses_weights_that_no_training_has_left(self, change: Any, message: str) -> None:
        settings = learner_settings()
        tensors = self.stored(settings)
        with pytest.raises(ModelError, match=message):
            self.restored(settings, {**tensors, "head.weight": change(tensors["head.weight"])})

    def test_refuses_weights_of_another_network(self) -> None:
        settings = learner_settings()
        tensors = self.stored(settings)
        with pytest.raises(ModelError, match="the weights do not fit the network, first at 'more'"):
            self.restored(settings, {**tensors, "more": torch.zeros(1)})
        del tensors["head.scale"]
        with pytest.raises(ModelError, match=r"the weights do not fit the network, first at 'head\.scale'"):
            self.restored(settings, tensors)
        with pytest.raises(ModelError, match=r"the weights do not fit the network, first at 'head\.weight'"):
            self.restored(settings, self.stored(settings, classes=3))

    @pytest.mark.parametrize(
        "absurd",
        [
            {"name": "fast", "width": 10**9},
            {"name": "fast", "width": 10**5},
            {"name": "fast", "width": 4, "dimension": 10**9},
            {"name": "resnet8", "dimension": 10**7},
        ],
    )
    def test_does_not_build_a_network_that_is_larger_than_the_weights(
        self, absurd: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tensors = self.stored(learner_settings(backbone=FAST))
        monkeypatch.setattr(backbones, "build", lambda *_: pytest.fail("it was built"))
        with pytest.raises(ModelError, match="the network is larger than the stored weights"):
            self.restored(learner_settings(backbone=absurd), tensors)

    @pytest.mark.parametrize("name", BACKBONE_NAMES)
    @pytest.mark.parametrize("dimension", [None, 5])
    def test_every_built_in_backbone_comes_back(self, name: str, dimension: int | None) -> None:
        settings = learner_settings(backbone={"name": name, "width": 4, "dimension": dimension})
        tensors = self.stored(settings)
        found = self.restored(settings, tensors).state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())

    def test_does_not_disturb_other_random_numbers(self) -> None:
        settings = learner_settings()
        tensors = self.stored(settings)
        torch.manual_seed(0)
        expected = torch.rand(3)
        torch.manual_seed(0)
        self.restored(settings, tensors)
        assert torch.equal(torch.rand(3), expected)

    @pytest.mark.parametrize("name", ["resnet9", "a backbone of a later release"])
    def test_an_unknown_backbone_is_the_models_fault(self, name: str) -> None:
        tensors = self.stored(learner_settings())
        with pytest.raises(ModelError, match=rf"a later release: backbone\.name: '{name}' is not known"):
            self.restored(learner_settings(backbone={"name": name}), tensors)

    def test_a_users_module_is_copied_and_gets_the_weights(self) -> None:
        own = module(seed=1)
        before = [parameter.clone() for parameter in own.parameters()]
        tensors = self.stored(learner_settings(backbone=module()))
        found = self.restored(learner_settings(backbone=own), tensors)
        assert all(torch.equal(found.state_dict()[name], tensor) for name, tensor in tensors.items())
        assert all(torch.equal(a, b) for a, b in zip(before, own.parameters(), strict=True))

    def test_a_users_module_of_another_architecture_is_refused(self) -> None:
        tensors = self.stored(learner_settings(backbone=module()))
        other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 6), nn.ReLU())
        with pytest.raises(ModelError, match="Give a module of the same architecture"):
            self.restored(learner_settings(backbone=other), tensors)
        for_other_images = nn.Sequential(nn.Flatten(), nn.Linear(7, 6))
        with pytest.raises(ConfigError, match="does not take images of 8 x 8 pixels"):
            self.restored(learner_settings(backbone=for_other_images), tensors)

    def test_a_users_module_may_have_buffers_of_any_dtype_and_infinite_ones(self) -> None:
        own = nn.Sequential(nn.Flatten(), nn.Linear(8 * 8 * 3, 4))
        own.register_buffer("mask", torch.full((2,), float("-inf"), dtype=torch.float64))
        settings = learner_settings(backbone=own)
        found = self.restored(settings, self.stored(settings))
        mask = found.backbone.get_buffer("mask")
        assert mask.dtype == torch.float64
        assert bool(torch.isinf(mask).all())
