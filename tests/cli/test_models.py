"""The commands for a model as a user types them: learn, predict, evaluate, info, rollback, export and example-data."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data import examples
from cotransport.lessons.comparison import Evaluation
from cotransport.lessons.information import Threshold
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.records import ClassAccuracy, Confidence
from cotransport.lessons.teaching import learn
from cotransport.model.store import ModelStore
from cotransport.networks.efficientnet_lite import is_installed
from cotransport.settings.sections import Device
from tests.cli.helpers import Command
from tests.conftest import blobs
from tests.lessons.helpers import write

ON_CPU = ("--set", "device.accelerator=cpu")
QUICK = ("--backbone", "resnet8", "--epochs", "6", *ON_CPU)


@pytest.fixture
def command(cotransport: Command, tmp_path: Path) -> Command:
    """The command in a folder with images of two classes, and of two others."""
    write(blobs(2, 20), tmp_path / "first")
    write(blobs(2, 20, first=2, seed=1), tmp_path / "second")
    return cotransport


@pytest.fixture(scope="session")
def taught_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned the first two classes. Do not change it."""
    folder = tmp_path_factory.mktemp("taught")
    chosen = {"backbone": "resnet8", "schedule": {"epochs": 6, "seconds_per_task": None}}
    first = write(blobs(2, 20), folder / "first")
    learn(folder / "model", str(first), LessonOptions(chosen, device=Device(accelerator="cpu")))
    return folder / "model"


@pytest.fixture
def model(command: Command, taught_model: Path, tmp_path: Path) -> Command:
    """The command in the same folder, with a model that knows the first two classes."""
    shutil.copytree(taught_model, tmp_path / "model")
    return command


class TestLearn:
    def test_says_what_was_chosen_and_what_was_learned(self, command: Command) -> None:
        code, printed = command("learn", "model", "first", *QUICK)
        assert code == 0
        assert "2 classes, 36 images to train on and 4 held out for testing" in printed
        assert "COIL (tuned), backbone resnet8, 8 x 8 pixels, exemplars: 50 of each class" in printed
        assert "6 epochs in batches of 16" in printed
        assert "version 1 recognises" in printed
        code, printed = command("learn", "model", "second")
        assert code == 0
        assert "class 3" in printed
        assert "the classes known before" in printed
        code, printed = command("learn", "model", "second")
        assert (code, "nothing to do" in printed) == (0, True)
        assert "go back first: cotransport rollback model" in printed
        Path("model").rename("my model")
        assert "to undo: cotransport rollback 'my model' --to 2" in command("rollback", "my model")[1]
        assert "start a new model" in command("learn", "my model", "first")[1]

    @pytest.mark.parametrize(("method", "rate"), [("replay", "0.025"), ("oracle", "0.05")])
    def test_a_later_lesson_has_half_the_rate_unless_it_starts_from_scratch(
        self, method: str, rate: str, command: Command
    ) -> None:
        assert "learning rate 0.05," in command("learn", "m", "first", *QUICK, "--method", method)[1]
        assert f"learning rate {rate}," in command("learn", "m", "second", "--epochs", "1")[1]

    @pytest.mark.parametrize(
        ("words", "exemplars"),
        [
            (["--method", "finetune"], "none"),
            (["--method", "oracle"], "all images"),
            (["--method", "replay"], "50 of each class"),
            (["--memory", "30"], "30 in all"),
            (["--memory-per-class", "3"], "3 of each class"),
        ],
    )
    def test_says_which_exemplars_are_kept(self, words: list[str], exemplars: str, command: Command) -> None:
        printed = command("learn", "m", "first", *QUICK, "--epochs", "1", *words)[1]
        assert f"exemplars: {exemplars}" in printed

    def test_prints_json_for_programs(
        self, command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from cotransport.cli.main import main

        monkeypatch.setattr(sys, "argv", ["cotransport", "learn", "model", "first", *QUICK, "--json"])
        with pytest.raises(SystemExit):
            main()
        printed = json.loads(capsys.readouterr().out)  # standard output has nothing else
        assert (printed["version"], printed["promoted"], printed["forgetting"]) == (1, True, None)
        assert [one["name"] for one in printed["per_class"]] == ["class 0", "class 1"]
        assert printed["already"] is False

    def test_a_refused_version_ends_with_code_3(self, command: Command) -> None:
        assert command("learn", "model", "first", *QUICK, "--method", "finetune", "--held-out", "0.5")[0] == 0
        code, printed = command("learn", "model", "second", "--held-out", "0.5", "--max-forgetting", "5")
        assert code == 3
        assert "refused: the classes known before lose" in printed
        assert "cotransport rollback model --to 2" in printed
        assert ModelStore(Path("model")).manifest().current == 1
        assert "version 2 was refused: the classes known before lose" in command("info", "model")[1]
        code, printed = command("learn", "model", "second", "--held-out", "0.5")  # without a limit
        assert (code, "these images before: it is current now" in printed) == (0, True)
        assert "version 2 was refused at first: the classes known before lose" in command("info", "model")[1]
        assert ModelStore(Path("model")).manifest().current == 2

    @pytest.mark.filterwarnings("ignore:schedule.seconds_per_task")  # on a busy machine, one epoch takes longer
    def test_a_training_can_be_limited_in_time(self, command: Command) -> None:
        code, printed = command("learn", "m", "first", "--backbone", "resnet8", "--minutes", "0.01", *ON_CPU)
        assert code == 0
        assert "training for about 0.6 s" in printed

    @pytest.mark.killed
    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_saves_first_and_the_same_command_resumes(self, number: int, code: int, command: Command) -> None:
        lesson = ["learn", "model", "first", "--backbone", "resnet8", "--epochs", "200", *ON_CPU]
        script = [sys.executable, "-m", "cotransport", *lesson]
        process = subprocess.Popen(
            script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        record = Path("model/unfinished/job.json")
        deadline = time.monotonic() + 60
        while not record.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.2)
        process.send_signal(number)
        _, printed = process.communicate(timeout=60)
        assert process.returncode == code
        assert "To go on from the last checkpoint: cotransport learn model first" in printed
        assert len(list(Path("model/unfinished/0").glob("training-*.safetensors"))) == 1
        again, printed = command(*lesson)
        assert again == 0
        assert "the training resumes after step" in printed
        assert ModelStore(Path("model")).manifest().current == 1

    def test_a_signal_ends_with_its_code_and_the_same_command_resumes(
        self, command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Like the test above, but in this process, which is quicker."""
        from cotransport.training.display import ConsoleListener

        def interrupt(listener: ConsoleListener, progress: Any) -> None:
            if progress.epoch_done:
                os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patched:
            patched.setattr(ConsoleListener, "training", interrupt)
            code, printed = command("learn", "model", "first", *QUICK, "--overwrite")
        assert code == 143
        assert "stopped by SIGTERM" in printed
        without_overwrite = f"cotransport learn model first {' '.join(QUICK)}\n"
        assert f"from the last checkpoint: {without_overwrite}" in printed
        assert "first lesson is not finished" in command("info", "model")[1]
        code, printed = command("learn", "model", "first", *QUICK)
        assert (code, "the training resumes after step" in printed) == (0, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learn", "model", "nowhere"], "nowhere"),
        (["learn", "model", "first", "--epochs", "2", "--minutes", "1"], "are mutually exclusive"),
        (["learn", "model", "first", "--memory", "2", "--memory-per-class", "1"], "are mutually exclusive"),
        (["learn", "model", "first", "--held-out", "1.5"], "--held-out 1.5: give a share"),
        (["learn", "model", "first", "--max-forgetting", "nan"], "--max-forgetting nan: give points"),
        (["learn", "model", "first", "--minutes", "-1"], "--minutes -1: give a time"),
        (["learn", "model", "first", "--set", "schedule=3"], "schedule: give one of its keys"),
        (["learn", "model", "first", "--set", "augmentation=none"], "augmentation: give one of its keys"),
        (["learn", "model", "first", "--set", "device=cpu"], "--set device: give one of its keys"),
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
            "--set schedul: evaluate takes settings of data and device only",
        ),
        (["info", "first/class 0/1.png"], "a file, not a model folder"),
        (["learn", "model", "first", "--known-classes", "maybe"], "maybe"),
        (["predict", "model", "a.jpg"], "model: no such folder"),
        (["predict", ".", "model"], ".: not a model"),
        (["predict", "model", "a.jpg", "--json", "--format", "csv"], "--json and --format csv are mutually exclusive"),
        (["info", "first"], "not a model"),
        (["learn", "model", "https://example.org/a"], "https://example.org/a: nothing is downloaded from addresses"),
        (["predict", "model", "https://example.org/a.jpg"], "Download the images, and give their path"),
        (["learn", "model", "first", "--fit", "squeeze"], "squeeze"),
        (["rollback", "model"], "no such folder"),
        (["evaluate", "model"], "no such folder"),
        (["evaluate", "model", "--set", "data.label_column=x"], "the held-out images have no settings"),
        (["export", "model", "--onnx", "m.onnx"], "no such folder"),
    ],
)
def test_a_users_mistake_ends_in_one_message(words: list[str], message: str, command: Command) -> None:
    code, printed = command(*words)
    assert code == 2
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed
    assert not Path("model/manifest.json").exists()
    assert not Path("model/unfinished").exists()


class TestPredict:
    @pytest.mark.parametrize(("threshold", "unknown"), [(1.1, 3), (0.0, 0)])
    def test_what_the_model_is_not_sure_of_is_unknown(
        self, threshold: float, unknown: int, model: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[float] = []

        def limit(_: Path, at_least: float, __: int | None) -> Threshold:
            asked.append(at_least)
            return Threshold(threshold, 12, 10, 9)

        monkeypatch.setattr("cotransport.lessons.information.answer_threshold", limit)
        images = sorted(str(path) for path in Path("first").rglob("*.png"))[:3]
        words = ("predict", "model", *images, "--unknown", "--at-least", "90", "--format")
        lines = {form: model(*words, form)[1].splitlines() for form in ("table", "csv", "jsonl")}
        told = "10 are answered, 9 of them correctly; so of the answers to other images, likely 60 to 98 % are right"
        assert any(told in line for line in lines["table"])
        assert asked == [0.9] * 3
        assert sum("unknown (class" in line for line in lines["table"]) == unknown
        assert sum(",unknown," in line for line in lines["csv"]) == unknown
        assert sum('"unknown": true' in line for line in lines["jsonl"]) == unknown

    def test_a_share_of_right_answers_is_a_percentage(self, model: Command) -> None:
        code, printed = model("predict", "model", "first", "--unknown", "--at-least", "120")
        assert (code, "give a percentage above 1, and at most 100" in printed) == (2, True)
        assert model("predict", "model", "first", "--unknown", "--at-least", "0.95")[0] == 2
        code, printed = model("predict", "model", "first", "--at-least", "95")
        assert (code, "--at-least sets the threshold of --unknown" in printed) == (2, True)

    def test_files_folders_and_patterns(self, model: Command) -> None:
        one = next(Path("first").rglob("*.png"))
        code, printed = model("predict", "model", str(one), "first/class 1", "first/**/1*.png", "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(printed)))
        assert code == 0
        assert rows[0]["image"] == str(one)
        assert len(rows) == 1 + 20 + len(list(Path("first").rglob("1*.png")))
        assert {row["class"] for row in rows} <= {"class 0", "class 1"}
        assert all(0 < float(row["probability"]) <= 1 for row in rows)

    def test_an_image_from_standard_input(self, model: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        image = Path("first/class 0/3.png")
        lines = {}
        for name, content in (("-", image.read_bytes()), (str(image), b""), ("- ", b"nonsense")):
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
            lines[name] = model("predict", "model", name.strip(), "--json")
        assert json.loads(lines["-"][1]) == json.loads(lines[str(image)][1]) | {"image": "-"}
        assert lines["-"][0] == 0
        assert lines["- "][0] == 1
        assert "-: not an image of a known format" in lines["- "][1]

    def test_a_terminal_is_no_image(self, model: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
        code, printed = model("predict", "model", "-")
        assert (code, "-: standard input is a terminal. Pipe an image" in " ".join(printed.split())) == (2, True)

    def test_json_lines_with_the_most_likely_classes(self, model: Command) -> None:
        code, printed = model("predict", "model", "first/class 0", "--top", "2", "--json")
        lines = [json.loads(line) for line in printed.splitlines()]
        assert code == 0
        assert len(lines) == 20
        for line in lines:
            probabilities = [one["probability"] for one in line["predictions"]]
            assert probabilities == sorted(probabilities, reverse=True)
            assert sum(probabilities) == pytest.approx(1)

    def test_a_table(self, model: Command) -> None:
        code, printed = model("predict", "model", "first/class 0/3.png")
        assert code == 0
        assert "first/class 0/3.png" in printed
        assert IncrementalClassifier.load("model").predict(["first/class 0/3.png"])[0] in printed

    def test_a_bad_file_ends_with_code_1_and_the_others_are_predicted(self, model: Command) -> None:
        Path("first/class 0/bad.png").write_bytes(b"nonsense")
        code, printed = model("predict", "model", "first/class 0", "--format", "csv")
        assert code == 1
        assert "1 of 21 files could not be read" in printed
        rows = [line for line in printed.splitlines() if line.startswith("first/class 0/")]
        assert len(rows) >= 21

    def test_words_that_name_no_images_are_reported(self, model: Command) -> None:
        Path("empty").mkdir()
        assert "an empty name: no images there" in model("predict", "model", "")[1]
        for words in ("empty", "no*.png"):
            code, printed = model("predict", "model", words)
            assert code == 2
            assert f"{words}: no images there" in printed
            code, printed = model("predict", "model", words, "first/class 0/1.png")
            assert code == 1
            assert f"{words}: no images there" in printed
            assert "first/class 0/1.png" in printed

    def test_names_that_a_terminal_would_obey_are_escaped(self, model: Command) -> None:
        hostile = Path("first/class 0/a\x1b[2J[red]\udcff.png")
        try:
            Image.new("RGB", (8, 8)).save(hostile)
            Path("first/class 0/b\x1b[2J.png").write_bytes(b"nonsense")
        except OSError:
            pytest.skip("this file system has no such names")
        clf = IncrementalClassifier("replay", "resnet8", schedule={"epochs": 1})
        clf.learn(blobs(2, 4).images.pixels, ["cat\x9b2J"] * 4 + ["dog\x1b[2J"] * 4).save("hostile")  # type: ignore[union-attr]
        for form in ("table", "csv", "jsonl"):
            printed = model("predict", "hostile", "first/class 0", "--format", form)[1]
            assert not {"\x1b", "\x9b"} & set(printed)
            code, printed = model("predict", "model", "first/class 0", "--format", form)
            assert code == 1
            assert "\x1b[2J" not in printed

    def test_a_closed_output_gives_no_stack_trace(self, model: Command) -> None:
        words = ["predict", "model", "first/class 0/1.png", "--format", "csv"]
        closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "cotransport", *words]
        ended = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


class TestEvaluate:
    def test_held_out_images_or_other_data(self, model: Command) -> None:
        code, printed = model("evaluate", "model")
        assert code == 0
        assert "of 4 images" in printed
        found = json.loads(model("evaluate", "model", "first", "--json")[1])
        assert found["images"] == 40
        assert [one["name"] for one in found["per_class"]] == ["class 0", "class 1"]
        assert found["accuracy"] == sum(one["accuracy"] for one in found["per_class"]) / 2

    def test_the_mean_of_the_classes(self, cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of 10 images 8 are right: 80 %; the mean of 100 % and 50 % is 75 %."""
        two = [
            ClassAccuracy(name=name, images=images, before=None, after=after)
            for name, images, after in (("cat", 6, 100.0), ("dog", 4, 50.0))
        ]
        sure = Confidence(right=[0.9], wrong=[])
        monkeypatch.setattr("cotransport.lessons.comparison.evaluate", lambda *_, **__: Evaluation(two, sure, sure))
        assert "80.0 % of 10 images (75.0 % if every class counts the same)" in cotransport("evaluate", "model")[1]
        found = json.loads(cotransport("evaluate", "model", "--json")[1])
        assert (found["accuracy"], found["macro_accuracy"]) == (80, 75)

    def test_of_many_classes_the_worst_are_shown(self, cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        many = [
            ClassAccuracy(name=f"class {number:02}", images=2, before=None, after=float(number)) for number in range(45)
        ]
        sure = Confidence(right=[0.4, 0.9, 0.95], wrong=[0.3])
        monkeypatch.setattr("cotransport.lessons.comparison.evaluate", lambda *_, **__: Evaluation(many, sure, sure))
        printed = cotransport("evaluate", "model")[1]
        assert "the 40 worst of 45 classes; --json has all" in printed
        assert "class 39" in printed
        assert "class 40" not in printed
        assert "22.0 % of 90 images" in printed
        assert "calibration error: 26.2 points" in printed
        rows = [line.split() for line in printed.splitlines()]
        assert ["95", "0.4", "75.0", "%", "100.0", "%"] in rows


class TestInfo:
    def test_a_damaged_current_version_does_not_hide_the_others(self, model: Command) -> None:
        Path("model/versions/0001/model.json").write_text("{}")
        code, printed = model("info", "model")
        assert code == 0
        assert "model: version 1 is damaged; choose another with cotransport rollback model --to VERSION" in printed
        assert "version 1 is damaged: model/versions/0001/model.json: damaged" in printed

    def test_a_renaming_is_told_from_a_lesson(self, model: Command) -> None:
        assert model("rename", "model", "class 1", "[red] cat")[0] == 0
        printed = model("info", "model")[1]
        assert "it knows class 0, [red] cat\n" in printed
        assert "version 2: class 1 renamed to [red] cat\n" in printed
        assert "version 2 learned" not in printed

    def test_a_model_and_its_versions(self, model: Command) -> None:
        code, printed = model("info", "model")
        assert code == 0
        assert "model: version 1, 2 classes, COIL (tuned) with the backbone resnet8, 8 x 8 pixels" in printed
        assert "36 exemplars, 4 held-out images" in printed
        assert "version 1 learned class 0, class 1" in printed
        assert "it knows class 0, class 1" in printed
        assert re.search(r"\d\.0 % of 4 ", printed)
        facts = json.loads(model("info", "model", "--json")[1])
        assert facts["current"] == 1
        assert facts["versions"][0]["forgetting"] is None

    def test_damage_and_unfinished_lessons_are_named(self, model: Command) -> None:
        store = ModelStore(Path("model"))
        with store.locked():
            store.write(store.read(), parent=1, refused="it is not wanted")
        Path("model/versions/0002/metrics.json").write_text("{}")
        Path("model/unfinished").mkdir()
        record = {"request": {"parent": 1}, "data": "photos/week2", "fingerprint": "ab"}
        Path("model/unfinished/job.json").write_text(json.dumps(record))
        code, printed = model("info", "model")
        assert code == 0
        assert "version 2 was refused: it is not wanted" in printed
        assert "version 2 is damaged: model/versions/0002/metrics.json: damaged" in printed
        assert "a lesson from photos/week2 is not finished; repeat its command to resume it" in printed

    def test_of_many_versions_the_latest_are_shown(self, model: Command) -> None:
        store = ModelStore(Path("model"))
        with store.locked():
            for parent in range(1, 43):
                store.write(store.read(), parent=parent)
        printed = model("info", "model")[1]
        assert "the latest 40 of 43 versions; --json has all" in printed
        assert len(json.loads(model("info", "model", "--json")[1])["versions"]) == 43


def test_rollback_says_how_to_undo_it(model: Command) -> None:
    IncrementalClassifier.load("model").save("model")
    code, printed = model("rollback", "model")
    assert (code, "version 1 is current now; to undo: cotransport rollback model --to 2" in printed) == (0, True)
    assert "version 1 is current already" in model("rollback", "model", "--to", "1")[1]
    assert json.loads(model("rollback", "model", "--to", "2", "--json")[1]) == {"before": 1, "current": 2}
    assert (
        "the model is empty now; its versions are kept; to undo: cotransport rollback model --to 2"
        in (model("rollback", "model", "--to", "0")[1])
    )
    assert model("rollback", "model", "--to", "2")[0] == 0
    code, printed = model("rollback", "model", "--to", "9")
    assert (code, "there is no version 9. Versions: 1, 2" in printed) == (2, True)


def test_export_writes_an_onnx_file(model: Command) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    code, printed = model("export", "model", "--onnx", "model.onnx")
    assert code == 0
    assert "model.onnx" in printed
    assert Path("model.onnx").stat().st_size > 10_000


def test_example_data_is_what_the_readme_needs(cotransport: Command) -> None:
    code, printed = cotransport("example-data", "digits")
    assert code == 0
    assert "digits/first" in printed
    lessons = {path.name: sorted(part.name for part in path.iterdir()) for path in Path("digits").iterdir()}
    assert lessons["first"] == ["one", "three", "two", "zero"]
    assert len(lessons["unseen"]) == 10 * examples.UNSEEN
    assert len(list(Path("digits").rglob("*.png"))) == 1797
    code, printed = cotransport("example-data", "digits")
    assert (code, "exists already" in printed) == (2, True)


class TestOwnership:
    def test_rename_prune_and_check(self, model: Command) -> None:
        code, printed = model("rename", "model", "class 0", "nought")
        assert (code, "class 0 is called nought now" in printed) == (0, True)
        code, printed = model("prune", "model", "--keep", "1", "--json")
        assert code == 0
        assert json.loads(printed)["removed"]
        code, printed = model("check", "model")
        assert (code, "every file is as it was written" in printed) == (0, True)

    def test_remove(self, model: Command) -> None:
        code, printed = model("remove", "model", "class 0")
        assert code == 0
        assert "version 2 no longer knows class 0; the other classes:" in printed
        assert "versions that still have images of it: 1" in printed
        assert "cotransport prune model --keep 1" in printed
        code, printed = model("remove", "model", "class 1")
        assert (code, "the only class of this model" in printed) == (2, True)
        assert model("rollback", "model", "--to", "1")[0] == 0
        found = json.loads(model("remove", "model", "class 1", "--json")[1])
        assert (found["version"], found["held_by"], found["images"]) == (3, [1, 2], 20)
        assert found["accuracy"].keys() == {"before", "after"}

    def test_remove_image(self, model: Command) -> None:
        some = next(Path("first/class 0").iterdir())
        code, printed = model("remove-image", "model", str(some))
        assert code == 0
        assert "class 0" in printed
        assert "so other versions may have learned from these images too" in printed
        code, printed = model("remove-image", "model", str(some))
        assert (code, "not among the images in model" in printed) == (2, True)
        identity = json.loads(model("images", "model", "--json")[1])[0]["id"]
        found = json.loads(model("remove-image", "model", identity, "--json")[1])
        (one,) = found["images"]
        assert (one["given"], one["id"]) == (identity, identity)
        assert one["exemplar_in"] + one["held_out_in"] == [1]
        assert found["learned_from"] == one["exemplar_in"]
        assert model("check", "model")[0] == 0

    def test_archive_and_import(self, model: Command) -> None:
        code, printed = model("export", "model", "--archive", "model.tar.gz")
        assert (code, "model.tar.gz" in printed) == (0, True)
        code, printed = model("import", "model.tar.gz", "copy")
        assert (code, "1 version, current: 1" in printed) == (0, True)
        assert model("check", "copy")[0] == 0
        found = json.loads(model("import", "model.tar.gz", "other", "--json")[1])
        assert found == {"model": "other", "current": 1, "versions": [1]}
        code, printed = model("import", "model.tar.gz", "copy")
        assert (code, "copy: exists already" in printed) == (2, True)
        found = json.loads(model("export", "model", "--archive", "model.tar", "--json")[1])
        assert found == {"file": "model.tar", "bytes": Path("model.tar").stat().st_size}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "--onnx, --archive: give exactly one of them"),
            (["--onnx", "a.onnx", "--archive", "a.tar"], "--onnx, --archive: give exactly one of them"),
            (["--archive", "a.tar", "--version", "1"], "an archive has all versions"),
            (["--archive", "a.zip"], "the name of an archive must end in"),
        ],
    )
    def test_export_of_one_kind(self, words: list[str], message: str, model: Command) -> None:
        code, printed = model("export", "model", *words)
        assert (code, message in printed) == (2, True)

    def test_a_damaged_file(self, model: Command) -> None:
        weights = next(Path("model").rglob("weights.safetensors"))
        weights.write_bytes(weights.read_bytes()[:-1])
        code, printed = model("check", "model", "--json")
        assert code == 1
        assert "weights.safetensors: damaged" in json.loads(printed)["problems"][0]

    def test_mistakes(self, model: Command) -> None:
        code, printed = model("rename", "model", "cat", "dog")
        assert (code, "does not know this class" in printed) == (2, True)
        assert model("prune", "model", "--keep", "0")[0] == 2


@pytest.mark.skipif(not is_installed("efficientnet-lite0"), reason="the weights are not installed")
class TestPretrained:
    def test_a_frozen_backbone_is_chosen_once(self, command: Command) -> None:
        words = ("--method", "analytic", "--backbone", "efficientnet-lite0", "--freeze", "--image-size", "32")
        code, printed = command("learn", "model", "first", *words)
        assert code == 0, printed
        assert "no training: the classifier is computed from sums of features" in printed
        assert "exemplars: none" in printed
        code, printed = command("learn", "model", "second")
        assert (code, "version 2 recognises" in printed) == (0, True)
        assert "Analytic, backbone efficientnet-lite0, 32 x 32 pixels" in printed

    def test_analytic_needs_a_frozen_backbone(self, command: Command) -> None:
        code, printed = command("learn", "model", "first", "--method", "analytic")
        assert code == 2
        assert "freeze_backbone, or learn --freeze" in printed
        code, printed = command("learn", "model", "first", "--set", "freeze_backbone=maybe")
        assert (code, "freeze_backbone: give true or false, not 'maybe'" in printed) == (2, True)
