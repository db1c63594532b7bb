"""What the routes answer, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cotransport.data.decoding import Encoded
from cotransport.learner.prediction import Predictor, predict_files
from cotransport.learner.snapshots import restored
from cotransport.lessons.information import answer_threshold
from cotransport.model.store import ModelStore
from cotransport.server import lesson_queue, predictor, routes, uploads
from cotransport.server.uploads import Limits
from tests.data.test_decoding import png_of
from tests.server.helpers import form, images, lesson_form, upload

PIXELS = "more than the 50,000,000 pixels allowed. Scale it down"
EXTEND = ("known_classes", (None, b"extend"))
PHOTOS = [file for files in images(4, 2).values() for file in files]


def expected(model: Path, files: list[Encoded], top: int = 10) -> list[dict[str, Any]]:
    """The answers of the command's own code."""
    made = predict_files(
        Predictor(*restored(ModelStore(model).read())), files, top, answer_threshold(model, 0.95).probability
    )
    return [
        {
            "file": one.path,
            "classes": [{"name": name, "probability": pytest.approx(share, abs=1e-6)} for name, share in one.classes],
            "unknown": one.is_unknown,
        }
        for one in made
    ]


def test_predictions_are_those_of_the_command(client: TestClient, model: Path) -> None:
    answer = client.post("/api/predict", files=upload(PHOTOS))
    assert answer.json() == expected(model, PHOTOS)
    assert answer.headers["cotransport-version"] == "2"
    assert float(answer.headers["cotransport-threshold"]) == pytest.approx(answer_threshold(model, 0.95).probability)
    top = client.post("/api/predict?top=2", files=upload(PHOTOS[:1])).json()
    assert top == expected(model, PHOTOS[:1], 2)


def test_a_file_that_is_not_an_image_does_not_stop_the_others(client: TestClient, model: Path) -> None:
    answers = client.post("/api/predict", files=upload([PHOTOS[0], Encoded(b"no image", "notes.txt")])).json()
    assert answers[0] == expected(model, PHOTOS[:1])[0]
    assert (answers[1]["file"], answers[1]["classes"], answers[1]["unknown"]) == ("notes.txt", [], None)
    assert answers[1]["error"].startswith("notes.txt: not an image")
    refused = client.post("/api/predict", files=upload([Encoded(b"no image", "notes.txt")]))
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("notes.txt: not an image")


def test_before_the_first_lesson_there_is_nothing_to_predict_with(empty: TestClient) -> None:
    answer = empty.post("/api/predict", files=upload(PHOTOS[:1]))
    assert answer.status_code == 409
    assert "Teach it" in answer.json()["error"]
    assert empty.get("/api/classes").json() == empty.get("/api/versions").json() == []
    assert empty.post("/api/rollback").status_code == 409


def test_a_version_is_swapped_in_between_two_requests(client: TestClient, model: Path) -> None:
    assert len(client.post("/api/predict", files=upload(PHOTOS[:1])).json()[0]["classes"]) == 4
    assert client.post("/api/rollback").json() == {"before": 2, "current": 1}
    answer = client.post("/api/predict", files=upload(PHOTOS[:1]))
    assert answer.headers["cotransport-version"] == "1"
    assert answer.json() == expected(model, PHOTOS[:1])
    assert client.post("/api/rollback", json={"to": 2}).json() == {"before": 1, "current": 2}
    assert len(client.post("/api/predict", files=upload(PHOTOS[:1])).json()[0]["classes"]) == 4


def test_classes_have_pictures_on_request_and_what_they_were_built_from(client: TestClient) -> None:
    plain, pictured = (client.get(f"/api/classes{query}").json() for query in ("", "?pictures=true"))
    assert [one["name"] for one in plain] == [f"class {number}" for number in range(4)]
    assert [one["arrived"] for one in plain] == [1, 1, 2, 2]
    assert not any(one["pictures"] for one in plain)
    assert all(one["pictures"][0].startswith("data:image/png;base64,") for one in pictured)
    assert {share["name"] for share in plain[3]["built_from"]} <= {"class 0", "class 1"}
    assert sum(share["share"] for share in plain[3]["built_from"]) == pytest.approx(1, abs=0.01)


def test_versions_are_listed(client: TestClient) -> None:
    first, second = client.get("/api/versions").json()
    assert (first["version"], first["parent"], first["current"]) == (1, None, False)
    assert (second["version"], second["parent"], second["current"]) == (2, 1, True)
    assert (second["new_classes"], second["extended"]) == (["class 2", "class 3"], [])
    assert second["accuracy"] is not None


def test_classes_are_renamed_and_removed_in_new_versions(client: TestClient) -> None:
    assert client.post("/api/rename", json={"name": "class 1", "to": " tabby "}).json() == {"version": 3}
    assert client.post("/api/remove", json={"name": "class 0"}).json() == {"version": 4}
    changes = [one["change"] for one in client.get("/api/versions").json()]
    assert changes == [None, None, "class 1 renamed to tabby", "class 0 removed"]
    assert [one["name"] for one in client.get("/api/classes").json()] == ["tabby", "class 2", "class 3"]
    assert client.post("/api/remove", json={"name": "class 0"}).status_code == 400
    assert client.post("/api/rename", json={"name": "tabby", "to": "../x"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{", "not valid JSON"),
        ('{"to": "x"}', "to: "),
        ('{"to": "1"}', "to: "),
        ('{"to": true}', "to: "),
        ('{"too": 1}', "too: "),
        ("[]", "valid"),
        ('{"to": 99}', "no version 99"),
    ],
)
def test_wrong_values_are_named(client: TestClient, body: str, reason: str) -> None:
    answer = client.post("/api/rollback", content=body)
    assert answer.status_code in {400, 409}
    assert reason in answer.json()["error"]


@pytest.mark.parametrize("name", ["", " ", ".", "..", ".hidden", "a/b", "a\\b", "a\x00b", "a\nb", "x" * 201])
def test_class_names_that_cannot_be_folders_are_refused(empty: TestClient, name: str) -> None:
    answer = empty.post("/api/teach", files=form((name, PHOTOS[:1])))
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("class")


def test_a_lesson_needs_a_class_and_images(empty: TestClient, model: Path) -> None:
    cases = {
        "`class`": upload(PHOTOS[:1]),
        "`files`": form(("cat", [])),
        "no files follow 'cat'": form(("cat", []), ("dog", PHOTOS[:1])),
        "before the first class": [*upload(PHOTOS[:1]), *form(("cat", []), ("dog", PHOTOS[:1]))],
        "only in case": form(("cat", PHOTOS[:1]), ("Cat", PHOTOS[1:2])),
        "notes.txt: not an image": form(("cat", [PHOTOS[0], Encoded(b"no image", "notes.txt")])),
        "damaged": form(("cat", [Encoded(PHOTOS[0].data[:-30], "cut.png")])),
        "known_classes": [*form(("cat", PHOTOS[:1])), ("known_classes", (None, b"perhaps"))],
        "max_forgetting": [*form(("cat", PHOTOS[:1])), ("max_forgetting", (None, b"101"))],
    }
    for reason, parts in cases.items():
        answer = empty.post("/api/teach", files=parts)
        assert (answer.status_code, reason in answer.json()["error"]) == (400, True), (reason, answer.json())
    assert empty.get("/api/lessons").json() == []


def test_all_unreadable_files_of_a_lesson_are_told(empty: TestClient) -> None:
    bad = Encoded(b"no image", "notes.txt")
    answer = empty.post("/api/teach", files=form(("cat", [PHOTOS[0], bad]), ("dog", [bad, PHOTOS[1]])))
    assert answer.json()["unreadable"] == [1, 2]
    again = empty.post("/api/teach", files=form(("cat", PHOTOS[:1]), ("dog", [bad]), ("cat", PHOTOS[1:2])))
    assert again.json()["unreadable"] == [1]
    assert "unreadable" not in empty.post("/api/teach", files=form(("", PHOTOS[:1]))).json()


@pytest.mark.usefixtures("queue_only")
def test_files_belong_to_one_class_to_the_class_before_them_or_to_one_each(empty: TestClient, tmp_path: Path) -> None:
    first, second, third = PHOTOS[:3]
    one = empty.post("/api/teach", files=[*upload([first]), *form(("cat", [second]))])
    several = empty.post("/api/teach", files=[*form(("cat", [first]), ("dog", [second, third])), EXTEND])
    paired = empty.post(
        "/api/teach", files=[*form(("cat", []), ("dog", []), ("cat", [])), *upload([first, second, third]), EXTEND]
    )
    assert [answer.status_code for answer in (one, several, paired)] == [202] * 3
    taught = [lesson["classes"] for lesson in empty.get("/api/lessons").json()]
    assert taught[0] == [{"name": "cat", "images": 2}]
    assert taught[1] == [{"name": "cat", "images": 1}, {"name": "dog", "images": 2}]
    assert taught[2] == [{"name": "cat", "images": 2}, {"name": "dog", "images": 1}]
    folder = tmp_path / "new-lessons" / several.json()["lesson"] / "images"
    assert [path.name for path in sorted(folder.iterdir())] == ["cat", "dog"]
    assert (folder / "dog" / "00001-2.png").read_bytes() == third.data


@pytest.mark.usefixtures("queue_only")
def test_known_classes_are_extended_only_on_request(client: TestClient) -> None:
    parts = form(("class 1", PHOTOS[:2]))
    refused = client.post("/api/teach", files=parts)
    assert refused.status_code == 409
    assert "'class 1' is known already" in refused.json()["error"]
    assert client.post("/api/teach", files=[*parts, EXTEND]).status_code == 202


@pytest.mark.usefixtures("queue_only")
def test_a_class_that_a_lesson_is_about_to_teach_is_extended_only_on_request(empty: TestClient) -> None:
    parts = form(("cat", PHOTOS[:2]))
    lesson = empty.post("/api/teach", files=parts).json()["lesson"]
    refused = empty.post("/api/teach", files=form(("dog", PHOTOS[2:3]), ("cat", PHOTOS[3:4])))
    assert refused.status_code == 409
    assert refused.json()["error"].startswith("another lesson is about to teach 'cat'. Choose another name")
    assert empty.post("/api/teach", files=[*parts, EXTEND]).status_code == 202
    for one in (lesson, empty.get("/api/lessons").json()[1]["id"]):
        empty.delete(f"/api/lessons/{one}")
    assert empty.post("/api/teach", files=parts).status_code == 202


def test_the_first_lesson_can_be_undone(client: TestClient) -> None:
    client.post("/api/rollback", json={"to": 1})
    assert client.post("/api/rollback", json={"to": 0}).json() == {"before": 1, "current": 0}
    assert client.get("/api/classes").json() == []
    assert [one["current"] for one in client.get("/api/versions").json()] == [False, False]
    assert client.post("/api/predict", files=upload(PHOTOS[:1])).status_code == 409
    assert client.post("/api/rename", json={"name": "class 0", "to": "other"}).status_code == 409
    assert client.post("/api/rollback", json={"to": 2}).json() == {"before": 0, "current": 2}
    assert len(client.get("/api/classes").json()) == 4


def test_no_answer_names_an_option_of_the_command(client: TestClient, model: Path) -> None:
    client.post("/api/rollback", json={"to": 1})
    answers = [client.post("/api/rollback"), client.post("/api/remove", json={"name": "class 9"})]
    (model / "unfinished").mkdir()
    answers.append(client.post("/api/rename", json={"name": "class 0", "to": "other"}))
    assert [answer.status_code for answer in answers] == [409, 400, 409]
    assert [answer.json()["error"].partition(":")[2] for answer in (answers[0], answers[2])] == [
        " version 1 is the first one. To empty the model, roll back to version 0",
        " a lesson is not finished, and nothing else may change the model until it is",
    ]
    assert not [answer.text for answer in answers if "--" in answer.text]


@pytest.mark.usefixtures("queue_only")
def test_too_many_lessons_bytes_files_pixels_and_requests_are_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statuses(path: str, parts: Any) -> tuple[int, str]:
        answer = client.post(path, files=parts)
        return answer.status_code, answer.json()["error"]

    for side in (8_000, 60_000):  # the second one is too large for Pillow, too
        large = [Encoded(png_of(side, side), "large.png")]
        assert statuses("/api/predict", upload(large)) == (413, "large.png: " + PIXELS)
        assert statuses("/api/teach", form(("cat", large))) == (413, "large.png: " + PIXELS)
    monkeypatch.setattr(lesson_queue, "MOST_QUEUED", 0)
    assert statuses("/api/teach", form(("cat", PHOTOS[:1])))[0] == 429
    monkeypatch.setattr(predictor, "MOST_WAITING", 0)
    assert statuses("/api/predict", upload(PHOTOS[:1]))[0] == 429
    monkeypatch.setattr(routes, "PREDICT", Limits(bytes=1 << 20, files=3))
    assert statuses("/api/predict", upload(PHOTOS[:4])) == (413, "files: at most 3 in one request")
    monkeypatch.setattr(routes, "PREDICT", Limits(bytes=500, files=3))
    assert statuses("/api/predict", upload(PHOTOS[:3]))[0] == 413
    monkeypatch.setattr(uploads, "LONGEST_FIELD", 10)
    assert statuses("/api/predict", [("other", (None, b"x" * 11))])[0] == 400


def test_a_body_without_a_length_is_limited_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PREDICT", Limits(bytes=500, files=3))
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = client.post("/api/predict", content=iter([b"--b\r\n"] * 200), headers=kind)
    assert "content-length" not in answer.request.headers
    assert answer.status_code == 413
    assert client.post("/api/rollback", content=b" " * (1 << 17)).status_code == 413


def test_uploads_together_take_limited_memory() -> None:
    budget = uploads.Budget(most=100)
    with budget.taken(60), pytest.raises(uploads.RefusedError) as refused, budget.taken(60):
        pass
    assert refused.value.status == 429
    with budget.taken(100):
        pass


def test_wrong_paths_methods_and_kinds_get_an_error_in_json(client: TestClient) -> None:
    assert client.get("/api/nothing").status_code == 404
    assert client.get("/api/predict").status_code == 405
    assert client.get("/api/lessons/..%2f..%2fetc").status_code == 404
    assert client.get("/api/lessons/00000000").json() == {"error": "there is no lesson with this id"}
    assert client.post("/api/predict", json={}).status_code == 415
    assert client.post("/api/predict", files=[("file", b"x")]).status_code == 400
    for top in ("0", "-1", "x", "1e3", "²"):
        assert client.post("/api/predict", params={"top": top}, files=upload(PHOTOS[:1])).status_code == 400
    assert "error" in json.loads(client.delete("/api/classes").text)


def test_an_unexpected_error_is_not_explained(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cotransport.server.app import make_app
    from tests.server.helpers import BEARER, TOKEN

    monkeypatch.setattr(predictor, "predict_files", lambda *_: 1 / 0)
    app = make_app(model, TOKEN)
    with TestClient(app, base_url="http://localhost", headers=BEARER, raise_server_exceptions=False) as client:
        answer = client.post("/api/predict", files=upload(PHOTOS[:1]))
        assert (answer.status_code, answer.json()) == (
            500,
            {"error": "internal error; the server's log has the details"},
        )
        monkeypatch.undo()
        assert client.post("/api/predict", files=upload(PHOTOS[:1])).status_code == 200


def test_metrics_count_requests_files_and_batches(client: TestClient) -> None:
    client.post("/api/predict", files=upload(PHOTOS[:3]))
    client.get("/api/lessons/00000000")
    lines = client.get("/metrics").text.splitlines()
    assert 'cotransport_requests_total{route="predict",method="POST",status="200"} 1' in lines
    assert 'cotransport_requests_total{route="lesson",method="GET",status="404"} 1' in lines
    assert 'cotransport_request_seconds_bucket{route="predict",le="+Inf"} 1' in lines
    assert "cotransport_predicted_files_total 3" in lines
    assert "cotransport_batches_total 1" in lines
    assert "cotransport_version 2" in lines
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert all(line.split("{")[0].split()[0].startswith(tuple(named)) for line in lines if not line.startswith("#"))


@pytest.mark.usefixtures("queue_only")
def test_a_lesson_in_the_queue_can_be_cancelled(empty: TestClient, tmp_path: Path) -> None:
    lesson = empty.post("/api/teach", files=lesson_form(images(1, 2))).json()["lesson"]
    assert empty.delete(f"/api/lessons/{lesson}").status_code == 204
    assert empty.get(f"/api/lessons/{lesson}").status_code == 404
    assert [path.name for path in (tmp_path / "new-lessons").iterdir()] == [".lock"]
