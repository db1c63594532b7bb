"""How benchmarks measure and judge."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import Figure, in_turns, ratio


@pytest.mark.parametrize(
    ("value", "target", "verdict"),
    [
        (0.95, {"at_least": 0.92}, "met"),
        (0.91, {"at_least": 0.92}, "missed"),
        (0.4, {"at_most": 0.5}, "met"),
        (0.6, {"at_most": 0.5}, "missed"),
        (7.0, {}, ""),
    ],
)
def test_a_target_is_met_or_missed(value: float, target: dict[str, float], verdict: str) -> None:
    assert Figure("speed", "of something", value, **target).verdict == verdict  # type: ignore[arg-type]


def test_a_ratio_compares_the_faster_rounds() -> None:
    seconds = {"ideal": [9.0, 2.7, 2.5, 9.0], "ours": [4.0, 9.0, 2.0, 9.0]}
    assert ratio(seconds, "ideal", "ours") == pytest.approx(2.6 / 3)


def test_variants_take_turns() -> None:
    order: list[str] = []
    in_turns({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert "".join(order) == "ab" + "ba" + "ab"


@pytest.mark.slow
def test_the_cost_of_many_classes_is_measured(tmp_path: Path) -> None:
    words = ["--classes", "400", "--memory", "400", "--out", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "benchmarks.many_classes", *words], check=True, capture_output=True)
    values = json.loads((tmp_path / "many-classes.json").read_text(encoding="utf-8"))
    assert [task["classes"] for task in values["tasks"]] == [200, 300, 400]
    assert (tmp_path / "many-classes.png").stat().st_size > 10_000
