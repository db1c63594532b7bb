"""The report's page."""

from __future__ import annotations

import base64
import gzip
import re

import pytest

from cotransport.experiments.results import Result
from cotransport.report import tables
from cotransport.report.aggregate import summarise
from cotransport.report.page import render_page
from tests.report.pages import ParsedPage
from tests.report.results import HOSTILE, make_result, many_sources, transported_results


class Page(ParsedPage):
    """The page on some results."""

    def __init__(self, *results: Result) -> None:
        super().__init__(render_page(summarise(results)))


def test_the_page_is_whole_and_loads_nothing() -> None:
    from plotly.offline import get_plotlyjs

    page = Page(make_result(seed=1), make_result(seed=2), make_result("coil"))
    assert page.html.startswith("<!doctype html>\n")
    assert page.open == []
    assert page.addresses == []
    assert not {"link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert "@import" not in page.html
    (packed,) = re.findall(r'<script type="text/plain" id="plotly">([\w+/=]+)</script>', page.html)
    assert gzip.decompress(base64.b64decode(packed)).decode() == get_plotlyjs()
    assert len(page.html) < 2_500_000


def test_the_security_policy_forbids_loading_anything() -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="(.*?)"', Page(make_result()).html)
    assert policy == "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def test_the_page_explains_its_columns_and_has_the_full_recipe() -> None:
    page = Page(make_result())
    for column in tables.COLUMNS:
        assert column.meaning in page.text
    assert "schedule:" in page.text


def test_rows_are_in_order_and_the_best_value_is_bold() -> None:
    page = Page(
        make_result("finetune", per_task=[[90.0], [20.0, 60.0]]),
        make_result("coil", per_task=[[90.0], [60.0, 60.0]]),
        make_result("oracle", per_task=[[90.0], [90.0, 90.0]]),
    )
    assert [row[:3] for row in page.rows] == [
        ["Method", "Seeds", "Average accuracy"],
        ["Oracle", "1", "90.0"],
        ["COIL", "1", "75.0"],
        ["Finetune", "1", "65.0"],
    ]
    assert "<b>75.0</b>" in page.html
    assert "<b>90.0</b>" not in page.html
    assert "(an upper bound): Oracle." in page.words
    assert re.findall(r" selected>(\w+)<", page.html) == ["COIL"], "the upper bound is not shown first"


def test_hostile_names_stay_text() -> None:
    page = Page(*(make_result(label, classes=HOSTILE[:4], recipe={"name": HOSTILE[0]}) for label in HOSTILE))
    plain = Page(*(make_result(f"m{number}", recipe={"name": "x"}) for number in range(len(HOSTILE))))
    assert page.open == []
    assert page.tags.count("script") == 3
    assert page.tags == plain.tags, "the same elements as with harmless names"
    assert "</script><b>" in page.text
    assert "two lines" in page.text


def test_hostile_class_names_stay_text_in_the_table_of_sources() -> None:
    page, plain = Page(*transported_results(HOSTILE[:5])), Page(*transported_results())
    assert page.open == []
    assert page.tags == plain.tags, "the same elements as with harmless names"
    assert "</script><b>\N{NO-BREAK SPACE}0.70" in page.text


def test_chart_data_cannot_end_its_script_element() -> None:
    names = ["</script>", "<!--", "\u2028", "日本", "]]>"]
    page = Page(*transported_results(names))
    assert not set("<>&") & set(page.chart_script)
    hover = page.charts["stream1-accuracy"]["data"][-1]["customdata"][0]
    assert hover.endswith("<br>started with: &lt;/script&gt;, &lt;!--"), "JSON gives the characters back"


def test_plotly_accepts_every_chart() -> None:
    from plotly.graph_objects import Figure

    uneven = make_result(tasks=[3, 1, 2], per_task=[[80.0], [60.0, None], [40.0, 50.0, 90.0]])
    page = Page(make_result(seed=1), make_result(seed=2), uneven, *transported_results())
    charts = page.charts
    every_stream = ["accuracy", "method1-matrix", "method1-forgetting", "method1-confusion"]
    transported = ["method1-transport", "method1-initial-new", "method1-initial-all"]
    assert sorted(charts) == sorted(
        f"stream{n}-{name}" for n in (1, 2, 3) for name in (every_stream + transported if n == 3 else every_stream)
    )
    elements = re.findall(r'data-chart="(.*?)"', page.html)
    assert sorted(elements) == sorted(charts), "one element for each chart"
    for chart in charts.values():
        Figure(chart)


def test_several_streams_have_a_section_each() -> None:
    page = Page(make_result(), make_result("coil", tasks=[4], per_task=[[75.0]]))
    assert page.tags.count("section") == 2
    assert page.addresses == ["#stream1", "#stream2"]
    assert page.tags.count("h1") == 1


def test_sources_of_new_classes_are_in_a_table() -> None:
    rows = Page(*transported_results()).rows[3:]
    assert [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in rows] == [
        # 1.6 and 2.0: deviation sqrt(0.2 ** 2 + 0.2 ** 2) = 0.28
        ["tiger", "cat 0.70, dog 0.30", "1.8 ± 0.3 of 2"],
        ["wolf", "dog 0.70, cat 0.30", "1.8 ± 0.3 of 2"],
        # the three largest of four sources; 2 and 4: deviation sqrt(2)
        ["lynx", "cat 0.40, tiger 0.40, dog 0.10", "3.0 ± 1.4 of 4"],
    ]


def test_with_very_many_classes_there_is_a_table_of_sources_but_no_map() -> None:
    page = Page(many_sources())
    assert not any(name.endswith("transport") for name in page.charts)
    # 300 of 45,150 parts are 0.66 %
    largest = "class 299\xa00.01, class 298\xa00.01, class 297\xa00.01"
    assert page.rows[-1] == ["class 300", largest, "250.0 of 300"]


def test_a_method_without_transport_has_no_charts_of_it() -> None:
    replay = make_result(tasks=[2, 2, 1], per_task=[[90.0], [80.0, 80.0], [60.0, 60.0, 60.0]])
    alone = Page(replay)
    assert "new class" not in alone.text
    assert "before training" not in alone.text
    both = Page(replay, *transported_results(replay.classes))
    assert [row[0] for row in both.rows[1:3]] == ["COIL", "Replay"]
    shown = {name for name in both.charts if "transport" in name or "initial" in name}
    assert shown == {f"stream1-method1-{name}" for name in ("transport", "initial-new", "initial-all")}


@pytest.mark.parametrize(
    ("metric", "words"),
    [("top1", "whose predicted class is right"), ("top5", "whose true class is among the five best predictions")],
)
def test_the_metric_is_explained(metric: str, words: str) -> None:
    assert words in Page(make_result(metric=metric)).words


def test_several_seeds_are_mentioned_beside_means_and_bands() -> None:
    one, two = Page(*transported_results()[:1]), Page(*transported_results())
    for words in ("mean over 2 seeds.", "The band is one standard deviation over seeds."):
        assert words in two.words
        assert words not in one.words


def test_an_unknown_recipe_has_a_page_too() -> None:
    assert "Replay reaches 80.0" in Page(make_result(recipe={}, environment={})).text
