"""Servers in processes of their own, with real lessons and real clients."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from cotransport.data.decoding import Encoded
from cotransport.learner.prediction import Predictor, predict_files
from cotransport.learner.snapshots import restored
from cotransport.lessons.information import describe
from cotransport.lessons.ownership import check
from cotransport.model.store import ModelStore
from cotransport.server.lesson_folder import LessonFolder
from cotransport.server.process import bind
from tests.cli.helpers import Command
from tests.server.helpers import (
    ServerProcess,
    ended,
    images,
    is_alive,
    lesson_form,
    running_children,
    served,
    upload,
    wait_until,
)

LESSONS = [images(1, 12, first=4 + number, seed=number) for number in range(3)]
PHOTOS = [file for files in images(4, 4).values() for file in files]
REQUESTS = int(os.environ.get("SOAK", "600"))
"""Requests of the soak test, at least. SOAK=10000 in the environment asks for more."""
CLIENTS, KILLS = 4, 2


def answers(model: Path, version: int, files: list[Encoded]) -> list[tuple[str, float]]:
    """The most likely class of each file and its probability, by the command's own code."""
    found = predict_files(Predictor(*restored(ModelStore(model).read(version))), files)
    return [(str(one.classes[0][0]), one.classes[0][1]) for one in found]


def is_right(answer: dict[str, Any], expected: tuple[str, float]) -> bool:
    best = answer["classes"][0]
    return best["name"] == expected[0] and abs(best["probability"] - expected[1]) < 1e-4


def test_wrong_places_are_named_before_anything_is_served(cotransport: Command, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    code, printed = cotransport("serve", "full", "--port", "0")
    assert (code, "full: not a model, and not empty" in printed) == (2, True)
    code, printed = cotransport("serve", "nowhere/model", "--port", "0")
    assert (code, "its parent folder does not exist" in printed) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, printed = cotransport("serve", "model", "--port", port)
        assert (code, f"--port {port}: " in printed) == (2, True)
    code, printed = cotransport("serve", "model", "--host", "0.0.0.0")
    assert (code, "Give a long --token" in printed) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_answer_does_not_wait_for_an_acknowledgement(host: str) -> None:
    """Without TCP_NODELAY, the second part of each answer waits for about 40 ms."""

    async def delays() -> bool:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        listening = bind(host, 0)
        async with await asyncio.start_server(lambda _, writer: accepted.set_result(writer), sock=listening):
            _, client = await asyncio.open_connection(*listening.getsockname()[:2])
            server = await accepted
            found = server.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            server.close()
            client.close()
            return not found

    assert not asyncio.run(delays())


@pytest.mark.slow
def test_a_server_answers_during_a_lesson_and_swaps_the_new_version_in(beginner: Path) -> None:
    with served(beginner) as server:
        client = server.client
        lesson = client.post("/api/teach", files=lesson_form(LESSONS[0])).json()["lesson"]
        versions = []
        while client.get(f"/api/lessons/{lesson}").json()["state"] in {"queued", "running"}:
            answer = client.post("/api/predict", files=upload(PHOTOS[:2]))
            versions.append(int(answer.headers["cotransport-version"]))
            assert answer.status_code == 200
        assert versions[0] == 1
        assert versions == sorted(versions)
        assert client.get(f"/api/lessons/{lesson}").json()["state"] == "done"
        answer = client.post("/api/predict", files=upload(PHOTOS))
        assert answer.headers["cotransport-version"] == "2"
        assert len(answer.json()[0]["classes"]) == 3
        right = map(is_right, answer.json(), answers(beginner, 2, PHOTOS))
        assert all(right)
        httpx.get(server.address)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 130
        assert server.process.stderr is not None
        printed = server.process.stderr.read()
        assert "a-token" not in printed
        assert f"lesson {lesson} (class 4; 12 images): done after " in printed
        assert "stopping; unfinished lessons go on when the server is started again" in printed
    assert check(beginner) == []


@pytest.mark.killed
def test_lessons_go_on_after_the_server_was_killed(beginner: Path, tmp_path: Path) -> None:
    """Killed at random moments, again and again. At the end every lesson was learned once, and none is left."""
    moments, lessons = random.Random(5), list[str]()
    with served(beginner) as server:
        for one in LESSONS[:2]:
            lessons.append(server.client.post("/api/teach", files=lesson_form(one)).json()["lesson"])
    for _ in range(KILLS):
        server = ServerProcess(beginner)
        wait_until(partial(running_children, server.process.pid))
        time.sleep(moments.uniform(0, 4))
        children = running_children(server.process.pid)
        server.end(signal.SIGKILL)
        wait_until(lambda gone=children: not any(map(is_alive, gone)), 10)  # they end with their server
    with served(beginner) as server:
        assert [ended(server.client, one)["state"] for one in lessons] == ["done", "done"]
        assert server.end() == 143
    facts = describe(beginner)
    assert facts["classes"] == ["class 0", "class 1", "class 4", "class 5"]
    assert [one["version"] for one in facts["versions"]] == [1, 2, 3]
    assert facts["unfinished"] is None
    assert check(beginner) == []
    assert not list((tmp_path / "m-lessons").glob("*/images"))


@pytest.mark.slow
def test_no_answer_is_wrong_or_lost_with_lessons_and_rollbacks_in_between(model: Path) -> None:
    """Every answer is what the version that it names would have answered, and that version was current at the time."""
    seen: list[tuple[int, int, dict[str, Any]]] = []  # version, file, answer
    is_taught = threading.Event()

    def ask(number: int) -> None:
        """Ask half of the questions before the lesson, and the others until it has ended."""
        moments, asked = random.Random(number), 0
        with httpx.Client(base_url=server.client.base_url, headers=server.client.headers, timeout=60) as client:
            while asked < REQUESTS // CLIENTS or not is_taught.is_set():
                place = moments.randrange(len(PHOTOS))
                answer = client.post("/api/predict?top=1", files=upload([PHOTOS[place]]))
                assert answer.status_code == 200, answer.text
                seen.append((int(answer.headers["cotransport-version"]), place, answer.json()[0]))
                asked += 1

    def change() -> dict[str, Any]:
        """Go back and forth between versions, then teach, and go back and forth again; returns the lesson."""
        try:
            while len(seen) < REQUESTS // 2:
                go_to(1 + len(seen) % 2)
            lesson = server.client.post("/api/teach", files=lesson_form(LESSONS[2])).json()["lesson"]
            found = ended(server.client, lesson)
            for version in (1, 3, 2, 3):
                go_to(version)
            return found
        finally:
            is_taught.set()

    def go_to(version: int) -> None:
        assert server.client.post("/api/rollback", json={"to": version}).status_code == 200
        answer = server.client.post("/api/predict", files=upload(PHOTOS[:1]))
        assert answer.headers["cotransport-version"] == str(version)

    with served(model) as server, ThreadPoolExecutor(CLIENTS + 1) as pool:
        changing = pool.submit(change)
        asking = [pool.submit(ask, number) for number in range(CLIENTS)]
        assert changing.result(600)["state"] == "done"
        for one in asking:
            one.result(60)
    assert len(seen) >= REQUESTS
    versions = {version for version, _, _ in seen}
    assert versions == {1, 2, 3}
    expected = {version: answers(model, version, PHOTOS) for version in versions}
    wrong = [one for one in seen if not is_right(one[2], expected[one[0]][one[1]])]
    assert wrong == []


def test_a_second_server_is_one_message(model: Path) -> None:
    with LessonFolder(model).locked():
        words = [sys.executable, "-m", "cotransport", "serve", str(model), "--port", "0"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "another server is using this model" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_serve_needs_its_libraries(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['uvicorn'] = None; from importlib import util; real = util.find_spec;"
    hide += "util.find_spec = lambda name, *_: None if name == 'uvicorn' else real(name);"
    script = hide + "sys.argv = ['cotransport', 'serve', 'model']; from cotransport.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, "pip install 'cotransport[serve]'" in done.stderr) == (2, True), done.stderr
