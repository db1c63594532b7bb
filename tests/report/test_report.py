"""Reports on synthetic results: every expected number is derived by hand beside it."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from cotransport import metrics
from cotransport.errors import RunError
from cotransport.experiments.results import InitialAccuracy, Origin, Result, TaskResult, Transport
from cotransport.report import charts, figures, page, tables, wording, write_report
from cotransport.report.aggregate import Estimate, grouped

HOSTILE = ["</script><b>", "a_b & 50%", r"$x^2$ {~}#\|", "日本語 <br>%{x}", "two\nlines", "../../escape"]
TITLES = {"coil": "COIL", "finetune": "Finetune", "oracle": "Oracle", "replay": "Replay"}
RECIPE = {
    "name": "digits",
    "data": {"source": "digits", "image_size": 8},
    "memory": {"total": 2000, "per_class": None},
    "backbone": {"name": "resnet8", "stem": "auto"},
    "schedule": {"epochs": 20, "batch_size": 64, "learning_rate": 0.1, "shape": "one-cycle"},
    "methods": [{"name": "replay", "label": None}],
    "seeds": [1],
}
ENVIRONMENT = {
    "cotransport": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "device": "cpu",
    "threads": 2,
    "commit": None,
}


Rows = Sequence[Sequence[float | None]]


def make_result(
    label: str = "replay",
    seed: int = 1,
    per_task: Rows = ((90.0,), (60.0, 80.0)),
    **changes: Any,
) -> Result:
    """A result whose figures follow from the accuracies per task; tasks of two classes unless told otherwise."""
    matrix = metrics.accuracy_matrix(per_task)
    tasks = changes.get("tasks", [2] * len(per_task))
    curve = [float(np.mean([value for value in row if value is not None])) for row in per_task]
    seconds = changes.pop("seconds", 10.0)
    ncm = changes.pop("ncm", None)
    names = [f"class {number}" for number in range(sum(tasks))]
    steps = [
        TaskResult(
            classes_seen=sum(tasks[: i + 1]),
            top1=accuracy,
            top5=100.0,
            head_top1=accuracy,
            ncm_top1=ncm,
            per_task=list(row),
            train_seconds=seconds,
            images_per_second=500.0,
        )
        for i, (row, accuracy) in enumerate(zip(per_task, curve, strict=True))
    ]
    values = {
        "recipe": RECIPE,
        "label": label,
        "method": label,
        "title": TITLES.get(label, label),
        "seed": seed,
        "class_order_seed": 1993,
        "class_order": list(range(sum(tasks))),
        "classes": names,
        "tasks": tasks,
        "metric": "top1",
        "steps": steps,
        "average_incremental_accuracy": float(np.mean(curve)),
        "last_accuracy": curve[-1],
        "forgetting": metrics.forgetting(matrix),
        "forgetting_per_task": [None if math.isnan(f) else float(f) for f in metrics.forgetting_per_task(matrix)],
        "backward_transfer": metrics.backward_transfer(matrix),
        "confusion": np.diag([9] * sum(tasks)).tolist(),
        "environment": ENVIRONMENT,
    }
    return Result(**{**values, **changes})


def with_transport(
    result: Result,
    plans: Sequence[Sequence[Sequence[float]] | None],
    effective: Sequence[Sequence[float]],
    initial: Sequence[dict[str, tuple[float | None, float | None]]] = (),
) -> Result:
    """The result with the plans of its second and later tasks, and perhaps with accuracies before training."""
    steps = list(result.steps)
    for place, (plan, numbers) in enumerate(zip(plans, effective, strict=True), start=1):
        if plan is not None:
            origins = [Origin(name="unused", sources=[], effective_sources=number) for number in numbers]
            transport = Transport(plan=[list(row) for row in plan], origins=origins)
            steps[place] = steps[place].model_copy(update={"transport": transport})
    for place, ways in enumerate(initial, start=1):
        told = {way: InitialAccuracy(among_new=new, among_all=every) for way, (new, every) in ways.items()}
        steps[place] = steps[place].model_copy(update={"initial": told})
    return result.model_copy(update={"steps": steps})


def transported(names: Sequence[str] = ("cat", "dog", "tiger", "wolf", "lynx")) -> list[Result]:
    """Two seeds of three tasks (of 2, 2 and 1 class), with all that can be told of new classes before training."""
    per_task = [[90.0], [80.0, 80.0], [70.0, 70.0, 70.0]]
    first, second = (
        make_result("coil", seed=seed, tasks=[2, 2, 1], per_task=per_task, classes=list(names)) for seed in (1, 2)
    )
    return [
        with_transport(
            first,
            [[[0.4, 0.1], [0.1, 0.4]], [[0.5], [0.0], [0.5], [0.0]]],
            [[1.6, 1.6], [2.0]],
            [{"pt": (60.0, 20.0), "ncm": (80.0, 50.0), "random": (40.0, 0.0)}, {"pt": (100.0, None)}],
        ),
        with_transport(
            second,
            [[[0.3, 0.2], [0.2, 0.3]], [[0.3], [0.2], [0.3], [0.2]]],
            [[2.0, 2.0], [4.0]],
            [{"pt": (70.0, 30.0), "ncm": (80.0, 60.0), "random": (50.0, 4.0)}],
        ),
    ]


def saved(folder: Path, *results: Result) -> Path:
    for number, result in enumerate(results):
        (folder / str(number)).mkdir(parents=True)
        result.save(folder / str(number))
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


class Tags(HTMLParser):
    """Start tags, the addresses they load or link, the text outside scripts, and the elements left open."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def charts_of(html: str) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
    assert text is not None
    return json.loads(text[1])


# tables


def test_mean_and_sample_deviation_over_seeds() -> None:
    # averages (90 + 68) / 2, (90 + 72) / 2, (90 + 76) / 2 = 79, 81, 83: mean 81, deviation sqrt((4 + 0 + 4) / 2) = 2
    results = [make_result(seed=s, per_task=[[90.0], [last, last]]) for s, last in enumerate((68.0, 72.0, 76.0))]
    streams = grouped(results)
    row = rows_of(tables.summary_csv(streams))[0]
    assert row["seeds"] == "3"
    assert float(row["average_incremental_accuracy_mean"]) == 81.0
    assert float(row["average_incremental_accuracy_std"]) == 2.0
    # the last accuracies 68, 72, 76: mean 72, deviation sqrt((16 + 0 + 16) / 2) = 4
    assert (float(row["last_accuracy_mean"]), float(row["last_accuracy_std"])) == (72.0, 4.0)
    # forgetting 90 - 68, 90 - 72, 90 - 76 = 22, 18, 14; backward transfer is its negative
    assert (float(row["forgetting_mean"]), float(row["forgetting_std"])) == (18.0, 4.0)
    assert float(row["backward_transfer_mean"]) == -18.0
    # 2 tasks of 10 seconds
    assert float(row["training_seconds_mean"]) == 20.0
    assert "| Replay | 3 | 81.0 ± 2.0 | 72.0 ± 4.0 |" in tables.summary_markdown(streams)
    assert r"Replay & 3 & 81.0 $\pm$ 2.0 & 72.0 $\pm$ 4.0 & -- &" in tables.summary_latex(streams)
    assert r"$-$18.0 $\pm$ 4.0" in tables.summary_latex(streams)


def test_one_seed_has_no_deviation_and_undefined_figures_stay_empty() -> None:
    streams = grouped([make_result()])
    row = rows_of(tables.summary_csv(streams))[0]
    assert row["average_incremental_accuracy_mean"] == "80.0"  # (90 + 70) / 2
    assert (
        row["average_incremental_accuracy_std"] == row["last_ncm_accuracy_mean"] == row["last_ncm_accuracy_std"] == ""
    )
    line = tables.summary_markdown(streams).splitlines()[-1]
    assert line == "| Replay | 1 | 80.0 | 70.0 | – | 70.0 | 30.0 | −30.0 | 20.0 |"


def test_a_figure_that_some_seeds_lack_is_averaged_over_the_others() -> None:
    results = [make_result(seed=seed, ncm=ncm) for seed, ncm in enumerate((None, 50.0, 54.0))]
    row = rows_of(tables.summary_csv(grouped(results)))[0]
    assert float(row["last_ncm_accuracy_mean"]) == 52.0
    assert float(row["last_ncm_accuracy_std"]) == pytest.approx(math.sqrt(8))  # (4 + 4) / 1


def test_rows_are_ordered_by_average_with_undefined_ones_last() -> None:
    averages = {"low": 20.0, "undefined": math.nan, "high": 90.0, "middle": 50.0}
    results = [make_result(label, average_incremental_accuracy=average) for label, average in averages.items()]
    streams = grouped(results)
    order = ["high", "middle", "low", "undefined"]
    assert [row["label"] for row in rows_of(tables.summary_csv(streams))] == order
    assert re.findall(r"^\| (\w+) \|", tables.summary_markdown(streams), re.MULTILINE) == ["Method", *order]
    assert re.findall(r"</span>(\w+)</th>", page.whole_page(streams)) == order


def test_the_best_competitor_is_bold_and_the_bound_is_not() -> None:
    worse, better, bound = [[90.0], [20.0, 60.0]], [[90.0], [60.0, 60.0]], [[90.0], [90.0, 90.0]]
    streams = grouped([make_result("finetune", per_task=worse), make_result("coil", per_task=better)])
    with_bound = grouped([*streams[0].results, make_result("oracle", per_task=bound)])
    for shown in (streams, with_bound):
        lines = {line.split(" |")[0]: line for line in tables.summary_markdown(shown).splitlines()}
        # COIL: (90 + 60) / 2 = 75, forgets 30. Finetune: (90 + 40) / 2 = 65, forgets 70. Nobody wins a contest in time
        assert lines["| COIL"].startswith("| COIL | 1 | **75.0** | **60.0** | – | **60.0** | **30.0** |")
        assert lines["| COIL"].endswith("| 20.0 |")
        assert "**" not in lines["| Finetune"]
    assert "| Oracle | 1 | 90.0 |" in tables.summary_markdown(with_bound)
    assert r"\textbf{75.0}" in tables.summary_latex(with_bound)
    assert "<b>75.0</b>" in page.whole_page(with_bound)
    assert "**" not in tables.summary_markdown(grouped([make_result()])), "alone, nothing is best"


def test_what_prints_equal_is_equally_bold() -> None:
    results = [make_result(label, last_accuracy=last) for label, last in (("a", 70.01), ("b", 69.99), ("c", 69.9))]
    text = tables.summary_markdown(grouped(results))
    assert text.count("| **70.0** | – |") == 2


@pytest.mark.parametrize(("seconds", "shown"), [(59.0, "(s) | 118.0"), (90.0, "(min) | 3.0"), (5400.0, "(h) | 3.0")])
def test_training_time_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    text = tables.summary_markdown(grouped([make_result(seconds=seconds)]))  # 2 tasks
    heading, figure = shown.split(" | ")
    assert f"Training time {heading}" in text
    assert text.rstrip().endswith(f"| {figure} |")


def test_a_row_of_the_curves_for_each_label_seed_and_step() -> None:
    short = make_result("coil", seed=7, per_task=[[91.0], [50.0, 70.0]], metric="top5")
    rows = rows_of(tables.curves_csv(grouped([make_result(seed=1), make_result(seed=2), short])))
    assert [(r["label"], r["seed"], r["step"], r["classes_seen"]) for r in rows] == [
        *[("replay", seed, step, seen) for seed in "12" for step, seen in (("1", "2"), ("2", "4"))],
        ("coil", "7", "1", "2"),
        ("coil", "7", "2", "4"),
    ]
    assert [float(row["accuracy"]) for row in rows] == [90.0, 70.0, 90.0, 70.0, 100.0, 100.0]  # the last two are top-5
    assert [row["ncm_top1"] for row in rows] == [""] * 6


def test_names_are_escaped_for_each_format() -> None:
    streams = grouped([make_result(label) for label in HOSTILE])
    latex, markdown = tables.summary_latex(streams), tables.summary_markdown(streams)
    for escaped in (
        r"\textless{}/script\textgreater{}\textless{}b\textgreater{} &",
        r"a\_b \& 50\% &",
        r"\$x\textasciicircum{}2\$ \{\textasciitilde{}\}\#\textbackslash{}\textbar{} &",
        "two lines &",
    ):
        assert f"\n{escaped}" in latex
    for escaped in (r"&lt;/script&gt;&lt;b&gt;", r"a\_b &amp; 50%", r"\$x\^2\$ \{\~\}\#\\\|", "two lines"):
        assert f"\n| {escaped} |" in markdown
    columns = 2 + len(tables.COLUMNS)
    for line in markdown.splitlines()[2:]:
        assert len(re.findall(r"(?<!\\)\|", line)) == columns + 1, "no name makes a column of its own"
    assert {row["label"] for row in rows_of(tables.summary_csv(streams)[:])} >= {"a_b & 50%", "</script><b>"}


# grouping


def test_uneven_tasks_and_a_seed_that_stopped_early() -> None:
    full = make_result(seed=1, per_task=[[80.0], [60.0, 70.0], [40.0, None, 90.0]], tasks=[3, 1, 2])
    early = make_result(seed=2, per_task=[[90.0], [70.0, 90.0]], tasks=[3, 1, 2], confusion=[])
    stream = grouped([full, early.model_copy(update={"classes": full.classes})])[0]
    method = stream.methods[0]
    assert stream.classes_seen == [3, 4, 6]
    assert stream.task_classes == [["class 0", "class 1", "class 2"], ["class 3"], ["class 4", "class 5"]]
    expected = [[85.0, math.nan, math.nan], [65.0, 80.0, math.nan], [40.0, math.nan, 90.0]]
    np.testing.assert_array_equal(method.accuracy_matrix, expected)
    # curves 80, 65, 65 and 90, 80
    assert [estimate.mean for estimate in method.curve] == [85.0, 72.5, 65.0]
    assert method.curve[0].deviation == pytest.approx(math.sqrt(50))
    assert math.isnan(method.curve[2].deviation)
    # first task: 80 - 40 in the full run, 90 - 70 in the early one; the second is unknown at the end
    assert method.forgetting_per_task[0].mean == 30.0
    assert math.isnan(method.forgetting_per_task[1].mean)
    assert method.confusion is not None
    assert method.confusion.counts.sum() == 54, "the early run recorded none"


def test_confusion_is_summed_over_seeds_and_told_in_words() -> None:
    first = [[20, 4, 0, 0], [0, 18, 0, 0], [1, 0, 17, 0], [0, 0, 0, 18]]
    second = [[10, 8, 0, 0], [0, 18, 0, 0], [0, 0, 18, 0], [0, 2, 0, 16]]
    names = ["7", "1", "0", "4"]
    results = [make_result(seed=s, confusion=c, classes=names) for s, c in enumerate((first, second))]
    confusion = grouped(results)[0].methods[0].confusion
    assert confusion is not None
    assert confusion.hardest(2) == ["7 taken for 1: 12 of 42 images", "4 taken for 1: 2 of 36 images"]
    np.testing.assert_allclose(confusion.shares[0], [100 * 30 / 42, 100 * 12 / 42, 0, 0])
    assert confusion.starts == [0, 2]


def test_a_class_without_test_images_has_no_shares() -> None:
    counts = np.diag([9, 9, 0, 9]).tolist()
    confusion = grouped([make_result(confusion=counts)])[0].methods[0].confusion
    assert confusion is not None
    assert np.isnan(confusion.shares[2]).all()
    assert confusion.hardest(5) == []


def test_many_classes_are_confused_by_task() -> None:
    counts = np.zeros((300, 300), dtype=int)
    counts[0, 0], counts[1, 250], counts[299, 100] = 5, 3, 2
    result = make_result(
        tasks=[100, 150, 50], per_task=[[80.0], [60.0, 70.0], [40.0, 50.0, 90.0]], confusion=counts.tolist()
    )
    confusion = grouped([result])[0].methods[0].confusion
    assert confusion is not None
    np.testing.assert_array_equal(confusion.counts, [[5, 0, 3], [0, 0, 0], [0, 2, 0]])
    assert confusion.hardest(1) == ["task 1 taken for task 3: 3 of 8 images"]


def test_other_settings_are_another_method_and_not_another_seed() -> None:
    longer = {**RECIPE, "schedule": {"epochs": 40}, "name": "mine", "seeds": [2]}
    stream = grouped([make_result(seed=1), make_result(seed=2, recipe=longer)])[0]
    assert sorted((method.name, method.seeds) for method in stream.methods) == [
        ("Replay (batch_size 64, epochs 20, learning_rate 0.1)", 1),
        ("Replay (batch_size None, epochs 40, learning_rate None)", 1),
    ]
    assert stream.methods[0].look != stream.methods[1].look
    elsewhere = {**RECIPE, "name": "mine", "seeds": [2], "device": {"accelerator": "cuda", "processes": 4}}
    same = grouped([make_result(seed=1), make_result(seed=2, recipe=elsewhere)])[0]
    assert [(method.name, method.seeds) for method in same.methods] == [("Replay", 2)]
    twice = grouped([make_result(), make_result(recipe=elsewhere)])[0]
    assert (twice.methods[0].seeds, twice.repeated) == (1, 1)
    differing = grouped([make_result(), make_result(recipe=elsewhere, per_task=[[90.0], [70.0, 81.0]])])[0]
    assert (differing.methods[0].seeds, differing.repeated) == (2, 0)


def test_the_same_run_found_twice_counts_once() -> None:
    stream = grouped([make_result(seed=1), make_result(seed=1), make_result(seed=2)])[0]
    assert stream.methods[0].seeds == 2
    assert dict(wording.facts(stream))["Seeds"] == "1, 2, without 1 repetition of the same run"


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
def test_what_cannot_be_compared_is_another_stream(changes: dict[str, Any]) -> None:
    streams = grouped([make_result(), make_result(**changes)])
    assert len(streams) == 2
    assert streams[0].title != streams[1].title
    assert streams[0].methods[0].look == streams[1].methods[0].look, "a method keeps its colour"


def test_every_method_has_a_look_of_its_own() -> None:
    stream = grouped([make_result(f"method {number}") for number in range(15)] + [make_result("oracle")])[0]
    assert len({method.look for method in stream.methods}) == 16


# words


def test_the_finding_is_told_from_the_numbers() -> None:
    coil = make_result("coil", per_task=[[90.0], [70.0, 80.0]])  # (90 + 75) / 2 = 82.5, forgets 20
    replay = make_result("replay", per_task=[[90.0], [60.0, 80.0]])  # (90 + 70) / 2 = 80, forgets 30
    oracle = make_result("oracle", per_task=[[90.0], [90.0, 90.0]])  # 90
    assert wording.finding(grouped([replay, coil, oracle])[0]) == [
        "COIL reaches 82.5\N{NO-BREAK SPACE}% on average over 2 tasks, 2.5 points ahead of Replay, with one seed each.",
        "Oracle, trained on the data of all tasks, reaches 90.0\N{NO-BREAK SPACE}%: 7.5 points more.",
        "COIL forgets 20.0 points of what it had learned; Replay forgets most, 30.0 points.",
    ]
    assert wording.finding(grouped([coil])[0]) == [
        "COIL reaches 82.5\N{NO-BREAK SPACE}% on average over 2 tasks.",
        "COIL forgets 20.0 points of what it had learned.",
    ]
    assert wording.finding(grouped([oracle])[0]) == ["Oracle reaches 90.0\N{NO-BREAK SPACE}% on average over 2 tasks."]


def test_a_small_lead_is_called_small() -> None:
    def seeds(label: str, *averages: float) -> list[Result]:
        return [make_result(label, seed=s, average_incremental_accuracy=a) for s, a in enumerate(averages)]

    # means 80 and 79, deviation of both sqrt(2)
    lead = wording.finding(grouped([*seeds("a", 79.0, 81.0), *seeds("b", 78.0, 80.0)])[0])[0]
    assert lead.endswith("1.0 point ahead of b, a lead within the spread between seeds.")
    level = wording.finding(grouped([*seeds("a", 80.0), *seeds("b", 79.99)])[0])[0]
    assert level.endswith(", level with b.")


def test_one_task_and_no_accuracy_have_findings_too() -> None:
    one = grouped([make_result(tasks=[4], per_task=[[75.0]])])[0]
    assert wording.finding(one) == ["Replay reaches 75.0\N{NO-BREAK SPACE}% on 4 classes, all learned at once."]
    unknown = grouped([make_result(average_incremental_accuracy=math.nan)])[0]
    assert wording.finding(unknown) == ["No accuracy was recorded."]


@pytest.mark.parametrize(
    ("epochs", "words"),
    [([7, 7], "7 epochs per task"), ([9, 7], "7 to 9 epochs per task"), ([None, None], "20 epochs per task")],
)
def test_the_epochs_that_were_trained_are_told(epochs: list[int | None], words: str) -> None:
    result = make_result(recipe={**RECIPE, "schedule": {"epochs": 20, "seconds_per_task": 60.0}})
    steps = [step.model_copy(update={"epochs": n}) for step, n in zip(result.steps, epochs, strict=True)]
    facts = dict(wording.facts(grouped([result.model_copy(update={"steps": steps})])[0]))
    assert facts["Training"] == f"{words}, 60 s per task"


def test_what_was_run_in_words() -> None:
    facts = dict(wording.facts(grouped([make_result(seed=2), make_result(seed=1)])[0]))
    assert facts == {
        "Data": "digits, images of 8 × 8 pixels",
        "Classes": "4 classes in 2 tasks of 2, shuffled with seed 1993",
        "Backbone": "resnet8",
        "Training": "20 epochs per task, batches of 64, learning rate 0.1 (one-cycle)",
        "Memory": "2,000 exemplars in all",
        "Seeds": "1, 2",
        "Device": "CPU, 2 threads",
        "Software": "cotransport 0.1.0, torch 2.13.0, Python 3.11.7",
    }


@pytest.mark.parametrize(
    "recipe", [{}, {"data": None, "memory": 3, "schedule": [], "methods": "replay", "backbone": "x"}]
)
def test_foreign_recipes_are_read_as_far_as_they_go(recipe: dict[str, Any]) -> None:
    stream = grouped([make_result(recipe=recipe, environment={}, unknown_field=1)])[0]
    assert [heading for heading, _ in wording.facts(stream)] == ["Classes", "Seeds"]
    assert "Replay reaches 80.0" in Tags(page.whole_page([stream])).text


# new classes before training


def test_shares_of_old_classes_are_averaged_over_seeds() -> None:
    sources = grouped(transported())[0].methods[0].sources
    assert sources is not None
    assert (sources.old, sources.new) == (["cat", "dog", "tiger", "wolf"], ["tiger", "wolf", "lynx"])
    # times the number of new classes: tiger 80 and 60 % from cat, lynx 50 and 30 % from cat, 0 and 20 % from dog
    unknown = math.nan
    np.testing.assert_allclose(
        sources.shares, [[70, 30, 40], [30, 70, 10], [unknown, unknown, 40], [unknown, unknown, 10]]
    )
    np.testing.assert_allclose(np.nansum(sources.shares, axis=0), 100.0)
    assert (sources.old_starts, sources.new_starts) == ([0, 2], [0, 2])
    assert sources.in_words(0, 2) == "lynx: 40\N{NO-BREAK SPACE}% from cat"


def test_sources_in_words() -> None:
    html = page.whole_page(grouped(transported()))
    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>([^<]*)</td><td>([^<]*)</td></tr>', html)
    assert [tuple(cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row) for row in rows] == [
        # 1.6 and 2.0: deviation sqrt(0.2 ** 2 + 0.2 ** 2) = 0.28
        ("tiger", "cat 0.70, dog 0.30", "1.8 ± 0.3 of 2"),
        ("wolf", "dog 0.70, cat 0.30", "1.8 ± 0.3 of 2"),
        # of four sources the three largest; 2 and 4: deviation sqrt(2)
        ("lynx", "cat 0.40, tiger 0.40, dog 0.10", "3.0 ± 1.4 of 4"),
    ]


def test_a_seed_that_tells_nothing_of_a_task_leaves_it_to_the_others() -> None:
    first, second = transported()
    early = second.model_copy(update={"steps": second.steps[:2]})
    malformed = with_transport(second, [None, [[0.5, 0.5]]], [[], [1.0]])
    for other in (early, malformed):
        sources = grouped([first, other])[0].methods[0].sources
        assert sources is not None
        np.testing.assert_allclose(sources.shares[:, 2], [50, 0, 50, 0])
        assert sources.largest(2, 3).count(",") == 1, "nothing came from the others"
        assert sources.effective[2].text == "2.0"
        assert sources.shares[0, 0] == pytest.approx(70.0)


def test_the_map_of_sources_need_not_be_square() -> None:
    stream = grouped(transported())[0]
    assert stream.methods[0].sources is not None
    chart = charts.transport_chart(stream.methods[0].sources)
    assert chart["data"][0]["z"] == [[70, 30, 40], [30, 70, 10], [None, None, 40], [None, None, 10]]
    assert chart["data"][0]["customdata"][1] == [
        f"{new}: {share}\N{NO-BREAK SPACE}% from dog" for new, share in (("tiger", 30), ("wolf", 70), ("lynx", 10))
    ]
    assert chart["data"][0]["customdata"][2][:2] == [None, None], "tiger was not there to be built from"
    assert chart["layout"]["xaxis"]["ticktext"] == ["tiger", "wolf", "lynx"]
    assert chart["layout"]["yaxis"]["ticktext"] == ["cat", "dog", "tiger", "wolf"]
    edges = [(line["x0"], line["x1"], line["y0"], line["y1"]) for line in chart["layout"]["shapes"]]
    assert edges == [(1.5, 1.5, -0.5, 3.5), (-0.5, 2.5, 1.5, 1.5)]
    assert chart["layout"]["coloraxis"]["cmax"] == 70, "the largest share has the darkest colour"
    axes = figures.transport_figure(stream.methods[0]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["70", "30", "40", "30", "70", "10", "40", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["tiger", "wolf", "lynx"]


def test_accuracy_before_training_has_a_line_for_each_way() -> None:
    stream = grouped(transported())[0]
    method = stream.methods[0]
    means = {line.name: [estimate.mean for estimate in line.estimates] for line in method.initial("new")}
    # task 2: (60 + 70) / 2, (80 + 80) / 2, (40 + 50) / 2; of task 3 one seed tells one way. Chance: 2 classes, then 1
    expected = {
        "prospective transport": [65.0, 100.0],
        "nearest class mean": [80.0, math.nan],
        "random weights": [45.0, math.nan],
        "chance": [50.0, 100.0],
    }
    assert list(means) == list(expected)
    for name, line in expected.items():
        np.testing.assert_array_equal(means[name], line)
    assert [line.name for line in method.initial("all")] == list(expected)[:3], "chance is told among new classes only"
    transport = next(trace for trace in charts.initial_chart(stream, method, "all")["data"] if trace.get("name"))
    # 20 and 30: deviation sqrt(50)
    assert transport["customdata"][0] == "<b>prospective transport: 25.0 ± 7.1 % on task 2</b><br>new: tiger, wolf"
    assert (transport["x"], transport["y"]) == ([2, 3], [25.0, None])
    among_new, among_all = figures.initial_figure(method).axes
    assert [text.get_text() for text in among_new.texts] == ["prospective transport  100.0", "chance  100.0"]
    assert not among_all.texts, "nothing is known of the last task"
    np.testing.assert_array_equal(among_all.lines[0].get_ydata(), [25.0, math.nan])


def test_numbers_before_training_are_written_for_each_seed() -> None:
    streams = grouped(transported())
    rows = rows_of(tables.initial_csv(streams))
    about = ["stream", "label", "name", "seed", "task"]
    assert list(rows[0]) == [*about, "classes_seen", "way", "among_new", "among_all"]
    assert [tuple(row.values())[1:] for row in rows if row["seed"] == "1"] == [
        ("coil", "COIL", "1", "2", "4", "pt", "60.0", "20.0"),
        ("coil", "COIL", "1", "2", "4", "ncm", "80.0", "50.0"),
        ("coil", "COIL", "1", "2", "4", "random", "40.0", "0.0"),
        ("coil", "COIL", "1", "3", "5", "pt", "100.0", ""),
    ]
    rows = rows_of(tables.transport_csv(streams))
    assert list(rows[0]) == [*about, "new_class", "old_class", "share"]
    assert [tuple(row.values())[3:] for row in rows if row["seed"] == "2"] == [
        # plan times the number of new classes, largest first
        ("2", "2", "tiger", "cat", "0.6"),
        ("2", "2", "tiger", "dog", "0.4"),
        ("2", "2", "wolf", "dog", "0.6"),
        ("2", "2", "wolf", "cat", "0.4"),
        ("2", "3", "lynx", "cat", "0.3"),
        ("2", "3", "lynx", "tiger", "0.3"),
        ("2", "3", "lynx", "dog", "0.2"),
        ("2", "3", "lynx", "wolf", "0.2"),
    ]


def test_a_method_that_transports_nothing_shows_nothing_of_it(tmp_path: Path) -> None:
    untransported = make_result(tasks=[2, 2, 1], per_task=[[90.0], [80.0, 80.0], [60.0, 60.0, 60.0]])
    alone, both = grouped([untransported]), grouped([untransported, *transported(untransported.classes)])
    assert tables.initial_csv(alone) == tables.transport_csv(alone) == ""
    assert not alone[0].methods[0].initial("new")
    told = Tags(page.whole_page(alone)).text
    assert "new class" not in told
    assert "before training" not in told
    assert [method.name for method in both[0].methods] == ["COIL", "Replay"]
    shown = {name for name in charts_of(page.whole_page(both)) if "transport" in name or "initial" in name}
    assert shown == {f"stream1-method1-{name}" for name in ("transport", "initial-new", "initial-all")}
    saved(tmp_path / "runs", *both[0].results)
    write_report([tmp_path / "runs"], tmp_path / "out")
    assert {"initial.csv", "transport.csv"} < {path.name for path in (tmp_path / "out").iterdir()}
    drawn = {path.stem for path in (tmp_path / "out" / "figures").iterdir()}
    assert {name for name in drawn if name.startswith(("transport", "initial"))} == {"transport-coil", "initial-coil"}


def test_of_very_many_classes_only_the_largest_sources_are_told() -> None:
    # 300 old classes and one new one, which takes 1 part of the first, 2 of the second, ..., 300 of the last
    parts = np.arange(1, 301)
    result = make_result("coil", tasks=[300, 1], confusion=[])
    streams = grouped([with_transport(result, [(parts / parts.sum())[:, None].tolist()], [[250.0]])])
    html = page.whole_page(streams)
    assert not any(name.endswith("transport") for name in charts_of(html)), "no room for a map"
    # 300 of 45,150 parts are 0.66 %
    assert "<td>class 299\xa00.01, class 298\xa00.01, class 297\xa00.01</td>" in html
    assert "<td>250.0 of 300</td>" in html
    rows = rows_of(tables.transport_csv(streams))
    assert [row["old_class"] for row in rows] == [f"class {number}" for number in range(299, 279, -1)]
    assert float(rows[0]["share"]) == pytest.approx(300 / 45150, abs=1e-6)


def test_hostile_classes_stay_text_before_training_too() -> None:
    html, plain = page.whole_page(grouped(transported(HOSTILE[:5]))), page.whole_page(grouped(transported()))
    parsed = Tags(html)
    assert parsed.open == []
    assert parsed.tags == Tags(plain).tags, "the same elements as with harmless names"
    assert "</script><b>\N{NO-BREAK SPACE}0.70" in parsed.text
    drawn = charts_of(html)
    chart = drawn["stream1-method1-transport"]
    assert chart["layout"]["yaxis"]["ticktext"][0] == "&lt;/script&gt;&lt;b&gt;", "plotly would read it as markup"
    assert chart["data"][0]["customdata"][0][1].endswith("from &lt;/script&gt;&lt;b&gt;")
    assert "日本語 &lt;br&gt;%{x}" in drawn["stream1-method1-initial-new"]["data"][-1]["customdata"][0]
    assert all("%{x}" not in trace["hovertemplate"] for trace in chart["data"])


# the page


def test_the_page_is_whole_and_loads_nothing() -> None:
    from plotly.offline import get_plotlyjs

    html = page.whole_page(grouped([make_result(seed=1), make_result(seed=2), make_result("coil")]))
    parsed = Tags(html)
    assert parsed.open == []
    assert parsed.addresses == []
    assert not {"link", "img", "iframe", "object", "embed"} & set(parsed.tags)
    assert "@import" not in html
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">([\w+/=]+)</script>', html)
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert len(html) < 2_500_000
    for column in tables.COLUMNS:
        assert column.meaning in parsed.text
    assert "schedule:" in parsed.text, "the full recipe"


def test_hostile_names_stay_text() -> None:
    results = [make_result(label, classes=HOSTILE[:4], recipe={"name": HOSTILE[0]}) for label in HOSTILE]
    html = page.whole_page(grouped(results))
    parsed = Tags(html)
    assert parsed.open == []
    assert parsed.tags.count("script") == 3
    plain = page.whole_page(
        grouped([make_result(f"m{number}", recipe={"name": "x"}) for number in range(len(HOSTILE))])
    )
    assert parsed.tags == Tags(plain).tags, "the same elements as with harmless names"
    assert "</script><b>" in parsed.text
    assert "two lines" in parsed.text
    drawn = charts_of(html)
    confusion = next(chart for name, chart in drawn.items() if name.endswith("confusion"))
    assert confusion["layout"]["xaxis"]["ticktext"][0] == "&lt;/script&gt;&lt;b&gt;", "plotly would read it as markup"
    for chart in drawn.values():
        for trace in chart["data"]:
            assert "%{x}" not in trace.get("hovertemplate", ""), "plotly would fill it in"


def test_data_cannot_end_the_script_it_stands_in() -> None:
    names = ["</script>", "<!--", "\u2028", "日本"]
    text = page.json_for_script(names)
    assert "<" not in text
    assert json.loads(text) == names


def test_plotly_accepts_every_chart() -> None:
    from plotly.graph_objects import Figure

    uneven = make_result(tasks=[3, 1, 2], per_task=[[80.0], [60.0, None], [40.0, 50.0, 90.0]])
    html = page.whole_page(grouped([make_result(seed=1), make_result(seed=2), uneven, *transported()]))
    drawn = charts_of(html)
    of_all = ["accuracy", "method1-matrix", "method1-forgetting", "method1-confusion"]
    of_coil = ["method1-transport", "method1-initial-new", "method1-initial-all"]
    assert sorted(drawn) == sorted(
        f"stream{n}-{what}" for n in (1, 2, 3) for what in (of_all + of_coil if n == 3 else of_all)
    )
    places = set(re.findall(r'data-chart="(.*?)"', html))
    assert places == set(drawn), "a place for each chart and a chart for each place"
    for chart in drawn.values():
        Figure(chart)
    assert drawn["stream2-method1-matrix"]["data"][0]["z"] == [
        [80.0, None, None],
        [60.0, None, None],
        [40.0, 50.0, 90.0],
    ]


def test_hover_texts_tell_accuracy_deviation_and_new_classes() -> None:
    stream = grouped([make_result(seed=s, per_task=[[90.0], [last, last]]) for s, last in enumerate((68.0, 72.0))])[0]
    line = charts.accuracy_chart(stream)["data"][-1]
    # mean of 68 and 72, deviation sqrt(8) = 2.83
    assert line["customdata"] == [
        "<b>Replay: 90.0 ± 0.0 % on 2 classes</b><br>started with: class 0, class 1",
        "<b>Replay: 70.0 ± 2.8 % on 4 classes</b><br>added: class 2, class 3",
    ]
    band = charts.accuracy_chart(stream)["data"][0]
    assert band["x"] == [2, 4, 4, 2]
    assert band["y"] == pytest.approx([90.0, 70 + math.sqrt(8), 70 - math.sqrt(8), 90.0], abs=1e-3)


def test_several_streams_have_a_section_each() -> None:
    html = page.whole_page(grouped([make_result(), make_result("coil", tasks=[4], per_task=[[75.0]])]))
    parsed = Tags(html)
    assert parsed.tags.count("section") == 2
    assert parsed.addresses == ["#stream1", "#stream2"]
    assert parsed.tags.count("h1") == 1


# figures and the whole report


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on hostile names with several seeds, and on a single task of one class."""
    folder = tmp_path_factory.mktemp("runs")
    names = HOSTILE[:4]
    lost = [[90.0], [None, 80.0]]
    saved(
        folder / "first",
        make_result(HOSTILE[-1], seed=1, classes=names),
        make_result(HOSTILE[-1], seed=2, classes=names, per_task=lost),
        make_result(r"_$\frac$", classes=names),
    )
    saved(folder / "second", make_result(tasks=[1], per_task=[[100.0]]))
    assert write_report([folder / "first", folder / "second"], folder / "out") == folder / "out" / "report.html"
    return folder


def test_a_report_has_all_its_files_and_no_others(reported: Path) -> None:
    out = reported / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["report.html", "summary.csv", "summary.md", "summary.tex", "curves.csv", "figures"]
    )
    drawn = ["accuracy", "forgetting", "matrix-escape", "confusion-escape", "matrix-frac", "confusion-frac"]
    names = [f"stream1-{name}" for name in drawn] + [f"stream2-{name}-replay" for name in ("matrix", "confusion")]
    expected = {f"{name}.{kind}" for name in [*names, "stream2-accuracy"] for kind in ("png", "svg")}
    assert {path.name for path in (out / "figures").iterdir()} == expected
    assert sorted(path.name for path in reported.iterdir()) == ["first", "out", "second"]


def test_figures_are_images_of_a_paper_s_resolution(reported: Path) -> None:
    from PIL import Image

    for path in (reported / "out" / "figures").glob("*.png"):
        with Image.open(path) as image:
            assert min(image.size) > 400
            assert len(image.convert("L").getcolors() or []) > 10, f"{path.name} is not blank"
    for path in (reported / "out" / "figures").glob("*.svg"):
        assert "<svg" in path.read_text(encoding="utf-8")


def test_a_report_goes_into_the_first_folder_by_default_and_can_be_repeated(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    in_no_font = "\ue000"
    saved(tmp_path / "runs", make_result(tasks=[2], per_task=[[75.0]], classes=[in_no_font, "b"]))
    assert write_report([tmp_path / "runs"]) == tmp_path / "runs" / "report.html"
    first = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*") if path.suffix != ".png"}
    write_report([tmp_path / "runs"])
    assert first == {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*") if path.suffix != ".png"}
    assert not recwarn.list


def test_a_hundred_classes_keep_their_names(tmp_path: Path) -> None:
    result = make_result(tasks=[50, *[10] * 5], per_task=[[70.0] * (i + 1) for i in range(6)])
    method = grouped([result])[0].methods[0]
    figure = figures.confusion_figure(method)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"class {number}" for number in range(100)]
    assert not figure.axes[0].texts, "no room for numbers"
    chart = charts_of(page.whole_page(grouped([result])))["stream1-method1-confusion"]
    assert len(chart["layout"]["xaxis"]["ticktext"]) == 100


def test_figures_show_names_and_values_and_the_same_colours() -> None:
    stream = grouped([make_result("coil"), make_result("replay", per_task=[[90.0], [40.0, 80.0]])])[0]
    accuracy, forgetting = figures.accuracy_figure(stream), figures.forgetting_figure(stream)
    assert {text.get_text() for text in accuracy.axes[0].texts} == {"COIL  70.0", "Replay  60.0"}
    assert {text.get_text() for text in forgetting.axes[0].texts} == {"COIL  30.0", "Replay  50.0"}
    colours = [method.look.colour for method in stream.methods]
    for figure in (accuracy, forgetting):
        assert [line.get_color() for line in figure.axes[0].lines] == colours
    np.testing.assert_array_equal(accuracy.axes[0].lines[0].get_xdata(), [2, 4])
    assert [text.get_text() for text in figures.matrix_figure(stream, stream.methods[0]).axes[0].texts] == [
        "90",
        "60",
        "80",
    ]


def test_labels_at_line_ends_do_not_overlap() -> None:
    results = [make_result(f"m{number}", per_task=[[90.0], [70.0, 70.0 + number / 50]]) for number in range(12)]
    figure = figures.accuracy_figure(grouped(results)[0])
    figure.draw_without_rendering()
    # an annotation's own extent would include its line
    boxes = sorted((Text.get_window_extent(text) for text in figure.axes[0].texts), key=lambda box: box.y0)
    assert len(boxes) == 12
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


def test_an_estimate_of_nothing_is_undefined() -> None:
    assert Estimate.of([None, math.nan]).text == "\N{EN DASH}"
    assert Estimate(-0.04, 0.0).text == "0.0 ± 0.0", "no negative zero"


def test_errors_name_the_place_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run"):
        write_report([tmp_path])
    saved(tmp_path / "runs", make_result())
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"file: the report cannot be written .*--out"):
        write_report([tmp_path / "runs"], tmp_path / "file")


def test_importing_the_report_imports_no_drawing_library() -> None:
    code = "import sys, cotransport.report; print([m for m in ('matplotlib', 'plotly') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
