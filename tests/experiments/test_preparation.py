"""What a run needs: its settings, the checks before it starts, and the work that is expected."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cotransport.data import DataSet, LabelledImages, open_source
from cotransport.errors import ConfigError, DataError
from cotransport.experiments.preparation import (
    Run,
    check_classes,
    check_memory,
    expected_work,
    learner_settings,
    runs_of,
    with_augmentation,
)
from cotransport.experiments.stream import TaskStream
from cotransport.methods import make_method
from cotransport.settings.sections import Augmentation
from tests.conftest import blobs
from tests.experiments.helpers import quick_recipe


def unbalanced_stream() -> TaskStream:
    """Classes with 8, 2 and 4 training images; the first task has two of them, the second task one."""
    images = blobs(3, 8)
    kept = [place for place in range(24) if place % 8 < (8, 2, 4)[place // 8]]
    return TaskStream(DataSet(images.take(torch.tensor(kept)), blobs(3, 2)), ((0, 1), (2,)))


def test_a_recipe_may_freeze_its_backbone() -> None:
    for frozen in (False, True):
        recipe = quick_recipe(f"freeze_backbone={str(frozen).lower()}")
        assert learner_settings(recipe, runs_of(recipe)[0]).freeze_backbone is frozen


def test_runs_come_seed_by_seed() -> None:
    runs = runs_of(quick_recipe("methods=[finetune, {name: replay, label: keeps some}]", "seeds=[3, 1]"))
    assert [(run.label, run.seed) for run in runs] == [
        ("finetune", 3),
        ("keeps some", 3),
        ("finetune", 1),
        ("keeps some", 1),
    ]
    assert runs[1].folder == "keeps some-seed3"


def test_the_recipe_overrules_the_augmentation_that_suits_the_data() -> None:
    recipe = quick_recipe("augmentation.brightness=0.1")
    source = open_source(recipe.data)
    assert source.augmentation != Augmentation()
    found = with_augmentation(recipe, source).augmentation
    assert found == source.augmentation.model_copy(update={"brightness": 0.1})
    assert with_augmentation(quick_recipe(), source).augmentation == source.augmentation


def test_a_learner_gets_the_sections_of_its_recipe_and_its_own_method_and_seed() -> None:
    recipe = quick_recipe("methods=[coil, wa]", "seeds=[1, 7]", "loss.label_smoothing=0.1", "augmentation.flip=true")
    settings = learner_settings(recipe, runs_of(recipe)[3])
    assert (settings.method.name, settings.seed) == ("wa", 7)
    for section in ("backbone", "memory", "schedule", "optimiser", "loss", "augmentation", "head", "device"):
        assert getattr(settings, section) == getattr(recipe, section)


def test_a_stream_with_images_of_every_class_passes() -> None:
    check_classes(unbalanced_stream())


def test_a_class_without_training_images_is_named() -> None:
    data = blobs(2, 4)
    hollow = LabelledImages(data.images, data.labels * 0, data.classes)
    with pytest.raises(DataError, match="'class 1' has no training images"):
        check_classes(TaskStream(DataSet(hollow, blobs(2, 1)), ((0,), (1,))))
    check_classes(TaskStream(DataSet(hollow, blobs(2, 1)), ((0,),)))  # the class is not in the stream


def test_a_stream_needs_images_to_test_with() -> None:
    data = blobs(2, 4)
    with pytest.raises(DataError, match="no images to test with"):
        check_classes(TaskStream(DataSet(data, data.take(torch.tensor([], dtype=torch.int64))), ((0,), (1,))))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["methods=[coil]", "memory.total=9"], r"memory: coil needs an exemplar of each of 10 classes.* room for 9\."),
        (["methods=[{name: icarl, label: mean}]", "memory={per_class: 0}"], r"memory: mean needs an exemplar"),
        (["methods=[{name: wa, rt_weight: 1}]", "memory.total=0"], "memory: wa needs an exemplar"),
    ],
)
def test_a_memory_that_is_too_small_for_a_method_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_memory(quick_recipe(*overrides), 10)


@pytest.mark.parametrize(
    "overrides",
    [
        ["methods=[coil]", "memory.total=10"],
        ["methods=[{name: coil, prospective_init: false, rt_weight: 0}, oracle, finetune]", "memory.total=0"],
    ],
)
def test_a_memory_that_suffices_is_accepted(overrides: list[str]) -> None:
    check_memory(quick_recipe(*overrides), 10)


@pytest.mark.parametrize(
    ("method", "memory", "exemplars"),
    [
        ("replay", "memory={total: 6}", 3 + 2),  # 3 of each old class, but one has only 2
        ("replay", "memory={per_class: 1}", 2),
        ("finetune", "memory={total: 6}", 0),
        ("oracle", "memory={total: 6}", 8 + 2),
    ],
)
def test_work_is_epochs_times_new_images_and_exemplars(method: str, memory: str, exemplars: int) -> None:
    recipe = quick_recipe(memory, "schedule.epochs=3")
    work = expected_work(recipe, make_method(method), unbalanced_stream())
    assert work == [3 * (8 + 2), 3 * (4 + exemplars)]


def test_work_is_the_time_budget_if_there_is_one() -> None:
    recipe = quick_recipe("schedule.seconds_per_task=20")
    assert expected_work(recipe, make_method("replay"), unbalanced_stream()) == [20, 20]


def test_a_run_cannot_be_changed() -> None:
    one: Any = Run(make_method("replay"), 1)
    with pytest.raises(AttributeError):
        one.seed = 2
