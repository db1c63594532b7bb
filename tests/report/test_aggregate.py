"""Grouping of results by stream and method."""

from __future__ import annotations

from typing import Any

import pytest

from cotransport.experiments.recipe import load_recipe
from cotransport.report.aggregate import summarise
from tests.report.results import RECIPE, make_result

ELSEWHERE = {**RECIPE, "name": "mine", "seeds": [2], "device": {"accelerator": "cuda", "processes": 4}}
"""The same recipe under another name, with other seeds, on another device."""


def test_other_settings_are_another_method_and_not_another_seed() -> None:
    longer = {**RECIPE, "schedule": {"epochs": 40}, "name": "mine", "seeds": [2]}
    stream = summarise([make_result(seed=1), make_result(seed=2, recipe=longer)])[0]
    assert sorted((method.name, method.seeds) for method in stream.methods) == [
        ("Replay (batch_size 128, epochs 40)", 1),  # 128 is the default
        ("Replay (batch_size 64, epochs 20)", 1),
    ]
    assert stream.methods[0].style != stream.methods[1].style


def test_settings_that_are_newer_than_a_result_do_not_make_it_another_method() -> None:
    """A recipe that was stored before some sections, settings and settings of methods existed."""
    now = load_recipe("digits", ["methods=[wa]"]).model_dump(mode="json")
    earlier = {key: value for key, value in now.items() if key not in {"prediction", "freeze_backbone"}}
    earlier["backbone"] = {key: value for key, value in now["backbone"].items() if key != "last_relu"}
    earlier["methods"] = [{key: value for key, value in now["methods"][0].items() if key != "rt_share"}]
    (stream,) = summarise([make_result("wa", 1, recipe=earlier), make_result("wa", 2, recipe=now)])
    assert [method.seeds for method in stream.methods] == [2]


def test_name_seeds_and_device_do_not_make_another_method() -> None:
    stream = summarise([make_result(seed=1), make_result(seed=2, recipe=ELSEWHERE)])[0]
    assert [(method.name, method.seeds) for method in stream.methods] == [("Replay", 2)]


def test_the_same_run_found_twice_counts_once() -> None:
    stream = summarise([make_result(seed=1), make_result(seed=1), make_result(seed=2)])[0]
    assert (stream.methods[0].seeds, stream.duplicates) == (2, 1)
    moved = summarise([make_result(), make_result(recipe=ELSEWHERE)])[0]
    assert (moved.methods[0].seeds, moved.duplicates) == (1, 1)


def test_the_same_seed_with_other_numbers_is_another_run() -> None:
    stream = summarise([make_result(), make_result(recipe=ELSEWHERE, per_task=[[90.0], [70.0, 81.0]])])[0]
    assert (stream.methods[0].seeds, stream.duplicates) == (2, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": ["a", "b", "c", "d"]},
        {"tasks": [1, 3]},
        {"metric": "top5"},
        {"recipe": {"data": {"source": "elsewhere"}}},
        {"recipe": {"data": {"source": "digits", "validation": 0.1}}},
    ],
)
def test_results_that_cannot_be_compared_are_on_other_streams(changes: dict[str, Any]) -> None:
    streams = summarise([make_result(), make_result(**changes)])
    assert len(streams) == 2
    assert streams[0].title != streams[1].title
    assert streams[0].methods[0].style == streams[1].methods[0].style, "a method has the same style on all streams"


def test_every_method_has_its_own_style() -> None:
    stream = summarise([make_result(f"method {number}") for number in range(15)] + [make_result("oracle")])[0]
    assert len({method.style for method in stream.methods}) == 16


def test_runs_with_few_images_are_another_stream() -> None:
    few = {**RECIPE, "stream": {"later_images": 20}}
    streams = summarise([make_result(), make_result(recipe=few)])
    assert [stream.title for stream in streams] == [
        "digits: 4 classes in 2 tasks",
        "digits: 4 classes in 2 tasks, 20 images of each later class",
    ]
