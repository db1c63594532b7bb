from __future__ import annotations

import pytest

from cotransport.methods.replay import Replay
from cotransport.settings.sections import Budget
from tests.helpers import pictures, second_task, three_classes, trained_on


def test_uses_all_of_the_memory_and_needs_none() -> None:
    budget = Budget(total=8)
    assert Replay().budget(budget) == budget
    assert not Replay().needs_exemplars


def test_trains_on_new_images_and_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    network, data = second_task(three_classes("replay"))
    assert data.memory is not None
    (used,) = trained_on(Replay(), network, data, monkeypatch)
    assert used == sorted(pictures(data.new.images) + pictures(data.memory.images))
