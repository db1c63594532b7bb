"""What both halves of the command share: where they print, and how words from outside are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from cotransport.system import signals

out = Console()
err = Console(stderr=True)
FLAG = " "
"""What stands for the value of an option that has none; typer would say <bool>."""


def visible(words: object) -> str:
    r"""Words from outside, such as file names, with nothing in them that a terminal would obey.

    >>> visible("a\x1b[2J.png")
    'a\\x1b[2J.png'
    """
    letters = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(words))
    return "".join(letters)


def markup(words: object) -> str:
    """The same for our consoles, line by line, where brackets would be markup."""
    return escape("\n".join(visible(line) for line in str(words).split("\n")))


def print_json(values: object, indent: int | None = 1) -> None:
    """Print JSON in which all that is not printable, as in hostile names, is escaped."""
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    lines = (line if line.isprintable() else _escaped(line) for line in text.split("\n"))
    print("\n".join(lines))


def _escaped(text: str) -> str:
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


@contextmanager
def told_how_to_go_on(command: str) -> Iterator[None]:
    """After a signal, say that all is saved and what to type."""
    try:
        yield
    except signals.Interrupted as stopped:
        err.print(f"[bold]{stopped}[/]. What was learned is saved; go on with: {markup(command)}", soft_wrap=True)
        sys.exit(stopped.exit_code)
