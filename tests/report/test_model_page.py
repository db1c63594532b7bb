"""The pages of a model."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from cotransport.overview import Mistake, Overview, Photograph, Picture, WrongAnswer
from cotransport.report.model_page import render_image_page, render_model_page
from tests.report.overviews import (
    NAMES,
    PICTURE,
    answers,
    change,
    image_list,
    known_class,
    new_class,
    overview,
    version,
)
from tests.report.pages import ParsedPage
from tests.report.results import HOSTILE


def page_of(model: Overview) -> ParsedPage:
    return ParsedPage(render_model_page(model))


def plain(text: str) -> str:
    """Text with ordinary spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


class TestWholePage:
    def test_it_loads_nothing(self) -> None:
        page = page_of(overview())
        assert page.html.startswith("<!doctype html>\n")
        assert page.open == []
        assert all(re.match("#[a-z]+$|data:image/(png|jpeg);base64,", address) for address in page.addresses)
        assert not {"link", "iframe", "object", "embed"} & set(page.tags)
        assert set(re.findall(r"url\((.{11})", page.html.partition("</style>")[0])) == {"data:image/"}
        assert "default-src 'none'" in page.html
        assert "@import" not in page.html

    def test_links_lead_to_sections(self) -> None:
        html = page_of(overview()).html
        targets = re.findall(r'href="#(\w+)"', html)
        assert targets == re.findall(r'<section id="(\w+)"', html)

    def test_headings_do_not_skip_a_level(self) -> None:
        levels = [int(tag[1]) for tag in page_of(overview()).tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(later - level <= 1 for level, later in pairwise(levels))

    def test_hostile_names_stay_text(self) -> None:
        page, harmless = page_of(overview(HOSTILE[:3], name=HOSTILE[3])), page_of(overview())
        assert page.open == []
        assert [tag for tag in page.tags if tag != "wbr"] == harmless.tags, "the same elements as with harmless names"
        assert page.text.count("</script><b>") == harmless.text.count("cat")
        assert f"{HOSTILE[0]}, held out" in page.descriptions
        assert not set("<>&") & set(page.chart_script)

    def test_hostile_sentences_stay_text(self) -> None:
        bad = [version(number, taught=text, refused=text, damaged=text) for number, text in enumerate(HOSTILE, 1)]
        good = [version(number, taught="a", refused="a", damaged="a") for number in range(1, len(HOSTILE) + 1)]
        pages = [page_of(overview(versions=(*some, version(9, is_current=True)))) for some in (bad, good)]
        assert pages[0].tags == pages[1].tags

    def test_it_stays_small_with_many_classes(self) -> None:
        """A thumbnail of 112 pixels has about 4,000 bytes; the chart library takes 1.9 million characters."""
        picture = Photograph(Picture(bytes(4000), "image/jpeg"), "held out")
        many = [
            known_class(f"class {number}", photographs=(picture,) if number < 400 else ()) for number in range(5000)
        ]
        lessons = [
            version(number, is_current=number == 100, changes=tuple(new_class(one.name) for one in many))
            for number in range(1, 101)
        ]
        page = page_of(overview(classes=tuple(many), versions=tuple(lessons), answers=answers(confusion=None)))
        assert len(page.html) < 9_000_000
        assert "4600 classes are shown without a picture, or not at all" in page.words
        assert "60 of 5000 classes" in page.words

    def test_plotly_accepts_every_chart(self) -> None:
        from plotly.graph_objects import Figure

        page = page_of(overview())
        names = ["confusion", "history", "reliability", "trade-off", "versions"]
        assert sorted(page.charts) == names
        assert sorted(re.findall(r'data-chart="(.*?)"', page.html)) == names
        for chart in page.charts.values():
            Figure(chart)

    def test_without_held_out_images_it_says_so(self) -> None:
        model = overview(answers=None, versions=(version(1, is_current=True, accuracy=None),))
        page = page_of(model)
        assert "pets knows 3 classes" in page.words
        assert "No image was held out" in page.words
        assert 'data-chart="' not in page.html
        assert 'id="plotly"' not in page.html


class TestContents:
    def test_the_headline_and_the_last_lesson(self) -> None:
        words = plain(page_of(overview()).words)
        assert "pets knows 3 classes and recognises 75.0 % of the images held out to test it" in words
        assert "The last lesson taught 1 new class in 12 s." in words
        assert (
            "Of 8 images of the classes known before, 87.5 % were recognised before it and 75.0 % after it: 1 no "
            "longer recognised, 0 newly recognised, which may be chance." in words
        )
        assert "the true loss lies between −10.0 and 35.0 points" in words

    def test_after_a_renaming_the_last_lesson_is_still_described(self) -> None:
        first, second = overview().versions
        renamed = version(3, is_current=True, taught="cat renamed to tabby", images=0)
        page = page_of(overview(versions=(first, replace(second, is_current=False), renamed)))
        assert "The last lesson taught 1 new class in 12 s." in page.words
        assert [bool(opened) for opened in re.findall(r'<details class="version"( open)?>', page.html)] == [
            False,
            True,
            False,
        ]

    def test_classes_are_grouped_by_lesson(self) -> None:
        page = page_of(overview())
        headings = re.findall(r"<h3>(.*?)</h3>", page.html)
        assert headings[:2] == [
            'Version 1<span class="beside">week1</span>',
            'Version 2<span class="beside">week2</span>',
        ]
        assert page.words.count("3 of 4 recognised") == 3

    def test_pictures_are_the_ones_given(self) -> None:
        page = page_of(overview())
        pictures = [address for address in page.addresses if address.startswith("data:")]
        assert {base64.b64decode(address.partition(",")[2]) for address in pictures} == {PICTURE.data}
        assert page.descriptions == [
            *(f"{name}, held out" for name in NAMES),
            "cat, taken for dog with a probability of 88 %",
        ]

    def test_each_lesson_has_a_table(self) -> None:
        rows = [[plain(cell) for cell in row] for row in page_of(overview()).rows]
        assert rows[:4] == [
            ["Class", "Before", "After", "No longer recognised", "Newly recognised", "Meaning"],
            ["cat", "3 of 4", "3 of 4", "", "", ""],
            ["dog", "4 of 4", "3 of 4", "1", "", "may be chance"],
            ["tiger", "", "3 of 4", "", "", "new"],
        ]

    @pytest.mark.parametrize(("verdict", "words"), [("loss", "more than chance"), ("chance", "may be chance")])
    def test_a_loss_has_a_verdict(self, verdict: str, words: str) -> None:
        changes = (change("cat", before=100.0, after=0.0, lost=4, verdict=verdict),)
        model = overview(versions=(version(2, is_current=True, changes=changes),))
        assert page_of(model).rows[1][-1] == words

    def test_refused_and_damaged_versions_have_their_reason(self) -> None:
        refused = version(3, is_ancestor=False, refused="the classes known before lose 9.0 points")
        damaged = version(4, is_ancestor=False, damaged="metrics.json: damaged")
        words = page_of(overview(versions=(*overview().versions, refused, damaged))).words
        assert "Refused: the classes known before lose 9.0 points." in words
        assert "Damaged: metrics.json: damaged." in words
        assert words.count("not an ancestor of the current version") == 2

    def test_mistakes_are_named(self) -> None:
        words = page_of(overview()).words
        assert "cat 1 of 4 images taken for dog 0123456789ab" in words
        assert "These are the 2 most frequent of 3 confusions" in words

    def test_a_model_without_mistakes(self) -> None:
        perfect = answers(right=12, mistakes=(), wrong_pairs=0, confusion=((4, 0, 0), (0, 4, 0), (0, 0, 4)))
        page = page_of(overview(answers=perfect))
        assert "Nothing: all 12 images that were held out are recognised correctly." in page.words
        assert 'data-chart="confusion"' not in page.html

    def test_related_classes_are_named_with_their_shares(self) -> None:
        page = page_of(overview())
        rows = [[" ".join(cell.split()) for cell in row] for row in page.rows]
        assert ["Class", "Built from", "Similar to"] in rows
        assert ["tiger", "cat0.70 dog0.30", "cat0.55"] in rows
        assert "2 classes of earlier lessons" in page.words

    def test_without_transport_nothing_is_built(self) -> None:
        classes = tuple(replace(one, built_from=()) for one in overview().classes)
        page = page_of(overview(classes=classes))
        assert "Built from" not in page.words
        assert ["Class", "Similar to"] in page.rows

    def test_the_cost_of_being_sure(self) -> None:
        page = page_of(overview())
        assert [[plain(cell) for cell in row] for row in page.rows[-4:]] == [
            ["Wanted: right answers", "Threshold", "Images answered", "Answers that are right"],
            ["90 %, --at-least 90", "0.8", "50.0 %", "100.0 %"],
            ["95 %, --at-least 95", "0.8", "50.0 %", "100.0 %"],
            ["99 %, --at-least 99", "–", "–", "–"],
        ]
        assert "is 4.2 points" in page.words


class TestCharts:
    def test_accuracy_after_each_lesson(self) -> None:
        lines = {line["name"]: line["y"] for line in page_of(overview()).charts["versions"]["data"]}
        # of version 1, cat and dog: 75 % of 4 images each
        assert lines == {
            "all classes": [75.0, 75.0],
            "classes of version 1": [75.0, 75.0],
            "classes of version 2": [None, 75.0],
        }

    def test_a_group_of_classes_counts_every_image(self) -> None:
        """Of 4 images all, of 12 images a quarter: 7 of 16."""
        changes = (change("cat", images=4, after=100.0), change("dog", images=12, after=25.0))
        first = version(1, new_classes=("cat", "dog"), changes=changes)
        second = version(2, is_current=True, changes=changes)
        lines = page_of(overview(versions=(first, second))).charts["versions"]["data"]
        assert lines[1]["y"] == [43.75, 43.75]

    def test_one_lesson_has_no_history(self) -> None:
        only = replace(overview().versions[1], number=1, parent=None)
        charts = page_of(overview(versions=(only,))).charts
        assert sorted(charts) == ["confusion", "reliability", "trade-off"]

    def test_history_has_a_row_for_each_class(self) -> None:
        assert page_of(overview()).charts["history"]["data"][0]["z"] == [[75.0, 75.0], [75.0, 75.0], [None, 75.0]]

    def test_wanted_shares_are_marked_where_they_are_reached(self) -> None:
        line, marks = page_of(overview()).charts["trade-off"]["data"]
        assert (line["x"], line["y"]) == ([100.0, 50.0], [75.0, 100.0])
        assert (marks["x"], marks["y"], marks["text"]) == ([50.0], [100.0], ["90 %, 95 %"])

    def test_reliability_compares_probabilities_with_right_answers(self) -> None:
        diagonal, points = page_of(overview()).charts["reliability"]["data"]
        assert diagonal["x"] == diagonal["y"]
        assert (points["x"], points["y"]) == ([50.0, 90.0], [40.0, 100.0])


class TestImagePage:
    def test_every_image_has_its_id_file_and_versions(self) -> None:
        page = ParsedPage(render_image_page(image_list()))
        assert page.open == []
        assert "pets keeps 2 images of 1 class" in page.words
        assert "0123456789ab a.jpg exemplar in versions 1–2, 4" in page.words
        assert "ba9876543210 held out in version 1 (not current)" in page.words
        assert "cotransport remove-image" in page.words
        assert "To keep the page small" not in page.words

    def test_images_that_are_left_out_are_counted(self) -> None:
        words = ParsedPage(render_image_page(image_list(images=1002))).words
        assert "it shows 2 of the images" in words
        assert "1000 more." in words

    def test_hostile_names_stay_text_and_nothing_is_loaded(self) -> None:
        harmless = ParsedPage(render_image_page(image_list()))
        for name in HOSTILE:
            page = ParsedPage(render_image_page(image_list(name, name)))
            assert [tag for tag in page.tags if tag != "wbr"] == harmless.tags
            assert all(address.startswith("data:image/") for address in page.addresses)
        assert "script" not in harmless.tags


def test_tiny_pictures_are_shown_as_squares() -> None:
    tiny = Picture(b"tiny", "image/png")
    mistake = Mistake(0, 1, 1, (WrongAnswer("0" * 12, tiny, 0.5),))
    classes = tuple(replace(one, photographs=(Photograph(tiny, "exemplar"),)) for one in overview().classes)
    html = render_model_page(overview(classes=classes, answers=answers(mistakes=(mistake,))))
    assert html.count('class="tiny"') == 4
    assert html.count("image-rendering: pixelated; }") == 3 + 1
