"""Models that are served, inside this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cotransport.server.lesson_queue import LessonQueue
from tests.cli.conftest import cotransport
from tests.lessons.conftest import beginner, model
from tests.server.helpers import connected

__all__ = ["beginner", "cotransport", "model"]


@pytest.fixture
def client(model: Path) -> Iterator[TestClient]:
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
