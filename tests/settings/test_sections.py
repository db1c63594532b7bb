import pytest

from cotransport.errors import ConfigError
from cotransport.settings.sections import Augmentation, Budget, Data, Optimiser, Schedule, StreamSettings, validated


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Schedule().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Schedule, {"epoch": 3}, r"epoch: unknown key; did you mean 'epochs'\? Allowed here: batch_size, .*warmup"),
        (Schedule, {"zzz": 3}, r"zzz: unknown key\. Allowed here: "),
        (Schedule, {"epochs": "many"}, r"epochs: .*integer.*got 'many'"),
        (Schedule, {"epochs": 0}, r"epochs: .*greater than 0.*got 0"),
        (
            Schedule,
            {"shape": "one_cycle"},
            r"shape: 'one_cycle' is not allowed; did you mean 'one-cycle'\? Allowed: steps",
        ),
        (Schedule, {"shape": "steps"}, r"needs milestones"),
        (
            Schedule,
            {"shape": "steps", "epochs": 5, "milestones": [3, 80]},
            r"milestones: 80 is not within 5 epochs",
        ),
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
def test_what_is_wrong_is_named(kind: type[Schedule], values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(kind, values, "here")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Schedule, {"epochs": 0, "batch_size": 0}, "here")
    assert "epochs" in str(caught.value)
    assert "batch_size" in str(caught.value)


def test_numbers_as_yaml_writes_them() -> None:
    assert validated(Schedule, {"learning_rate": "1e-3"}, "here").learning_rate == 0.001
