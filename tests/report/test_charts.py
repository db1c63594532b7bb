"""The page's charts."""

from __future__ import annotations

import math

import pytest

from cotransport.report import charts
from cotransport.report.aggregate import summarise
from tests.report.results import HOSTILE, make_result, transported_results


def test_hover_texts_have_accuracy_deviation_and_new_classes() -> None:
    results = [make_result(seed=s, per_task=[[90.0], [last, last]]) for s, last in enumerate((68.0, 72.0))]
    band, line = charts.accuracy_chart(summarise(results)[0])["data"]
    # mean of 68 and 72, deviation sqrt(8) = 2.83
    assert line["customdata"] == [
        "<b>Replay: 90.0 ± 0.0 % on 2 classes</b><br>started with: class 0, class 1",
        "<b>Replay: 70.0 ± 2.8 % on 4 classes</b><br>added: class 2, class 3",
    ]
    assert band["x"] == [2, 4, 4, 2]
    assert band["y"] == pytest.approx([90.0, 70 + math.sqrt(8), 70 - math.sqrt(8), 90.0], abs=1e-3)


def test_the_matrix_is_empty_where_nothing_was_tested() -> None:
    stream = summarise([make_result(tasks=[3, 1, 2], per_task=[[80.0], [60.0, None], [40.0, 50.0, 90.0]])])[0]
    chart = charts.matrix_chart(stream, stream.methods[0])
    assert chart["data"][0]["z"] == [[80.0, None, None], [60.0, None, None], [40.0, 50.0, 90.0]]


def test_a_hundred_classes_keep_their_names() -> None:
    result = make_result(tasks=[50, *[10] * 5], per_task=[[70.0] * (i + 1) for i in range(6)])
    confusion = summarise([result])[0].methods[0].confusion
    assert confusion is not None
    assert len(charts.confusion_chart(confusion)["layout"]["xaxis"]["ticktext"]) == 100


def test_the_map_of_sources_need_not_be_square() -> None:
    origins = summarise(transported_results())[0].methods[0].origins
    assert origins is not None
    chart = charts.transport_chart(origins)
    assert chart["data"][0]["z"] == [[70, 30, 40], [30, 70, 10], [None, None, 40], [None, None, 10]]
    assert chart["data"][0]["customdata"][1] == [
        f"{new}: {share}\N{NO-BREAK SPACE}% from dog" for new, share in (("tiger", 30), ("wolf", 70), ("lynx", 10))
    ]
    assert chart["data"][0]["customdata"][2][:2] == [None, None], "tiger had not been learned yet"
    assert chart["layout"]["xaxis"]["ticktext"] == ["tiger", "wolf", "lynx"]
    assert chart["layout"]["yaxis"]["ticktext"] == ["cat", "dog", "tiger", "wolf"]
    separators = [(line["x0"], line["x1"], line["y0"], line["y1"]) for line in chart["layout"]["shapes"]]
    assert separators == [(1.5, 1.5, -0.5, 3.5), (-0.5, 2.5, 1.5, 1.5)]
    assert chart["layout"]["coloraxis"]["cmax"] == 70, "the largest share has the darkest colour"


def test_accuracy_before_training_is_drawn_for_each_classifier() -> None:
    stream = summarise(transported_results())[0]
    data = charts.initial_chart(stream, stream.methods[0], "all")["data"]
    transport = next(trace for trace in data if trace.get("name"))
    # 20 and 30: deviation sqrt(50)
    assert transport["customdata"][0] == "<b>prospective transport: 25.0 ± 7.1 % on task 2</b><br>new: tiger, wolf"
    assert (transport["x"], transport["y"]) == ([2, 3], [25.0, None])


def test_plotly_cannot_read_names_as_markup_or_placeholders() -> None:
    stream = summarise(transported_results(HOSTILE[:5]))[0]
    method = stream.methods[0]
    assert method.origins is not None
    assert method.confusion is not None
    transport = charts.transport_chart(method.origins)
    assert transport["layout"]["yaxis"]["ticktext"][0] == "&lt;/script&gt;&lt;b&gt;"
    assert transport["data"][0]["customdata"][0][1].endswith("from &lt;/script&gt;&lt;b&gt;")
    confusion = charts.confusion_chart(method.confusion)
    assert confusion["layout"]["xaxis"]["ticktext"][0] == "&lt;/script&gt;&lt;b&gt;"
    initial = charts.initial_chart(stream, method, "new")
    assert "日本語 &lt;br&gt;%{x}" in initial["data"][-1]["customdata"][0]
    for chart in (transport, confusion, initial, charts.accuracy_chart(stream), charts.matrix_chart(stream, method)):
        assert all("%{x}" not in trace.get("hovertemplate", "") for trace in chart["data"])
