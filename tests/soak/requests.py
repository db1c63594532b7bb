"""Requests to the server's application, in this process: valid ones, damaged ones and nonsense."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from types import TracebackType
from typing import Any

from cotransport.server.app import ROUTES, make_app
from cotransport.server.lesson_queue import LessonQueue
from tests.server.helpers import TOKEN, images
from tests.soak.generated import SCALARS, altered, damaged

PHOTO = images(1, 1)["class 0"][0]
PLANNED = {200, 202, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 429}
"""Every status that the server gives on purpose."""
LONGEST_ANSWER_SECONDS = 60.0
WORDS = [
    b"class 0", b"new", b"", b"../../x", b"\xff\xfe", "\u202e".encode(), b"x" * 5000, b"1", b"-1", b"9" * 40, b"\x00",
]  # fmt: skip
PIECES = [
    b"--x", b"--x--", b"\r\n", b"\r\n\r\n", b'Content-Disposition: form-data; name="files"; filename="a.png"',
    b'Content-Disposition: form-data; name="files"; filename="../../a.png"',
    b'Content-Disposition: form-data; name="class"', b"Content-Disposition: form-data", b"Content-Type: image/png",
    b"\x00", b"cat", PHOTO.data, PHOTO.data[:40],
]  # fmt: skip


class Requests:
    """A served model whose lessons are queued only, and requests to it."""

    def __init__(self, model: Path) -> None:
        self._app, self._loop = make_app(model, TOKEN), asyncio.new_event_loop()
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._lifespan: asyncio.Task[None] | None = None

    def __enter__(self) -> Requests:
        async def wait(_: object) -> None:
            """Learn nothing."""

        LessonQueue.run = wait  # type: ignore[method-assign, assignment]  # the process ends with these requests
        self._loop.run_until_complete(self._start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, where: TracebackType | None) -> None:
        """Leave the rest to the end of the process."""

    async def _start(self) -> None:
        started = asyncio.Event()

        async def send(message: dict[str, Any]) -> None:
            assert message["type"] == "lifespan.startup.complete", message
            started.set()

        await self._events.put({"type": "lifespan.startup"})
        self._lifespan = asyncio.create_task(self._app({"type": "lifespan"}, self._events.get, send))  # type: ignore[arg-type]
        await started.wait()

    def send(self, chance: random.Random) -> None:
        """Send a request. It must get a planned answer, in JSON if it is an error; then a prediction must succeed."""
        method, path, headers, body = _request(chance)
        status, answer = self._loop.run_until_complete(self._answer(method, path, headers, body, chance))
        if status not in PLANNED:
            raise AssertionError(f"{status} to {method} {path} {headers}: {answer[:500]!r}")
        if status >= 400 and method != "HEAD" and path.startswith("/api/"):
            try:
                json.loads(answer)["error"]
            except ValueError:
                raise AssertionError(f"{status} to {method} {path} {headers}: {answer[:500]!r}") from None
        if chance.random() < 0.05:
            body, kind = _form([("files", "a.png", PHOTO.data)])
            status, answer = self._loop.run_until_complete(
                self._answer("POST", "/api/predict", [*_allowed(), kind], body, chance)
            )
            if status not in {200, 409}:  # 409: no version is current any more
                raise AssertionError(f"afterwards {status}: {answer[:500]!r}")

    async def _answer(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], body: bytes, chance: random.Random
    ) -> tuple[int, bytes]:
        """The status and body of an answer. A stream is left after its start."""
        path, _, query = target.partition("?")
        half = chance.randrange(len(body) + 1)
        parts = [body[:half], body[half:]]
        received = [
            {"type": "http.request", "body": part, "more_body": number == 0} for number, part in enumerate(parts)
        ]
        status, found, is_answered = 0, bytearray(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if received:
                return received.pop(0)
            await is_answered.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                found.extend(message.get("body", b""))
            if message["type"] == "http.response.body" and (path == "/api/events" or not message.get("more_body")):
                is_answered.set()

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode("utf-8", "replace"), "root_path": "",
            "query_string": query.encode("utf-8", "replace"),
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        }  # fmt: skip
        await asyncio.wait_for(self._app(scope, receive, send), LONGEST_ANSWER_SECONDS)  # type: ignore[arg-type]
        return status, bytes(found)


def _allowed() -> list[tuple[bytes, bytes]]:
    return [(b"host", b"127.0.0.1:8000"), (b"authorization", f"Bearer {TOKEN}".encode())]


def _request(chance: random.Random) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
    """Method, path with query, headers and body."""
    method, path, _ = chance.choice(ROUTES)
    if chance.random() < 0.4:  # these do most
        method, path = "POST", chance.choice(["/api/predict", "/api/teach", "/api/rollback", "/api/rename"])
    path = path.replace("{lesson_id}", chance.choice(["1", "x", "..", "%2e%2e", "0" * 300, "é"]))
    if chance.random() < 0.05:
        path = chance.choice(["/x", "//", "/../etc/passwd", "/api/", "/page.js/../x", "/%00"])
    if chance.random() < 0.05:
        method = chance.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "X"])
    if chance.random() < 0.4:
        names = chance.choices(["top", "unknown", "at_least", "version", "token", "x"], k=chance.randint(1, 3))
        path += "?" + "&".join(f"{name}={chance.choice(WORDS).decode('latin-1')}" for name in names)
    headers = [pair for pair in _allowed() if chance.random() < 0.97]
    for name in (
        b"origin",
        b"content-type",
        b"content-length",
        b"accept-encoding",
        b"cookie",
        b"host",
        b"last-event-id",
    ):
        if chance.random() < 0.04:
            headers.append((name, chance.choice(WORDS)))
    kind = chance.random()
    if kind < 0.35:
        body = b"".join([*chance.choices(PIECES, k=chance.randrange(14)), chance.randbytes(chance.randrange(20))])
        headers.append((b"content-type", b"multipart/form-data; boundary=x"))
    elif kind < 0.65:
        body, content_type = _form(_parts(chance))
        headers.append(content_type)
    elif kind < 0.95:
        body = _json(chance)
    else:
        body = b"[" * 10**4
    return method, path, headers, body


def _parts(chance: random.Random) -> list[tuple[str, str | None, bytes]]:
    """The parts of a form: name, name of the file if it is one, and content."""
    parts: list[tuple[str, str | None, bytes]] = []
    for _ in range(chance.randrange(5)):
        if chance.random() < 0.4:
            parts.append((chance.choice(["class", "class", "x"]), None, chance.choice(WORDS)))
        else:
            content = PHOTO.data if chance.random() < 0.4 else damaged(chance, PHOTO.data)
            parts.append((chance.choice(["files", "files", "x"]), chance.choice(["a.png", "../a", "é", ""]), content))
    return parts


def _form(parts: list[tuple[str, str | None, bytes]]) -> tuple[bytes, tuple[bytes, bytes]]:
    """A form's body, and its content type."""
    lines = b""
    for name, file, content in parts:
        disposition = f'form-data; name="{name}"' + ("" if file is None else f'; filename="{file}"')
        lines += b"--x\r\nContent-Disposition: " + disposition.encode() + b"\r\n\r\n" + content + b"\r\n"
    return lines + b"--x--\r\n", (b"content-type", b"multipart/form-data; boundary=x")


def _json(chance: random.Random) -> bytes:
    """A JSON body, sometimes damaged."""
    known = [{"to": 1}, {"to": 2}, {"old": "class 0", "new": "zero"}, {"class": "class 1"}, {"name": "class 1"}]
    values = altered(chance, chance.choice(known)) if chance.random() < 0.8 else chance.choice(SCALARS)
    body = json.dumps(values).encode()
    return damaged(chance, body) if chance.random() < 0.2 else body
