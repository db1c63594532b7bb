"""What a user asks for, over several lessons, and the settings that follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import suggest
from cotransport.lessons.options import LessonOptions, lesson_fit, lesson_settings, merge_choices, named_backbone
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Augmentation, Backbone, Budget, Device, PredictionSettings
from tests.conftest import blobs

SUGGESTION = suggest(blobs(2, 20), 0, is_gpu=False)
CPU = Device(accelerator="cpu")
STORED = LearnerSettings.validate({"method": "replay", "backbone": "resnet8", "seed": 3, "memory": {"per_class": 2}})
BEFORE = Snapshot(STORED.plain(), ("a", "b"), (2,), 8, {}, Memory())


class TestMergeChoices:
    def test_the_first_lesson_has_only_its_own(self) -> None:
        chosen = {"method": "wa", "schedule": {"epochs": 3}}
        assert merge_choices(LessonOptions(chosen), None, None) == chosen

    def test_earlier_choices_stay_and_the_latest_counts(self) -> None:
        earlier = {"method": "wa", "schedule": {"epochs": 3, "batch_size": 8}, "seed": 1}
        options = LessonOptions({"schedule": {"epochs": 5}, "seed": 2})
        assert merge_choices(options, BEFORE, earlier) == {
            "method": "wa",
            "schedule": {"epochs": 5, "batch_size": 8},
            "seed": 2,
        }

    def test_another_policy_of_augmentation_brings_its_own_values(self) -> None:
        """Also for a model saved from Python, all of whose settings count as chosen."""
        merged = merge_choices(LessonOptions({"augmentation": {"policy": "strong", "zoom": 0.1}}), BEFORE, None)
        settings = lesson_settings(STORED, merged, SUGGESTION, CPU)
        assert settings.augmentation == Augmentation.model_validate({"policy": "strong", "zoom": 0.1})

    def test_one_kind_of_memory_replaces_the_other(self) -> None:
        options = LessonOptions({"memory": {"total": 100}})
        assert merge_choices(options, BEFORE, {"memory": {"per_class": 4}}) == {"memory": {"total": 100}}

    def test_all_settings_of_a_model_saved_from_python_were_chosen(self) -> None:
        merged = merge_choices(LessonOptions({"seed": 9}), BEFORE, None)
        expected = STORED.plain() | {"seed": 9}
        del expected["prediction"]["temperature"]  # every lesson calibrates anew
        assert merged == expected

    @pytest.mark.parametrize(
        ("chosen", "message"),
        [
            ({"epochs": 3}, "epochs: unknown setting.*Known: method, seed, freeze_backbone"),
            ({"schedules": {"epochs": 3}}, "schedules: unknown setting; did you mean 'schedule'"),
            ({"schedule": 5}, r"schedule: give one of its keys, such as schedule\.KEY=VALUE"),
            ({"head": None}, "head: give one of its keys"),
            ({"backbone": "fast"}, "backbone: this model keeps resnet8. Start a new model"),
            ({"backbone": {"name": "resnet8", "dimension": 16}}, "this model keeps resnet8"),
            ({"backbone": 5}, "backbone: give a section"),
            ({"image_size": 16}, "image_size: this model keeps 8 x 8 pixels"),
            ({"prediction": {"fit": "pad"}}, r"prediction\.fit: this model keeps crop.* Start a new model"),
        ],
    )
    def test_what_cannot_be_is_an_error(self, chosen: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            merge_choices(LessonOptions(chosen), BEFORE, {})

    def test_what_a_model_has_may_be_asked_for_again(self) -> None:
        for same in (
            {"backbone": "resnet8"},
            {"backbone": Backbone(name="resnet8")},
            {"image_size": 8},
            {"prediction": {"fit": "crop"}},
        ):
            assert merge_choices(LessonOptions(same), BEFORE, {}) == same


class TestLessonSettings:
    def test_a_model_keeps_its_fit(self) -> None:
        padded = replace(STORED, prediction=PredictionSettings(fit="pad", crop=0.9))
        settings = lesson_settings(padded, {"prediction": {"flip": True}}, SUGGESTION, CPU)
        assert settings.prediction == PredictionSettings(fit="pad", flip=True)
        assert lesson_settings(None, {"prediction": {"fit": "pad"}}, SUGGESTION, CPU).prediction.fit == "pad"
        with pytest.raises(ConfigError, match=r"fit: 'squeeze' is not allowed\. Allowed: crop, pad, stretch"):
            lesson_fit(None, {"prediction": {"fit": "squeeze"}})

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
