"""Sections whose keys are written without the section's name."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from pydantic import model_validator
from typing_extensions import Self

from cotransport.errors import ConfigError
from cotransport.settings.inline import InlineSections
from cotransport.settings.validation import Settings, descriptions, validated, visible_keys


class Engine(Settings):
    power: int = 50
    """Kilowatts."""
    fuel: Literal["petrol", "diesel"] = "petrol"
    """What it burns."""

    @model_validator(mode="after")
    def _small_diesel(self) -> Self:
        if self.fuel == "diesel" and self.power < 10:
            raise ValueError("power: at least 10 for a diesel engine")
        return self


class Wheels(Settings):
    size: int = 16
    """Inches."""


class Car(InlineSections):
    seats: int = 5
    """Of all passengers."""
    engine: Engine = Engine()
    wheels: Wheels = Wheels()


class Van(Car):
    engine: Engine = Engine(power=90, fuel="diesel")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Car()),
        ({"power": 70}, Car(engine=Engine(power=70))),
        ({"power": 70, "size": 17, "seats": 2}, Car(seats=2, engine=Engine(power=70), wheels=Wheels(size=17))),
        ({"engine": Engine(power=70)}, Car(engine=Engine(power=70))),
        ({"engine": Engine(power=70), "fuel": "diesel"}, Car(engine=Engine(power=70, fuel="diesel"))),
    ],
)
def test_keys_go_to_the_section_that_has_them(values: dict[str, object], expected: Car) -> None:
    assert validated(Car, values, "car") == expected
    assert Car(**values) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{}, {"power": 90}, {"fuel": "diesel"}])
def test_keys_that_are_not_given_keep_the_subclasss_defaults(values: dict[str, object]) -> None:
    assert validated(Van, values, "van") == Van()


def test_a_given_section_replaces_the_subclasss_defaults() -> None:
    assert Van(engine=Engine()).engine == Engine()


def test_values_are_written_flat_and_read_again() -> None:
    van = Van(seats=3, wheels=Wheels(size=17))
    values = van.model_dump(mode="json")
    assert values == {"seats": 3, "power": 90, "fuel": "diesel", "size": 17}
    assert validated(Van, json.loads(json.dumps(values)), "van") == van
    assert json.loads(van.model_dump_json()) == values


def test_some_values_are_written_flat() -> None:
    assert validated(Van, {"size": 17}, "van").model_dump(exclude_unset=True) == {"size": 17}
    assert Van().model_dump(exclude={"engine"}) == {"seats": 5, "size": 16}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pwoer": 3}, r"car: pwoer: unknown key; did you mean 'power'\? Allowed here: fuel, power, seats, size$"),
        ({"power": "much"}, r"car: power: .*integer.*got 'much'"),
        ({"fuel": "gas"}, r"car: fuel: 'gas' is not allowed\. Allowed: petrol, diesel$"),
        ({"fuel": "deisel"}, r"car: fuel: 'deisel' is not allowed; did you mean 'diesel'\? Allowed: petrol, diesel$"),
        ({"fuel": "diesel", "power": 5}, r"car: power: at least 10 for a diesel engine$"),
        ({"engine": 3}, r"car: engine: not a setting. Write its keys directly: power, fuel$"),
        ({"engine": {"power": 5}}, r"car: engine: not a setting. Write its keys directly: power, fuel$"),
        ({"engine": {"power": 5}, "power": 6}, r"car: engine: not a setting. Write its keys directly: power, fuel$"),
    ],
)
def test_errors_name_the_key_that_the_user_writes(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validated(Car, values, "car")


def test_all_wrong_keys_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Car, {"power": "much", "size": "large", "seats": "many"}, "car")
    first, second, third = str(caught.value).splitlines()
    assert first.startswith("car: seats: ")
    assert second.startswith("  power: ")
    assert third.startswith("  size: ")


def test_descriptions_are_those_of_the_keys_that_the_user_writes() -> None:
    assert descriptions(Van) == {
        "seats": "Of all passengers.",
        "power": "Kilowatts.",
        "fuel": "What it burns.",
        "size": "Inches.",
    }
    assert visible_keys(Van) == {"seats": Van, "power": Engine, "fuel": Engine, "size": Wheels}


def test_sections_are_found_by_their_class() -> None:
    assert Van.inline_sections() == {"engine": Engine, "wheels": Wheels}
    assert Engine.inline_sections() == {}
