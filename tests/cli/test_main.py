"""The application as a whole: help, version, completion, exit codes, warnings and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from cotransport import __version__
from cotransport.__main__ import main
from cotransport.cli import console
from cotransport.errors import CotransportError, CotransportWarning, DataError, TrainingError
from tests.cli.helpers import Command, start

COMMANDS = [
    *("run", "recipes", "methods", "report", "visualize"),
    *("learn", "predict", "evaluate", "info", "rollback", "images", "export", "example-data", "serve"),
]


def test_the_module_is_the_command(tmp_path: Path) -> None:
    ended = start("--version", folder=tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (0, f"cotransport {__version__}")


def test_the_version_is_shown(cotransport: Command) -> None:
    assert cotransport("--version") == (0, f"cotransport {__version__}\n")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option: str, cotransport: Command) -> None:
    code, printed = cotransport(option)
    assert code == 0
    assert all(f" {name} " in printed for name in COMMANDS)
    assert "Usage: cotransport " in printed


def test_completion_can_be_shown_and_installed(cotransport: Command) -> None:
    printed = cotransport("--help")[1]
    assert "--install-completion" in printed
    assert "--show-completion" in printed


@pytest.mark.parametrize("program", [["-m", "cotransport"], ["-c", "from cotransport.__main__ import main; main()"]])
def test_the_completion_script_is_for_the_command(program: list[str]) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    words = [sys.executable, *program, "--show-completion", "bash"]
    script = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert "_COTRANSPORT_COMPLETE=complete_bash" in script
    assert script.strip().endswith(" cotransport")


def test_commands_and_options_are_completed(monkeypatch: pytest.MonkeyPatch, cotransport: Command) -> None:
    monkeypatch.setenv("_COTRANSPORT_COMPLETE", "complete_bash")
    for typed, expected in (("cotransport rec", ["recipes"]), ("cotransport run --dr", ["--dry-run"])):
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        code, printed = cotransport()
        assert (code, sorted(printed.split())) == (0, expected)


def test_an_unknown_command_ends_with_code_2(cotransport: Command) -> None:
    code, printed = cotransport("runn")
    assert code == 2
    assert "runn" in printed
    assert "Traceback" not in printed


def test_every_error_has_an_exit_code() -> None:
    kinds: list[type[CotransportError]] = [CotransportError, *CotransportError.__subclasses__()]
    assert {kind.exit_code for kind in kinds} == {1, 2}


@pytest.fixture
def recipes_do(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes the command `recipes` call a function."""

    def replace(action: Callable[[], object]) -> None:
        monkeypatch.setattr("cotransport.experiments.bundled.bundled_descriptions", lambda: action() or {})

    return replace


RecipesDo = Callable[[Callable[[], object]], None]


def failing(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (DataError("[red]a name\x1b[2J[/]"), 2, r"error: [red]a name\x1b[2J[/]"),
        (TrainingError("the loss is not finite"), 1, "error: the loss is not finite"),
        (OSError(28, "No space left on device"), 1, "error: [Errno 28] No space left on device"),
    ],
)
def test_an_error_ends_in_one_message(
    error: Exception, code: int, message: str, cotransport: Command, recipes_do: RecipesDo
) -> None:
    recipes_do(failing(error))
    ended, printed = cotransport("recipes")
    assert ended == code
    assert message in printed
    assert len(printed.splitlines()) == 1


def test_an_error_of_the_program_itself_keeps_its_stack_trace(cotransport: Command, recipes_do: RecipesDo) -> None:
    recipes_do(failing(RuntimeError("a mistake in the program")))
    with pytest.raises(RuntimeError, match="a mistake in the program"):
        cotransport("recipes")


def test_only_the_projects_own_warnings_are_shown(cotransport: Command, recipes_do: RecipesDo) -> None:
    def warn() -> None:
        warnings.warn("a [class] without images", CotransportWarning, stacklevel=1)
        warnings.warn("for developers", DeprecationWarning, stacklevel=1)

    recipes_do(warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, printed = cotransport("recipes")
    assert code == 0
    assert "note: a [class] without images\n" in printed
    assert "for developers" not in printed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_exit_code(
    number: signal.Signals, code: int, cotransport: Command, recipes_do: RecipesDo
) -> None:
    recipes_do(lambda: signal.raise_signal(number))
    assert cotransport("recipes") == (code, f"stopped by {number.name}\n")


def test_a_signal_while_modules_are_loaded_leaves_no_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cotransport.cli.main.main", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize("error", [TrainingError("the loss is not finite"), RuntimeError("Connection closed by peer")])
def test_only_the_first_of_several_processes_prints(
    error: Exception, cotransport: Command, recipes_do: RecipesDo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (console.out, console.err):
        monkeypatch.setattr(stream, "quiet", False)  # restored afterwards
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")
    monkeypatch.setenv("GROUP_RANK", "1")
    recipes_do(failing(error))
    assert cotransport("recipes") == (1, "")


def test_closed_streams_are_no_error(cotransport: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent process may have closed them."""
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert cotransport("recipes") == (0, "")
