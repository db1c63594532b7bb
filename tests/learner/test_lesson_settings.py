"""The settings of a lesson: what the user has chosen, and suggestions for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.lesson_settings import (
    check_fixed,
    choices_before,
    is_pretrained,
    lesson_fit,
    lesson_settings,
    named_backbone,
)
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import suggest
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Backbone, Budget, Device, PredictionSettings
from tests.conftest import blobs

SUGGESTION = suggest(blobs(2, 20), 0, is_gpu=False)
CPU = Device(accelerator="cpu")
STORED = LearnerSettings.validate({"method": "replay", "backbone": "resnet8", "seed": 3, "memory": {"per_class": 2}})
BEFORE = Snapshot(STORED.plain(), ("a", "b"), (2,), 8, {}, Memory())


class TestLessonSettings:
    def test_a_new_model_gets_what_is_suggested(self) -> None:
        settings = lesson_settings(None, {}, SUGGESTION, CPU)
        assert (settings.method.name, settings.backbone) == ("coil-tuned", Backbone(name="fast"))
        assert settings.schedule.batch_size == SUGGESTION["schedule"]["batch_size"]
        assert (settings.memory, settings.device, settings.seed) == (Budget(per_class=50), CPU, 0)
        assert settings.image_size is None

    def test_what_the_user_has_chosen_counts_and_the_rest_is_suggested(self) -> None:
        chosen = {"method": "wa", "backbone": "resnet8", "seed": 4, "schedule": {"epochs": 3}, "memory": {"total": 9}}
        settings = lesson_settings(None, chosen, SUGGESTION, CPU)
        assert (settings.method.name, settings.backbone, settings.seed) == ("wa", Backbone(name="resnet8"), 4)
        assert settings.schedule.epochs == 3
        assert settings.schedule.shape == SUGGESTION["schedule"]["shape"]
        assert settings.memory == Budget(total=9)

    def test_a_model_keeps_what_is_not_chosen_anew(self) -> None:
        stored = LearnerSettings.validate(
            {"method": "replay", "backbone": "resnet8", "image_size": 8, "normalisation": "imagenet", "seed": 3}
        )
        settings = lesson_settings(stored, {}, SUGGESTION, CPU)
        for name in ("method", "backbone", "image_size", "normalisation", "seed", "freeze_backbone"):
            assert getattr(settings, name) == getattr(stored, name)
        settings = lesson_settings(stored, {"method": "icarl", "seed": 5}, SUGGESTION, CPU)
        assert (settings.method.name, settings.seed) == ("icarl", 5)

    @pytest.mark.parametrize(
        ("schedule", "later"),
        [
            ({"learning_rate": 0.3}, 0.15),
            ({"learning_rate": 0.3, "later_learning_rate": 0.2}, 0.2),
            ({"learning_rate": 0.3, "later_learning_rate": None}, None),
        ],
    )
    def test_later_lessons_have_half_the_learning_rate_that_was_chosen(
        self, schedule: dict[str, Any], later: float | None
    ) -> None:
        settings = lesson_settings(None, {"schedule": schedule}, SUGGESTION, CPU)
        assert (settings.schedule.learning_rate, settings.schedule.later_learning_rate) == (0.3, later)

    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"schedule": {"epoch": 3}}, "did you mean 'epochs'"),
            ({"schedule": {"learning_rate": "abc"}}, "learning_rate"),
            ({"schedule": {"epochs": 10**5000}}, "a very long number|epochs"),
            ({"backbone": "resnet9"}, "'resnet9' is not known; did you mean 'resnet8'"),
            ({"backbone": 5}, "backbone: give a section"),
            ({"method": 5}, "method"),
            ({"seed": -1}, "seed"),
            ({"memory": {"total": 1, "per_class": 1}}, "memory"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, chosen: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            lesson_settings(None, chosen, SUGGESTION, CPU)

    def test_a_damaged_record_of_earlier_choices_is_the_models_fault(self) -> None:
        with pytest.raises(ModelError, match=r"schedule is not a section\. Restore it from a backup"):
            lesson_settings(STORED, {"schedule": [3]}, SUGGESTION, CPU)


def test_a_backbone_is_named_or_described() -> None:
    expected = Backbone(name="fast", width=4)
    assert named_backbone(expected) is expected
    assert named_backbone({"name": "fast", "width": 4}) == expected
    assert named_backbone("fast") == Backbone(name="fast")
    module = nn.Identity()
    assert named_backbone(module) is module
    assert not is_pretrained(module)
    assert not is_pretrained(None)
    assert is_pretrained("efficientnet-lite0")


class TestChoicesBefore:
    def test_are_those_that_the_model_names(self) -> None:
        assert choices_before(replace(BEFORE, chosen={"seed": 3})) == {"seed": 3}

    def test_are_all_but_the_temperature_if_it_names_none(self) -> None:
        found = choices_before(BEFORE)
        assert found.pop("prediction") == {
            name: value for name, value in STORED.plain()["prediction"].items() if name != "temperature"
        }
        assert found == {name: value for name, value in STORED.plain().items() if name != "prediction"}


MODEL: dict[str, Any] = {"image_size": 8, "fit": "pad", "backbone": "resnet8"}
"""What a model keeps."""


class TestCheckFixed:
    def test_what_a_model_has_may_be_asked_for_again(self) -> None:
        module = nn.Identity()
        check_fixed({}, **MODEL)
        check_fixed({"image_size": None, "backbone": {"name": "resnet8"}, "prediction": {"fit": "pad"}}, **MODEL)
        check_fixed({"image_size": 8, "backbone": module}, **{**MODEL, "backbone": module})

    @pytest.mark.parametrize(
        ("chosen", "backbone", "message"),
        [
            ({"image_size": 9}, "resnet8", "image_size: this model keeps 8 x 8 pixels"),
            ({"backbone": "fast"}, "resnet8", "backbone: this model keeps resnet8"),
            ({"backbone": "fast"}, nn.Identity(), "backbone: this model keeps the module it was made with"),
            ({"backbone": nn.Identity()}, nn.Identity(), "the module it was made with"),
            ({"prediction": {"fit": "crop"}}, "resnet8", r"prediction\.fit: this model keeps pad"),
        ],
    )
    def test_anything_else_is_an_error(self, chosen: dict[str, Any], backbone: object, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            check_fixed(chosen, **{**MODEL, "backbone": backbone})


def test_a_model_keeps_its_fit() -> None:
    padded = replace(STORED, prediction=PredictionSettings(fit="pad", crop=0.9))
    settings = lesson_settings(padded, {"prediction": {"flip": True}}, SUGGESTION, CPU)
    assert settings.prediction == PredictionSettings(fit="pad", flip=True)
    assert lesson_settings(None, {"prediction": {"fit": "pad"}}, SUGGESTION, CPU).prediction.fit == "pad"
    with pytest.raises(ConfigError, match=r"fit: 'squeeze' is not allowed\. Allowed: crop, pad, stretch"):
        lesson_fit(None, {"prediction": {"fit": "squeeze"}})
