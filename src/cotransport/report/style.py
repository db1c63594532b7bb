"""Colours, markers and sizes that all figures and charts of a report share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Okabe and Ito's colours for colour-blind readers, without the two that vanish on black or white, and a violet
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B5FBF")
# pairs of (matplotlib's name, plotly's name)
MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("*", "star"),
)
DASHES = (("-", "solid"), ("--", "dash"), (":", "dot"), ("-.", "dashdot"))

MAX_MAP_CLASSES = 200
"""With more classes there is no map of class by class: one cell would be smaller than a pixel."""


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and dash pattern. Marker and dash are pairs of matplotlib's name and plotly's name."""

    colour: str
    marker: tuple[str, str]
    dash: tuple[str, str]


UPPER_BOUND_STYLE = LineStyle("#7D858F", ("X", "x"), (":", "dot"))
CHANCE_STYLE = LineStyle("#7D858F", ("", "line-ew-open"), ("--", "dash"))


def line_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A style for each name: each colour once, then the colours again with the next dash pattern and other markers."""
    styles = {}
    for index, name in enumerate(dict.fromkeys(names)):
        cycle, position = divmod(index, len(COLOURS))
        marker = MARKERS[(position + cycle) % len(MARKERS)]
        styles[name] = LineStyle(COLOURS[position], marker, DASHES[cycle % len(DASHES)])
    return styles


def evenly_spaced(positions: Sequence[int], limit: int) -> list[int]:
    """At most `limit` evenly spaced positions.

    >>> evenly_spaced(range(10), limit=4)
    [0, 3, 6, 9]
    """
    return list(positions[:: -(-len(positions) // limit)])
