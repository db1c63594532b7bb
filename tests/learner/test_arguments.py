"""The arguments of a classifier: what is chosen, and what is left to the images."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.arguments import chosen_device, chosen_settings, keys_of, plain_choices, stored_arguments
from cotransport.learner.settings import SECTIONS, LearnerSettings
from cotransport.methods import make_method
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Backbone, Budget, Device, Schedule


def arguments(**given: Any) -> dict[str, Any]:
    return IncrementalClassifier(**given).get_params(deep=False)  # type: ignore[no-any-return]


class TestChosenSettings:
    def test_nothing_is_chosen_by_default(self) -> None:
        assert chosen_settings(arguments()) == {"seed": 0, "normalisation": "images"}

    def test_a_dictionary_chooses_its_keys_and_an_object_all(self) -> None:
        chosen = chosen_settings(arguments(schedule={"epochs": 3}, memory=Budget(total=9), freeze_backbone=False))
        assert chosen["schedule"] == {"epochs": 3}
        assert chosen["memory"] == {"total": 9, "per_class": None, "candidates": None}
        assert chosen["freeze_backbone"] is False
        chosen = chosen_settings(arguments(schedule=Schedule(epochs=3)))
        assert chosen["schedule"].keys() == Schedule.model_fields.keys()

    def test_a_method_and_a_backbone_stay_what_they_are(self) -> None:
        method, backbone = make_method("coil"), nn.Identity()
        chosen = chosen_settings(arguments(method=method, backbone=backbone, image_size=32))
        assert (chosen["method"], chosen["backbone"], chosen["image_size"]) == (method, backbone, 32)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"memory": 2000}, r"memory: give Budget\(\.\.\.\) or a dictionary"),
            ({"schedule": "long"}, r"schedule: give Schedule\(\.\.\.\) or a dictionary"),
            ({"schedule": Budget(total=3)}, r"schedule: give Schedule"),
            ({"image_size": 0}, "image_size: give a whole number from 1"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            chosen_settings(arguments(**given))


def test_a_device_is_chosen_as_the_other_sections_are() -> None:
    assert chosen_device("auto") == Device()
    assert (
        chosen_device({"accelerator": "cpu"}) == chosen_device(Device(accelerator="cpu")) == Device(accelerator="cpu")
    )
    with pytest.raises(ConfigError, match=r"device: give Device\(\.\.\.\)"):
        chosen_device("fast")


class TestStored:
    def settings(self, **chosen: Any) -> LearnerSettings:
        return LearnerSettings.validate({"method": "replay", "backbone": "resnet8", **chosen})

    def test_choices_are_plain_and_what_follows_from_them_is_not_among_them(self) -> None:
        given = {"method": make_method("replay"), "schedule": {"epochs": np.int64(3)}, "seed": np.int64(5)}
        settings = self.settings(**given)
        plain = plain_choices(given, settings)
        assert json.loads(json.dumps(plain)) == {
            "method": json.loads(json.dumps(settings.plain()["method"])),
            "schedule": {"epochs": 3},
            "seed": 5,
        }

    def test_a_module_is_not_stored(self) -> None:
        module = nn.Identity()
        settings = self.settings(backbone=module)
        assert plain_choices({"backbone": module}, settings) == {}
        snapshot = Snapshot(settings.plain(), ("a",), (1,), 8, {}, Memory(), chosen={})
        assert stored_arguments(snapshot, settings)["backbone"] is module

    def test_what_was_not_chosen_is_left_to_the_images_again(self) -> None:
        settings = self.settings(seed=4)
        chosen = {"schedule": {"epochs": 3}, "seed": 4, "freeze_backbone": False}
        found = stored_arguments(Snapshot(settings.plain(), ("a",), (1,), 8, {}, Memory(), chosen=chosen), settings)
        assert (found["schedule"], found["seed"], found["freeze_backbone"]) == ({"epochs": 3}, 4, False)
        others = [name for name in ("method", "backbone", *SECTIONS) if name != "schedule"]
        assert {found[name] for name in others} == {"auto"}

    def test_a_model_that_does_not_say_what_was_chosen_keeps_all_but_the_temperature(self) -> None:
        settings = self.settings(prediction={"temperature": 2.0})
        found = stored_arguments(Snapshot(settings.plain(), ("a",), (1,), 8, {}, Memory()), settings)
        assert found["backbone"] == settings.backbone
        assert found["schedule"] == settings.plain()["schedule"]
        assert found["prediction"].keys() == settings.plain()["prediction"].keys() - {"temperature"}

    def test_a_damaged_record_is_the_models_fault(self) -> None:
        settings = self.settings()
        snapshot = Snapshot(settings.plain(), ("a",), (1,), 8, {}, Memory(), chosen={"schedule": [3]})
        with pytest.raises(ModelError, match="schedule is not a section"):
            stored_arguments(snapshot, settings)


def test_keys_that_an_argument_chooses() -> None:
    assert keys_of("auto", "schedule") == {}
    assert keys_of("resnet8", "backbone") == {"name": "resnet8"}
    assert keys_of({"epochs": 3}, "schedule") == {"epochs": 3}
    assert keys_of(Backbone(name="fast", width=4), "backbone")["width"] == 4
    assert keys_of(make_method({"name": "coil", "reg": 0.1}), "method")["reg"] == 0.1
    with pytest.raises(ConfigError, match="backbone: Identity has no keys"):
        keys_of(nn.Identity(), "backbone")
