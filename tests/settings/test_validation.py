from typing import Literal

import pytest

from cotransport.errors import ConfigError
from cotransport.settings.sections import Schedule
from cotransport.settings.validation import MAX_QUOTED, Settings, descriptions, quoted, validated


class Base(Settings):
    first: int = 1
    """The base's
    words."""
    second: int = 2
    """The base's other words."""


class Derived(Base):
    first: int = 3
    second: int = 4
    """Its own words."""
    third: Literal["red", "green"] = "red"


class Outer(Settings):
    inner: Derived = Derived()
    numbers: tuple[int, ...] = ()


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
        (Schedule, {"shape": "one_cycle"}, r"shape: 'one_cycle' is not allowed; did you mean 'one-cycle'\? Allowed: s"),
        (Schedule, {"learning_rate": float("inf")}, r"learning_rate: .*finite"),
        (Outer, {"inner": {"frist": 3}}, r"inner\.frist: unknown key; did you mean 'first'\? Allowed here: first, s"),
        (Outer, {"inner": {"third": "gren"}}, r"inner\.third: 'gren' is not allowed; did you mean 'green'\?"),
        (Outer, {"inner": 3}, r"inner: give a section with keys, for example \{key: value\}"),
        (Outer, {"numbers": 3}, r"numbers: give a list, for example \[1, 2\]"),
        (Outer, [3], r"here: give a section with keys, for example \{key: value\}, not \[3\]"),
    ],
)
def test_a_wrong_value_is_named(kind: type[Settings], values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(kind, values, "here")


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Schedule, {"epochs": 0, "batch_size": 0}, "here")
    first, second = str(caught.value).splitlines()
    assert first.startswith("here: epochs: ")
    assert second.startswith("  batch_size: ")


def test_numbers_as_yaml_reads_them() -> None:
    """YAML reads `1e-3` as text, because it has no dot."""
    assert validated(Schedule, {"learning_rate": "1e-3"}, "here").learning_rate == 0.001


def test_descriptions_are_inherited_by_fields_without_their_own() -> None:
    assert descriptions(Derived) == {"first": "The base's words.", "second": "Its own words.", "third": ""}


def test_long_values_are_shortened_in_messages() -> None:
    assert quoted("a") == "'a'"
    assert quoted("a" * 1000) == "'" + "a" * (MAX_QUOTED - 1) + "..."
    assert quoted(10**5000) == "a very long number"
