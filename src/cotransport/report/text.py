"""Numbers and names as text for people, before the escaping of any file format."""

from __future__ import annotations

import math
import unicodedata

UNDEFINED, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def one_decimal(value: float) -> str:
    """A number with one decimal; a dash if it is undefined."""
    return UNDEFINED if math.isnan(value) else f"{round(value, 1) + 0.0:.1f}".replace("-", MINUS)


def percent(share: float) -> str:
    """A share in percent. Only a small share has a decimal.

    >>> percent(41.3), percent(2.13), percent(100.0)
    ('41\\xa0%', '2.1\\xa0%', '100\\xa0%')
    """
    return f"{one_decimal(share) if share < 9.95 else f'{share:.0f}'}\N{NO-BREAK SPACE}%"


def plural(number: object, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "task"), plural(2000, "image"), plural(2, "class")
    ('1 task', '2,000 images', '2 classes')
    """
    nouns = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else nouns}" if isinstance(number, int) else f"{number} {nouns}"


def one_line(text: str) -> str:
    """Text without line breaks and without characters that the report's file formats cannot hold."""
    replacement = {"Cc": " ", "Cs": "\N{REPLACEMENT CHARACTER}"}  # control characters, halves of surrogate pairs
    return " ".join("".join(replacement.get(unicodedata.category(char), char) for char in text).split())


def shorten(text: str, limit: int) -> str:
    """Text of at most `limit` characters.

    >>> shorten("hippopotamus", 6)
    'hippo…'
    """
    return text if len(text) <= limit else text[: limit - 1].rstrip(" ,") + "…"
