"""The commands for experiments as a user types them: run, recipes, methods, report and visualize."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.results import find_results
from cotransport.methods import known_methods
from cotransport.training.display import ConsoleListener
from cotransport.training.progress import TrainingProgress
from tests.cli.helpers import Command, start

ON_CPU = ("--set", "device.accelerator=cpu")
QUICK = (*ON_CPU, "--set", "schedule.epochs=1", "--set", "methods=[replay]", "--set", "stream={step: 2, subset: 5}")


def test_a_run_from_start_to_report(tmp_path: Path) -> None:
    ended = start("run", *QUICK, "--out", "here", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "replay, seed 1 (run 1 of 1)" in ended.stdout
    assert "task 3/3" in ended.stdout
    assert "report.html" in ended.stdout
    assert (tmp_path / "here" / "replay-seed1" / "result.json").is_file()
    assert (tmp_path / "here" / "report.html").is_file()
    assert (tmp_path / "here" / "summary.csv").is_file()


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report takes most of its time to draw figures."""
    monkeypatch.setattr("cotransport.report.figures.draw_figures", lambda *_: None)


@pytest.mark.usefixtures("without_figures")
def test_finished_runs_are_kept_and_reported(cotransport: Command) -> None:
    code, printed = cotransport("run", *QUICK)
    assert (code, "report: runs/digits/report.html" in printed) == (0, True)
    code, printed = cotransport("run", *QUICK)
    assert code == 0
    assert "finished before and kept: replay-seed1" in printed
    assert "nothing is left to run" in printed
    code, printed = cotransport("run", *QUICK, "--set", "methods=[finetune]")
    assert code == 0
    # the summary and the report have the earlier run too
    [replay, finetune] = [line.split() for line in printed.splitlines() if line.startswith((" Replay", " Finetune"))]
    results = {result.method: result for result in find_results(Path("runs/digits"))}
    assert (replay[:2], finetune[:2]) == (["Replay", "1"], ["Finetune", "1"])
    assert replay[2] == f"{results['replay'].average_incremental_accuracy:.1f}"
    assert finetune[3] == f"{results['finetune'].last_accuracy:.1f}"
    assert "Replay" in Path("runs/digits/report.html").read_text(encoding="utf-8")
    code, printed = cotransport("report", "runs/digits/replay-seed1", "--out", "elsewhere")
    assert (code, "report: elsewhere/report.html" in printed) == (0, True)
    assert "Finetune" not in Path("elsewhere/summary.csv").read_text(encoding="utf-8")
    code, printed = cotransport("report", "runs/digits", "--archive", "both.json")
    assert (code, Path("both.json").exists()) == (0, True)
    code, printed = cotransport("report", "both.json")
    assert (code, "report: both-report/report.html" in printed) == (0, True)
    assert Path("both-report/curves.csv").read_text(encoding="utf-8") == Path("runs/digits/curves.csv").read_text()


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_resume_it(
    number: signal.Signals, code: int, cotransport: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: ConsoleListener, progress: TrainingProgress) -> None:
        if progress.step:
            signal.raise_signal(number)

    with monkeypatch.context() as patched:
        patched.setattr(ConsoleListener, "training", stop)
        stopped, printed = cotransport("run", *QUICK, "--overwrite", "--out", "my runs")
    assert stopped == code
    hint = f"stopped by {number.name}. To go on from the last checkpoint: cotransport run "
    [line] = [line for line in printed.splitlines() if line.startswith(hint)]
    assert line.endswith(" --out 'my runs' --resume")
    assert "--overwrite" not in line
    refused, printed = cotransport("run", *QUICK, "--out", "my runs")
    assert (refused, "Resume it with --resume, or start it again with --overwrite" in printed) == (2, True)
    resumed, printed = cotransport("run", *QUICK, "--out", "my runs", "--resume")
    assert (resumed, "task 1 resumes after step" in printed) == (0, True)


def test_help_has_examples(cotransport: Command) -> None:
    code, printed = cotransport("run", "--help")
    assert code == 0
    assert "cotransport run cifar100-b0-10 --dry-run" in printed
    assert "--set 'methods=[bic, wa]'" in " ".join(printed.split())  # brackets are markup unless escaped


def test_a_dry_run_shows_the_plan(cotransport: Command) -> None:
    code, printed = cotransport("run", "--dry-run", *ON_CPU, "--set", "schedule.epochs=7")
    assert code == 0
    for expected in ("5 tasks", "10 classes", "7 epochs", "finetune", "replay", "oracle", "exemplars"):
        assert expected in printed
    assert not list(Path().iterdir())
    assert "30 s a task" in cotransport("run", "--dry-run", *ON_CPU, "--set", "schedule.seconds_per_task=30")[1]
    assert "epochs recorded in runs/x" in cotransport("run", "--dry-run", *ON_CPU, "--set", "follow=runs/x")[1]


def test_methods_that_keep_the_same_exemplars_share_a_column(cotransport: Command) -> None:
    printed = cotransport("run", "--dry-run", *ON_CPU, "--set", "methods=[finetune, replay, wa]")[1]
    assert "2 methods" in printed
    printed = cotransport("run", "--dry-run", *ON_CPU, "--set", "methods=[replay, wa]")[1]
    assert "all methods" in printed


def test_methods_are_listed(cotransport: Command) -> None:
    code, printed = cotransport("methods")
    assert code == 0
    for name, method in known_methods().items():
        assert name in printed
        assert method.title in printed


def test_settings_of_a_method_are_listed(cotransport: Command) -> None:
    """Its own, those of its parts, and those that differ from its base class in the default only."""
    code, printed = cotransport("methods", "coil-tuned")
    words = [line.split() for line in printed.splitlines()]
    assert code == 0
    assert any(line[:3] == ["rt_weight", "0.3", "Factor"] for line in words)
    assert any(line[:2] == ["combine", "additive"] for line in words)
    assert any(line[:2] == ["reg", "0.45"] for line in words)
    assert any(line[:2] == ["pt_epochs", "0.03"] for line in words)
    assert any(line[:2] == ["predict_with", "head"] for line in words)
    code, printed = cotransport("methods", "iCaRL")
    assert (code, "did you mean 'icarl'?" in printed) == (2, True)


def test_recipes_are_listed(cotransport: Command) -> None:
    code, printed = cotransport("recipes")
    assert code == 0
    shown = {line.split()[0] for line in printed.splitlines() if line.split()}
    assert set(bundled_recipes()) <= shown  # no name is cut off


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "no-such-recipe"], "no bundled recipe has that name"),
        (["run", "--set", "schedule.epoch=3"], "did you mean 'epochs'?"),
        (["run", "--data", "no/such/folder"], "no/such/folder"),
        (["run", "--resume", "--overwrite"], "are mutually exclusive"),
        (["run", "--unknown"], "--unknown"),
        (["report", "nowhere"], "nowhere: no such file or folder"),
        (
            ["report", "."],
            "no finished run in it (no result.json). `cotransport run` makes one. For a page about a model",
        ),
        (["visualize", "--old", "1,2"], "go together"),
        (["visualize", "--old", "1,2", "--new", "eleven"], "no class 'eleven'"),
    ],
)
def test_a_mistake_ends_in_one_message_and_code_2(
    words: list[str], message: str, cotransport: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, printed = cotransport(*words)
    assert code == 2
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed


def test_bad_images_end_with_code_2(tmp_path: Path, cotransport: Command) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "broken.jpg").write_bytes(b"not an image")
    code, printed = cotransport("run", *QUICK, "--data", "photos", "--set", "stream={tasks: 2}")
    assert code == 2
    assert "broken.jpg" in printed
    assert "Replace or remove the file" in printed


def test_a_training_that_fails_ends_with_code_1(cotransport: Command) -> None:
    wild = ("--set", "schedule.learning_rate=1e30", "--set", "schedule.shape=constant")
    code, printed = cotransport("run", *QUICK, *wild)
    assert code == 1
    assert "the loss is not finite" in printed


@pytest.fixture
def titles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the figures that are drawn. No figure is rendered."""
    found: list[str] = []

    def keep(figure: object, path: Path) -> None:
        found.extend(axes.get_title(loc="left") for axes in figure.axes)  # type: ignore[attr-defined]
        path.with_suffix(".png").touch()

    monkeypatch.setattr("cotransport.report.boundary.save_figure", keep)
    return found


def test_visualize_draws_the_chosen_classes(cotransport: Command) -> None:
    words = ("--old", "7, 1", "--new", "4", *ON_CPU, "--set", "schedule.epochs=1")
    code, printed = cotransport("visualize", *words, "--out", "here")
    assert code == 0
    [four] = [line.split() for line in printed.splitlines() if line.split()[:1] == ["4"]]
    assert four[1] == "new"
    assert {four[-4], four[-2]} == {"7", "1"}  # what it is built from, with shares behind
    assert "figure: here/boundary.png" in printed
    assert Path("here/boundary.png").is_file()
    assert Path("here/boundary.svg").is_file()


@pytest.mark.parametrize(
    ("methods", "shown", "how"),
    [("[icarl, coil]", "coil, seed 1", "by transport"), ("[icarl, wa]", "icarl, seed 1", "at random")],
)
def test_visualize_says_whether_new_classes_were_transported(
    methods: str, shown: str, how: str, cotransport: Command, titles: list[str]
) -> None:
    words = ("--old", "7,1", "--new", "4,9", *ON_CPU, "--set", "schedule.epochs=1", "--set", f"methods={methods}")
    code, printed = cotransport("visualize", "digits", *words)
    assert code == 0
    assert shown in printed
    assert titles == ["2 old classes, trained", f"and 2 new classes initialised {how}, untrained"]
    [four] = [line.split() for line in printed.splitlines() if line.split()[:1] == ["4"]]
    has_sources = len(four) > 4  # the name, "new", an accuracy and its percent sign
    assert has_sources == (how == "by transport")


LIGHT = (["recipes"], ["methods"], ["methods", "coil"], ["report", "--help"], ["run", "--help"], ["--help"])
DRY_RUN = ["run", "--dry-run", *ON_CPU]
SCRIPT = """
import contextlib, io, json, sys
from cotransport.cli.main import app
loaded = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        app(words, standalone_mode=False)
    assert printed.getvalue()
    loaded.append([name for name in json.loads(sys.argv[2]) if name in sys.modules])
print(json.dumps(loaded))
"""
HEAVY = ["torch", "numpy", "scipy", "sklearn", "lightning_fabric", "datasets", "pandas", "matplotlib", "plotly"]


def test_light_commands_import_no_heavy_library() -> None:
    """One process calls all of them, the dry run at the end: it alone needs torch, for the settings of the device."""
    commands = [*LIGHT, DRY_RUN]
    words = [sys.executable, "-c", SCRIPT, json.dumps(commands), json.dumps(HEAVY)]
    *light, dry_run = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    for command, loaded in zip(LIGHT, light, strict=True):
        assert loaded == [], command
    assert set(dry_run) <= {"torch", "numpy"}


@pytest.mark.processes
def test_two_processes_print_and_write_once(tmp_path: Path) -> None:
    ended = start("run", *QUICK, "--set", "device.processes=2", "--out", "here", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len([line for line in lines if "task 3/3: " in line]) == 1
    assert len([line for line in lines if line.startswith("report: ")]) == 1
    [result] = find_results(tmp_path / "here")
    assert result.environment["processes"] == 2
    assert [path.name for path in (tmp_path / "here" / "replay-seed1").iterdir()] == ["result.json"]


@pytest.mark.processes
def test_two_processes_report_an_error_once(tmp_path: Path) -> None:
    wild = ("--set", "schedule.learning_rate=1e30", "--set", "schedule.shape=constant")
    ended = start("run", *QUICK, *wild, "--set", "device.processes=2", "--out", "here", folder=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.count("the loss is not finite") == 1
    assert "Traceback" not in ended.stderr
