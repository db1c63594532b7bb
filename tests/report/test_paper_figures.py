"""The figures of the paper: panels, titles and axes."""

from __future__ import annotations

from cotransport.report.aggregate import summarise
from cotransport.report.paper_figures import figure_of
from tests.report.paper import before_training, result, some_streams
from tests.report.results import make_result


class TestFigure:
    def test_titles_say_how_far_coil_is_ahead(self) -> None:
        titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure_of(some_streams()).axes]
        assert titles == [
            "2 tasks: COIL 32.0 ahead of Finetune",
            "10 tasks: COIL 41.0 ahead of Finetune",
        ]  # Oracle is no rival

    def test_titles_say_how_far_coil_is_behind(self) -> None:
        found = summarise([result("COIL", 2, 29.5, method="coil-tuned"), result("finetune", 2, 30.0)])
        assert [axes.get_title() for axes in figure_of(found).axes] == ["2 tasks: COIL 0.5 behind Finetune"]

    def test_variations_of_coil_are_no_rivals_but_are_named(self) -> None:
        found = summarise(
            [
                result("COIL", 2, 60.0, method="coil-tuned"),
                result("CE+KD", 2, 60.5, method="coil-tuned"),
                result("finetune", 2, 30.0),
            ]
        )
        title = "2 tasks: COIL 30.0 ahead of Finetune, 0.5 behind CE+KD"
        assert [axes.get_title() for axes in figure_of(found).axes] == [title]

    def test_a_lead_is_the_difference_of_the_printed_accuracies(self) -> None:
        """58.06 and 57.94 are printed as 58.1 and 57.9."""
        found = summarise([result("COIL", 2, 58.06, method="coil-tuned"), result("finetune", 2, 57.94)])
        assert [axes.get_title() for axes in figure_of(found).axes] == ["2 tasks: COIL 0.2 ahead of Finetune"]

    def test_without_coil_there_is_no_lead(self) -> None:
        assert [axes.get_title() for axes in figure_of(summarise([make_result()])).axes] == ["2 tasks"]

    def test_a_tie_is_no_lead(self) -> None:
        found = summarise([result("COIL", 2, 30.01, method="coil-tuned"), result("finetune", 2, 30.0)])
        assert [axes.get_title() for axes in figure_of(found).axes] == ["2 tasks: COIL level with Finetune"]

    def test_new_classes_before_training_get_panels(self) -> None:
        initial = ["New classes before training, among themselves", "New classes before training, among all"]
        assert [axes.get_title() for axes in figure_of(before_training()).axes] == ["3 tasks"]
        found = figure_of(before_training(), before_training=True)
        assert [axes.get_title() for axes in found.axes] == initial
        without = figure_of(some_streams(), before_training=True)
        assert len(without.axes) == 2  # the curves, if nothing was evaluated before training

    def test_the_measure_is_named(self) -> None:
        (axes,) = figure_of(summarise([make_result(metric="top5")])).axes
        assert axes.get_ylabel() == "Top-5 accuracy (%)"
