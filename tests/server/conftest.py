"""Models that are served, inside this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cotransport.server import predictor
from cotransport.server.lesson_queue import LessonQueue
from tests.cli.conftest import cotransport
from tests.lessons.conftest import beginner, model
from tests.server.helpers import connected

__all__ = ["beginner", "cotransport", "model"]


@pytest.fixture
def few_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few held-out images of the tests' models are enough for a threshold."""
    monkeypatch.setattr(predictor, "FEWEST_TESTED", 1)


@pytest.fixture
def client(model: Path, few_tested: None) -> Iterator[TestClient]:
    """A client of a model that knows four classes, with the token."""
    with connected(model) as found:
        yield found


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a model without a lesson."""
    with connected(tmp_path / "new") as found:
        yield found


@pytest.fixture
def queue_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lessons are queued and never learned."""

    async def wait(_: object) -> None:
        """Learn nothing."""

    monkeypatch.setattr(LessonQueue, "run", wait)
