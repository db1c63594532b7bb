"""Numbers and names as people read them, before any format's own escaping."""

from __future__ import annotations

import math
import unicodedata

UNDEFINED, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def one_decimal(value: float) -> str:
    """A number with one decimal, a dash where it is undefined."""
    return UNDEFINED if math.isnan(value) else f"{round(value, 1) + 0.0:.1f}".replace("-", MINUS)


def in_percent(share: float) -> str:
    """A share of a hundred, with a decimal where it is small.

    >>> in_percent(41.3), in_percent(2.13), in_percent(100.0)
    ('41\\xa0%', '2.1\\xa0%', '100\\xa0%')
    """
    return f"{one_decimal(share) if share < 9.95 else f'{share:.0f}'}\N{NO-BREAK SPACE}%"


def plural(number: object, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "task"), plural(2000, "image"), plural(2, "class")
    ('1 task', '2,000 images', '2 classes')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}" if isinstance(number, int) else f"{number} {plural}"


def one_line(text: str) -> str:
    """Text without line breaks and without characters that our file formats cannot hold."""
    replacement = {"Cc": " ", "Cs": "\N{REPLACEMENT CHARACTER}"}  # control characters, halves of surrogate pairs
    return " ".join("".join(replacement.get(unicodedata.category(char), char) for char in text).split())


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters.

    >>> shortened("hippopotamus", 6)
    'hippo…'
    """
    return text if len(text) <= most else text[: most - 1].rstrip(" ,") + "…"
