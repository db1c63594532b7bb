"""A lesson's process: a `cotransport learn`, its progress and its result."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cotransport.server.answers import ClassChange, LessonResult, Progress
from cotransport.server.failures import without_paths
from cotransport.server.lesson_folder import LessonOptions

_LONGEST_LINE = 1 << 20
_START = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; "  # never import from the current folder
    "from cotransport.system.machine import end_with_parent; end_with_parent(); "
    "from cotransport.__main__ import main; main()"
)
_FINISHED = frozenset({0, 3})  # 3: the new version is refused
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT})


class Ended(NamedTuple):
    """How a lesson's process has ended."""

    code: int
    values: dict[str, Any] | None
    """What `learn --json` has printed; None if the lesson was not finished."""
    error: str | None

    @property
    def is_killed(self) -> bool:
        """Whether a signal has ended it."""
        return self.code in _KILLED


class LessonProcess:
    """Learns a lesson in a process of its own. It works in the folder of the model, and names no other folder."""

    def __init__(self, model: Path, images: Path, options: LessonOptions) -> None:
        self._model, self._images = model, images
        self._words = ["learn", "--json", "--events", "--known-classes", options.known_classes]
        if options.max_forgetting is not None:
            self._words += ["--max-forgetting", str(options.max_forgetting)]
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False

    async def run(
        self, progress: Callable[[Progress], None], note: Callable[[str], None], setting: Callable[[str], None]
    ) -> Ended:
        """Learn the lesson, or resume it.

        progress : hears of every progress.
        note : hears of everything else that the user should know.
        setting : hears how it is learned.
        """
        home = self._model.parent
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _START,
            *self._words,
            "--",
            self._model.name,
            str(self._images.relative_to(home)),
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # an interrupt from the terminal is for the server
        )
        if self._is_stopped:  # while it started
            self.stop()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        printed = asyncio.create_task(self._process.stdout.read())
        error = None
        try:
            async for event in _events(self._process.stderr):
                if event["event"] == "error":
                    error = self._without_folders(event["text"])
                elif (found := _progress(event)) is not None:
                    progress(found)
                if event["event"] == "note":
                    note(self._without_folders(event["text"]))
                for text in event["notes"] if event["event"] == "job_started" else ():
                    setting(self._without_folders(text))
            code = await self._process.wait()
            return Ended(code, json.loads(await printed) if code in _FINISHED else None, error)
        finally:
            printed.cancel()
            self.kill()

    def stop(self) -> None:
        """Let it save a checkpoint and end."""
        self._is_stopped = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _without_folders(self, text: str) -> str:
        """A message without the server's folders."""
        home = self._model.parent
        for place in (self._images, self._images.relative_to(home)):
            text = text.replace(f"{place}/", "").replace(str(place), "the images")
        return without_paths(text, str(self._model), str(home))


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


def _progress(event: dict[str, Any]) -> Progress | None:
    """The progress that an event reports; None if it reports something else."""
    kind = event["event"]
    if kind in {"training", "trial"}:
        return Progress(stage=kind, done=event["step"], of=event["steps"], seconds_left=event["seconds_left"])
    if kind in {"reading", "features"}:
        of = event["files" if kind == "reading" else "images"]
        return Progress(stage=kind, done=event["done"], of=of, seconds_left=event["seconds_left"])
    if kind == "testing":
        return Progress(stage=kind)
    return Progress(stage="training") if kind == "job_started" else None


def lesson_result(values: dict[str, Any]) -> LessonResult:
    """The result of a lesson, from the output of `learn --json`."""
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
        seconds=values["times"].get("seconds"),
        already=values["already"],
    )
