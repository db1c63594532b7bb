"""Lessons in a queue. The processes that learn are replaced by short scripts that print what `learn` prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from cotransport.lessons.information import rollback
from cotransport.lessons.ownership import rename
from cotransport.server import lesson_process
from cotransport.server.lesson_folder import LessonFolder
from tests.lessons.helpers import learn
from tests.server.helpers import connected, ended, images, lesson_form, wait_until

RESULT = {
    "version": 1,
    "parent": None,
    "promoted": True,
    "refused": None,
    "already": False,
    "lesson": {"new_classes": ["class 0"], "data": "secret/place"},
    "per_class": [{"name": "class 0", "images": 2, "before": None, "after": 50.0, "lost": None, "gained": None}],
    "accuracy": 50.0,
    "old_before": None,
    "old_after": None,
    "times": {"seconds": 1.5},
}
HEAD = f"""
import json, os, pathlib, signal, sys, time
words, here = sys.argv[1:], pathlib.Path.cwd()
attempts = here / "attempts"
attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
def tell(kind, **values):
    print(json.dumps(dict(event=kind, **values)), file=sys.stderr, flush=True)
def finish():
    print({json.dumps(json.dumps(RESULT))})
def wait_for(name):
    while not (here / name).exists():
        time.sleep(0.02)
"""


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the process that learns by a script."""

    def replace(script: str) -> None:
        monkeypatch.setattr(lesson_process, "_START", HEAD + script)

    return replace


def teach(client: TestClient, number: int = 0, **fields: bytes) -> str:
    """Ask for a lesson of two images of a class; returns its id."""
    more = [(name, (None, value)) for name, value in fields.items()]
    answer = client.post("/api/teach", files=[*lesson_form(images(1, 2, first=number)), *more])
    assert answer.status_code == 202, answer.text
    return str(answer.json()["lesson"])


def test_a_lesson_goes_from_the_queue_to_its_result(learning: Any, tmp_path: Path) -> None:
    learning(
        "(here / 'words').write_text(json.dumps(words)); tell('reading', done=1, files=2, seconds_left=3.0)\n"
        "wait_for('read'); tell('job_started', notes=['two images']); tell('note', text='a note', hint='--an-option')\n"
        "tell('training', step=3, steps=12, seconds_left=4.5)\nprint('a library says something', file=sys.stderr)\n"
        "wait_for('go'); tell('testing'); wait_for('tested'); finish()"
    )

    def progress() -> Any:
        return client.get(f"/api/lessons/{first}").json()["progress"]

    with connected(tmp_path / "new") as client:
        first, second = teach(client), teach(client, known_classes=b"extend", max_forgetting=b"2.5")
        wait_until(lambda: progress() == {"stage": "reading", "done": 1, "of": 2, "seconds_left": 3.0})
        (tmp_path / "read").touch()
        running = wait_until(
            lambda: (found := client.get(f"/api/lessons/{first}").json())["progress"]["done"] == 3 and found
        )
        assert running["state"] == "running"
        assert running["progress"] == {"stage": "training", "done": 3, "of": 12, "seconds_left": 4.5}
        assert (running["notes"], running["settings"]) == (["a note"], ["two images"])
        assert client.get(f"/api/lessons/{second}").json()["state"] == "queued"
        data = f"new-lessons/{first}/images"
        assert json.loads((tmp_path / "words").read_text()) == [
            *("learn", "--json", "--events", "--known-classes", "refuse", "--", "new", data)
        ]
        (tmp_path / "go").touch()
        wait_until(lambda: progress()["stage"] == "testing")
        (tmp_path / "tested").touch()
        done = ended(client, first)
        assert done["state"] == "done"
        assert done["progress"] is None
        assert done["result"] == {
            "version": 1,
            "parent": None,
            "accuracy": 50.0,
            "old_before": None,
            "old_after": None,
            "new_classes": ["class 0"],
            "per_class": RESULT["per_class"],
            "seconds": 1.5,
            "already": False,
        }
        assert not (tmp_path / data).exists()  # the images are gone, the record stays
        ended(client, second)
        counted = client.get("/metrics").text.splitlines()
        assert {"cotransport_lessons_done_total 2", "cotransport_lessons_failed_total 0"} <= set(counted)
        words = json.loads((tmp_path / "words").read_text())
        assert words[3:7] == ["--known-classes", "extend", "--max-forgetting", "2.5"]
        assert client.delete(f"/api/lessons/{first}").status_code == 204
        assert [one["id"] for one in client.get("/api/lessons").json()] == [second]


def test_a_refused_lesson_says_why(learning: Any, tmp_path: Path) -> None:
    learning("print(json.dumps({**json.loads(" + repr(json.dumps(RESULT)) + "), 'refused': 'too much'})); sys.exit(3)")
    with connected(tmp_path / "new") as client:
        found = ended(client, teach(client))
        assert (found["state"], found["error"], found["result"]["version"]) == ("refused", "too much", 1)


def test_a_failed_lesson_says_why_without_the_servers_folders(learning: Any, tmp_path: Path) -> None:
    learning("tell('error', text=f'{words[-1]}/cat: no images. {here}/new/x is full of {here}/y'); sys.exit(2)")
    with connected(tmp_path / "new") as client:
        found = ended(client, teach(client))
        assert found["state"] == "failed"
        assert found["error"] == "cat: no images. the model/x is full of .../y"
        assert (tmp_path / "attempts").read_text() == "x"  # it would fail in the same way again


def test_a_lesson_whose_process_is_killed_is_tried_again(learning: Any, tmp_path: Path) -> None:
    learning("os.kill(os.getpid(), signal.SIGKILL) if len(attempts.read_text()) < 3 else finish()")
    with connected(tmp_path / "new") as client:
        assert ended(client, teach(client))["state"] == "done"
    assert (tmp_path / "attempts").read_text() == "xxx"


def test_a_lesson_whose_process_is_killed_again_and_again_fails_and_the_next_one_runs(
    learning: Any, tmp_path: Path
) -> None:
    learning("os.kill(os.getpid(), signal.SIGKILL) if len(attempts.read_text()) < 4 else finish()")
    with connected(tmp_path / "new") as client:
        first, second = teach(client), teach(client, 1)
        found = ended(client, first)
        assert (found["state"], found["error"]) == ("failed", "its process was killed 3 times")
        assert ended(client, second)["state"] == "done"


def test_a_running_lesson_can_be_cancelled(learning: Any, tmp_path: Path) -> None:
    learning("wait_for('never')")
    with connected(tmp_path / "new") as client:
        lesson = teach(client)
        wait_until((tmp_path / "attempts").exists)
        assert client.delete(f"/api/lessons/{lesson}").status_code == 204
        wait_until(lambda: client.get(f"/api/lessons/{lesson}").status_code == 404)
        assert (tmp_path / "attempts").read_text() == "x"


def test_the_model_is_not_changed_while_a_lesson_is_learned(learning: Any, model: Path) -> None:
    learning("wait_for('never')")
    with connected(model) as client:
        lesson = client.post("/api/teach", files=lesson_form(images(1, 2, first=6))).json()["lesson"]
        wait_until(lambda: client.get(f"/api/lessons/{lesson}").json()["state"] == "running")
        for path, values in (("rollback", {}), ("rename", {"name": "a", "to": "b"}), ("remove", {"name": "a"})):
            answer = client.post(f"/api/{path}", json=values)
            assert (answer.status_code, "a lesson is being learned" in answer.json()["error"]) == (409, True)


def test_lessons_of_a_server_that_ended_are_learned_by_the_next_one_in_order(learning: Any, tmp_path: Path) -> None:
    learning("wait_for('go'); finish()")
    with connected(tmp_path / "new") as client:
        lessons = [teach(client, number) for number in range(3)]
        wait_until((tmp_path / "attempts").exists)
    assert [one.lesson.state for one in LessonFolder(tmp_path / "new").read()] == ["running", "queued", "queued"]
    (tmp_path / "go").touch()
    learning("open(here / 'order', 'a').write(words[-1] + chr(10)); finish()")
    with connected(tmp_path / "new") as client:
        assert [ended(client, one)["state"] for one in lessons] == ["done"] * 3
    learned = [Path(line).parent.name for line in (tmp_path / "order").read_text().splitlines()]
    assert learned == lessons


def test_a_lesson_that_was_learned_when_the_server_stopped_is_done_whatever_changed_since(
    learning: Any, model: Path
) -> None:
    """Killed after its version was written. The same `learn` would now teach the images a second time, or refuse."""
    learning("wait_for('never')")
    with connected(model) as client:
        lesson = client.post("/api/teach", files=lesson_form(images(1, 12, first=6))).json()["lesson"]
        wait_until((model.parent / "attempts").exists)
    assert learn(model, LessonFolder(model).images(lesson)).version == 3
    rename(model, "class 6", "renamed")
    rollback(model, 1)
    with connected(model) as client:
        found = ended(client, lesson)
        assert (found["state"], found["error"], found["result"]["version"]) == ("done", None, 3)
        assert found["result"]["new_classes"] == ["class 6"]
        assert client.get("/api/classes").json()[-1]["name"] == "class 1"  # nothing was made current
    assert (model.parent / "attempts").read_text() == "x"


def test_a_lesson_that_ends_while_the_server_stops_is_recorded(learning: Any, tmp_path: Path) -> None:
    learning("signal.signal(signal.SIGTERM, lambda *_: None); (here / 'ready').touch(); signal.pause(); finish()")
    with connected(tmp_path / "new") as client:
        teach(client)
        wait_until((tmp_path / "ready").exists)
    assert [one.lesson.state for one in LessonFolder(tmp_path / "new").read()] == ["done"]


def test_every_step_of_a_lesson_is_one_line(learning: Any, tmp_path: Path) -> None:
    lines: list[str] = []
    learning("wait_for('never') if 'class 1' in os.listdir(words[-1]) else finish()")
    with connected(tmp_path / "new", lines.append) as client:
        one = teach(client)
        ended(client, one)
        two = teach(client, 1)
        wait_until(lambda: lines[-1].endswith("started"))
    learning("tell('error', text='no', hint='--yes'); sys.exit(2)")
    with connected(tmp_path / "new", lines.append) as client:
        ended(client, two)
    named = f"lesson {two} (class 1; 2 images)"
    assert [re.sub(r"after \d+ s", "after 0 s", line) for line in lines] == [
        f"lesson {one} (class 0; 2 images): queued",
        f"lesson {one} (class 0; 2 images): started",
        f"lesson {one} (class 0; 2 images): done after 0 s, version 1",
        *(f"{named}: queued", f"{named}: started", f"{named}: interrupted"),
        *("resuming 1 lesson of an earlier server", f"{named}: started", f"{named}: failed after 0 s: no"),
    ]


def test_a_mistake_of_ours_stops_one_lesson_and_not_the_queue(
    learning: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    learning("print('no JSON') if 'class 0' in os.listdir(words[-1]) else finish()")
    with connected(tmp_path / "new") as client:
        first, second = teach(client), teach(client, 1)
        assert ended(client, first)["error"] == "internal error; the server's log has the details"
        assert ended(client, second)["state"] == "done"
    assert "JSONDecodeError" in capfd.readouterr().err


def test_a_second_server_for_the_same_model_is_refused(tmp_path: Path) -> None:
    with (
        connected(tmp_path / "new"),
        pytest.raises(Exception, match="another server is using"),
        connected(tmp_path / "new"),
    ):
        pass


def test_events_tell_the_page_what_changes(learning: Any, tmp_path: Path) -> None:
    """The stream never ends, so it is read from the service itself."""
    learning("finish()")
    with connected(tmp_path / "new") as client:
        lesson = teach(client)
        ended(client, lesson)
        service = client.app._app._app.state.service  # type: ignore[union-attr]
        state = service.state()
        assert (state["name"], state["version"]) == ("new", None)
        assert [one["id"] for one in state["lessons"]] == [lesson]


def test_what_is_left_half_written_or_is_not_ours_is_no_lesson(tmp_path: Path) -> None:
    folder = LessonFolder(tmp_path / "new")
    for name in (".0123abcd.part", "0123abcd", "notes"):
        (folder.path / name).mkdir(parents=True)
    (folder.path / "0123abcd" / "lesson.json").write_text("{}")
    assert folder.read() == []
    assert sorted(path.name for path in folder.path.iterdir()) == ["0123abcd", "notes"]
