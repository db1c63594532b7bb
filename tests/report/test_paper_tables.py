"""The contents of the paper's tables: columns, published numbers, notes and costs."""

from __future__ import annotations

from dataclasses import replace

from cotransport.report.aggregate import summarise
from cotransport.report.paper_tables import FAST_NOTE, contents_of, short_titles
from tests.report.paper import TABLE, before_training, some_streams
from tests.report.results import RECIPE, make_result

HEADINGS = ["Method", "2 tasks", "2 tasks, paper", "10 tasks", "10 tasks, paper", "10 tasks, survey"]


class TestTable:
    def test_methods_by_streams_with_published_numbers(self) -> None:
        contents = contents_of(some_streams(), TABLE)
        (table,) = contents.tables
        assert table.headings == HEADINGS
        assert table.rows == [  # in the order of the recipe, with the methods of the paper that were not run
            ["Finetune", "30.0", "56.34", "30.0", "25.81", "26.3"],
            ["iCaRL", "–", "66.05", "–", "61.74", "64.4"],
            ["BiC", "–", "69.16", "–", "62.79", "65.1"],
            ["WA", "–", "67.56", "–", "57.43", "67.1"],
            ["COIL", "62.0", "69.64", "71.0 ± 1.4", "65.48", "60.27"],
            ["Oracle", "–", "–", "80.0", "–", "–"],
        ]
        assert contents.notes == [
            "Accuracy on all classes seen so far, measured after each task, in percent; mean over the tasks. ± is the "
            "sample standard deviation over seeds, and – means that there is no number.",
            "“paper” is the number in the paper, and “survey” the one in its authors' later survey (arXiv 2302.03648).",
            FAST_NOTE,
            "Our COIL has CE + lambda / (1 - lambda) KD beside the transports, the paper's has "
            "(1 - lambda) CE + lambda KD.",
            "The paper: It is 20 % better.",
            "The paper's Oracle is an accuracy on all classes and not an average: 70.1. "
            "Ours, after the last task: 80.0 (10 tasks).",
        ]

    def test_what_each_stream_cost(self) -> None:
        """Tasks of 10 seconds; the fastest seed of COIL took 6: two and ten of them are 0.3 and 1 to 2 minutes."""
        costs = contents_of(some_streams(), TABLE).costs
        assert costs.headings == ["Stream", "Recipe", "Minutes per method", "Parameters (M)", "Augmentation", "Seeds"]
        assert costs.rows == [
            ["2 tasks", "cifar100-b0-2-fast", "0.3", "–", "basic", "1"],
            ["10 tasks", "cifar100-b0-10-fast", "1 to 2", "–", "basic", "1 to 2"],
        ]

    def test_the_measure_is_named(self) -> None:
        (stream,) = summarise([make_result(metric="top5")])
        assert contents_of([stream], replace(TABLE, recipes=())).notes[0].startswith("Top-5 accuracy on all classes")

    def test_new_classes_before_training(self) -> None:
        contents = contents_of(before_training(), replace(TABLE, recipes=(), before_training=True))
        among_new, among_all = contents.tables
        assert (among_new.title, among_all.title) == ("Among the new classes", "Among all classes seen")
        assert among_new.headings == ["Classifier", "task 2", "task 3", "mean"]
        assert among_new.rows == [
            ["prospective transport", "70.0", "80.0", "75.0"],
            ["random weights", "50.0", "52.0", "51.0"],
            ["chance", "50.0", "50.0", "50.0"],
        ]
        assert among_all.rows[0] == ["prospective transport", "40.0", "20.0", "30.0"]
        assert contents.notes[0].startswith(
            "Accuracy on the test images of each task's new classes before any training"
        )

    def test_without_such_runs_there_is_the_average(self) -> None:
        contents = contents_of(summarise([make_result()]), replace(TABLE, recipes=(), before_training=True))
        assert [table.headings for table in contents.tables] == [["Method", "2 tasks"]]

    def test_published_streams_that_were_not_run_have_dashes(self) -> None:
        table = contents_of(some_streams()[:1], TABLE).tables[0]
        assert table.headings == HEADINGS
        assert ["COIL", "62.0", "69.64", "–", "65.48", "60.27"] in table.rows

    def test_streams_have_the_order_of_the_recipes(self) -> None:
        assert contents_of(some_streams()[::-1], TABLE) == contents_of(some_streams(), TABLE)

    def test_other_experiments_have_no_published_numbers(self) -> None:
        contents = contents_of(summarise([make_result()]), replace(TABLE, recipes=()))
        assert contents.tables[0].headings == ["Method", "2 tasks"]
        assert len(contents.notes) == 2  # the measure, and what the paper says

    def test_streams_of_several_data_sets_are_named(self) -> None:
        other = make_result(recipe={**RECIPE, "data": {"source": "birds"}}, tasks=[4, 2])
        assert short_titles(summarise([make_result(), other])) == [
            "digits, 4 classes, 2 tasks",
            "birds, 6 classes, 4 + 1 x 2",
        ]
