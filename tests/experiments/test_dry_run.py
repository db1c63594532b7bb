"""What a recipe would run, without reading an image."""

from __future__ import annotations

import pytest

from cotransport.errors import ConfigError
from cotransport.experiments.dry_run import dry_run
from tests.experiments.helpers import quick_recipe


def test_a_dry_run_reads_no_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("cotransport.data.sources.Digits.splits", fail)
    plan = dry_run(quick_recipe("stream={step: 4}", "memory.total=100", "methods=[finetune, replay, oracle]"))
    assert [len(task) for task in plan.split] == [4, 4, 2]
    assert plan.classes == tuple(str(number) for number in range(10))
    finetune, replay, oracle = plan.recipe.methods
    assert plan.exemplars(finetune) == ["0", "0", "0"]
    assert plan.exemplars(replay) == ["25", "12", "10"]
    assert plan.exemplars(oracle) == ["all", "all", "all"]


@pytest.mark.parametrize(
    ("override", "message"),
    [("stream={tasks: 11}", "11 is more than the 10 classes"), ("memory.total=9", "needs an exemplar of each")],
)
def test_a_dry_run_finds_what_a_run_would_refuse(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dry_run(quick_recipe("methods=[coil]", override))
