"""Names of classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from cotransport.errors import DataError

Label: TypeAlias = str | int
"""The name of a class, as the user gives it."""


def plain_label(value: object) -> Label:
    """A string or whole number of any type, such as NumPy's, as Python's own type."""
    if isinstance(value, str):
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise DataError(f"{value!r} as a label is not valid text. Use another name")
        return str(value)
    if isinstance(value, int | np.integer | np.bool_):
        return int(value)
    raise DataError(f"{value!r} as a label: use names (strings) or whole numbers")


def check_distinct(names: Iterable[Label], where: str) -> tuple[Label, ...]:
    """The names of the classes, or a DataError if two are the same."""
    counts = Counter(names := tuple(names))
    for name, count in counts.items():
        if count > 1:
            raise DataError(f"{where}: {count} classes are named {name!r}. Give every class a different name")
    return names
