"""What is behind the routes: one model, its current version, its lessons, and the listeners for their changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from cotransport.errors import ModelError
from cotransport.model.folder import ModelFolder
from cotransport.server.contents import Contents
from cotransport.server.failures import RefusedError
from cotransport.server.lesson_queue import LessonQueue
from cotransport.server.predictor import NOTHING_LEARNED, Batcher, CurrentVersion
from cotransport.server.uploads import Budget

SECONDS_BETWEEN_LOOKS = 1.0
"""Time between checks whether another command has changed the model."""
MOST_LISTENERS = 64
"""Largest number of pages that may be open at once."""


class Listener:
    """Waits for changes. Several changes at once count as one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Something has changed."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; returns whether there was one."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        told = self._event.is_set()
        self._event.clear()
        return told


class News:
    """Tells all listeners that something has changed."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def tell(self) -> None:
        """Something has changed."""
        for listener in self._listeners:
            listener.tell()

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A listener, inside."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    @property
    def is_full(self) -> bool:
        """Whether no more listeners are allowed."""
        return len(self._listeners) >= MOST_LISTENERS


class Service:
    """A model that is served."""

    def __init__(self, model: Path, tell: Callable[[str], None]) -> None:
        """`tell` is called with a line about every step of a lesson."""
        self.model = model
        self.news = News()
        self.current = CurrentVersion(model)
        self.batcher = Batcher(self.current)
        self.contents = Contents(model)
        self.queue = LessonQueue(model, self.news.tell, tell)
        self.budget = Budget()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside, requests are answered and lessons are learned."""
        with self.queue.folder.locked():
            tasks = [asyncio.create_task(work()) for work in (self.batcher.run, self._watch)]
            try:
                async with self.queue.running():
                    yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Tell the listeners when the current version changes, whoever changed it."""
        seen = self.current.signature()
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            if (now := self.current.signature()) != seen:
                seen = now
                self.news.tell()

    def check_has_model(self) -> None:
        """Raise an error before the first lesson."""
        if not ModelFolder(self.model).exists:
            raise RefusedError(409, NOTHING_LEARNED)

    def known_classes(self) -> set[str]:
        """The names of the classes of the current version."""
        folder = ModelFolder(self.model)
        if not folder.exists:
            return set()
        manifest = folder.manifest()
        if manifest.current is None:
            return set()
        return set(map(str, folder.facts(manifest.version(manifest.current)).classes))

    def current_number(self) -> int | None:
        """The number of the current version; None if there is none, or if the manifest is damaged."""
        with suppress(ModelError):
            return ModelFolder(self.model).manifest().current
        return None

    def state(self) -> dict[str, Any]:
        """What the page follows: the current version and the lessons."""
        return {
            "name": self.model.name,
            "version": self.current_number(),
            "lessons": [one.model_dump(mode="json") for one in self.queue.lessons()],
        }

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Numbers that go up and down."""
        return {
            "version": ("The current version; 0 if there is none.", self.current_number() or 0),
            "lessons_waiting": ("Lessons waiting in the queue.", self.queue.waiting),
            "lesson_running": ("Whether a lesson is being learned.", int(self.queue.is_running)),
            "predictions_waiting": ("Requests waiting for a prediction.", self.batcher.waiting),
        }

    def counts(self) -> dict[str, tuple[str, float]]:
        """Numbers that only go up."""
        return {
            "predicted_files_total": ("Files predicted.", self.batcher.files),
            "batches_total": ("Batches predicted.", self.batcher.batches),
            **{
                f"lessons_{state}_total": (f"Lessons that ended as {state}.", self.queue.ended[state])
                for state in ("done", "refused", "failed")
            },
            "lesson_seconds_total": ("Seconds that the ended lessons took.", self.queue.seconds),
        }
