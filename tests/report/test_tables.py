"""Tables: every expected number is derived by hand beside it."""

from __future__ import annotations

import csv
import math
import re
from typing import Any

import pytest

from cotransport.report import tables
from cotransport.report.aggregate import summarise
from cotransport.report.recipes import augmentation_name
from cotransport.settings.sections import Augmentation
from tests.report.results import HOSTILE, RECIPE, make_result, many_sources, transported_results


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_mean_and_sample_deviation_over_seeds() -> None:
    # averages (90 + 68) / 2, (90 + 72) / 2, (90 + 76) / 2 = 79, 81, 83: mean 81, deviation sqrt((4 + 0 + 4) / 2) = 2
    results = [make_result(seed=s, per_task=[[90.0], [last, last]]) for s, last in enumerate((68.0, 72.0, 76.0))]
    streams = summarise(results)
    row = read_csv(tables.summary_csv(streams))[0]
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


def test_the_command_can_print_the_main_columns() -> None:
    results = [make_result(seed=s, per_task=[[90.0], [last, last]]) for s, last in enumerate((68.0, 72.0, 76.0))]
    (method,) = summarise(results)[0].methods
    texts = [column.estimate(method).text for column in (tables.AVERAGE, tables.LAST, tables.FORGETTING)]
    assert texts == ["81.0 ± 2.0", "72.0 ± 4.0", "18.0 ± 4.0"]


def test_one_seed_has_no_deviation_and_undefined_values_stay_empty() -> None:
    streams = summarise([make_result()])
    row = read_csv(tables.summary_csv(streams))[0]
    assert row["average_incremental_accuracy_mean"] == "80.0"  # (90 + 70) / 2
    for key in ("average_incremental_accuracy_std", "last_ncm_accuracy_mean", "last_ncm_accuracy_std"):
        assert row[key] == ""
    line = tables.summary_markdown(streams).splitlines()[-1]
    assert line == "| Replay | 1 | 80.0 | 70.0 | – | 70.0 | 30.0 | −30.0 | 20.0 | – | basic |"


def test_csv_has_six_decimals_empty_cells_and_unix_line_ends() -> None:
    result = make_result('a "b", c', per_task=[[200 / 3], [None, 0.0000004]], ncm=0.0000016, seconds=1.0)
    # average (66.6666667 + 0.0000004) / 2
    stream, name = "digits: 4 classes in 2 tasks", '"a ""b"", c"'
    assert tables.summary_csv(summarise([result])).split("\n")[1:] == [
        f"{stream},{name},{name},{name},top1,4,2,1,33.333334,,0.0,,2e-06,,0.0,,0.0,,0.0,,2.0,,,,basic",
        "",
    ]
    assert tables.curves_csv(summarise([result])).split("\n") == [
        "stream,label,name,seed,step,classes_seen,accuracy,"
        "top1,top5,head_top1,ncm_top1,train_seconds,images_per_second",
        f"{stream},{name},{name},1,1,2,66.666667,66.666667,100.0,66.666667,2e-06,1.0,500.0",
        f"{stream},{name},{name},1,2,4,0.0,0.0,100.0,0.0,2e-06,1.0,500.0",
        "",
    ]


def test_results_without_steps_give_a_header_only() -> None:
    text = tables.curves_csv(summarise([make_result().model_copy(update={"steps": []})]))
    assert text.startswith("stream,label,name,seed,step,")
    assert text.count("\n") == 1


def test_a_number_that_some_seeds_lack_is_averaged_over_the_others() -> None:
    results = [make_result(seed=seed, ncm=ncm) for seed, ncm in enumerate((None, 50.0, 54.0))]
    row = read_csv(tables.summary_csv(summarise(results)))[0]
    assert float(row["last_ncm_accuracy_mean"]) == 52.0
    assert float(row["last_ncm_accuracy_std"]) == pytest.approx(math.sqrt(8))  # (4 + 4) / 1


def test_rows_are_ordered_by_average_with_undefined_ones_last() -> None:
    averages = {"low": 20.0, "undefined": math.nan, "high": 90.0, "middle": 50.0}
    results = [make_result(label, average_incremental_accuracy=average) for label, average in averages.items()]
    streams = summarise(results)
    order = ["high", "middle", "low", "undefined"]
    assert [row["label"] for row in read_csv(tables.summary_csv(streams))] == order
    assert re.findall(r"^\| (\w+) \|", tables.summary_markdown(streams), re.MULTILINE) == ["Method", *order]


def test_the_best_competitor_is_bold_and_the_upper_bound_is_not() -> None:
    worse, better, bound = [[90.0], [20.0, 60.0]], [[90.0], [60.0, 60.0]], [[90.0], [90.0, 90.0]]
    streams = summarise([make_result("finetune", per_task=worse), make_result("coil", per_task=better)])
    with_bound = summarise([*streams[0].results, make_result("oracle", per_task=bound)])
    for shown in (streams, with_bound):
        lines = {line.split(" |")[0]: line for line in tables.summary_markdown(shown).splitlines()}
        # COIL: (90 + 60) / 2 = 75, forgets 30. Finetune: (90 + 40) / 2 = 65, forgets 70. Times are not compared
        assert lines["| COIL"].startswith("| COIL | 1 | **75.0** | **60.0** | – | **60.0** | **30.0** |")
        assert lines["| COIL"].endswith("| 20.0 | – | basic |")
        assert "**" not in lines["| Finetune"]
    assert "| Oracle | 1 | 90.0 |" in tables.summary_markdown(with_bound)
    assert r"\textbf{75.0}" in tables.summary_latex(with_bound)
    assert "**" not in tables.summary_markdown(summarise([make_result()])), "a single method is not compared"


def test_values_that_print_equal_are_equally_bold() -> None:
    results = [make_result(label, last_accuracy=last) for label, last in (("a", 70.01), ("b", 69.99), ("c", 69.9))]
    text = tables.summary_markdown(summarise(results))
    assert text.count("| **70.0** | – |") == 2


@pytest.mark.parametrize(("seconds", "shown"), [(59.0, "(s) | 118.0"), (90.0, "(min) | 3.0"), (5400.0, "(h) | 3.0")])
def test_training_time_has_the_unit_that_suits_it(seconds: float, shown: str) -> None:
    text = tables.summary_markdown(summarise([make_result(seconds=seconds)]))  # 2 tasks
    unit, value = shown.split(" | ")
    assert f"Training time {unit}" in text
    assert text.rstrip().endswith(f"| {value} | – | basic |")


def test_the_size_of_the_network_and_the_augmentation_are_shown() -> None:
    recipe = RECIPE | {"augmentation": {"policy": "trivial", "cutout": 0.3}, "loss": {"mixup": 0.0, "cutmix": 0.5}}
    streams = summarise([make_result(parameters=1_150_000, recipe=recipe), make_result("coil", parameters=900_000)])
    assert "| 1.1 | trivial, cutout 0.3, cutmix 0.5 |" in tables.summary_markdown(streams)
    assert "| 0.9 | basic |" in tables.summary_markdown(streams)
    rows = {row["label"]: row for row in read_csv(tables.summary_csv(streams))}
    assert float(rows["replay"]["parameters_millions_mean"]) == 1.15
    assert [rows[label]["augmentation"] for label in ("replay", "coil")] == [
        "trivial, cutout 0.3, cutmix 0.5",
        "basic",
    ]


@pytest.mark.parametrize(
    ("augmentation", "name"),
    [
        ({"policy": "strong"}, "strong"),
        ({"policy": "strong", "cutout": 0}, "strong, cutout 0.0"),
        ({"policy": "basic", "rotation": 15}, "basic, rotation 15.0"),
        ({"policy": "none", "rotation": 15}, "none"),
        ({}, "basic"),
    ],
)
def test_the_augmentation_is_named_by_its_policy_and_what_was_changed(augmentation: dict[str, Any], name: str) -> None:
    values = Augmentation.model_validate(augmentation).model_dump()
    assert augmentation_name(make_result(recipe=RECIPE | {"augmentation": values})) == name


def test_features_of_a_frozen_backbone_are_not_augmented() -> None:
    augmentation = {"policy": "trivial", "crop_padding": 4}
    assert augmentation_name(make_result(recipe=RECIPE | {"augmentation": augmentation})) == "trivial"
    assert augmentation_name(make_result(recipe=RECIPE | {"augmentation": augmentation, "freeze_backbone": True})) == (
        "none"
    )


def test_curves_have_a_row_for_each_label_seed_and_step() -> None:
    top5 = make_result("coil", seed=7, per_task=[[91.0], [50.0, 70.0]], metric="top5")
    rows = read_csv(tables.curves_csv(summarise([make_result(seed=1), make_result(seed=2), top5])))
    assert [(r["label"], r["seed"], r["step"], r["classes_seen"]) for r in rows] == [
        *[("replay", seed, step, seen) for seed in "12" for step, seen in (("1", "2"), ("2", "4"))],
        ("coil", "7", "1", "2"),
        ("coil", "7", "2", "4"),
    ]
    assert [float(row["accuracy"]) for row in rows] == [90.0, 70.0, 90.0, 70.0, 100.0, 100.0]  # the last two are top-5
    assert [row["ncm_top1"] for row in rows] == [""] * 6


def test_names_are_escaped_for_each_format() -> None:
    streams = summarise([make_result(label) for label in HOSTILE])
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
    columns = 3 + len(tables.COLUMNS)  # with method, seeds and augmentation
    for line in markdown.splitlines()[2:]:
        assert len(re.findall(r"(?<!\\)\|", line)) == columns + 1, "no name adds a column"
    assert {row["label"] for row in read_csv(tables.summary_csv(streams))} >= {"a_b & 50%", "</script><b>"}


def test_latex_is_a_whole_tabular() -> None:
    lines = tables.summary_latex(summarise([make_result()])).splitlines()
    assert lines == [
        r"% needs \usepackage{booktabs}",
        "% digits: 4 classes in 2 tasks",
        r"\begin{tabular}{lrrrrrrrrrr}",
        r"\toprule",
        "Method & Seeds & Average accuracy & Last accuracy & Nearest mean & Head & Forgetting & Backward transfer & "
        r"Training time (s) & Parameters (M) & Augmentation \\",
        r"\midrule",
        r"Replay & 1 & 80.0 & 70.0 & -- & 70.0 & 30.0 & $-$30.0 & 20.0 & -- & basic \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_accuracy_before_training_has_a_row_for_each_seed_task_and_classifier() -> None:
    rows = read_csv(tables.initial_csv(summarise(transported_results())))
    assert list(rows[0]) == ["stream", "label", "name", "seed", "task", "classes_seen", "way", "among_new", "among_all"]
    assert [tuple(row.values())[1:] for row in rows if row["seed"] == "1"] == [
        ("coil", "COIL", "1", "2", "4", "pt", "60.0", "20.0"),
        ("coil", "COIL", "1", "2", "4", "ncm", "80.0", "50.0"),
        ("coil", "COIL", "1", "2", "4", "random", "40.0", "0.0"),
        ("coil", "COIL", "1", "3", "5", "pt", "100.0", ""),
    ]


def test_transport_has_a_row_for_each_seed_new_class_and_old_class() -> None:
    rows = read_csv(tables.transport_csv(summarise(transported_results())))
    assert list(rows[0]) == ["stream", "label", "name", "seed", "task", "new_class", "old_class", "share"]
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


def test_with_very_many_classes_only_the_largest_shares_are_written() -> None:
    rows = read_csv(tables.transport_csv(summarise([many_sources()])))
    assert [row["old_class"] for row in rows] == [f"class {number}" for number in range(299, 279, -1)]
    assert float(rows[0]["share"]) == pytest.approx(300 / 45150, abs=1e-6)


def test_without_transport_there_is_no_table_of_it() -> None:
    streams = summarise([make_result()])
    assert tables.initial_csv(streams) == tables.transport_csv(streams) == ""
