"""The paper's tables and figures by name: which recipes they run."""

from __future__ import annotations

import pytest

from cotransport.errors import ConfigError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.estimate import expected_seconds, images_per_second
from cotransport.experiments.preparation import runs_of
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
    assert [label_of(method) for method in found[0].methods] == ["wa", "COIL"]
    assert found[0].methods[1].name == "coil-tuned"


@pytest.mark.parametrize(
    ("wanted", "labels"),
    [(["coil"], ["COIL"]), (["ICARL", "Oracle"], ["icarl", "oracle"]), (["ce+kd+pt", "WA"], ["wa", "CE+KD+PT"])],
)
def test_methods_by_label_name_or_title(wanted: list[str], labels: list[str]) -> None:
    assert [label_of(method) for method in recipes_of("table1", fast=True, methods=wanted)[0].methods] == labels


def test_methods_keep_the_settings_of_the_recipe() -> None:
    (recipe,) = recipes_of("retrospection", fast=True, methods=["bic"])
    assert [method.rehearsal.combine for method in recipe.methods] == ["ratio"]  # type: ignore[attr-defined]


def test_a_method_that_is_not_in_a_recipe() -> None:
    with pytest.raises(ConfigError, match=r"--methods: 'bic' is not in cifar100-ablation-fast\. It has: CE, CE\+KD,"):
        recipes_of("ablation", fast=True, methods=["bic"])


def test_everything_but_imagenet_has_a_fast_version() -> None:
    for name, known in REPRODUCTIONS.items():
        if name != "imagenet":
            fast = recipes_of(name, fast=True)
            assert [recipe.name for recipe in fast] == [f"{recipe}-fast" for recipe in known.recipes]
            usual = recipes_of(name)
            assert [recipe.stream for recipe in fast] == [recipe.stream for recipe in usual]
            assert [recipe.memory for recipe in fast] == [recipe.memory for recipe in usual]


def test_the_published_numbers_are_those_of_table_1() -> None:
    averages = {title: [PAPER[f"cifar100-b0-{tasks}"][title] for tasks in (2, 5, 10, 20)] for title in ("BiC", "COIL")}
    assert averages == {"BiC": [69.16, 65.09, 62.79, 59.12], "COIL": [69.64, 68.26, 65.48, 62.98]}
    assert all(values["COIL"] == max(values.values()) for values in PAPER.values())  # as the paper says


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
        recipe = quick_recipe("methods=[finetune, wa]", "stream={tasks: 5}", "seeds=[1, 2]", "memory.total=0")
        runs = runs_of(recipe)
        once = expected_seconds(recipe, runs[:1])
        assert once == pytest.approx(1437 / 100, abs=0.05)  # every training image of the digits once
        assert expected_seconds(recipe, runs[1:2]) == pytest.approx(4 / 3 * once)  # with a teacher
        assert expected_seconds(recipe, runs) == pytest.approx(2 * (1 + 4 / 3) * once)
        assert expected_seconds(recipe, []) == 0
        assert 0 < expected_seconds(recipe, runs[:1], tasks=1) < once / 3

    def test_the_speed_is_measured_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        recipe = quick_recipe("backbone=fast", "schedule.batch_size=4")
        found = images_per_second(recipe, 8)
        assert found > 0
        monkeypatch.setattr("cotransport.experiments.estimate._measured_speed", None)
        assert images_per_second(recipe, 8) == found

    def test_a_time_budget_is_the_estimate(self) -> None:
        recipe = quick_recipe("methods=[replay, wa]", "stream={tasks: 5}", "schedule.seconds_per_task=3")
        assert expected_seconds(recipe, runs_of(recipe)) == 30
