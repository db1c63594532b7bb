"""The commands around a model folder, as a user types them."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data import examples
from cotransport.model.store import ModelStore
from tests.cli.test_main import call
from tests.conftest import blobs
from tests.lessons.test_lesson import write

Command = Callable[..., tuple[int, str]]
QUICK = ["--backbone", "resnet8", "--epochs", "6", "--set", "device.accelerator=cpu"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in a new folder: its exit code, and all that it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    write(blobs(2, 20), tmp_path / "first")
    write(blobs(2, 20, first=2, seed=1), tmp_path / "second")
    return lambda *words: call(monkeypatch, capsys, *words)


@pytest.fixture
def model(command: Command) -> Command:
    """The same, with a model that knows two classes."""
    assert command("learn", "model", "first", *QUICK)[0] == 0
    return command


def test_learn_says_what_was_chosen_and_what_came_of_it(command: Command) -> None:
    code, told = command("learn", "model", "first", *QUICK)
    assert code == 0
    assert "2 classes, 36 images to learn from and 4 held out" in told
    assert "COIL (tuned), backbone resnet8, 8 x 8 pixels, images remembered: 50 of each class" in told
    assert "6 epochs in batches of 16" in told
    assert "version 1 recognises" in told
    code, told = command("learn", "model", "second")
    assert code == 0
    assert "class 3" in told
    assert "the classes known before" in told
    code, told = command("learn", "model", "second")
    assert (code, "nothing to do" in told) == (0, True)
    assert "go back first: cotransport rollback model" in told
    Path("model").rename("my model")
    assert (
        "To learn them otherwise, begin a new model"
        in command("learn", "new", "first", *QUICK)[1] + command("learn", "new", "first")[1]
    )
    assert "back with: cotransport rollback 'my model' --to 2" in command("rollback", "my model")[1]


@pytest.mark.parametrize(("method", "rate"), [("replay", "0.025"), ("oracle", "0.05")])
def test_learn_says_which_rate_a_later_lesson_has(method: str, rate: str, command: Command) -> None:
    """Half of the first one's, unless it begins from scratch."""
    assert "learning rate 0.05," in command("learn", "m", "first", *QUICK, "--method", method)[1]
    assert f"learning rate {rate}," in command("learn", "m", "second", "--epochs", "1")[1]


@pytest.mark.parametrize(("method", "kept"), [("finetune", "none"), ("oracle", "all"), ("replay", "50 of each class")])
def test_learn_says_what_is_remembered(method: str, kept: str, command: Command) -> None:
    assert f"images remembered: {kept}" in command("learn", "m", "first", *QUICK, "--method", method)[1]


def test_of_many_classes_some_are_shown(command: Command) -> None:
    write(blobs(45, 3), Path("many"))
    told = command("learn", "m", "many", *QUICK, "--epochs", "1")[1]
    assert len([line for line in told.splitlines() if line.rstrip().endswith("new")]) == 40
    assert "40 of 45 classes; --json has all" in told
    told = command("learn", "m", write(blobs(5, 3, first=50), Path("more")).name)[1]
    assert len([line for line in told.splitlines() if line.startswith(" class ")]) == 1 + 40
    assert "40 of 50 classes, the most forgotten of the old ones; --json has all" in told


def test_learn_in_json(command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cotransport.cli import main as cli

    monkeypatch.setattr(sys, "argv", ["cotransport", "learn", "model", "first", *QUICK, "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["promoted"], told["forgetting"]) == (1, True, None)
    assert [one["name"] for one in told["per_class"]] == ["class 0", "class 1"]


def test_a_refused_version_ends_with_code_3(model: Command) -> None:
    assert model("learn", "forgetful", "first", *QUICK, "--method", "finetune", "--held-out", "0.5")[0] == 0
    Path("model").rename("other")
    Path("forgetful").rename("model")
    code, told = model("learn", "model", "second", "--held-out", "0.5", "--max-forgetting", "5")
    assert code == 3
    assert "not promoted: it forgets" in told
    assert "cotransport rollback model --to 2" in told
    assert ModelStore(Path("model")).manifest().current == 1
    assert "version 2 was refused: it forgets" in model("info", "model")[1]
    code, told = model("learn", "model", "second", "--held-out", "0.5")  # the word of caution is taken back
    assert (code, "these images before: it is current now" in told) == (0, True)
    assert "version 2 was refused at first: it forgets" in model("info", "model")[1]
    assert ModelStore(Path("model")).manifest().current == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learn", "model", "nowhere"], "nowhere"),
        (["learn", "model", "first", "--epochs", "2", "--minutes", "1"], "exclude each other"),
        (["learn", "model", "first", "--memory", "2", "--memory-per-class", "1"], "exclude each other"),
        (["learn", "model", "first", "--held-out", "1.5"], "--held-out 1.5: give a share"),
        (["learn", "model", "first", "--max-forgetting", "nan"], "--max-forgetting nan: give points"),
        (["learn", "model", "first", "--minutes", "-1"], "--minutes -1: give a time"),
        (["learn", "model", "first", "--set", "schedule=3"], "schedule: give one of its keys"),
        (["learn", "model", "first", "--set", "augmentation=none"], "augmentation: give one of its keys"),
        (["learn", "model", "first", "--set", "data.image_size=8"], "Give it with --image-size"),
        (["learn", "model", "first", "--backbone", "foo"], "'foo' is not known"),
        (["learn", "model", "first", "--method", "coill"], "did you mean 'coil'"),
        (["learn", "model", "first", "--set", "schedules.epochs=2"], "did you mean 'schedule'"),
        (["learn", "first", "first"], "not a model, and not empty"),
        (
            ["learn", "model", "first", "--image-size", "100000"],
            "image_size: Input should be less than or equal to 8192",
        ),
        (
            ["evaluate", "model", "--set", "schedul.foo=1"],
            "--set schedul: evaluate has settings of data and device only",
        ),
        (["info", "first/class 0/1.png"], "a file, not a model's folder"),
        (["learn", "model", "first", "--known-classes", "maybe"], "maybe"),
        (["predict", "model", "a.jpg"], "model: no such folder"),
        (["info", "first"], "not a model"),
        (["rollback", "model"], "no such folder"),
        (["evaluate", "model"], "no such folder"),
        (["export", "model", "--onnx", "m.onnx"], "no such folder"),
    ],
)
def test_a_users_mistake_is_told_in_a_line(words: list[str], message: str, command: Command) -> None:
    code, told = command(*words)
    assert code == 2
    assert message in " ".join(told.split())
    assert "Traceback" not in told


class TestPredict:
    def test_files_folders_and_patterns(self, model: Command) -> None:
        one = next(Path("first").rglob("*.png"))
        code, told = model("predict", "model", str(one), "first/class 1", "first/**/1*.png", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(told)))
        assert code == 0
        assert rows[0]["image"] == str(one)
        assert len(rows) == 1 + 20 + len(list(Path("first").rglob("1*.png")))
        assert {row["class"] for row in rows} <= {"class 0", "class 1"}
        assert all(0 < float(row["probability"]) <= 1 for row in rows)

    def test_json_lines_and_the_likeliest(self, model: Command) -> None:
        code, told = model("predict", "model", "first/class 0", "--top", "2", "--json")
        lines = [json.loads(line) for line in told.splitlines()]
        assert code == 0
        assert len(lines) == 20
        for line in lines:
            shares = [one["probability"] for one in line["predictions"]]
            assert shares == sorted(shares, reverse=True)
            assert sum(shares) == pytest.approx(1)

    def test_a_table(self, model: Command) -> None:
        code, told = model("predict", "model", "first/class 0/3.png")
        assert code == 0
        assert "first/class 0/3.png" in told
        assert IncrementalClassifier.load("model").predict(["first/class 0/3.png"])[0] in told

    def test_a_bad_file_ends_with_code_1_and_the_rest_is_done(self, model: Command) -> None:
        Path("first/class 0/bad.png").write_bytes(b"nonsense")
        code, told = model("predict", "model", "first/class 0", "--format", "csv")
        assert code == 1
        assert "1 of 21 files could not be read" in told
        rows = [line for line in told.splitlines() if line.startswith("first/class 0/")]
        assert len(rows) >= 21

    def test_nothing_there(self, model: Command) -> None:
        Path("empty").mkdir()
        assert "an empty name: no images there" in model("predict", "model", "")[1]
        for words in ("empty", "no*.png"):
            code, told = model("predict", "model", words)
            assert code == 2
            assert f"{words}: no images there" in told
            code, told = model("predict", "model", words, "first/class 0/1.png")
            assert code == 1
            assert f"{words}: no images there" in told
            assert "first/class 0/1.png" in told

    def test_names_that_a_terminal_would_obey(self, model: Command) -> None:
        hostile = Path("first/class 0/a\x1b[2J[red]\udcff.png")
        try:
            Image.new("RGB", (8, 8)).save(hostile)
            Path("first/class 0/b\x1b[2J.png").write_bytes(b"nonsense")
        except OSError:
            pytest.skip("this file system has no such names")
        clf = IncrementalClassifier("replay", "resnet8", schedule={"epochs": 1})
        clf.learn(blobs(2, 4).images.pixels, ["cat\x9b2J"] * 4 + ["dog\x1b[2J"] * 4).save("hostile")  # type: ignore[union-attr]
        for form in ("table", "csv", "jsonl"):
            told = model("predict", "hostile", "first/class 0", "--format", form)[1]
            assert not {"\x1b", "\x9b"} & set(told)
            code, told = model("predict", "model", "first/class 0", "--format", form)
            assert code == 1
            assert "\x1b[2J" not in told


def test_evaluate_and_info(model: Command) -> None:
    code, told = model("evaluate", "model")
    assert code == 0
    assert "of 4 images" in told
    code, told = model("evaluate", "model", "first", "--json")
    assert json.loads(told)["images"] == 40
    code, told = model("info", "model")
    assert code == 0
    assert "version 1, 2 classes, COIL (tuned)" in told
    assert json.loads(model("info", "model", "--json")[1])["current"] == 1


def test_without_an_output_there_is_no_stack_trace(model: Command) -> None:
    words = ["predict", "model", "first/class 0/1.png", "--format", "csv"]
    script = [sys.executable, "-c", "from cotransport.cli.main import main; main()", *words]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *script]
    found = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_export(model: Command) -> None:
    code, told = model("export", "model", "--onnx", "model.onnx")
    assert code == 0
    assert "model.onnx" in told
    assert Path("model.onnx").stat().st_size > 10_000


def test_example_data_is_what_the_readme_needs(command: Command) -> None:
    code, told = command("example-data", "digits")
    assert code == 0
    assert "digits/first" in told
    lessons = {path.name: sorted(part.name for part in path.iterdir()) for path in Path("digits").iterdir()}
    assert lessons["first"] == ["one", "three", "two", "zero"]
    assert len(lessons["unseen"]) == 10 * examples.UNSEEN
    assert len(list(Path("digits").rglob("*.png"))) == 1797
    code, told = command("example-data", "digits")
    assert (code, "exists already" in told) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_first_and_the_same_command_goes_on(number: int, code: int, command: Command) -> None:
    lesson = ["learn", "model", "first", "--backbone", "resnet8", "--epochs", "400", "--set", "device.accelerator=cpu"]
    script = [sys.executable, "-c", "from cotransport.cli.main import main; main()", *lesson]
    process = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    record = Path("model/unfinished/lesson.json")
    deadline = time.monotonic() + 60
    while not record.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert "What was learned is saved; go on with: cotransport learn model first" in told
    assert len(list(Path("model/unfinished").glob("training-*.safetensors"))) == 1
    code, told = command("learn", "model", "first", "--backbone", "resnet8", "--epochs", "400", *QUICK[4:])
    assert code == 0
    assert "goes on after step" in told
    assert ModelStore(Path("model")).manifest().current == 1
