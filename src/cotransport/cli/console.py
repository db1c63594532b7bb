"""Where the command prints, and how it prints JSON and a hint to resume."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from cotransport.system import signals
from cotransport.system.text import markup

out = Console()
err = Console(stderr=True)
FLAG = " "
"""Metavar of an option without a value; typer would show <bool>."""


def print_json(values: object, indent: int | None = 1) -> None:
    """Print JSON with unprintable characters escaped, which a hostile file name may contain."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    lines = (line if line.isprintable() else _escape(line) for line in text.split("\n"))
    print("\n".join(lines))


def _escape(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


@contextmanager
def resume_hint(command: str) -> Iterator[None]:
    """After a signal, print that everything is saved, and the command that resumes."""
    try:
        yield
    except signals.Interrupted as stopped:
        err.print(f"[bold]{stopped}[/]. What was learned is saved; resume with: {markup(command)}", soft_wrap=True)
        sys.exit(stopped.exit_code)
