"""Draw which old classes the new classes of a run's last task were built from.

    cotransport run cifar100-b0-10-fast --set 'stream={base: 70, step: 10, subset: 80}' --set 'methods=[coil-tuned]' \
        --set device.threads=1 --out runs/built-from
    python docs/built_from.py runs/built-from/coil-tuned-seed1/result.json docs/built-from.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

SOURCES = 3
"""Old classes shown for each new class."""
WIDTH = 0.74
"""Of the longest bar, in columns."""
INK, GREY, COLOUR = "#1f2933", "#7b8794", "#0b6fa4"


def main(result: Path, picture: Path) -> None:
    """Read a result and write the picture."""
    values = json.loads(result.read_text(encoding="utf-8"))
    transport = values["steps"][-1]["transport"]
    old = len(transport["plan"])
    figure, axes = plt.subplots(figsize=(9.6, 0.46 * len(transport["origins"]) + 1.7), dpi=125)
    longest = max(source["share"] for origin in transport["origins"] for source in origin["sources"][:SOURCES])
    for row, origin in enumerate(transport["origins"]):
        axes.text(0.86, row, _words(origin["name"]), ha="right", va="center", size=13, weight="bold", color=INK)
        for column, source in enumerate(origin["sources"][:SOURCES], start=1):
            width, share = WIDTH * source["share"] / longest, 100 * source["share"]
            axes.barh(row + 0.2, width, left=column, height=0.2, color=COLOUR)
            axes.text(column, row - 0.13, _words(source["name"]), ha="left", va="center", size=11, color=INK)
            axes.text(column + width + 0.02, row + 0.2, f"{share:.1f} %", va="center", size=8.5, color=GREY)
            equal = column + WIDTH / old / longest
            axes.plot([equal, equal], [row + 0.1, row + 0.3], color="white", linewidth=1)
    axes.set(xlim=(0, SOURCES + 1.05), ylim=(len(transport["origins"]) - 0.35, -0.75))
    axes.axis("off")
    axes.text(0.86, -0.72, "new class", ha="right", va="center", size=10, color=GREY)
    axes.text(1, -0.72, f"built from: the {SOURCES} largest of {old} shares", va="center", size=10, color=GREY)
    figure.suptitle("New classes, and the old classes they were built from", x=0.02, ha="left", size=16, weight="bold")
    note = (
        "Bars are shares in a new class's first weights, before any training on it. "
        "The rest is spread over the other old classes.\n"
        f"The white mark is {100 / old:.1f} %: the share of each of the {old} old classes if all shares were equal."
    )
    figure.text(0.02, 0.02, note, size=9, color=GREY, linespacing=1.5)
    figure.subplots_adjust(left=0.02, right=0.99, top=0.9, bottom=0.09)
    figure.savefig(picture)


def _words(name: str) -> str:
    return name.replace("_", " ")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
