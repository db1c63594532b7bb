"""Text that is not our own, such as file names, made safe to show."""

from __future__ import annotations

from rich.markup import escape


def visible(text: object) -> str:
    r"""Text that is not our own, such as file names, with control characters escaped.

    >>> visible("a\x1b[2J.png")
    'a\\x1b[2J.png'
    """
    letters = (letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))
    return "".join(letters)


def markup(text: object) -> str:
    """Text that is not our own, for a rich console: control characters and brackets are escaped, lines are kept."""
    return escape("\n".join(visible(line) for line in str(text).split("\n")))
