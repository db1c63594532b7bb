"""How predictions and lessons are shown."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from cotransport.cli.model_output import Format, percent, print_predictions, rollback_command, show_outcome
from cotransport.learner.prediction import Prediction
from cotransport.lessons.records import ClassAccuracy, Confusion, LessonOutcome, LessonRecord, LessonReport

GOOD = Prediction("a.jpg", (("cat", 0.75), ("dog", 0.25)))
BAD = Prediction("b.jpg", (), "b.jpg: not an image")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide terminal."""
    monkeypatch.setenv("COLUMNS", "160")


class TestPrintPredictions:
    def test_a_table_lists_the_classes_of_each_image(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_predictions([GOOD, BAD], Format.table, top=2) == 1
        printed = capsys.readouterr()
        lines = [line.split() for line in printed.out.splitlines()]
        assert lines == [["image", "class", "probability"], ["a.jpg", "cat", "0.750"], ["dog", "0.250"]]
        assert printed.err == "b.jpg: not an image\n"

    def test_without_any_prediction_there_is_no_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_predictions([BAD], Format.table, top=1) == 1
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        ("top", "header", "row"),
        [
            (1, ["class", "probability"], ["cat", "0.750000"]),
            (2, ["class_1", "probability_1", "class_2", "probability_2"], ["cat", "0.750000", "dog", "0.250000"]),
        ],
    )
    def test_csv_has_a_row_for_each_image(
        self, top: int, header: list[str], row: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert print_predictions([GOOD._replace(classes=GOOD.classes[:top]), BAD], Format.csv, top) == 1
        rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
        assert rows == [
            ["image", *header, "error"],
            ["a.jpg", *row, ""],
            ["b.jpg", *[""] * len(row), "b.jpg: not an image"],
        ]

    def test_json_lines_have_an_object_for_each_image(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_predictions([GOOD, BAD], Format.jsonl, top=2) == 1
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        best = [{"class": "cat", "probability": 0.75}, {"class": "dog", "probability": 0.25}]
        assert found == [
            {"image": "a.jpg", "predictions": best, "error": None},
            {"image": "b.jpg", "predictions": [], "error": "b.jpg: not an image"},
        ]

    @pytest.mark.parametrize("form", list(Format))
    def test_names_that_a_terminal_would_obey_are_escaped(
        self, form: Format, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hostile = Prediction("a\x1b[2J[red].png", (("cat\x9b2J", 1.0),))
        print_predictions([hostile, hostile._replace(classes=(), error="b\x1b[2J.png: not an image")], form, top=1)
        printed = capsys.readouterr()
        assert not {"\x1b", "\x9b"} & set(printed.out + printed.err)
        assert "[red]" in printed.out


def accuracy(name: str, before: float | None, after: float | None, images: int = 4, **changed: int) -> ClassAccuracy:
    return ClassAccuracy(name=name, images=images, before=before, after=after, **changed)


def outcome(*classes: ClassAccuracy, new: int = 1, **changes: Any) -> LessonOutcome:
    """The outcome of a lesson in which the last `new` classes were new."""
    names = [one.name for one in classes]
    lesson = LessonRecord(
        id="ab",
        data="photos",
        data_id="cd",
        images=20,
        new_classes=names[len(names) - new :],
        extended_classes=[],
        epochs=3,
    )
    report = LessonReport(
        lesson=lesson,
        chosen={},
        per_class=list(classes),
        accuracy=changes.pop("accuracy", 80.0),
        old_before=changes.pop("old_before", None),
        old_after=changes.pop("old_after", None),
        accuracy_lost=changes.pop("accuracy_lost", None),
        times={"seconds": 75.0},
    )
    return LessonOutcome(**({"version": 2, "refused": None, "already": False, "parent": 1} | changes), report=report)


def shown(found: LessonOutcome, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> str:
    show_outcome(Path("my model"), found, as_json=as_json)
    captured = capsys.readouterr()
    return captured.out + captured.err


class TestShowOutcome:
    def test_each_class_is_compared_with_the_version_before(self, capsys: pytest.CaptureFixture[str]) -> None:
        classes = (
            accuracy("cat", 75, 50, lost=1, gained=0),
            accuracy("dog", 50, 100, lost=0, gained=2),
            accuracy("fox", 50, 50, lost=1, gained=1),
            accuracy("owl", None, 75),
        )
        printed = shown(outcome(*classes, old_before=66.7, old_after=71.7, accuracy_lost=-5.0), capsys)
        assert [line.split() for line in printed.splitlines()[1:5]] == [
            ["cat", "3", "of", "4", "2", "of", "4", "-1"],
            ["dog", "2", "of", "4", "4", "of", "4", "+2"],
            ["fox", "2", "of", "4", "2", "of", "4"],
            ["owl", "3", "of", "4", "new"],
        ]
        assert "version 2 recognises 80.0 % of 16 held-out images" in printed
        assert "the classes known before: 66.7 % before, 71.7 % now" in printed
        assert "much forgotten" not in printed

    def test_the_mean_of_the_classes_is_shown_where_their_sizes_differ(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """(100 + 50) / 2 percent; a class without images does not count."""
        empty = accuracy("owl", None, None, images=0)
        printed = shown(outcome(accuracy("cat", 90, 100, images=30), accuracy("dog", 50, 50, images=4), empty), capsys)
        assert "80.0 % of 34 held-out images (75.0 % if every class counts the same)" in printed
        printed = shown(outcome(accuracy("cat", 90, 100), accuracy("dog", 50, 50), empty), capsys)
        assert "every class counts the same" not in printed

    def test_a_lesson_without_held_out_images_has_no_accuracy(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed = shown(outcome(accuracy("cat", None, None, images=0), accuracy=None), capsys)
        assert "version 2 is ready. There are too few images to hold some out for testing" in printed
        assert "–" in printed

    def test_classes_that_lost_more_than_by_chance_are_named_the_worst_first(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        classes = [
            accuracy("cat", 90, 60, images=20, lost=6, gained=0),
            accuracy("dog", 90, 10, images=20, lost=16, gained=0),
            accuracy("fox", 100, 0, images=4, lost=4, gained=0),
            accuracy("owl", None, 70),
        ]
        printed = shown(outcome(*classes, old_before=90, old_after=40, accuracy_lost=50), capsys)
        assert "lost more than chance would explain: dog (16 of 20 images), cat (6 of 20 images). To go back" in printed
        assert "40.0 % now (26 of 44 images no longer recognised, 0 newly: more than chance)" in printed
        assert "To go back to the version before: cotransport rollback 'my model'" in printed

    def test_a_loss_that_many_classes_share_is_named_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        classes = [accuracy(name, 100, 67, images=3, lost=1, gained=0) for name in "abcdef"]
        printed = shown(outcome(*classes, accuracy("owl", None, 70)), capsys)
        assert "lost more than chance would explain: the known classes together. To go back" in printed

    def test_it_ends_with_the_time_and_what_to_do_next(self, capsys: pytest.CaptureFixture[str]) -> None:
        last = shown(outcome(accuracy("cat", None, 75)), capsys).splitlines()[-1]
        assert last.startswith("learned in 1 min 15 s. Use it with cotransport predict 'my model' IMAGE...")

    def test_little_is_put_down_to_chance(self, capsys: pytest.CaptureFixture[str]) -> None:
        classes = accuracy("cat", 100, 50, images=2, lost=1, gained=0), accuracy("owl", None, 70)
        printed = shown(outcome(*classes, old_before=100, old_after=50, accuracy_lost=50), capsys)
        assert "50.0 % now (1 of 2 images no longer recognised, 0 newly: may be chance)" in printed
        assert "lost more than chance" not in printed

    def test_the_worst_confusions_are_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = outcome(accuracy("cat", 90, 60), accuracy("owl", None, 70))
        confusions = [
            Confusion(name="cat", predicted="owl", images=3),
            Confusion(name="owl", predicted="cat", images=2),
            Confusion(name="owl", predicted="fox", images=1),
        ]
        report = found.report.model_copy(update={"confusions": confusions})
        assert "most often confused: cat as owl (3), owl as cat (2)\n" in shown(found._replace(report=report), capsys)

    @pytest.mark.parametrize(("kept", "expected"), [(12, "12 exemplars"), (0, "no exemplars"), (None, None)])
    def test_it_says_what_is_kept(
        self, kept: int | None, expected: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = outcome(accuracy("cat", 90, 60), accuracy("owl", None, 70))
        lesson = found.report.lesson.model_copy(update={"kept": kept, "held_out": 3})
        printed = shown(found._replace(report=found.report.model_copy(update={"lesson": lesson})), capsys)
        sentence = f"20 images were trained on; the model folder keeps {expected} of these classes, and 3 more images"
        assert (sentence in printed) == (expected is not None)

    def test_a_refused_version_is_explained(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed = shown(outcome(accuracy("cat", 90, 10), accuracy("owl", None, 70), refused="too much is lost"), capsys)
        assert "refused: too much is lost. The version before stays current" in printed
        assert "to use this one: cotransport rollback 'my model' --to 2" in printed
        assert "much forgotten" not in printed

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({}, "before: nothing to do. To learn them with other settings, go back first: cotransport rollback"),
            ({"made_current": True}, "before: it is current now."),
            ({"parent": None}, "To learn them with other settings, start a new model"),
        ],
    )
    def test_a_lesson_that_was_learned_before_is_recognised(
        self, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        printed = shown(outcome(accuracy("cat", 90, 80), already=True, **changes), capsys)
        assert printed.startswith("version 2 has learned exactly these images ")
        assert message in printed

    def test_of_many_new_classes_some_are_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        classes = [accuracy(f"class {number}", None, 50) for number in range(45)]
        printed = shown(outcome(*classes, new=45), capsys)
        assert len([line for line in printed.splitlines() if line.rstrip().endswith("new")]) == 40
        assert "40 of 45 classes; --json has all" in printed

    def test_of_many_old_classes_the_most_forgotten_are_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        old = [accuracy(f"old {number}", 90, 90 - number / 10) for number in range(45)]
        new = [accuracy(f"new {number}", None, 50) for number in range(25)]
        printed = shown(outcome(*old, *new, new=25), capsys)
        lines = [line for line in printed.splitlines() if line.startswith((" old", " new"))]
        assert [line.split()[0] for line in lines] == ["new"] * 20 + ["old"] * 20
        assert lines[20].split()[:2] == ["old", "44"]
        assert "40 of 70 classes, of the old ones those that lost most; --json has all" in printed

    def test_json_has_the_keys_of_the_report_on_disk(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = outcome(accuracy("cat", 90, 80), accuracy_lost=10.0, refused="too much is lost")
        printed = json.loads(shown(found, capsys, as_json=True))
        assert {"version", "promoted", "refused", "already"} <= printed.keys()
        assert (printed["version"], printed["promoted"], printed["refused"]) == (2, False, "too much is lost")
        assert printed["forgetting"] == 10.0
        assert found.report.model_dump(mode="json", by_alias=True).items() <= printed.items()


def test_the_rollback_command_can_be_typed_as_it_is_shown() -> None:
    assert rollback_command(Path("model")) == "cotransport rollback model"
    assert rollback_command(Path("my [best] model"), 3) == r"cotransport rollback 'my \[best] model' --to 3"


def test_a_missing_percentage_is_a_dash() -> None:
    assert (percent(12.345), percent(None)) == ("12.3 %", "–")
