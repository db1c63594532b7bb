"""Lessons wait in a queue and are learned one after another, each in a process of its own.

A lesson that was interrupted, because the server or its process was stopped or killed, is started again with the same
arguments and resumes from its checkpoint. If it was learned just before, its version is found.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from cotransport import jobs
from cotransport.errors import CotransportError, StorageError
from cotransport.lessons.records import LessonOutcome, lessons_of, read_report
from cotransport.model.folder import ModelFolder
from cotransport.server.answers import Lesson, Progress
from cotransport.server.failures import UNEXPECTED, RefusedError
from cotransport.server.lesson_folder import ENDED, LessonFolder, StoredLesson
from cotransport.server.lesson_process import LessonProcess, lesson_result

MOST_QUEUED = 20
"""Largest number of lessons that wait."""
MOST_ENDED = 50
"""Largest number of ended lessons that are still listed."""
MOST_NOTES = 20
"""Largest number of notes, and of settings, that a lesson lists."""
MOST_NAMED = 3
"""Largest number of classes that a line about a lesson names."""
ATTEMPTS = 3
"""How often a lesson is tried if its process is killed from outside, for example because memory runs out."""
SECONDS_TO_STOP = 60.0
"""Time that a process gets to save a checkpoint before it is killed."""
SECONDS_BETWEEN_LOOKS = 0.5


class LessonQueue:
    """The lessons of a model that is served."""

    def __init__(self, model: Path, changed: Callable[[], None], tell: Callable[[str], None]) -> None:
        """`changed` is called after every change, and `tell` with a line about every step of a lesson."""
        self._model, self.folder = ModelFolder(model), LessonFolder(model)
        self._changed, self._tell = changed, tell
        self._lessons: dict[str, StoredLesson] = {}
        self._arrived = asyncio.Event()
        self._running: str | None = None
        self._progress: Progress | None = None
        self._process: LessonProcess | None = None
        self._is_stopping = self._is_cancelled = False
        self.ended: Counter[str] = Counter()
        """How many lessons have ended since the server started, by their state."""
        self.seconds = 0.0
        """Time that these lessons took."""
        self.changing = asyncio.Lock()
        """Held while a lesson runs, and while the model is changed in another way."""
        self.adding = asyncio.Lock()
        """Held while a new lesson is checked and added."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside, lessons are learned. At the end, the one that runs saves a checkpoint and is left to the next server.

        Lessons that an earlier server has left come first.
        """
        self._restore()
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            self._is_stopping = True
            self._arrived.set()
            if self._process is not None:
                self._process.stop()
            await asyncio.wait({task}, timeout=SECONDS_TO_STOP)
            if self._process is not None:
                self._process.kill()
            await task

    def _restore(self) -> None:
        self._lessons = {one.lesson.id: one for one in self.folder.read()}
        left = [key for key, one in self._lessons.items() if one.lesson.state not in ENDED]
        for lesson_id in left:
            self._update(lesson_id, state="queued")
        if left:
            self._tell(f"resuming {len(left)} {'lesson' if len(left) == 1 else 'lessons'} of an earlier server")
            self._arrived.set()

    def lessons(self) -> list[Lesson]:
        """All lessons, in the order of their requests."""
        return [self.lesson(lesson_id) for lesson_id in self._lessons]

    def lesson(self, lesson_id: str) -> Lesson:
        """The lesson with an id."""
        if lesson_id not in self._lessons:
            raise RefusedError(404, "there is no lesson with this id")
        lesson = self._lessons[lesson_id].lesson
        return lesson.model_copy(update={"progress": self._progress}) if lesson_id == self._running else lesson

    @property
    def is_running(self) -> bool:
        """Whether a lesson is being learned."""
        return self._running is not None

    @property
    def waiting(self) -> int:
        """The number of lessons that wait."""
        return sum(one.lesson.state == "queued" for one in self._lessons.values())

    def check_room(self) -> None:
        """Raise an error if the queue is full."""
        if self.waiting >= MOST_QUEUED:
            raise RefusedError(429, f"{MOST_QUEUED} lessons are already waiting. Try again when one is done")

    def check_not_taught(self, classes: Iterable[str]) -> None:
        """Raise an error if a lesson that has not ended teaches one of these classes."""
        coming = {
            taught.name
            for one in self._lessons.values()
            if one.lesson.state not in ENDED
            for taught in one.lesson.classes
        }
        again = [name for name in classes if name in coming]
        if again:
            raise RefusedError(
                409, f"another lesson is about to teach {again[0]!r}. Choose another name, or send known_classes=extend"
            )

    def add(self, stored: StoredLesson) -> None:
        """Queue a lesson that is stored."""
        self._lessons[stored.lesson.id] = stored
        self._report(stored.lesson.id, "queued")
        ended = [one.lesson.id for one in self._lessons.values() if one.lesson.state in ENDED]
        for lesson_id in ended[: max(0, len(ended) - MOST_ENDED)]:
            self._forget(lesson_id)
        self._arrived.set()
        self._changed()

    def remove(self, lesson_id: str) -> None:
        """Take a lesson off the list, and cancel it if it has not ended. What it has taught stays."""
        lesson = self.lesson(lesson_id)
        if lesson_id == self._running:
            self._is_cancelled = True  # it is removed when its process has ended
            if self._process is not None:
                self._process.stop()
            return
        if lesson.state not in ENDED:
            self._report(lesson_id, "cancelled")
        self._forget(lesson_id)

    def _forget(self, lesson_id: str) -> None:
        del self._lessons[lesson_id]
        self.folder.remove(lesson_id)
        self._changed()

    async def run(self) -> None:
        """Learn lessons until the server stops."""
        while not self._is_stopping:
            await self._arrived.wait()
            self._arrived.clear()
            while not self._is_stopping and (lesson_id := self._next()) is not None:
                async with self.changing:
                    await self._learn(lesson_id)

    def _next(self) -> str | None:
        return next((key for key, one in self._lessons.items() if one.lesson.state == "queued"), None)

    async def _learn(self, lesson_id: str) -> None:
        """Learn a lesson, and record its outcome, unless it is interrupted."""
        self._running, self._is_cancelled = lesson_id, False
        self._progress = Progress(stage="starting")
        self._update(lesson_id, state="running")
        self._report(lesson_id, "started")
        started = time.monotonic()
        try:
            outcome = await self._outcome(lesson_id)
        except Exception:  # a mistake of ours, after which the next lesson must still be learned
            traceback.print_exc()
            outcome = {"state": "failed", "error": UNEXPECTED}
        self._running = self._progress = self._process = None
        if self._is_cancelled and not (outcome and "result" in outcome):
            self._discard(lesson_id)
            self._report(lesson_id, "cancelled")
            self._forget(lesson_id)
        elif outcome is None:
            self._report(lesson_id, "interrupted")
        else:
            if outcome["state"] == "failed":
                self._discard(lesson_id)
            self._update(lesson_id, **outcome)
            seconds = time.monotonic() - started
            self.ended[outcome["state"]] += 1
            self.seconds += seconds
            self._report(lesson_id, self._in_words(lesson_id, seconds))

    async def _outcome(self, lesson_id: str) -> dict[str, Any] | None:
        """How a lesson ends: its state, and its result or error. None if it is cancelled, or if the server stops."""
        stored = self._lessons[lesson_id]
        for _ in range(ATTEMPTS):
            await self._wait_for_model()
            if self._is_interrupted:
                return None
            learned = await asyncio.to_thread(self._learned_before, lesson_id)
            if learned is not None:
                return _outcome_of(learned)
            self._process = LessonProcess(self._model.path, self.folder.images(lesson_id), stored.options)
            ended = await self._process.run(
                self._show,
                lambda text: self._add(lesson_id, "notes", text),
                lambda text: self._add(lesson_id, "settings", text),
            )
            if ended.values is not None:
                return _outcome_of(ended.values)
            if self._is_interrupted:
                return None
            if not ended.is_killed:
                return {"state": "failed", "error": ended.error or f"it ended with exit code {ended.code}"}
        return {"state": "failed", "error": f"its process was killed {ATTEMPTS} times"}

    @property
    def _is_interrupted(self) -> bool:
        return self._is_stopping or self._is_cancelled

    async def _wait_for_model(self) -> None:
        """Wait while another command, or the lesson of a server that was killed, writes to the model."""
        while self._model.is_locked and not self._is_interrupted:
            self._show(Progress(stage="waiting"))
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _learned_before(self, lesson_id: str) -> dict[str, Any] | None:
        """The values that `learn` printed, or should have printed when it was interrupted; None if it did not finish.

        Other commands may have changed the model since, so the same `learn` would not recognise its lesson.
        """
        with suppress(CotransportError):  # a damaged model is an error of `learn`
            if not self._model.exists:
                return None
            manifest = self._model.manifest()
            for number, lesson in lessons_of(self._model, manifest).items():
                if _is_from(lesson.data, lesson_id):
                    version = manifest.version(number)
                    report = read_report(self._model, version)
                    assert report is not None
                    return LessonOutcome(number, report, version.refused, already=False, parent=version.parent).plain()
        return None

    def _discard(self, lesson_id: str) -> None:
        """Remove what a lesson has left in the model, because it would block the next one."""
        with suppress(CotransportError, ValueError, OSError):
            record = jobs.read_record(self._model.unfinished)
            if record is not None and _is_from(record.data, lesson_id):
                with self._model.locked():
                    jobs.remove_job(self._model.unfinished)

    def _show(self, progress: Progress) -> None:
        self._progress = progress
        self._changed()

    def _add(self, lesson_id: str, field: Literal["notes", "settings"], text: str) -> None:
        lines: list[str] = getattr(self._lessons[lesson_id].lesson, field)
        if text not in lines and len(lines) < MOST_NOTES:
            self._update(lesson_id, **{field: [*lines, text]})

    def _update(self, lesson_id: str, **values: Any) -> None:  # noqa: ANN401 (fields of a lesson)
        stored = self._lessons[lesson_id]
        stored = stored.model_copy(update={"lesson": stored.lesson.model_copy(update=values)})
        self._lessons[lesson_id] = stored
        try:
            self.folder.save(stored)
        except StorageError as error:  # the next server will find out again
            self._tell(str(error))
        self._changed()

    def _report(self, lesson_id: str, what: str) -> None:
        """Tell what has happened to a lesson, in one line."""
        classes = self._lessons[lesson_id].lesson.classes
        names = ", ".join(one.name for one in classes[:MOST_NAMED])
        if len(classes) > MOST_NAMED:
            names += f" and {len(classes) - MOST_NAMED} more"
        images = sum(one.images for one in classes)
        self._tell(f"lesson {lesson_id} ({names}; {images:,} {'image' if images == 1 else 'images'}): {what}")

    def _in_words(self, lesson_id: str, seconds: float) -> str:
        """How a lesson has ended, this long after its start."""
        lesson = self._lessons[lesson_id].lesson
        version = "" if lesson.result is None else f", version {lesson.result.version}"
        reason = "" if lesson.error is None else f": {lesson.error}"
        return f"{lesson.state} after {seconds:.0f} s{version}{reason}"


def _is_from(data: str, lesson_id: str) -> bool:
    """Whether images were those of a lesson, by their folder as it was given to `learn`."""
    return Path(data).parent.name == lesson_id


def _outcome_of(values: dict[str, Any]) -> dict[str, Any]:
    """A finished lesson's state, error and result, from the output of `learn --json`."""
    refused = values["refused"]
    return {"state": "refused" if refused else "done", "error": refused, "result": lesson_result(values)}
