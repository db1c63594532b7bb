"""What a lesson leaves in a version's `metrics.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cotransport.errors import ModelError
from cotransport.lessons.records import ClassAccuracy, LessonReport, mean_accuracy, parse_report, read_report
from cotransport.model.folder import ModelFolder
from tests.imports import imported
from tests.model.helpers import accept, pixels, snapshot, store_with

LESSON = {"id": "ab", "data": "photos", "data_id": "cd", "images": 3, "new_classes": ["a"], "extended_classes": [7]}
METRICS: dict[str, Any] = {
    "lesson": {**LESSON, "epochs": 2, "kept": 4, "held_out": 1},
    "chosen": {"seed": 1},
    "per_class": [{"name": "a", "images": 2, "before": None, "after": 50.0}],
    "accuracy": 50.0,
    "old_before": 90.0,
    "old_after": 87.5,
    "forgetting": 2.5,
    "times": {"seconds": 1.5},
}


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([ClassAccuracy(name="a", images=10, before=90.0, after=80.0)], 80.0),
        (
            [
                ClassAccuracy(name="a", images=10, before=None, after=80.0),
                ClassAccuracy(name="b", images=30, before=None, after=40.0),
            ],
            50.0,
        ),
        ([ClassAccuracy(name="a", images=0, before=None, after=None)], None),
        ([], None),
    ],
)
def test_in_the_mean_every_image_counts_the_same(classes: list[ClassAccuracy], expected: float | None) -> None:
    assert mean_accuracy(classes, "after") == expected


def test_the_mean_before_counts_only_classes_that_were_known() -> None:
    classes = [
        ClassAccuracy(name="a", images=10, before=90.0, after=80.0),
        ClassAccuracy(name="b", images=30, before=None, after=40.0),
    ]
    assert mean_accuracy(classes, "before") == 90.0


class TestReport:
    def test_lost_accuracy_is_called_forgetting_on_disk(self) -> None:
        report = parse_report(METRICS, "")
        assert report.accuracy_lost == 2.5
        written = report.model_dump(mode="json", by_alias=True)
        assert {name: written[name] for name in METRICS if name != "per_class"} == {
            name: value for name, value in METRICS.items() if name != "per_class"
        }
        assert "accuracy_lost" not in written

    def test_is_made_with_the_name_that_python_uses(self) -> None:
        values = {name: value for name, value in METRICS.items() if name != "forgetting"}
        assert LessonReport(**values, accuracy_lost=2.5) == parse_report(METRICS, "")

    def test_keeps_what_a_later_release_has_added(self) -> None:
        later = {
            **METRICS,
            "later": 1,
            "lesson": {**LESSON, "later": 2, "epochs": None, "kept": None, "held_out": None},
        }
        written = parse_report(later, "").model_dump(mode="json", by_alias=True)
        assert (written["later"], written["lesson"]) == (1, later["lesson"])

    def test_a_lesson_may_have_trained_nothing(self) -> None:
        assert parse_report({**METRICS, "lesson": LESSON}, "").lesson.epochs is None

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"lesson": {}}, r"lesson\.id: Field required"),
            ({"per_class": [{"name": "a"}]}, r"per_class\.0\.images"),
            ({"forgetting": "much"}, "forgetting|accuracy_lost"),
        ],
    )
    def test_a_damaged_one_is_named(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ModelError, match=rf"^m, version 3: metrics: .*({message}).*Restore it from a backup"):
            parse_report({**METRICS, **change}, "m, version 3")

    def test_without_the_measure_it_is_damaged(self) -> None:
        with pytest.raises(ModelError, match="Field required"):
            parse_report({name: value for name, value in METRICS.items() if name != "forgetting"}, "")


class TestReadReport:
    def test_a_version_without_metrics_has_none(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)))
        path = store.path / "versions" / "0001" / "metrics.json"
        path.write_text("{}")
        accept(store.path, path)
        assert read_report(store, store.manifest().version(1)) is None

    def test_metrics_of_something_else_are_an_error(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)))  # it has an accuracy and nothing else
        with pytest.raises(ModelError, match=r"m, version 1: metrics: lesson"):
            read_report(store, store.manifest().version(1))

    def test_a_report_that_an_earlier_release_wrote_is_read(self) -> None:
        folder = ModelFolder(Path(__file__).parent.parent / "models" / "format-1" / "model")
        first, second = (read_report(folder, folder.manifest().version(number)) for number in (1, 2))
        assert first is not None
        assert second is not None
        assert (first.accuracy_lost, second.accuracy_lost) == (None, 0.0)
        assert second.lesson.new_classes == ["class 2", "class 3"]


def test_reports_need_no_torch() -> None:
    assert imported("import cotransport.lessons.records", ["torch", "numpy"]) == []
