"""The page's sentences about the results."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cotransport.experiments.results import Result
from cotransport.report import wording
from cotransport.report.aggregate import summarise
from tests.report.results import RECIPE, make_result

FORGETTING = "Forgetting is the mean drop from a task's best accuracy to its last, in percentage points."


def finding(*results: Result) -> list[str]:
    """The finding with plain spaces."""
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in wording.finding(summarise(results)[0])]


def facts(*results: Result) -> dict[str, str]:
    return dict(wording.facts(summarise(results)[0]))


def test_the_finding_follows_from_the_numbers() -> None:
    coil = make_result("coil", per_task=[[90.0], [70.0, 80.0]])  # (90 + 75) / 2 = 82.5, forgets 20
    replay = make_result("replay", per_task=[[90.0], [60.0, 80.0]])  # (90 + 70) / 2 = 80, forgets 30
    oracle = make_result("oracle", per_task=[[90.0], [90.0, 90.0]])  # 90
    assert finding(replay, coil, oracle) == [
        "COIL reaches 82.5 % accuracy on average over 2 tasks, 2.5 points ahead of Replay, with one seed each.",
        "Oracle, trained on the images of all tasks, reaches 90.0 %: 7.5 points more.",
        "COIL forgets 20.0 points; Replay forgets most, 30.0 points.",
        FORGETTING,
    ]
    assert finding(coil) == [
        "COIL reaches 82.5 % accuracy on average over 2 tasks.",
        "COIL forgets 20.0 points.",
        FORGETTING,
    ]
    assert finding(oracle) == ["Oracle reaches 90.0 % accuracy on average over 2 tasks."]


def test_what_the_transports_change_comes_first() -> None:
    common = {"name": "coil-tuned", "combine": "ratio"}
    methods = [
        {**common, "label": "CE+KD", "prospective_init": False, "pt_weight": 0.0, "rt_weight": 0.0},
        {**common, "label": "CE+KD+PT", "prospective_init": True, "pt_weight": 1.0, "rt_weight": 0.0},
        {**common, "label": "COIL", "prospective_init": True, "pt_weight": 1.0, "rt_weight": 0.3},
        {**common, "label": "COIL (heavy)", "prospective_init": True, "pt_weight": 1.0, "rt_weight": 9.0},
    ]
    recipe = {**RECIPE, "methods": methods}

    def rows(*averages: float, seeds: int = 1) -> list[Result]:
        """The rows of an ablation, each with the same average for all seeds but the last, which has a point more."""
        return [
            make_result(
                str(method["label"]),
                seed,
                method="coil-tuned",
                recipe=recipe,
                average_incremental_accuracy=average + (seed == seeds > 1 and method["label"] == "COIL"),
            )
            for method, average in zip(methods, averages, strict=False)
            for seed in range(1, seeds + 1)
        ]

    assert finding(*rows(70.04, 75.0, 69.46, 80.0))[:3] == [  # 69.5 - 70.0, as a reader would subtract
        "Co-transport changes the average accuracy by −0.5 points (one seed, so it may be chance).",
        "COIL reaches 69.5 %, and 70.0 % without its transports (CE+KD).",
        "COIL (heavy) reaches 80.0 % accuracy on average over 2 tasks, 5.0 points ahead of CE+KD+PT, with one seed "
        "each.",
    ]
    changes = "Co-transport changes the average accuracy by +1.5 ± 0.7 points (2 seeds)."
    assert finding(*rows(70.0, 75.0, 71.0, seeds=2))[0] == changes
    assert finding(*rows(70.0, 75.0))[0].startswith("CE+KD+PT reaches")
    unequal = [one for one in rows(70.0, 75.0, 71.0, seeds=2) if one.label != "CE+KD" or one.seed == 1]
    assert finding(*unequal)[:2] == [  # only the seed that both have
        "Co-transport changes the average accuracy by +1.0 points (one seed, so it may be chance).",
        "COIL reaches 71.0 %, and 70.0 % without its transports (CE+KD).",
    ]
    longer = {**recipe, "schedule": {"epochs": 99}}
    other = [
        one if one.label == "COIL" else one.model_copy(update={"recipe": longer}) for one in rows(70.0, 75.0, 71.0)
    ]
    assert finding(*other)[0].startswith("CE+KD+PT reaches")  # another training, so not the same but for transports


def test_a_lead_within_the_deviation_is_marked() -> None:
    def seeds(label: str, *averages: float) -> list[Result]:
        return [make_result(label, seed=s, average_incremental_accuracy=a) for s, a in enumerate(averages)]

    # means 80 and 79, deviation of both sqrt(2)
    close = finding(*seeds("a", 79.0, 81.0), *seeds("b", 78.0, 80.0))[0]
    assert close.endswith("1.0 point ahead of b, a lead within the standard deviation over seeds.")
    assert finding(*seeds("a", 80.0), *seeds("b", 79.99))[0].endswith(", the same as b.")


def test_one_task_and_no_accuracy_have_findings_too() -> None:
    assert finding(make_result(tasks=[4], per_task=[[75.0]])) == [
        "Replay reaches 75.0 % accuracy on 4 classes, all learned at once."
    ]
    assert finding(make_result(average_incremental_accuracy=math.nan)) == ["No accuracy was recorded."]


def test_facts_describe_what_was_run() -> None:
    assert facts(make_result(seed=2), make_result(seed=1)) == {
        "Data": "digits, images of 8 × 8 pixels",
        "Classes": "4 classes in 2 tasks of 2, order shuffled with seed 1993",
        "Backbone network": "resnet8",
        "Training": "20 epochs per task, batches of 64, learning rate 0.1 (one-cycle)",
        "Memory": "at most 2,000 stored images of old classes (exemplars) in total",
        "Seeds": "1, 2",
        "Device": "CPU, 2 threads",
        "Software": "cotransport 0.1.0, torch 2.13.0, Python 3.11.7",
    }


def test_the_processor_and_a_lower_precision_are_named() -> None:
    environment = {"device": "cpu", "processor": "Zen", "precision": "bf16-mixed", "threads": 1}
    assert facts(make_result(environment=environment))["Device"] == "Zen, CPU, precision bf16-mixed, 1 thread"
    on_gpu = facts(make_result(environment=environment | {"device": "cuda"}))["Device"]
    assert on_gpu == "GPU (CUDA), precision bf16-mixed, 1 thread"


def test_facts_in_which_results_differ_are_all_shown() -> None:
    longer = {**RECIPE, "schedule": {"epochs": 40}}
    assert facts(make_result(), make_result(recipe=longer))["Training"] == (
        "40 epochs per task; in other runs: 20 epochs per task, batches of 64, learning rate 0.1 (one-cycle)"
    )


def test_duplicates_are_mentioned() -> None:
    assert facts(make_result(), make_result())["Seeds"] == "1, without 1 duplicate of the same run"


@pytest.mark.parametrize(
    ("epochs", "words"),
    [([7, 7], "7 epochs per task"), ([9, 7], "7 to 9 epochs per task"), ([None, None], "20 epochs per task")],
)
def test_epochs_are_those_that_were_trained(epochs: list[int | None], words: str) -> None:
    result = make_result(recipe={**RECIPE, "schedule": {"epochs": 20, "seconds_per_task": 60.0}})
    steps = [step.model_copy(update={"epochs": n}) for step, n in zip(result.steps, epochs, strict=True)]
    assert facts(result.model_copy(update={"steps": steps}))["Training"] == f"{words}, 60 s per task"


@pytest.mark.parametrize(
    "recipe", [{}, {"data": None, "memory": 3, "schedule": [], "methods": "replay", "backbone": "x"}]
)
def test_unknown_recipes_are_used_as_far_as_possible(recipe: dict[str, Any]) -> None:
    result = make_result(recipe=recipe, environment={}, unknown_field=1)
    assert list(facts(result)) == ["Classes", "Seeds"]
    assert finding(result)[0].startswith("Replay reaches 80.0 %")
