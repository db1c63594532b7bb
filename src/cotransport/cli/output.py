"""How much a command prints, and its log file: the options --quiet, --verbose, --log and --events."""

from __future__ import annotations

import inspect
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from cotransport.cli.console import FLAG, err, out
from cotransport.cli.events import EventListener, write_event
from cotransport.cli.log_file import LogFile, LoggingListener
from cotransport.errors import CotransportError
from cotransport.system.text import markup
from cotransport.version import __version__

if TYPE_CHECKING:
    from cotransport.training.listener import Listener

PANEL = "Output"
"""Title of these options in the help texts."""
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar=FLAG,
        rich_help_panel=PANEL,
        help="Print only results and errors: no progress, no notes.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", metavar=FLAG, rich_help_panel=PANEL, help="Also print all settings, versions and times."
    ),
]
Log = Annotated[
    Path | None,
    typer.Option(
        "--log",
        metavar="FILE",
        rich_help_panel=PANEL,
        help="Append everything that happens to this file, with the time.",
        show_default=False,
    ),
]
Events = Annotated[
    bool,
    typer.Option(
        "--events",
        metavar=FLAG,
        rich_help_panel=PANEL,
        help="Print progress, notes and errors to standard error as lines of JSON, for programs.",
    ),
]


class _State:
    """The choices of the running command."""

    quiet = False
    verbose = False
    events = False


def with_output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options --quiet, --verbose, --log and --events."""

    @wraps(command)
    def run(*arguments: Any, quiet: bool, verbose: bool, log: Path | None, events: bool, **options: Any) -> None:  # noqa: ANN401
        if quiet and verbose:
            raise typer.BadParameter("--quiet and --verbose are mutually exclusive")
        if events and verbose:
            raise typer.BadParameter("--events and --verbose are mutually exclusive")
        _State.quiet, _State.verbose, _State.events = quiet or events, verbose, events
        if log is not None and not out.quiet:  # of several processes, the first one writes it
            out.log_file = err.log_file = LogFile(log)
        err.write_log(markup(" ".join(["cotransport", *sys.argv[1:]])), soft_wrap=True)
        _detail(f"cotransport {__version__}, Python {platform.python_version()}, torch {_release('torch')}")
        command(*arguments, **options)

    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, default, kind in (
            ("quiet", False, Quiet),
            ("verbose", False, Verbose),
            ("log", None, Log),
            ("events", False, Events),
        )
    ]
    parameters = [*own.parameters.values(), *extra]
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


@contextmanager
def session() -> Iterator[None]:
    """A command from its start to its end: afterwards, the log file is closed, and the next command starts afresh."""
    started = time.perf_counter()
    try:
        yield
    except SystemExit as ended:
        seconds = time.perf_counter() - started
        err.write_log(f"ended with exit code {ended.code or 0} after {seconds:.1f} s")
        if _State.verbose:
            Console(stderr=True, quiet=err.quiet).print(f"took {seconds:.1f} s", style="dim", highlight=False)
        raise
    except BaseException as error:
        if err.log_file is not None:
            err.log_file.write_error(type(error), error, error.__traceback__)
        raise
    finally:
        if err.log_file is not None:
            err.log_file.close()
        out.log_file = err.log_file = None
        _State.quiet = _State.verbose = _State.events = False


def note(text: str) -> None:
    """Print a remark to standard error, unless the command is quiet. `text` may have markup."""
    if _State.events:
        write_event("note", text=Text.from_markup(text).plain, hint="")
    (err.write_log if _State.quiet else err.print)(text, soft_wrap=True)


def show_error(error: object) -> None:
    """Print why a command failed."""
    if _State.events:
        text, hint = (error.problem, error.hint) if isinstance(error, CotransportError) else (str(error), "")
        write_event("error", text=text, hint=hint)
    (err.write_log if _State.events else err.print)(f"[bold red]error:[/] {markup(error)}", soft_wrap=True)


def _detail(text: str) -> None:
    (err.print if _State.verbose else err.write_log)(text, soft_wrap=True, style="dim", highlight=False)


def progress_console(*, stderr: bool = False) -> Console:
    """A console for progress, which does not go to the log file."""
    return Console(stderr=stderr, quiet=out.quiet or _State.quiet)


@contextmanager
def listening(*, stderr: bool = False) -> Iterator[Listener]:
    """A listener that shows the progress of jobs as the user asks, and writes it to the log file."""
    from cotransport.training.display import ConsoleListener

    if _State.events:
        events = EventListener()
        yield events if out.log_file is None else LoggingListener(events, out.log_file)
        return
    with ConsoleListener(progress_console(stderr=stderr), verbose=_State.verbose) as listener:
        yield listener if out.log_file is None else LoggingListener(listener, out.log_file)


def _release(package: str) -> str:
    """The installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
