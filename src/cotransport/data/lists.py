"""Text files that list the images or classes of a data set."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

from cotransport.errors import DataError


def pairs(file: Path, allowed: Container[str] | None = None) -> dict[str, str]:
    """The lines of a list: a key, a space and a value. If only some values are allowed, any other is an error."""
    found: dict[str, str] = {}
    for number, line in read_list(file):
        key, _, value = line.partition(" ")
        problem = "" if value else "expected an id, a space and a value"
        if key in found:
            problem = "this id is listed twice"
        elif value and allowed is not None and value not in allowed:
            problem = "this value is not known"
        if problem:
            raise DataError(f"{file}, line {number}: {line[:60]!r}: {problem}. Unpack the archive again")
        found[key] = value
    if not found:
        raise DataError(f"{file}: empty. Unpack the archive again")
    return found


def read_list(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers, without empty ones."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error}). Unpack the archive again") from None
    return ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip())
