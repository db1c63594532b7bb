"""Figures for a paper."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from matplotlib.text import Text

from cotransport.report import figures
from cotransport.report.aggregate import summarise
from tests.report.results import make_result, transported_results


def test_figures_show_names_and_values_in_the_same_colours() -> None:
    stream = summarise([make_result("coil"), make_result("replay", per_task=[[90.0], [40.0, 80.0]])])[0]
    accuracy, forgetting = figures.accuracy_figure(stream), figures.forgetting_figure(stream)
    assert {text.get_text() for text in accuracy.axes[0].texts} == {"COIL  70.0", "Replay  60.0"}
    assert {text.get_text() for text in forgetting.axes[0].texts} == {"COIL  30.0", "Replay  50.0"}
    colours = [method.style.colour for method in stream.methods]
    for figure in (accuracy, forgetting):
        assert [line.get_color() for line in figure.axes[0].lines] == colours
    np.testing.assert_array_equal(accuracy.axes[0].lines[0].get_xdata(), [2, 4])
    matrix = figures.matrix_figure(stream, stream.methods[0])
    assert [text.get_text() for text in matrix.axes[0].texts] == ["90", "60", "80"]


def test_labels_at_line_ends_do_not_overlap() -> None:
    results = [make_result(f"m{number}", per_task=[[90.0], [70.0, 70.0 + number / 50]]) for number in range(12)]
    figure = figures.accuracy_figure(summarise(results)[0])
    figure.draw_without_rendering()
    # an annotation's own extent would include its line
    boxes = sorted((Text.get_window_extent(text) for text in figure.axes[0].texts), key=lambda box: box.y0)
    assert len(boxes) == 12
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))


def test_a_hundred_classes_keep_their_names() -> None:
    result = make_result(tasks=[50, *[10] * 5], per_task=[[70.0] * (i + 1) for i in range(6)])
    method = summarise([result])[0].methods[0]
    assert method.confusion is not None
    axes = figures.confusion_figure(method.name, method.confusion).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"class {number}" for number in range(100)]
    assert not axes.texts, "no room for numbers"


def test_the_map_of_sources_shows_shares_and_names() -> None:
    method = summarise(transported_results())[0].methods[0]
    assert method.origins is not None
    axes = figures.transport_figure(method.name, method.origins).axes[0]
    assert [text.get_text() for text in axes.texts] == ["70", "30", "40", "30", "70", "10", "40", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["tiger", "wolf", "lynx"]


def test_accuracy_before_training_has_a_panel_for_each_choice_of_classes() -> None:
    method = summarise(transported_results())[0].methods[0]
    among_new, among_all = figures.initial_figure(method).axes
    assert [text.get_text() for text in among_new.texts] == ["prospective transport  100.0", "chance  100.0"]
    assert not among_all.texts, "no value is known for the last task"
    np.testing.assert_array_equal(among_all.lines[0].get_ydata(), [25.0, math.nan])
