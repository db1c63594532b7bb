"""Lessons wait in a queue and are learned one after another, each by a `cotransport learn` in a process of its own.

A lesson that was interrupted, because the server or its process was killed, is started again with the same
arguments and resumes from its checkpoint.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cotransport import jobs
from cotransport.errors import CotransportError
from cotransport.model.folder import ModelFolder
from cotransport.server.answers import ClassChange, Lesson, LessonResult, Progress
from cotransport.server.failures import RefusedError, without_paths
from cotransport.server.lesson_folder import ENDED, LessonFolder, StoredLesson

MOST_QUEUED = 20
"""Largest number of lessons that wait."""
MOST_ENDED = 50
"""Largest number of ended lessons that are still listed."""
MOST_NOTES = 20
ATTEMPTS = 3
"""How often a lesson is tried if its process is killed from outside, for example because memory runs out."""
SECONDS_TO_STOP = 60.0
"""Time that a process gets to save a checkpoint before it is killed."""
SECONDS_BETWEEN_LOOKS = 0.5
_LONGEST_LINE = 1 << 20
_START = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "  # never import from the current folder
    "from cotransport.system.machine import end_with_parent; end_with_parent(); "
    "from cotransport.cli import main; main()"
)
_REFUSED = 3  # the exit code of `learn`
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT})


class LessonQueue:
    """The lessons of a model that is served."""

    def __init__(self, model: Path, changed: Callable[[], None]) -> None:
        """`changed` is called after every change."""
        self._model, self._folder, self._changed = ModelFolder(model), LessonFolder(model), changed
        self._lessons: dict[str, StoredLesson] = {}
        self._progress: dict[str, Progress] = {}
        self._arrived = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._running: str | None = None
        self._stopping = False
        self._cancelled: set[str] = set()
        self.changing = asyncio.Lock()
        """Held while a lesson runs, and while the model is changed in another way."""

    @property
    def folder(self) -> LessonFolder:
        """Where lessons are stored."""
        return self._folder

    def restore(self) -> None:
        """Read the lessons that an earlier server left."""
        self._lessons = {one.lesson.id: one for one in self._folder.read()}
        for one in list(self._lessons.values()):
            if one.lesson.state == "running":
                self._update(one.lesson.id, state="queued")
        self._arrived.set()

    def lessons(self) -> list[Lesson]:
        """All lessons, in the order of their requests."""
        return [self._shown(one) for one in self._lessons.values()]

    def lesson(self, lesson_id: str) -> Lesson:
        """The lesson with an id."""
        if lesson_id not in self._lessons:
            raise RefusedError(404, "there is no lesson with this id")
        return self._shown(self._lessons[lesson_id])

    def _shown(self, stored: StoredLesson) -> Lesson:
        return stored.lesson.model_copy(update={"progress": self._progress.get(stored.lesson.id)})

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

    def add(self, stored: StoredLesson) -> None:
        """Queue a lesson that is stored."""
        self._lessons[stored.lesson.id] = stored
        ended = [one.lesson.id for one in self._lessons.values() if one.lesson.state in ENDED]
        for lesson_id in ended[: max(0, len(ended) - MOST_ENDED)]:
            self._forget(lesson_id)
        self._arrived.set()
        self._changed()

    async def remove(self, lesson_id: str) -> None:
        """Take a lesson off the list, and cancel it if it has not ended. What it has taught stays."""
        self.lesson(lesson_id)
        self._cancelled.add(lesson_id)
        if lesson_id == self._running:
            self._terminate()  # it is removed when its process has ended
        else:
            self._forget(lesson_id)

    def _forget(self, lesson_id: str) -> None:
        self._lessons.pop(lesson_id, None)
        self._progress.pop(lesson_id, None)
        self._cancelled.discard(lesson_id)
        self._folder.remove(lesson_id)
        self._changed()

    async def run(self) -> None:
        """Learn lessons until cancelled. A lesson that is interrupted by this is left to the next server."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while (lesson_id := self._next()) is not None:
                    async with self.changing:
                        await self._learn(lesson_id)
        finally:
            self._stopping = True
            await self._stop()

    def _next(self) -> str | None:
        return next((key for key, one in self._lessons.items() if one.lesson.state == "queued"), None)

    async def _learn(self, lesson_id: str) -> None:
        self._running = lesson_id
        self._progress[lesson_id] = Progress(stage="starting")
        self._update(lesson_id, state="running")
        try:
            for attempt in range(1, ATTEMPTS + 1):
                # locked by another command, or by the lesson of a server that was killed
                while self._model.is_locked and lesson_id not in self._cancelled:
                    await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
                code, printed, error = await self._run_process(lesson_id)
                if self._stopping:
                    return
                if lesson_id in self._cancelled or code not in _KILLED or attempt == ATTEMPTS:
                    break
            self._progress.pop(lesson_id, None)
            if lesson_id in self._cancelled:
                self._discard(lesson_id)
                self._forget(lesson_id)
            elif code in {0, _REFUSED}:
                values = json.loads(printed)
                self._update(
                    lesson_id,
                    state="done" if code == 0 else "refused",
                    error=values["refused"],
                    result=_result(values),
                )
            else:
                self._discard(lesson_id)
                ended = (
                    f"its process was killed {ATTEMPTS} times" if code in _KILLED else f"it ended with exit code {code}"
                )
                self._update(lesson_id, state="failed", error=error or ended)
        finally:
            self._running = None
            self._changed()

    async def _run_process(self, lesson_id: str) -> tuple[int, bytes, str | None]:
        """Learn in a process; returns its exit code, its result, and its last error."""
        stored = self._lessons[lesson_id]
        home, images = self._model.path.parent, self._folder.images(lesson_id)
        words = ["learn", "--json", "--events", "--known-classes", stored.options.known_classes]
        if stored.options.max_forgetting is not None:
            words += ["--max-forgetting", str(stored.options.max_forgetting)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _START,
            *words,
            "--",
            self._model.path.name,
            str(images.relative_to(home)),
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # an interrupt from the terminal is for the server
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        result = asyncio.create_task(self._process.stdout.read())
        error = None
        try:
            async for event in _events(self._process.stderr):
                if event.get("event") == "error":
                    error = self._without_folders(lesson_id, str(event.get("text")))
                else:
                    self._hear(lesson_id, event)
            printed, code = await result, await self._process.wait()
        finally:
            result.cancel()
        self._process = None
        return code, printed, error

    def _hear(self, lesson_id: str, event: dict[str, Any]) -> None:
        """Handle an event of a lesson's process."""
        kind, notes = event.get("event"), list(self._lessons[lesson_id].lesson.notes)
        if kind in {"training", "trial"}:
            progress = Progress(stage=kind, done=event["step"], of=event["steps"], seconds_left=event["seconds_left"])
        elif kind == "reading":
            progress = Progress(stage=kind, done=event["done"], of=event["files"])
        elif kind == "features":
            progress = Progress(stage=kind, done=event["done"], of=event["images"])
        else:
            new = event.get("notes", []) if kind == "job_started" else [event["text"]] if kind == "note" else []
            new = [self._without_folders(lesson_id, note) for note in new]
            added = [note for note in new if note not in notes]
            if added:
                self._update(lesson_id, notes=[*notes, *added][:MOST_NOTES])
            return
        self._progress[lesson_id] = progress
        self._changed()

    def _without_folders(self, lesson_id: str, text: str) -> str:
        """A message of `learn` without the server's folders."""
        images = self._folder.images(lesson_id)
        home = self._model.path.parent
        for place in (images, images.relative_to(home)):
            text = text.replace(f"{place}/", "").replace(str(place), "the images")
        return without_paths(text, str(self._model.path), str(home))

    def _discard(self, lesson_id: str) -> None:
        """Remove what a failed lesson left in the model, because it would block the next one."""
        with suppress(CotransportError, ValueError, OSError):
            record = jobs.read_record(self._model.unfinished)
            if record is not None and Path(record.data).parent.name == lesson_id:
                with self._model.locked():
                    jobs.remove_job(self._model.unfinished)

    def _update(self, lesson_id: str, **values: Any) -> None:  # noqa: ANN401 (fields of a lesson)
        stored = self._lessons[lesson_id]
        stored = stored.model_copy(update={"lesson": stored.lesson.model_copy(update=values)})
        self._lessons[lesson_id] = stored
        self._folder.save(stored)
        self._changed()

    def _terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def _stop(self) -> None:
        """Let the lesson's process save a checkpoint and end."""
        process = self._process
        if process is None:
            return
        self._terminate()
        try:
            await asyncio.wait_for(process.communicate(), SECONDS_TO_STOP)  # a full pipe would block it
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()


async def _events(stream: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The lines that are events. Others, such as those of libraries, go to the server's own standard error."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit
            continue
        if not line:
            return
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event
        else:
            print(line.decode(errors="replace").rstrip(), file=sys.stderr, flush=True)


def _result(values: dict[str, Any]) -> LessonResult:
    """The result of a lesson, from the output of `learn --json`."""
    seconds = values["times"].get("seconds")
    return LessonResult(
        version=values["version"],
        parent=values["parent"],
        accuracy=values["accuracy"],
        old_before=values["old_before"],
        old_after=values["old_after"],
        new_classes=[str(name) for name in values["lesson"]["new_classes"]],
        per_class=[
            ClassChange(
                name=str(one["name"]),
                images=one["images"],
                before=one["before"],
                after=one["after"],
                lost=one.get("lost"),
                gained=one.get("gained"),
            )
            for one in values["per_class"]
        ],
        seconds=seconds,
        already=values["already"],
    )
