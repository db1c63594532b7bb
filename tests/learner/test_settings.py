"""The settings of a learner: validated, plain, and read from a model that is not trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import IMAGENET, LearnerSettings, as_settings, check_whole_number, colour_statistics
from cotransport.methods import make_method
from cotransport.settings.sections import Backbone, Budget, Device, Schedule
from tests.learner.helpers import learner_settings

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"schedule": {"epoch": 3}}, r"schedule: epoch: unknown key; did you mean 'epochs'"),
    ({"memory": 2000}, r"memory: give Budget\(\.\.\.\) or a dictionary"),
    ({"memory": {"total": 3, "per_class": 3}}, "memory"),
    ({"method": "repaly"}, r"'repaly' is not a method; did you mean 'replay'"),
    ({"method": 3}, r"3 is neither a method's name nor a mapping"),
    ({"backbone": 3}, r"backbone: give Backbone\(\.\.\.\) or a dictionary"),
    ({"backbone": {"name": "fast", "widht": 3}}, r"backbone: widht: unknown key; did you mean 'width'"),
    ({"device": {"accelerator": "abacus"}}, "device: accelerator"),
    ({"image_size": -4}, r"image_size: give a whole number from 1 to 8,192, not -4"),
    ({"image_size": 8193}, r"image_size: give a whole number from 1 to 8,192, not 8193"),
    ({"seed": -1}, r"seed: give a whole number from 0"),
    ({"seed": True}, r"seed: give a whole number"),
    ({"seed": 1.0}, r"seed: give a whole number"),
    ({"normalisation": "colours"}, "normalisation: give 'images', 'imagenet', or three means"),
]


class TestValidate:
    def test_takes_names_dictionaries_and_settings_objects(self) -> None:
        settings = LearnerSettings.validate(
            {
                "method": {"name": "coil", "reg": 0.1},
                "backbone": "resnet8",
                "memory": {"per_class": 3},
                "schedule": Schedule(epochs=2),
                "seed": np.int64(5),
            }
        )
        assert settings.method == make_method({"name": "coil", "reg": 0.1})
        assert (settings.backbone, settings.memory) == (Backbone(name="resnet8"), Budget(per_class=3))
        assert (settings.schedule.epochs, settings.seed) == (2, 5)
        assert settings.device == Device()  # a default

    def test_leaves_a_module_alone(self) -> None:
        module = nn.Identity()
        assert LearnerSettings.validate({"method": "replay", "backbone": module}).backbone is module

    @pytest.mark.parametrize(("settings", "message"), WRONG)
    def test_says_what_is_wrong(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            LearnerSettings.validate({"method": "replay", "backbone": "resnet8"} | settings)


class TestPlain:
    @pytest.mark.parametrize("method", ["coil", {"name": "wa", "rt_weight": 0.5}, "replay"])
    def test_gives_what_equal_settings_are_made_from(self, method: object) -> None:
        for normalisation in ("images", "imagenet", IMAGENET, np.array(IMAGENET)):
            settings = learner_settings(method, image_size=16, seed=7, normalisation=normalisation, device=Device())
            assert LearnerSettings.from_plain(settings.plain()) == settings

    def test_leaves_the_device_out(self) -> None:
        settings = learner_settings(device=Device(accelerator="cpu", threads=1))
        assert "device" not in settings.plain()
        device = Device(accelerator="cpu", threads=2)
        assert LearnerSettings.from_plain(settings.plain(), device=device).device is device

    def test_has_values_that_json_has(self) -> None:
        numbers = np.array([[124.0, 116.0, 104.0], [58.0, 57.0, 57.0]])
        plain = learner_settings({"name": "coil", "reg": 0.5}, normalisation=numbers, seed=np.int64(3)).plain()
        assert plain["normalisation"] == [[124.0, 116.0, 104.0], [58.0, 57.0, 57.0]]
        assert type(plain["seed"]) is int
        assert (plain["method"]["name"], plain["method"]["reg"]) == ("coil", 0.5)
        assert (plain["backbone"]["name"], plain["image_size"], plain["freeze_backbone"]) == ("resnet8", None, False)

    def test_leaves_a_module_out_and_gets_it_again(self) -> None:
        module = nn.Identity()
        plain = LearnerSettings.validate({"method": "replay", "backbone": module}).plain()
        assert plain["backbone"] is None
        with pytest.raises(ModelError, match=r"user's own torch module.*load\(\.\.\., backbone=module\)"):
            LearnerSettings.from_plain(plain)
        assert LearnerSettings.from_plain(plain, backbone=module).backbone is module

    @pytest.mark.parametrize("backbone", ["fast", nn.Identity()])
    def test_no_module_is_taken_where_there_is_a_name(self, backbone: Any) -> None:
        with pytest.raises(ConfigError, match="nothing if it was made with a name"):
            LearnerSettings.from_plain(learner_settings().plain(), backbone=backbone)

    def test_sections_that_an_earlier_release_did_not_have_get_defaults(self) -> None:
        assert LearnerSettings.from_plain({"method": "replay", "backbone": "resnet8", "memory": {"total": 9}}) == (
            LearnerSettings.validate({"method": "replay", "backbone": "resnet8", "memory": Budget(total=9)})
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": {"name": "nonsense"}}, "'nonsense' is not a method"),
        ({"method": None}, "method"),
        ({"schedule": {"epoch": 3}}, "did you mean 'epochs'"),
        ({"schedule": None}, "schedule: give Schedule"),
        ({"surprise": 1}, "'surprise', which belongs to a later release. Upgrade cotransport"),
        ({"device": {}}, "'device', which belongs to a later release"),
        ({"seed": "x"}, "seed: give a whole number"),
        ({"image_size": 10**6}, "image_size: give a whole number from 1 to 8,192"),
        ({"normalisation": [1, 2]}, "normalisation"),
        ({"optimiser": {"weight_decay": 1e308}}, "weight_decay"),
        ({"augmentation": {"crop_padding": 2**30}}, "crop_padding"),
        ({"backbone": {"name": "fast", "width": -1}}, "backbone: width"),
    ],
)
def test_settings_of_a_model_that_cannot_be_used_are_the_models_fault(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        LearnerSettings.from_plain({**learner_settings().plain(), **settings})


class TestAsSettings:
    def test_takes_settings_or_a_dictionary(self) -> None:
        assert as_settings(Budget, {"total": 3}, "memory") == Budget(total=3)
        budget = Budget(total=3)
        assert as_settings(Budget, budget, "memory") is budget

    def test_does_not_take_settings_of_another_section(self) -> None:
        with pytest.raises(ConfigError, match=r"memory: give Budget\(\.\.\.\)"):
            as_settings(Budget, Schedule(), "memory")  # type: ignore[type-var]


@pytest.mark.parametrize("value", [0, 3, np.int8(3), torch.tensor(3)])
def test_whole_numbers_of_any_type_are_accepted(value: object) -> None:
    check_whole_number("seed", value, at_least=0)


@pytest.mark.parametrize("value", [-1, 2**31, 1.5, "3", None, True, pytest.param(10**5000, id="very long")])
def test_other_values_are_no_whole_numbers_within_bounds(value: object) -> None:
    with pytest.raises(ConfigError, match=r"seed: give a whole number from 0 to 2,147,483,647"):
        check_whole_number("seed", value, at_least=0)


class TestColourStatistics:
    def test_come_from_the_images_or_from_the_user(self) -> None:
        assert colour_statistics("images") is None
        for given in ("imagenet", IMAGENET, np.array(IMAGENET)):
            statistics = colour_statistics(given)
            assert statistics is not None
            torch.testing.assert_close(torch.stack(statistics), torch.tensor(IMAGENET))

    @pytest.mark.parametrize(
        "wrong",
        [
            "cifar",
            None,
            3,
            [1, 2],
            [[1, 2, 3]],
            [[1, 2, 3], [1, 2]],
            [[1, 2, 3], [1, 0, 1]],
            [[1, np.nan, 3], [1, 1, 1]],
            [[1, 2, 3], [1, 1, np.inf]],
            pytest.param([[10**400] * 3] * 2, id="too large"),
        ],
    )
    def test_must_be_three_means_and_three_deviations(self, wrong: object) -> None:
        with pytest.raises(ConfigError, match="normalisation: give 'images', 'imagenet', or three means"):
            colour_statistics(wrong)
