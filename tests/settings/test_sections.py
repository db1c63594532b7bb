import inspect
from typing import Any

import pytest

from cotransport.errors import ConfigError
from cotransport.settings import sections
from cotransport.settings.sections import (
    STRONG,
    Augmentation,
    Backbone,
    Budget,
    Data,
    Loss,
    Optimiser,
    Schedule,
    StreamSettings,
    check_backbone_name,
)
from cotransport.settings.validation import Settings, choices, descriptions, validated

SECTIONS = [
    kind
    for _, kind in inspect.getmembers(sections, inspect.isclass)
    if issubclass(kind, Settings) and kind is not Settings
]


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_field_is_described(kind: type[Settings]) -> None:
    for name, text in descriptions(kind).items():
        assert text.endswith("."), name


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Schedule, {"shape": "steps"}, r"needs milestones"),
        (Schedule, {"shape": "steps", "epochs": 5, "milestones": [3, 80]}, r"milestones: 80 is not within 5 epochs"),
        (Schedule, {"milestones": [3]}, r"milestones belong to shape 'steps'"),
        (Schedule, {"learning_rate": -1}, r"learning_rate: .*greater than 0"),
        (Optimiser, {"momentum": 0, "nesterov": True}, r"nesterov needs a momentum"),
        (Budget, {}, r"give one of: total; per_class"),
        (Budget, {"total": 3, "per_class": 1}, r"give one of: total; per_class"),
        (StreamSettings, {}, r"give one of: tasks; step"),
        (StreamSettings, {"tasks": 2, "step": 1}, r"give one of: tasks; step"),
        (StreamSettings, {"base": 2, "tasks": 1}, r"give one of: tasks; step"),
        (StreamSettings, {"classes": [["a"]], "subset": 1}, r"subset has nothing to choose"),
        (Data, {"held_out": 1.5}, r"held_out: .*less than 1"),
        (Augmentation, {"min_area": 0}, r"min_area: .*greater than 0"),
        (
            Augmentation,
            {"policy": "stron"},
            r"policy: 'stron' is not allowed; did you mean 'strong'\? Allowed: none, bas",
        ),
        (Augmentation, {"policy": ["strong"]}, r"policy: \['strong'\] is not allowed"),
        (Augmentation, {"policy": "strong", "zoom": 1}, r"zoom: .*less than 1"),
        (
            Loss,
            {"mixup": 0.6, "cutmix": 0.5},
            r"mixup and cutmix: their sum is above 1, .*Lower one of them",
        ),
        (Loss, {"mixup": 1.1}, r"mixup: .*less than or equal to 1"),
        (Loss, {"cutmix": -0.1}, r"cutmix: .*greater than or equal to 0"),
    ],
)
def test_settings_that_do_not_fit_together(kind: type[Settings], values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(kind, values, "here")


@pytest.mark.parametrize("hundredths", range(0, 101, 5))
def test_all_images_may_be_mixed(hundredths: int) -> None:
    loss = Loss(mixup=hundredths / 100, cutmix=(100 - hundredths) / 100)
    assert loss.mixup + loss.cutmix == pytest.approx(1)


POLICIES = choices(Augmentation, "policy")
EXPLICIT: dict[str, Any] = {
    "crop_padding": 3,
    "padding": "reflect",
    "min_area": 0.5,
    "flip": False,
    "rotation": 4.0,
    "shear": 0.01,
    "zoom": 0.02,
    "brightness": 0.03,
    "contrast": 0.04,
    "saturation": 0.05,
    "cutout": 0.06,
}
"""A value of each setting of the augmentation that no policy sets."""


class TestPolicies:
    def test_there_are_four(self) -> None:
        assert POLICIES == ["none", "basic", "trivial", "strong"]
        assert {"policy", *EXPLICIT} == set(Augmentation.model_fields)

    def test_basic_and_trivial_crop_and_flip(self) -> None:
        assert Augmentation() == Augmentation(policy="basic")
        basic = Augmentation().model_dump()
        assert Augmentation(policy="trivial").model_dump() == {**basic, "policy": "trivial"}
        assert (basic["crop_padding"] > 0, basic["min_area"] < 1, basic["flip"]) == (True, True, True)
        assert not any(basic[name] for name in STRONG)

    def test_strong_is_basic_with_more(self) -> None:
        strong = Augmentation(policy="strong").model_dump()
        assert {name for name, value in strong.items() if value != Augmentation().model_dump()[name]} == {
            "policy",
            *("rotation", "shear", "zoom", "brightness", "contrast", "saturation", "cutout"),
        }
        assert {name: strong[name] for name in STRONG} == STRONG

    @pytest.mark.parametrize("policy", ["basic", "trivial", "strong"])
    @pytest.mark.parametrize("name", EXPLICIT)
    def test_an_explicit_setting_takes_precedence(self, policy: str, name: str) -> None:
        plain = Augmentation.model_validate({"policy": policy}).model_dump()
        changed = Augmentation.model_validate({"policy": policy, name: EXPLICIT[name]}).model_dump()
        assert changed == {**plain, name: EXPLICIT[name]}
        assert changed != plain

    @pytest.mark.parametrize("name", STRONG)
    def test_strong_may_be_switched_off_in_part(self, name: str) -> None:
        """Zero is the default of the setting, but it is given."""
        strong = Augmentation(policy="strong").model_dump()
        assert Augmentation.model_validate({"policy": "strong", name: 0}).model_dump() == {**strong, name: 0}

    @pytest.mark.parametrize("explicit", [{}, EXPLICIT])
    def test_none_leaves_nothing_on(self, explicit: dict[str, Any]) -> None:
        values = Augmentation.model_validate({**explicit, "policy": "none"}).in_effect.model_dump()
        assert (values["crop_padding"], values["min_area"], values["flip"]) == (0, 1, False)
        assert not any(values[name] for name in STRONG)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_wrong_value_is_refused_under_every_policy(self, policy: str) -> None:
        with pytest.raises(ConfigError, match=r"rotation: .*valid number"):
            validated(Augmentation, {"policy": policy, "rotation": "wide"}, "here")

    @pytest.mark.parametrize("policy", ["basic", "trivial", "strong"])
    def test_other_policies_are_followed_as_they_are_set(self, policy: str) -> None:
        settings = Augmentation.model_validate({**EXPLICIT, "policy": policy})
        assert settings.in_effect == settings

    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("explicit", [{}, {"cutout": 0, "flip": True}, EXPLICIT])
    def test_settings_are_read_again_as_they_were_written(self, policy: str, explicit: dict[str, Any]) -> None:
        """Also if a setting that the policy changes was set back to its default."""
        settings = Augmentation.model_validate({**explicit, "policy": policy})
        assert Augmentation.model_validate(settings.model_dump(mode="json")) == settings
        assert Augmentation.model_validate(settings.model_dump(exclude_unset=True)) == settings


def test_quota_of_a_budget() -> None:
    assert Budget(total=2000).quota(100) == 20
    assert Budget(total=100).quota(3) == 33
    assert Budget(total=5).quota(10) == 0
    assert Budget(per_class=3).quota(1000) == 3


def test_a_backbone_may_be_given_by_name() -> None:
    assert Backbone.model_validate("fast") == Backbone(name="fast")


def test_an_unknown_backbone_suggests_the_nearest() -> None:
    check_backbone_name(Backbone(name="resnet8"))
    with pytest.raises(ConfigError, match=r"'resnet23' is not known; did you mean 'resnet.*Known: fast, .*resnet18"):
        check_backbone_name(Backbone(name="resnet23"))
