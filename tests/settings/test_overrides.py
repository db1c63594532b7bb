from typing import Any

import pytest

from cotransport.errors import ConfigError
from cotransport.settings.overrides import apply_overrides, set_value


def overridden(values: dict[str, Any], *overrides: str) -> dict[str, Any]:
    apply_overrides(values, overrides)
    return values


@pytest.mark.parametrize(
    ("values", "override", "expected"),
    [
        ({}, "a.b=1", {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, "a.b=null", {"a": {"b": None, "c": 2}}),
        ({"a": {"b": 1}}, "a=[1, x]", {"a": [1, "x"]}),
        ({"a": [1, 2]}, "a.1=5", {"a": [1, 5]}),
        ({"a": "x"}, "a.b=1", {"a": {"name": "x", "b": 1}}),
        ({"a": ["x", "y"]}, "a.y.b=1", {"a": ["x", {"name": "y", "b": 1}]}),
        (
            {"a": [{"name": "x"}, {"name": "x", "label": "y"}]},
            "a.y.b=1",
            {"a": [{"name": "x"}, {"name": "x", "label": "y", "b": 1}]},
        ),
        ({}, "a=b=c", {"a": "b=c"}),
    ],
)
def test_a_key_is_a_path_through_sections_and_lists(
    values: dict[str, Any], override: str, expected: dict[str, Any]
) -> None:
    assert overridden(values, override) == expected


def test_replacing_a_section_does_not_undo_a_change_to_its_parts() -> None:
    """In any order."""
    whole, part = "methods=[bic, replay]", "methods.bic.validate_every=5"
    for overrides in ([whole, part], [part, whole]):
        assert overridden({}, *overrides)["methods"][0] == {"name": "bic", "validate_every": 5}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("schedule", r"--set schedule: give key=value"),
        ("=3", r"--set =3: give key=value"),
        ("a=[1", r"--set a=\[1: not valid YAML after the equals sign"),
        ("seeds.3=1", r"--set seeds\.3: not a position in a list of 2\."),
        ("seeds.²=1", r"--set seeds\.²: not a position in a list of 2\."),
        (
            "methods.repaly.x=1",
            r"not a position in a list of 2; did you mean 'replay'\? Names in the list: coil, replay",
        ),
        ("seeds.0.x=1", r"--set seeds\.0\.x: there is nothing below seeds\.0"),
    ],
)
def test_wrong_overrides(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        overridden({"seeds": [1, 2], "methods": ["coil", {"name": "replay"}]}, override)


def test_a_value_may_be_set_without_being_parsed() -> None:
    values: dict[str, Any] = {"data": {"image_size": 8}}
    set_value(values, "data.source", "[photos")
    assert values == {"data": {"image_size": 8, "source": "[photos"}}
