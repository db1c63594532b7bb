"""Where the command prints, and how it prints JSON and a hint to resume."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from cotransport.system import signals
from cotransport.system.text import markup

if TYPE_CHECKING:
    from cotransport.cli.log_file import LogFile
    from cotransport.settings.sections import Device


class Screen(Console):
    """A console whose text also goes to a log file, if there is one."""

    log_file: LogFile | None = None

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 (as rich declares it)
        """Print, and write the same to the log file."""
        super().print(*objects, **options)
        self.write_log(*objects, **options)

    def write_log(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401
        """Write to the log file only, as plain text."""
        if self.log_file is not None:
            plain = Console(file=io.StringIO(), width=LOG_WIDTH)
            plain.print(*objects, **options)
            self.log_file.write(plain.file.getvalue())  # type: ignore[attr-defined]  # a StringIO


LOG_WIDTH = 120
"""Columns of tables in a log file."""
out = Screen()
err = Screen(stderr=True)
FLAG = " "
"""Metavar of an option without a value; typer would show <bool>."""


def print_json(values: object, indent: int | None = 1) -> None:
    """Print JSON with unprintable characters escaped, which a hostile file name may contain."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    lines = (line if line.isprintable() else _escape(line) for line in text.split("\n"))
    print("\n".join(lines))


def _escape(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def is_first_process(device: Device) -> bool:
    """Whether this process prints and decides for all that train together. The first call starts all of them.

    The others become silent. Most of them were silent from the start, but not Slurm's tasks, which may also be
    unrelated commands.
    """
    from cotransport.training.processes import processes_for

    is_first = processes_for(device).is_first
    if not is_first:
        silence()
    return is_first


def silence() -> None:
    """Print nothing more, and leave signals to the first process."""
    err.quiet = out.quiet = True
    signals.follow()


def resume_command() -> str:
    """The command that resumes what the user's command started."""
    again = [word for word in sys.argv[1:] if word not in {"--overwrite", "--resume"}]
    return shlex.join(["cotransport", *again, "--resume"])


@contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """After a signal, print the command that resumes."""
    try:
        yield
    except signals.Interrupted as stopped:
        err.print(f"[bold]{stopped}[/]. To go on from the last checkpoint: {markup(command)}", soft_wrap=True)
        sys.exit(stopped.exit_code)
