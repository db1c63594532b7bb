"""Images to send, clients, and servers in processes of their own."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
from PIL import Image
from starlette.testclient import TestClient

from cotransport.data.decoding import Encoded
from cotransport.server.app import make_app
from tests.conftest import blobs

TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LONGEST_SECONDS = 120.0


@contextmanager
def connected(model: Path, tell: Callable[[str], None] = lambda _: None) -> Iterator[TestClient]:
    """A client of a server inside this process, with the token."""
    with TestClient(make_app(model, TOKEN, tell=tell), base_url="http://127.0.0.1:8000", headers=BEARER) as client:
        yield client


def images(classes: int, per_class: int, *, first: int = 0, seed: int = 7) -> dict[str, list[Encoded]]:
    """The images of `blobs` as files, by class."""
    data = blobs(classes, per_class, first=first, seed=seed)
    found: dict[str, list[Encoded]] = {}
    for place, label in enumerate(data.labels.tolist()):
        file = io.BytesIO()
        Image.fromarray(data.images.item(place)).save(file, "PNG")  # type: ignore[arg-type]
        found.setdefault(str(data.classes[label]), []).append(Encoded(file.getvalue(), f"{place}.png"))
    return found


Parts = list[tuple[str, Any]]


def form(*items: tuple[str, Sequence[Encoded]]) -> Parts:
    """The parts of a form: each class name and then its files, in this order."""
    parts: Parts = []
    for name, files in items:
        parts.append(("class", (None, name.encode())))
        parts += upload(files)
    return parts


def upload(files: Sequence[Encoded]) -> Parts:
    """Files as parts of a form."""
    return [("files", (file.name, file.data)) for file in files]


def lesson_form(by_class: dict[str, list[Encoded]]) -> Parts:
    """The form of a lesson."""
    return form(*by_class.items())


def wait_until(
    question: Callable[[], Any], seconds: float = LONGEST_SECONDS, every: float = 0.05
) -> Any:  # whatever is asked for
    """The first answer that is true."""
    end = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(every)
    return answer


def ended(client: Any, lesson: str) -> dict[str, Any]:
    """A lesson, once it has ended."""

    def look() -> dict[str, Any] | None:
        found = client.get(f"/api/lessons/{lesson}").json()
        return found if found["state"] in {"done", "refused", "failed"} else None

    return wait_until(look)  # type: ignore[no-any-return]


class ServerProcess:
    """A server in a process of its own, and a client of it."""

    def __init__(self, model: Path, *words: str) -> None:
        command = [sys.executable, "-m", "cotransport", "serve", str(model), "--port", "0", "--token", TOKEN, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=a-token", self.address)
        assert found, (self.address, self.process.poll())
        self.client = httpx.Client(base_url=found[1], headers=BEARER, timeout=60)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        self.client.close()
        self.process.send_signal(number)
        code = self.process.wait(60)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


@contextmanager
def served(model: Path, *words: str) -> Iterator[ServerProcess]:
    """A server in a process of its own. It is killed at the end, if it still runs."""
    server = ServerProcess(model, *words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


def running_children(pid: int) -> list[int]:
    """The processes that a process has started, as Linux lists them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == pid:
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether there is such a process, other than one that has ended and was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
