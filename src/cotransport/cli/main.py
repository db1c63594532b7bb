"""The command `cotransport`: all subcommands, and how errors, warnings and signals are shown."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from cotransport.cli import compare, experiments, models, output, owning, reproduce, serving
from cotransport.cli.console import FLAG, err, out
from cotransport.errors import CotransportError, CotransportWarning
from cotransport.system import signals
from cotransport.system.machine import end_with_parent
from cotransport.system.text import markup
from cotransport.version import __version__

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Class-incremental image classification by co-transport.\n\n"
    "Start with [bold]cotransport run[/]: it learns handwritten digits, two classes at a time, and writes a report. "
    "Your own classifier starts with [bold]cotransport learn[/].",
)
app.add_typer(experiments.app)
app.add_typer(compare.app)
app.add_typer(reproduce.app)
app.add_typer(models.app)
app.add_typer(owning.app)
app.add_typer(serving.app)


def main() -> None:
    """Run the command. A user's mistake leads to one message and exit code 2, never to a stack trace."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]  # it accepts all the arguments and uses two
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (open until the process ends)
    is_first = _is_first_process()
    if not is_first:
        err.quiet = out.quiet = True  # the first process reports for all
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if os.environ.get("LOCAL_RANK", "0") not in {"", "0"} or "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent()  # the first process of this machine, or torchrun
    with output.session():
        _run(is_first=is_first)


def _run(*, is_first: bool) -> None:
    try:
        with signals.handled(follower=not is_first):
            app(prog_name="cotransport")  # python -m would put itself into the completion script
    except CotransportError as error:
        output.show_error(error)
        sys.exit(error.exit_code)
    except OSError as error:  # a full disk, a folder without write permission
        output.show_error(error)
        sys.exit(1)
    except signals.Interrupted as stopped:
        err.print(f"[bold]{stopped}[/]")
        sys.exit(stopped.exit_code)
    except RuntimeError as error:
        if not _lost_connection(error):
            raise
        reason = str(error).splitlines()[0]
        err.print(
            "[bold red]error:[/] lost the connection to another process that trains together with this one. "
            f"{markup(reason)}\nStart all of them again with --resume: they continue from the last checkpoint",
            soft_wrap=True,
        )
        sys.exit(1)


def _lost_connection(error: RuntimeError) -> bool:
    """Whether this process has lost the others."""
    known = ("Connection closed", "Connection reset", "Broken pipe")
    return type(error).__module__ == "torch.distributed" or any(words in str(error) for words in known)


def _is_first_process() -> bool:
    """Whether this is the process that prints. Lightning numbers the processes that it starts in their environment."""
    return all(os.environ.get(rank, "0") in {"", "0"} for rank in ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK"))


def _show_warning(message: Warning | str, category: type[Warning], *_: object) -> None:
    """Print our own warnings in one line. Those of libraries are for developers, and are not shown."""
    if issubclass(category, CotransportWarning):
        output.note(f"[yellow]note:[/] {markup(message)}")


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"cotransport {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", metavar=FLAG, callback=_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Class-incremental image classification by co-transport."""
