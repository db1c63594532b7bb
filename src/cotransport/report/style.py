"""How a method looks, the same in every figure and chart of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Okabe and Ito's colours, safe for colour-blind readers, without the two that vanish on black or white, and a violet
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8B5FBF")
# each as (matplotlib, plotly)
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


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and line style; the last two as matplotlib and plotly call them."""

    colour: str
    marker: tuple[str, str]
    dash: tuple[str, str]


BOUND_LOOK = LineStyle("#7D858F", ("X", "x"), (":", "dot"))
CHANCE_LOOK = LineStyle("#7D858F", ("", "line-ew-open"), ("--", "dash"))


def line_styles(names: Iterable[str]) -> dict[str, LineStyle]:
    """A look for each name: first all the colours, then the same colours with the next line style and other markers."""
    every = {}
    for index, name in enumerate(dict.fromkeys(names)):
        turn, place = divmod(index, len(COLOURS))
        every[name] = LineStyle(COLOURS[place], MARKERS[(place + turn) % len(MARKERS)], DASHES[turn % len(DASHES)])
    return every
