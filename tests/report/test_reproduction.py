"""The paper's tables and figures from results: columns, published numbers, titles and formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cotransport.experiments.reproductions import Reproduction
from cotransport.experiments.results import InitialAccuracy, Result
from cotransport.report.aggregate import summarise
from cotransport.report.reproduction import figure_of, latex, markdown, paper_table, short_titles, write_reproduction
from cotransport.report.summaries import StreamSummary
from tests.report.results import HOSTILE, RECIPE, make_result

TABLE = Reproduction("<i>Title</i>", ("cifar100-b0-2", "cifar100-b0-10"), "It is 20 % better.")
METHODS = [{"name": "finetune"}, {"name": "coil-tuned", "label": "COIL"}, {"name": "oracle"}]


def result(label: str, tasks: int, accuracy: float, seed: int = 1, **changes: object) -> Result:
    """A result of Table 1, whose accuracy is the same after each task."""
    recipe = {**RECIPE, "name": f"cifar100-b0-{tasks}-fast", "data": {"source": "cifar100"}, "methods": METHODS}
    per_task = [[accuracy] * (number + 1) for number in range(tasks)]
    return make_result(label, seed, per_task, recipe=recipe, tasks=[100 // tasks] * tasks, **changes)


@pytest.fixture
def streams() -> list[StreamSummary]:
    results = [
        *(result("COIL", tasks, 60.0 + tasks, method="coil-tuned", title="COIL (tuned)") for tasks in (2, 10)),
        result("COIL", 10, 72.0, seed=2, method="coil-tuned", title="COIL (tuned)"),
        *(result("finetune", tasks, 30.0) for tasks in (2, 10)),
        result("oracle", 10, 80.0),
    ]
    return summarise(results)


class TestTable:
    def test_methods_by_streams_with_published_numbers(self, streams: list[StreamSummary]) -> None:
        table = paper_table(streams, TABLE)
        assert table.headings == [
            "Method",
            "2 tasks",
            "2 tasks, paper",
            "10 tasks",
            "10 tasks, paper",
            "10 tasks, survey",
        ]
        assert table.rows == [  # in the order of the recipe, with the methods of the paper that were not run
            ["Finetune", "30.0", "56.34", "30.0", "25.81", "26.3"],
            ["iCaRL", "–", "66.05", "–", "61.74", "64.4"],
            ["BiC", "–", "69.16", "–", "62.79", "65.1"],
            ["WA", "–", "67.56", "–", "57.43", "67.1"],
            ["COIL", "62.0", "69.64", "71.0 ± 1.4", "65.48", "60.27"],
            ["Oracle", "–", "–", "80.0", "–", "–"],
        ]
        assert table.notes == [
            "The paper: It is 20 % better.",
            "The paper's Oracle is an accuracy on all classes and not an average: 70.1. "
            "Ours, after the last task: 80.0 (10 tasks).",
        ]

    def test_published_streams_that_were_not_run_have_dashes(self, streams: list[StreamSummary]) -> None:
        table = paper_table(streams[:1], TABLE)
        assert table.headings == [
            "Method",
            "2 tasks",
            "2 tasks, paper",
            "10 tasks",
            "10 tasks, paper",
            "10 tasks, survey",
        ]
        assert ["COIL", "62.0", "69.64", "–", "65.48", "60.27"] in table.rows

    def test_streams_have_the_order_of_the_recipes(self, streams: list[StreamSummary]) -> None:
        assert paper_table(streams[::-1], TABLE) == paper_table(streams, TABLE)

    def test_other_experiments_have_no_published_numbers(self) -> None:
        assert paper_table(summarise([make_result()]), replace(TABLE, recipes=())).headings == ["Method", "2 tasks"]

    def test_markdown_and_latex(self, streams: list[StreamSummary]) -> None:
        table = paper_table(streams, TABLE)
        assert markdown(table).splitlines()[2] == "| Finetune | 30.0 | 56.34 | 30.0 | 25.81 | 26.3 |"
        assert "\nThe paper: It is 20 % better.\n" in markdown(table)
        lines = latex(table).splitlines()
        assert lines[1] == "% The paper: It is 20 % better."
        assert r"\begin{tabular}{lrrrrr}" in lines
        assert r"COIL & 62.0 & 69.64 & 71.0 $\pm$ 1.4 & 65.48 & 60.27 \\" in lines
        assert r"Oracle & -- & -- & 80.0 & -- & -- \\" in lines


class TestFigure:
    def test_titles_say_how_far_coil_is_ahead(self, streams: list[StreamSummary]) -> None:
        titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure_of(streams).axes]
        assert titles == [
            "2 tasks: COIL 32.0 ahead of Finetune",
            "10 tasks: COIL 41.0 ahead of Finetune",
        ]  # Oracle is no rival

    def test_titles_say_how_far_coil_is_behind(self) -> None:
        found = summarise([result("COIL", 2, 29.5, method="coil-tuned"), result("finetune", 2, 30.0)])
        assert [axes.get_title() for axes in figure_of(found).axes] == ["2 tasks: COIL 0.5 behind Finetune"]

    def test_without_coil_there_is_no_lead(self) -> None:
        assert [axes.get_title() for axes in figure_of(summarise([make_result()])).axes] == ["2 tasks"]

    def test_new_classes_before_training_get_a_panel(self) -> None:
        found = make_result("coil")
        accuracy = {"pt": InitialAccuracy(among_new=70.0, among_all=40.0)}
        steps = [found.steps[0], found.steps[1].model_copy(update={"initial": accuracy})]
        titles = [axes.get_title() for axes in figure_of(summarise([found.model_copy(update={"steps": steps})])).axes]
        assert titles == ["2 tasks", "COIL: new classes before training"]

    def test_streams_of_several_data_sets_are_named(self) -> None:
        other = make_result(recipe={**RECIPE, "data": {"source": "birds"}}, tasks=[4, 2])
        assert short_titles(summarise([make_result(), other])) == [
            "digits, 4 classes, 2 tasks",
            "birds, 6 classes, 4 + 1 x 2",
        ]


def test_all_files_are_written_and_names_are_escaped(tmp_path: Path) -> None:
    results = [make_result(f"{name.replace('/', '')}{number}") for number, name in enumerate(HOSTILE)]
    paths = write_reproduction(summarise(results), "table1", TABLE, tmp_path)
    assert sorted(path.suffix for path in paths) == [".html", ".md", ".png", ".svg", ".tex"]
    assert all(path.stat().st_size for path in paths)
    page = (tmp_path / "table1.html").read_text(encoding="utf-8")
    assert "&lt;i&gt;Title" in page
    assert "<b>" not in page
    assert "<script" not in page
