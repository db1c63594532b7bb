import inspect

import pytest

from cotransport.errors import ConfigError
from cotransport.settings import sections
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Data,
    Optimiser,
    Schedule,
    StreamSettings,
    check_backbone_name,
)
from cotransport.settings.validation import Settings, descriptions, validated

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
    ],
)
def test_settings_that_do_not_fit_together(kind: type[Settings], values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(kind, values, "here")


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
