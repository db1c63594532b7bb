"""Run the benchmarks: `python -m benchmarks [--out FOLDER] [NAME...]`. Writes results.json and results.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks import learning, lesson, process, serving
from benchmarks.measure import Figure
from cotransport.experiments.environment import environment
from cotransport.training.processes import processes_for

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "startup": process.startup,
    "training": learning.training,
    "transport": learning.transport,
    "evaluation": learning.evaluation,
    "arithmetic": learning.arithmetic,
    "batches": learning.batches,
    "augmentation": learning.augmentation,
    "classes": learning.classes,
    "decoding": process.decoding,
    "prediction": process.prediction,
    "serving": serving.serving,
    "lesson": lesson.lesson,
    "memory": process.memory,
    "neighbours": process.neighbours,
    "jobs": process.jobs,
}


def main() -> int:
    """Run what is asked for, show and write the figures; 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--out", type=Path, help="where results go; by default here, if all benchmarks are run")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    for name in arguments.names or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(" | ".join(row(figure)), flush=True)
            figures.append(figure)
    out = arguments.out or (None if arguments.names else Path(__file__).parent)
    if out is not None:
        where = environment(processes_for(learning.DEVICE))
        out.mkdir(parents=True, exist_ok=True)
        values = [{**asdict(figure), "verdict": figure.verdict} for figure in figures]
        (out / "results.json").write_text(json.dumps({"environment": where, "figures": values}, indent=1) + "\n")
        (out / "results.md").write_text(table(figures, where))
    missed = [figure.what for figure in figures if figure.verdict == "missed"]
    print(f"missed: {'; '.join(missed)}" if missed else "all targets met")
    return 1 if missed else 0


def row(figure: Figure) -> tuple[str, ...]:
    """A figure as people read it."""
    unit = f" {figure.unit}" if figure.unit else ""
    digits = 0 if figure.value >= 100 else 1 if figure.value >= 10 else 2
    target = ""
    if figure.at_least is not None:
        target = f"at least {figure.at_least:g}{unit}"
    elif figure.at_most is not None:
        target = f"at most {figure.at_most:g}{unit}"
    return figure.benchmark, figure.what, f"{figure.value:,.{digits}f}{unit}", target, figure.verdict, figure.note


def table(figures: list[Figure], where: dict[str, object]) -> str:
    """All figures in Markdown."""
    head = ("benchmark", "what", "measured", "target", "", "")
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *map(row, figures))]
    machine = f"torch {where['torch']}, {where['threads']} threads, {where['device']}"
    source = f"`make bench`, commit {where['commit']}, {machine}. What is compared took turns."
    return "\n".join(["# Speed", "", source, "", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
