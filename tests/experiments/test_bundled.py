"""The recipes that come with the package."""

import pytest

from cotransport.experiments.bundled import bundled_descriptions, bundled_groups, bundled_recipes
from cotransport.experiments.recipe import load_recipe


@pytest.mark.parametrize("name", bundled_recipes())
def test_a_bundled_recipe_is_valid_and_starts_with_its_command(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    first = bundled_recipes()[name].read_text(encoding="utf-8").partition("\n")[0]
    assert first in (f"# cotransport run {name}", f"# cotransport visualize {name}")


def test_every_bundled_recipe_is_in_a_group() -> None:
    groups = bundled_groups()
    assert sorted(name for group in groups.values() for name in group) == sorted(bundled_recipes())
    assert all(groups.values())
    assert list(groups["CIFAR-100 in equal tasks"])[:3] == ["cifar100-b0-2", "cifar100-b0-2-fast", "cifar100-b0-5"]


def test_every_bundled_recipe_is_described() -> None:
    descriptions = bundled_descriptions()
    assert list(descriptions) == list(bundled_recipes())
    for name, description in descriptions.items():
        assert description
        assert description == load_recipe(name).description


def test_descriptions_fit_on_a_line_and_say_how_long_it_takes() -> None:
    for group in bundled_groups().values():
        for summary in group.values():
            assert 0 < len(summary.shows) <= 80
            assert 0 < len(summary.takes) <= 30
