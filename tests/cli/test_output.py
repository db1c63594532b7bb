"""The options --quiet, --verbose, --log and --events."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import pytest

from cotransport import __version__
from cotransport.cli.log_file import LogFile
from cotransport.cli.main import main
from cotransport.lessons import teaching
from tests.cli.helpers import Command, call
from tests.conftest import blobs
from tests.lessons.helpers import write

LEARN = ("learn", "model", "first", "--backbone", "resnet8", "--epochs", "2", "--set", "device.accelerator=cpu")
NOTES = ("2 classes, 36 images to train on and 4 held out", "2 epochs in batches of 16")
SETTING = "weight_decay: 0.0005"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ")


@pytest.fixture
def command(cotransport: Command, tmp_path: Path) -> Command:
    """The command in a folder with images of two classes."""
    write(blobs(2, 20), tmp_path / "first")
    return cotransport


def read_log(path: Path) -> list[str]:
    """The lines of a log file, without the time that each starts with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(TIME.match(line) for line in lines)
    return [TIME.sub("", line) for line in lines]


def test_a_quiet_lesson_prints_its_outcome_only(command: Command) -> None:
    code, printed = command(*LEARN, "--quiet")
    assert code == 0
    assert printed.splitlines()[0].split() == ["class", "before", "now"]
    assert "version 1 recognises" in printed
    assert not any(note in printed for note in (*NOTES, "learned in"))


def test_a_verbose_lesson_prints_its_settings_versions_and_time(command: Command) -> None:
    code, printed = command(*LEARN, "-v")
    assert code == 0
    assert all(text in printed for text in (*NOTES, SETTING, f"cotransport {__version__}, Python ", "took "))


def test_a_lesson_prints_notes_and_no_details(command: Command) -> None:
    _, printed = command(*LEARN)
    assert all(note in printed for note in NOTES)
    assert SETTING not in printed
    assert "took " not in printed


def test_a_log_file_gets_everything_even_of_a_quiet_lesson(command: Command, tmp_path: Path) -> None:
    command(*LEARN, "--quiet", "--log", "log.txt")
    lines = read_log(tmp_path / "log.txt")
    text = "\n".join(lines)
    assert lines[0] == f"cotransport {' '.join(LEARN)} --quiet --log log.txt"
    assert all(part in text for part in (*NOTES, SETTING, "version 1 recognises"))
    assert [line.split("  ")[0] for line in lines if " epoch " in line] == ["task 1 epoch 1/2", "task 1 epoch 2/2"]
    assert lines[-1].startswith("ended with exit code 0 after ")


def test_a_log_file_is_added_to_and_no_longer_written_by_the_next_command(command: Command, tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("before\n", encoding="utf-8")
    command("learn", "model", "nowhere", "--log", "log.txt")
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "before"
    assert "error: " in lines[-2]
    assert lines[-1].endswith("s")
    assert "ended with exit code 2" in lines[-1]
    command("recipes")
    assert log.read_text(encoding="utf-8").splitlines() == lines


def test_errors_are_printed_by_a_quiet_command(command: Command) -> None:
    code, printed = command("learn", "model", "nowhere", "--quiet")
    assert code == 2
    assert printed.startswith("error: ")


def test_notes_of_a_quiet_command_go_to_the_log_file_only(command: Command, tmp_path: Path) -> None:
    alone = tmp_path / "first" / "alone"
    alone.mkdir()
    next((tmp_path / "first").glob("*/0.png")).rename(alone / "0.png")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, printed = command(*LEARN, "--quiet", "--log", "log.txt")
    assert code == 0
    assert "has one image" not in printed
    assert any("note: class 'alone' has one image" in line for line in read_log(tmp_path / "log.txt"))


def test_an_unexpected_error_leaves_its_stack_trace_in_the_log_file(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a mistake in the program\x1b[2J")

    monkeypatch.setattr(teaching, "learn", fail)
    with pytest.raises(KeyError):
        command(*LEARN, "--log", "log.txt")
    lines = read_log(tmp_path / "log.txt")
    assert "Traceback (most recent call last):" in lines
    assert lines[-1] == r"KeyError: 'a mistake in the program\x1b[2J'"


@pytest.mark.parametrize("name", [".", "missing/log.txt"])
def test_a_log_file_that_cannot_be_opened_is_an_error_before_the_lesson(
    name: str, command: Command, tmp_path: Path
) -> None:
    code, printed = command(*LEARN, "--log", name)
    assert code == 2
    assert f"error: --log {name}: " in printed
    assert "Choose another" in printed
    assert not (tmp_path / "model").exists()


class Full:
    """A file on a full disk."""

    def writelines(self, lines: object) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_log_file_that_fails_later_is_noted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = LogFile(tmp_path / "log.txt")
    log.close()
    log._file = Full()  # type: ignore[assignment]
    for _ in range(2):
        log.write("a line")
    assert capsys.readouterr().err.count("the log file can no longer be written (No space left on device)") == 1


def test_quiet_and_verbose_exclude_each_other(command: Command) -> None:
    code, printed = command(*LEARN, "--quiet", "--verbose")
    assert code == 2
    assert "mutually exclusive" in printed


def test_a_quiet_prediction_leaves_the_threshold_out(command: Command) -> None:
    command(*LEARN)
    asked = ("predict", "model", "first", "--unknown", "--at-least", "2")
    assert "unknown: below" in command(*asked)[1]
    code, printed = command(*asked, "--quiet")
    assert (code, "unknown: below" in printed) == (0, False)
    assert len(printed.splitlines()) == 1 + 40


def test_machine_readable_output_stays_alone_on_standard_output(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cotransport", *LEARN, "--json", "--verbose"])
    with pytest.raises(SystemExit):
        main()
    captured = capsys.readouterr()
    assert captured.out.startswith("{")
    assert SETTING in captured.err


@pytest.mark.parametrize(
    "words", [("run", "--dry-run"), ("reproduce",), ("evaluate", "model"), ("predict", "model", ".")]
)
def test_every_long_command_has_the_options(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call(monkeypatch, capsys, *words, "--verbose", "--log", "log.txt")
    lines = read_log(tmp_path / "log.txt")
    assert lines[0] == f"cotransport {' '.join(words)} --verbose --log log.txt"
    assert lines[-1].startswith("ended with exit code ")


def test_a_quiet_run_prints_its_summary_only(command: Command) -> None:
    quick = ("stream.subset=2", "stream.tasks=1", "schedule.epochs=1", "methods=[replay]", "device.accelerator=cpu")
    settings = [word for value in quick for word in ("--set", value)]
    code, printed = command("run", *settings, "--quiet", "--log", "log.txt")
    assert code == 0
    assert printed.splitlines()[0].split() == ["method", "seeds", "average", "last", "forgetting"]
    assert len(printed.splitlines()) == 3
    assert any(line.startswith("task learned: ") for line in read_log(Path("log.txt")))


def test_events_are_lines_of_json_beside_the_result(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = command(*LEARN, "--json", "--events")
    assert code == 0
    result, lines = json.JSONDecoder().raw_decode(printed)
    events = [json.loads(line) for line in printed[lines:].splitlines() if line]
    assert (result["version"], result["parent"]) == (1, None)
    assert {event["event"] for event in events} == {"reading", "job_started", "details", "training", "testing"}
    assert (events[0]["event"], events[0]["done"], events[0]["seconds_left"]) == ("reading", 0, None)
    assert next(event for event in events if event["event"] == "job_started")["notes"][0].startswith(NOTES[0])
    steps = [(event["step"], event["steps"]) for event in events if event["event"] == "training"]
    assert steps[0] == (0, steps[-1][1])
    assert steps[-1] == (6, 6)  # 36 images in batches of 16, twice


@pytest.mark.filterwarnings("default::cotransport.errors.CotransportWarning")
def test_errors_and_notes_are_events_too(command: Command, tmp_path: Path) -> None:
    code, printed = command("learn", "model", "nowhere", "--events")
    assert code == 2
    event = json.loads(printed)
    assert event["event"] == "error"
    assert event["text"].startswith("nowhere: ")
    (tmp_path / "first" / "class 0" / "notes.txt").touch()
    _, printed = command(*LEARN, "--events", "--json")
    notes = [line for line in printed.splitlines() if line.startswith('{"event": "note"')]
    assert "ignored 1 file" in json.loads(notes[0])["text"]
