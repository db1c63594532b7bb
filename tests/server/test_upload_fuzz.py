"""Whatever is sent to the routes that take files, the server answers with JSON and goes on answering."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from cotransport.server.lesson_queue import LessonQueue
from tests.server.helpers import connected, images, upload
from tests.test_fuzz import cases

pytestmark = pytest.mark.fuzz
PHOTO = images(1, 1)["class 0"][0]
ANSWERED = {200, 202, 400, 408, 409, 413, 415, 429}
BOUNDARY = b"x"
KIND = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY.decode()}"}
PIECES = st.sampled_from(
    [
        b"--x",
        b"--x--",
        b"\r\n",
        b"\r\n\r\n",
        b'Content-Disposition: form-data; name="files"; filename="a.png"',
        b'Content-Disposition: form-data; name="files"; filename="../../a.png"',
        b'Content-Disposition: form-data; name="class"',
        b"Content-Disposition: form-data",
        b"Content-Type: image/png",
        b"\x00",
        b"cat",
        PHOTO.data,
        PHOTO.data[:40],
    ]
)
NAMES = st.text(max_size=30)


@pytest.fixture(scope="module")
def client(taught_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of a model whose lessons are queued only."""

    async def wait(_: object) -> None:
        """Learn nothing."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LessonQueue, "run", wait)
        patch.setattr("cotransport.server.lesson_queue.MOST_QUEUED", 10**6)
        copy = tmp_path_factory.mktemp("fuzz") / "model"
        with connected(Path(shutil.copytree(taught_models / "two", copy))) as found:
            yield found


def check(client: TestClient, answer: object) -> None:
    """An error unless a request got one of the planned answers, and the next one is answered as ever."""
    assert answer.status_code in ANSWERED, answer.text  # type: ignore[attr-defined]
    answer.json()  # type: ignore[attr-defined]
    assert client.post("/api/predict", files=upload([PHOTO])).status_code == 200


@cases(60)
@given(
    path=st.sampled_from(["/api/predict", "/api/teach"]),
    pieces=st.lists(PIECES, max_size=14),
    noise=st.binary(max_size=20),
)
def test_bodies(client: TestClient, path: str, pieces: list[bytes], noise: bytes) -> None:
    check(client, client.post(path, content=b"".join([*pieces, noise]), headers=KIND))


@cases(40)
@given(
    name=NAMES,
    file=NAMES,
    content=st.one_of(st.binary(max_size=60), st.just(PHOTO.data), st.integers(0, 60).map(lambda n: PHOTO.data[:n])),
    kind=st.sampled_from([None, "image/png", "text/html", "x"]),
)
def test_names_and_contents(client: TestClient, name: str, file: str, content: bytes, kind: str | None) -> None:
    part = (file, content, kind) if kind else (file, content)
    parts = [("class", (None, name.encode("utf-8", "replace"))), ("files", part)]
    check(client, client.post("/api/teach", files=parts))
    check(client, client.post("/api/predict", files=parts[1:]))


@cases(40)
@given(
    path=st.sampled_from(["/api/rollback", "/api/rename", "/api/remove"]),
    body=st.one_of(st.binary(max_size=40), st.just(b"[" * 10**4)),
)
def test_json(client: TestClient, path: str, body: bytes) -> None:
    if body.strip():  # an empty body is a rollback
        check(client, client.post(path, content=body))
