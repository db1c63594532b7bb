"""Rewrites the tables of measured results in the README and in these pages from the archives `results/*.json`.

A table stands between the comments `<!-- table: NAME -->` and `<!-- end of table -->`. `python docs/tables.py` rewrites
all of them, and a test checks that they agree with the archives. NAME is one of:

- `ARCHIVE`: every method with its measures, the best average first.
- `ARCHIVE against LABEL`: every other method's paired differences to one method.
- `LABEL on ARCHIVE, ARCHIVE, ...`: one method on several streams, with the paper's average beside it.
- `LABEL against LABEL on ARCHIVE (WORDS), ...`: one method's paired differences to another in several settings.
- `reproduce NAME`: a table of the paper, from the archived runs of its fast recipes, as `cotransport reproduce NAME
  --fast --from results --no-run` writes it. What was not run is a dash if the paper has a number for it, and is left
  out otherwise.
- `soak`: what `make soak` has tried, from `docs/soak.json`.
"""

from __future__ import annotations

import functools
import json
import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cotransport.experiments.adoption import adopted
from cotransport.experiments.published import PAPER, published
from cotransport.experiments.recipe import load_recipe
from cotransport.experiments.reproductions import REPRODUCTIONS, recipes_of
from cotransport.experiments.results import Result, find_results
from cotransport.report.aggregate import summarise
from cotransport.report.comparison import Comparison, compare
from cotransport.report.estimates import Estimate
from cotransport.report.paper_tables import contents_of, recipe_name
from cotransport.report.recipes import augmentation_name, setting
from cotransport.report.reproduction import markdown
from cotransport.report.summaries import MethodSummary, StreamSummary
from cotransport.report.tables import AVERAGE, FORGETTING, LAST, escape_markdown
from cotransport.report.text import UNDEFINED

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TABLE = re.compile(r"(<!-- table: ([^>]*) -->\n).*?(<!-- end of table -->)", re.DOTALL)
REPRODUCE = "reproduce "
SOAK = "soak"
SOAK_PARTS = {
    "faults": "a fault at every call that changes a file",
    "power": "a power cut in every state of the disk",
    "kills": "SIGKILL at random moments",
    "inputs": "generated inputs",
}
"""The parts of a soak, in order."""
SOAK_LEAST = {"kills": 1_000, "inputs": 100_000}
"""How many cases of a part without a fixed number are wanted."""
WIDTH = 120
"""Longest line of a page, apart from rows of tables."""
COSTS = ("minutes", "parameters", "augmentation", "seeds")
"""Headings of the last columns: training time of the fastest seed, trained weights, augmentation, number of seeds."""
MEASURES = ("average", "last", "forgetting", "head", "nearest mean", *COSTS)
"""Headings of a table of methods. `head` and `nearest mean` are averages over the tasks, by that prediction."""


def main() -> None:
    """Rewrite all tables."""
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """A page with its tables rewritten."""
    return TABLE.sub(lambda found: f"{found[1]}{table(found[2])}{found[3]}", text)


def table(name: str) -> str:
    """A table by its name, followed by where its numbers come from."""
    if name.startswith(REPRODUCE):
        return reproduction(name.removeprefix(REPRODUCE))
    if name == SOAK:
        return soak(json.loads((ROOT / "docs" / "soak.json").read_text(encoding="utf-8")))
    label, _, archives = name.partition(" on ")
    if archives and " against " in label:
        own, _, baseline = label.partition(" against ")
        settings = {words: archived(archive) for archive, words in re.findall(r"(\S+) \(([^)]*)\)", archives)}
        rows = differences_by_setting(own, baseline, settings)
        results = [found for stream in settings.values() for found in stream.results if found.label in {own, baseline}]
    elif archives:
        streams = [archived(archive) for archive in archives.split(", ")]
        rows = one_method(label, streams)
        results = [found for stream in streams for found in stream.results if found.label == label]
    else:
        archive, _, baseline = name.partition(" against ")
        stream = archived(archive)
        rows = differences(stream, baseline) if baseline else measures(stream)
        results = stream.results
    lines = [" | ".join(row) for row in rows]
    return "\n".join(["", *(f"| {line} |" for line in lines), "", *source(results), ""])


def reproduction(name: str) -> str:
    """A table of the paper with its notes, followed by where its numbers come from."""
    measured = find_results(ROOT / "results")
    seeds = sorted({result.seed for result in measured})
    results = [found for recipe in recipes_of(name, fast=True, seeds=seeds) for found in adopted(recipe, measured)]
    if not results:
        return "\nNot measured yet.\n\n"
    lines = markdown(contents_of(summarise(results), REPRODUCTIONS[name])).splitlines()
    wrapped = [
        part
        for line in lines
        for part in ([line] if line.startswith("|") else textwrap.wrap(line, WIDTH, break_on_hyphens=False) or [""])
    ]
    return "\n".join(["", *wrapped, "", *source(results), ""])


def soak(found: Mapping[str, Any]) -> str:
    """The table of a soak: each kind of fault with its counts, then its total, and where it ran."""
    lines = ["| what | cases tried | of all, or target | failed |", "| --- | --- | --- | --- |"]
    for part, title in SOAK_PARTS.items():
        rows = [row for row in found["rows"] if row["part"] == part]
        lines += [_soak_line(row["what"], [row], _of(row["planned"])) for row in rows]
        if part in SOAK_LEAST:
            is_reached = sum(row["tried"] for row in rows) >= SOAK_LEAST[part]
            of = f"target of {SOAK_LEAST[part]:,}: {'reached' if is_reached else 'not reached'}"
        else:
            of = _of(sum(row["planned"] for row in rows))
        lines.append(_soak_line(f"**{title}**", rows, of))
    text = (
        f"*`SOAK_MINUTES={found['minutes']:g} make soak` with {found['workers']} workers, {found['seconds'] / 60:.0f} "
        f"minutes; commit {found['commit']}; {found['machine']}, Python {found['python']}; {found['started']}.*"
    )
    return "\n".join(["", *lines, "", *textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False), ""])


def _soak_line(what: str, rows: Iterable[Mapping[str, Any]], of: str) -> str:
    """A line with the sums of some rows."""
    counts = [(row["tried"], len(row["failures"])) for row in rows]
    tried, failed = (sum(count[place] for count in counts) for place in range(2))
    return f"| {what} | {tried:,} | {of} | {failed} |"


def _of(planned: int | None) -> str:
    """The number of all cases, where there is one."""
    return "" if planned is None else f"{planned:,}"


def archived(name: str) -> StreamSummary:
    """The results of an archive, which are all of one stream."""
    (stream,) = summarise(find_results(ROOT / "results" / f"{name}.json"))
    return stream


def one_method(label: str, streams: Iterable[StreamSummary]) -> Iterable[list[str]]:
    """The rows of a table of one method on several streams."""
    yield ["tasks", "epochs", "average", "the paper's average", "last", "forgetting", *COSTS]
    yield ["---"] * (6 + len(COSTS))
    for stream in streams:
        method = method_of(stream, label)
        yield [
            str(len(stream.tasks)),
            str(setting(method.results[0].recipe, "schedule", "epochs")),
            AVERAGE.estimate(method).text,
            UNDEFINED if (average := published(PAPER, recipe_name(stream), method.name)) is None else f"{average:.2f}",
            *(column.estimate(method).text for column in (LAST, FORGETTING)),
            *costs(method),
        ]


def costs(method: MethodSummary) -> list[str]:
    """What a method cost: its cells below `COSTS`."""
    parameters, minutes = method.results[0].parameters, method.fastest_seconds / 60
    return [
        f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.2g}",
        UNDEFINED if parameters is None else f"{parameters / 1e6:.2g} M",
        augmentation_name(method.results[0]),
        str(method.seeds),
    ]


def measures(stream: StreamSummary) -> Iterable[list[str]]:
    """The rows of a table of methods."""
    yield ["", *MEASURES]
    yield ["---"] * (1 + len(MEASURES))
    for method in stream.methods:
        yield [
            escape_markdown(method.name),
            *(column.estimate(method).text for column in (AVERAGE, LAST, FORGETTING)),
            mean_over_tasks(method, "head_top1").text,
            mean_over_tasks(method, "ncm_top1").text,
            *costs(method),
        ]


def mean_over_tasks(method: MethodSummary, key: str) -> Estimate:
    """An accuracy of each task's result, averaged over the tasks; over the seeds, mean and deviation."""
    values = [[getattr(step, key) for step in result.steps] for result in method.results]
    return Estimate.of(None if None in run else sum(run) / len(run) for run in values)


DIFFERENCES = ("average", "95 % interval", "last", "p over seeds", "p over seeds and tasks", "seeds")
"""Headings of a table of paired differences."""


def differences(stream: StreamSummary, baseline: str) -> Iterable[list[str]]:
    """The rows of a table of paired differences, the largest first."""
    base = method_of(stream, baseline)
    yield ["", *DIFFERENCES]
    yield ["---"] * (1 + len(DIFFERENCES))
    others = [method for method in stream.methods if method is not base]
    compared = [(method.name, found) for method in others if (found := compare(method, base))]
    for name, found in sorted(compared, key=lambda one: -one[1].average.mean):
        yield [escape_markdown(name), *difference(found)]


def differences_by_setting(label: str, baseline: str, settings: Mapping[str, StreamSummary]) -> Iterable[list[str]]:
    """The rows of a table of one method's paired differences to another, by setting."""
    yield ["", f"average of {escape_markdown(baseline)}", *DIFFERENCES]
    yield ["---"] * (2 + len(DIFFERENCES))
    for words, stream in settings.items():
        base = method_of(stream, baseline)
        found = compare(method_of(stream, label), base)
        assert found is not None, f"{words}: no common seed"
        yield [words, AVERAGE.estimate(base).text, *difference(found)]


def method_of(stream: StreamSummary, label: str) -> MethodSummary:
    """The summary of the method with this label."""
    (method,) = [method for method in stream.methods if method.label == label]
    return method


def difference(found: Comparison) -> list[str]:
    """The cells below `DIFFERENCES`."""
    return [
        found.average.signed_text,
        found.interval.text,
        found.last.signed_text,
        probability(found.p_over_seeds),
        probability(found.p_over_tasks),
        str(found.seeds),
    ]


def probability(value: float) -> str:
    """A probability with two decimals."""
    return UNDEFINED if math.isnan(value) else "below 0.01" if value < 0.01 else f"{value:.2f}"


def source(results: Iterable[Result]) -> list[str]:
    """Where the numbers come from: commands, seeds, commits and machines."""
    found = list(results)
    commands = distinct(f"`{command(result)}`" for result in found)
    seeds = ", ".join(map(str, sorted({result.seed for result in found})))
    commits = distinct(str(result.environment.get("commit")) for result in found)
    text = f"*{commands}; seeds {seeds}; commits {commits}; {distinct(map(machine, found))}.*"
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def command(result: Result) -> str:
    """The command that repeats a run today, without its methods, seeds and threads, which are named elsewhere.

    Settings that the bundled recipe had then and has not any more are part of it.
    """
    given = given_command(result)
    today = settings_of(given)
    changed = {
        f"{section}.{key}": value
        for section, settings in result.recipe.items()
        if section != "device" and isinstance(settings, dict) and isinstance(today.get(section), dict)
        for key, value in settings.items()
        if key in today[section] and today[section][key] != value
    }
    return " ".join([given, *(f"--set {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in changed.items())])


@functools.cache
def settings_of(run_command: str) -> Mapping[str, Any]:
    """The settings that a command `cotransport run RECIPE --set ...` has today, by section."""
    words = shlex.split(run_command)
    overrides = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    return load_recipe(words[2], overrides).model_dump(mode="json")


def given_command(result: Result) -> str:
    """The command that a run was started with, without its folder and engine, methods, seeds and threads."""
    left_out = r" --((out|engine|jobs) \S+|resume|overwrite|set '?(methods|seeds|device\.threads)=.*?)(?= --|$)"
    kept = re.sub(left_out, "", re.sub(r" (-q|-v|--quiet|--verbose)(?= |$)", "", str(result.environment["command"])))
    # earlier releases recorded values without their quotation marks
    return re.sub(r"(?<= --set )[^'].*?(?= --|$)", lambda value: shlex.quote(value[0]), kept).strip()


def distinct(texts: Iterable[str]) -> str:
    """Texts in order of appearance, each once."""
    return ", ".join(dict.fromkeys(texts))


def machine(result: Result) -> str:
    """The processor and threads that a run used."""
    threads, processor = result.environment.get("threads"), result.environment.get("processor")
    return f"{threads} {'thread' if threads == 1 else 'threads'} of {processor or result.environment.get('device')}"


if __name__ == "__main__":
    main()
