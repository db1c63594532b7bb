"""The paper's tables and figures by name: which recipes they run."""

from __future__ import annotations

import pytest

from cotransport.errors import ConfigError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.estimate import expected_seconds, images_per_second
from cotransport.experiments.published import PAPER, SURVEY
from cotransport.experiments.recipe import label_of
from cotransport.experiments.reproductions import REPRODUCTIONS, recipes_of
from tests.experiments.helpers import quick_recipe


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_all_recipes_exist(name: str) -> None:
    assert [recipe.name for recipe in recipes_of(name)] == list(REPRODUCTIONS[name].recipes)


def test_published_numbers_belong_to_recipes() -> None:
    assert {*PAPER, *SURVEY} <= set(bundled_recipes())


def test_fast_versions_with_other_seeds_and_methods() -> None:
    found = recipes_of("table1", fast=True, seeds=[1, 2], methods=["COIL", "wa"])
    assert [recipe.name for recipe in found] == [f"cifar100-b0-{tasks}-fast" for tasks in (2, 5, 10, 20)]
    assert all(recipe.seeds == (1, 2) for recipe in found)
    assert [label_of(method) for method in found[0].methods] == ["COIL", "wa"]
    assert found[0].methods[0].name == "coil-tuned"


def test_a_table_without_a_fast_version() -> None:
    with pytest.raises(ConfigError, match="no fast version of imagenet"):
        recipes_of("imagenet", fast=True)


def test_the_papers_schedules() -> None:
    (small,), imagenet = recipes_of("ablation"), recipes_of("imagenet")
    assert (small.schedule.epochs, small.schedule.milestones) == (160, (80, 120))
    for recipe in (*imagenet, *recipes_of("cub"), *recipes_of("rafdb")):
        assert (recipe.schedule.epochs, recipe.schedule.milestones) == (90, (30, 60))
        assert recipe.backbone.name == "resnet18"
    assert [recipe.memory.total for recipe in imagenet] == [2000, 20000]
    assert [recipe.metric for recipe in imagenet] == ["top5", "top5"]
    assert [recipe.memory.per_class for recipe in (*recipes_of("cub"), *recipes_of("rafdb"))] == [3, 3, 60, 60]


class TestEstimate:
    def test_twice_the_seeds_take_twice_as_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cotransport.experiments.estimate.images_per_second", lambda *_: 100.0)
        once = expected_seconds(quick_recipe("methods=[finetune]", "stream={tasks: 5}"))
        assert once == pytest.approx(1437 / 100, abs=0.05)  # every training image of the digits once
        twice = expected_seconds(quick_recipe("methods=[finetune]", "stream={tasks: 5}", "seeds=[1, 2]"))
        assert twice == pytest.approx(2 * once)

    def test_the_speed_is_measured(self) -> None:
        assert images_per_second(quick_recipe(), 8) > 0

    def test_a_time_budget_is_the_estimate(self) -> None:
        budget = ("methods=[replay, wa]", "stream={tasks: 5}", "schedule.seconds_per_task=3")
        assert expected_seconds(quick_recipe(*budget)) == 30
