"""What a user asks for, over several lessons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cotransport.data.memory import Memory
from cotransport.errors import ConfigError
from cotransport.learner.lesson_settings import lesson_settings
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.suggestions import suggest
from cotransport.lessons.options import LessonOptions, merge_choices
from cotransport.model.snapshot import Snapshot
from cotransport.settings.sections import Augmentation, Backbone, Device
from tests.conftest import blobs

SUGGESTION = suggest(blobs(2, 20), 0, is_gpu=False)
CPU = Device(accelerator="cpu")
STORED = LearnerSettings.validate({"method": "replay", "backbone": "resnet8", "seed": 3, "memory": {"per_class": 2}})
BEFORE = Snapshot(STORED.plain(), ("a", "b"), (2,), 8, {}, Memory())


class TestMergeChoices:
    def test_the_first_lesson_has_only_its_own(self) -> None:
        chosen = {"method": "wa", "schedule": {"epochs": 3}}
        assert merge_choices(LessonOptions(chosen), None) == chosen

    def test_earlier_choices_stay_and_the_latest_counts(self) -> None:
        earlier = {"method": "wa", "schedule": {"epochs": 3, "batch_size": 8}, "seed": 1}
        options = LessonOptions({"schedule": {"epochs": 5}, "seed": 2})
        assert merge_choices(options, replace(BEFORE, chosen=earlier)) == {
            "method": "wa",
            "schedule": {"epochs": 5, "batch_size": 8},
            "seed": 2,
        }

    def test_another_policy_of_augmentation_brings_its_own_values(self) -> None:
        """Also for a model all of whose settings count as chosen."""
        merged = merge_choices(LessonOptions({"augmentation": {"policy": "strong", "zoom": 0.1}}), BEFORE)
        settings = lesson_settings(STORED, merged, SUGGESTION, CPU)
        assert settings.augmentation == Augmentation.model_validate({"policy": "strong", "zoom": 0.1})

    def test_one_kind_of_memory_replaces_the_other(self) -> None:
        options = LessonOptions({"memory": {"total": 100}})
        assert merge_choices(options, replace(BEFORE, chosen={"memory": {"per_class": 4}})) == {
            "memory": {"total": 100}
        }

    def test_all_settings_of_a_model_that_does_not_say_which_were_chosen(self) -> None:
        merged = merge_choices(LessonOptions({"seed": 9}), BEFORE)
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
            merge_choices(LessonOptions(chosen), replace(BEFORE, chosen={}))

    def test_what_a_model_has_may_be_asked_for_again(self) -> None:
        for same in (
            {"backbone": "resnet8"},
            {"backbone": Backbone(name="resnet8")},
            {"image_size": 8},
            {"prediction": {"fit": "crop"}},
        ):
            assert merge_choices(LessonOptions(same), replace(BEFORE, chosen={})) == same
