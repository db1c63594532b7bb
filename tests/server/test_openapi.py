"""The API's description agrees with what the server does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from cotransport.data.decoding import Encoded
from cotransport.server.app import ROUTES
from cotransport.server.openapi import OPERATIONS, document
from tests.server.helpers import form, images, upload

PHOTOS = images(1, 3)["class 0"]
UNDOCUMENTED = {"/", "/docs", "/openapi.json", "/page.css", "/page.js", "/icon.svg"}


def check(answer: Any, path: str) -> None:
    """An error unless an answer has a status and a content that the document states."""
    api = document()
    stated = api["paths"][path][answer.request.method.lower()]["responses"]
    assert str(answer.status_code) in stated, answer.text
    content = stated[str(answer.status_code)].get("content", {})
    if "application/json" in content:
        schema = {**content["application/json"]["schema"], "components": api["components"]}
        jsonschema.Draft202012Validator(schema).validate(answer.json())
    else:
        assert not content or next(iter(content)) in answer.headers["content-type"]


def test_every_route_is_documented_and_nothing_else() -> None:
    served = {(method.lower(), path) for method, path, _ in ROUTES if path not in UNDOCUMENTED}
    assert served == {(one.method, one.path) for one in OPERATIONS}


@pytest.mark.usefixtures("queue_only")
def test_answers_agree_with_their_schemas(client: TestClient) -> None:
    text = Encoded(b"no image", "notes.txt")
    lesson = client.post("/api/teach", files=form(("new", PHOTOS)))
    check(lesson, "/api/teach")
    check(client.get(f"/api/lessons/{lesson.json()['lesson']}"), "/api/lessons/{lesson_id}")
    check(client.get("/api/lessons"), "/api/lessons")
    check(client.delete(f"/api/lessons/{lesson.json()['lesson']}"), "/api/lessons/{lesson_id}")
    check(client.delete("/api/lessons/1"), "/api/lessons/{lesson_id}")
    for files in ([PHOTOS[0]], [PHOTOS[0], text], [text], []):
        check(client.post("/api/predict", files=upload(files) or [("x", b"")]), "/api/predict")
    check(client.post("/api/teach", files=form(("class 0", PHOTOS))), "/api/teach")
    check(client.get("/api/classes?pictures=1"), "/api/classes")
    check(client.get("/api/versions"), "/api/versions")
    check(client.get("/metrics"), "/metrics")
    check(client.get("/health"), "/health")
    for status in ({}, {"to": 2}, {"to": "x"}):
        check(client.post("/api/rollback", json=status), "/api/rollback")
    check(client.post("/api/rename", json={"name": "class 0", "to": "cat"}), "/api/rename")
    check(client.post("/api/remove", json={"name": "cat"}), "/api/remove")
    check(client.post("/api/remove", json={"name": "cat"}), "/api/remove")
    client.headers["Authorization"] = ""
    for one in OPERATIONS:
        if one.path != "/health":
            check(client.request(one.method, one.path), one.path)


def test_a_schema_refuses_what_is_not_answered() -> None:
    api = document()
    schema = {"$ref": "#/components/schemas/ImageAnswer", "components": api["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate({"file": "a.png", "classes": [], "unknown": None})
    for wrong in ({"file": "a.png", "classes": []}, {"file": 1, "classes": [], "unknown": None}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


def test_the_documentation_names_every_path_and_type(empty: TestClient, tmp_path: Path) -> None:
    html = empty.get("/docs").text
    words = " ".join(re.sub(r"<[^>]*>", " ", html).split())
    for one in OPERATIONS:
        assert f"{one.method.upper()} {one.path}" in words
    for name in document()["components"]["schemas"]:
        assert f'id="{name}"' in html
    links = set(re.findall(r'href="#([^"]*)"', html))
    assert links <= set(re.findall(r'id="([^"]*)"', html))
    assert empty.get("/openapi.json").json() == document()
