"""The command as a user runs it, in a process of its own where exit codes and streams matter."""

import subprocess
import sys
from pathlib import Path

import pytest

from cotransport.cli import main as cli
from cotransport.errors import CotransportError
from cotransport.methods import known_methods

QUICK = ["--set", "schedule.epochs=1", "--set", "methods=[replay]", "--set", "device.accelerator=cpu"]


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "-c", "from cotransport.cli.main import main; main()", *arguments]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The command in this process: its exit code, and all that it printed."""
    monkeypatch.setattr(sys, "argv", ["cotransport", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def test_a_run_from_beginning_to_report(tmp_path: Path) -> None:
    ended = command("run", *QUICK, "--out", "here", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "task 5/5" in ended.stdout
    assert "report.html" in ended.stdout
    assert (tmp_path / "here" / "replay-seed1" / "result.json").is_file()
    assert (tmp_path / "here" / "report.html").is_file()
    assert (tmp_path / "here" / "summary.csv").is_file()
    again = command("report", "here", "--out", "elsewhere", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "elsewhere" / "report.html").is_file()


def test_help_has_examples(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = call(monkeypatch, capsys, "run", "--help")
    assert code == 0
    assert "cotransport run cifar100-b0-10 --dry-run" in told
    assert "--set 'methods=[bic, wa]'" in " ".join(told.split())  # brackets are markup unless escaped


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, capsys, "--version")[0] == 0


def test_dry_run_shows_the_plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = call(monkeypatch, capsys, "run", "--dry-run", "--set", "schedule.epochs=7")
    assert code == 0
    for expected in ("5 tasks", "10 classes", "7 epochs", "finetune", "replay", "oracle", "exemplars"):
        assert expected in told


def test_methods_that_keep_as_much_share_a_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, told = call(monkeypatch, capsys, "run", "--dry-run", "--set", "methods=[finetune, replay, wa]")
    assert "2 methods" in told
    _, told = call(monkeypatch, capsys, "run", "--dry-run", "--set", "methods=[replay, wa]")
    assert "all methods" in told


def test_methods_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = call(monkeypatch, capsys, "methods")
    assert code == 0
    for name, method in known_methods().items():
        assert name in told
        assert method.title in told


def test_settings_of_a_method_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Own ones, inherited ones, and those whose default alone is another: their words are those of the class above."""
    code, told = call(monkeypatch, capsys, "methods", "coil-tuned")
    lines = told.splitlines()
    assert code == 0
    assert any(line.split()[:3] == ["rt_weight", "0.3", "Factor"] for line in lines)
    assert any(line.split()[:2] == ["pt_epochs", "0.03"] for line in lines)
    assert any(line.split()[:2] == ["predict_with", "head"] for line in lines)
    code, told = call(monkeypatch, capsys, "methods", "iCaRL")
    assert code == 2
    assert "did you mean 'icarl'?" in told


def test_recipes_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = call(monkeypatch, capsys, "recipes")
    assert code == 0
    assert "digits" in told
    assert "cifar100-b0-10" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "no-such-recipe"], "no bundled recipe has that name"),
        (["run", "--set", "schedule.epoch=3"], "did you mean 'epochs'?"),
        (["run", "--data", "no/such/folder"], "no/such/folder"),
        (["run", "--resume", "--overwrite"], "exclude each other"),
        (["run", "--unknown"], "--unknown"),
        (["report", "nowhere"], "nowhere: no such folder"),
        (["runn"], "runn"),
    ],
)
def test_a_users_mistake_is_told_in_a_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, told = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert message in told
    assert "Traceback" not in told


def test_bad_images_end_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    for name in ("cat", "dog"):
        (photos / name).mkdir(parents=True)
        (photos / name / "broken.jpg").write_bytes(b"not an image")
    arguments = ["run", *QUICK, "--data", str(photos), "--out", str(tmp_path / "out"), "--set", "stream.tasks=2"]
    code, told = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert "broken.jpg" in told
    assert "Replace or remove the file" in told


def test_a_training_that_fails_ends_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = ["--set", "schedule.learning_rate=1e30", "--set", "schedule.shape=constant", "--out", str(tmp_path)]
    code, told = call(monkeypatch, capsys, "run", *QUICK, *wild)
    assert code == 1
    assert "the loss is not finite" in told


def test_every_error_of_ours_has_an_exit_code() -> None:
    assert {kind.exit_code for kind in [CotransportError, *CotransportError.__subclasses__()]} == {1, 2}


def test_visualize_draws_chosen_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--old", "7, 1", "--new", "4", "--set", "schedule.epochs=1", "--set", "device.accelerator=cpu"]
    code, told = call(monkeypatch, capsys, "visualize", *chosen, "--out", str(tmp_path))
    assert code == 0
    assert "built from" in told
    assert (tmp_path / "boundary.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--old", "1,2"], "go together"), (["--old", "1,2", "--new", "eleven"], "no class 'eleven'")],
)
def test_visualize_says_what_is_wrong(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = call(monkeypatch, capsys, "visualize", *arguments)
    assert code == 2
    assert message in " ".join(told.split())
