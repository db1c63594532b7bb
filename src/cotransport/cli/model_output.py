"""What the subcommands for a model share: arguments, and how predictions and lessons are printed."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from cotransport.cli.console import FLAG, err, out, print_json
from cotransport.cli.output import note
from cotransport.lessons.chance import is_beyond_chance, verdict
from cotransport.lessons.records import changed_images
from cotransport.overview import recognised
from cotransport.system.text import markup, visible

if TYPE_CHECKING:
    from cotransport.learner.prediction import Prediction
    from cotransport.lessons.records import ClassAccuracy, Confidence, LessonOutcome
    from cotransport.overview import Verdict

Model = Annotated[Path, typer.Argument(help="The model's folder.", metavar="MODEL", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON, for programs.")]

SHOWN = 40
"""Rows of a table, at most."""
UNKNOWN = "unknown"
"""The answer for images of which the model is not sure enough."""
VERDICTS: dict[Verdict, str] = {"loss": "more than chance", "gain": "more than chance", "chance": "may be chance"}
SHOWN_CONFUSIONS = 3
"""Confusions that are printed, at most."""


class Format(str, Enum):
    """How predictions are printed."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"


def print_predictions(answers: Iterable[Prediction], form: Format, top: int) -> int:
    """Print predictions, each as soon as it is made; returns the number of files that could not be read."""
    failed = 0
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if form is Format.csv:
        names = (
            ["class", "probability"]
            if top == 1
            else [f"{n}_{k}" for k in range(1, top + 1) for n in ("class", "probability")]
        )
        writer.writerow(["image", *names, "error"])
    table = Table(box=None, header_style="bold")
    table.add_column("image", overflow="fold")
    table.add_column("class", overflow="fold")
    table.add_column("probability")
    for answer in answers:
        failed += answer.error is not None
        if form is Format.jsonl:
            best = [{"class": name, "probability": share} for name, share in answer.classes]
            values = {"image": answer.path, "predictions": best, "error": answer.error}
            asked = {} if answer.is_unknown is None else {"unknown": answer.is_unknown}
            print_json(values | asked, indent=None)
        elif form is Format.csv:
            cells = [cell for name, share in answer.classes for cell in (visible(name), f"{share:.6f}")]
            cells[:1] = [UNKNOWN] if answer.is_unknown else cells[:1]
            writer.writerow([visible(answer.path), *cells, *[""] * (2 * top - len(cells)), visible(answer.error or "")])
        elif answer.error is None:
            for place, (name, share) in enumerate(answer.classes):
                shown = f"{UNKNOWN} ({name}?)" if answer.is_unknown and not place else name
                table.add_row("" if place else markup(visible(answer.path)), markup(shown), f"{share:.3f}")
        if answer.error is not None:
            err.print(f"[red]{markup(answer.error)}[/]", soft_wrap=True)
    if form is Format.table and table.rows:
        out.print(table)
    return failed


def show_outcome(model: Path, outcome: LessonOutcome, *, as_json: bool) -> None:
    """Print the outcome of a lesson."""
    report = outcome.report
    if as_json:
        print_json(outcome.plain())
        return
    if outcome.already and outcome.refused is None:
        done = "it is current now" if outcome.made_current else "nothing to do"
        other = "start a new model" if outcome.parent is None else f"go back first: {rollback_command(model)}"
        out.print(
            f"version {outcome.version} has learned exactly these images before: {done}. To learn them with other "
            f"settings, {other}",
            soft_wrap=True,
        )
        return
    _show_classes(report.per_class, report.lesson.new_classes)
    images = sum(one.images for one in report.per_class)
    words = [
        f"[bold]version {outcome.version}[/] recognises {percent(report.accuracy)} of {images:,} held-out images"
        + class_average(report.per_class)
    ]
    if report.accuracy is None:
        words = [f"[bold]version {outcome.version}[/] is ready. There are too few images to hold some out for testing"]
    if report.accuracy_lost is not None:
        words.append(
            f"the classes known before: {percent(report.old_before)} before, {percent(report.old_after)} now"
            + _meaning(report.per_class)
        )
    out.print("; ".join(words), soft_wrap=True)
    lesson = report.lesson
    if lesson.kept is not None and lesson.held_out is not None:
        exemplars = f"{lesson.kept:,} exemplars" if lesson.kept else "no exemplars"
        out.print(
            f"{lesson.images:,} images were trained on; the model folder keeps {exemplars} of these classes, and "
            f"{lesson.held_out:,} more images that were held out",
            soft_wrap=True,
            style="dim",
        )
    confusions = [one for one in report.confusions if one.images > 1][:SHOWN_CONFUSIONS]
    if confusions:
        worst = [f"{one.name} as {one.predicted} ({one.images})" for one in confusions]
        out.print(f"most often confused: {markup(', '.join(worst))}", soft_wrap=True, style="dim")
    lost = [one for one in report.per_class if is_beyond_chance(one.lost or 0, one.gained or 0)]
    change = changed_images(report.per_class)
    if (lost or is_beyond_chance(change.lost, change.gained)) and outcome.refused is None:
        names = ", ".join(f"{one.name} ({one.lost} of {one.images} images)" for one in sorted(lost, key=_gain)[:5])
        losers = markup(names) if lost else "the known classes together"
        out.print(
            f"[yellow]lost more than chance would explain:[/] {losers}. To go back to the version before: "
            f"{rollback_command(model)}",
            soft_wrap=True,
        )
    if outcome.refused is None:
        from cotransport.training.display import duration

        name = markup(shlex.quote(str(model)))
        note(
            f"[dim]learned in {duration(report.times['seconds'])}. Use it with cotransport predict {name} IMAGE..., "
            f"and see what it knows with cotransport report {name}[/]"
        )
    if outcome.refused is not None:
        err.print(
            f"[bold red]refused:[/] {markup(outcome.refused)}. The version before stays current; to use this one: "
            f"{rollback_command(model, outcome.version)}",
            soft_wrap=True,
        )


def class_average(classes: Sequence[ClassAccuracy]) -> str:
    """The mean of the classes' accuracies, in words. Nothing if it is the accuracy on all images."""
    from cotransport.lessons.records import macro_accuracy, mean_accuracy

    mean = percent(macro_accuracy(classes))
    return "" if mean == percent(mean_accuracy(classes, "after")) else f" ({mean} if every class counts the same)"


def _meaning(classes: Sequence[ClassAccuracy]) -> str:
    """How many images the known classes have lost and gained, and whether that means anything."""
    lost, gained, images = changed_images(classes)
    meaning = verdict(lost, gained)
    if meaning is None:
        return ""
    return f" ({lost} of {images} images no longer recognised, {gained} newly: {VERDICTS[meaning]})"


def trade_off(confidence: Confidence, chosen_on: Confidence) -> list[dict[str, float]]:
    """For some shares of right answers: the threshold of `predict --unknown`, and what it does with these images.

    chosen_on : the answers to the held-out images, on which `predict` chooses its thresholds.
    """
    from cotransport.lessons.records import WANTED

    found = [(at_least, chosen_on.threshold(at_least / 100)) for at_least in WANTED]
    return [
        {"at_least": at_least, **confidence.at(threshold)._asdict()}
        for at_least, threshold in found
        if threshold is not None
    ]


def show_confidence(confidence: Confidence, chosen_on: Confidence | None) -> None:
    """Print how far probabilities can be trusted, and what `predict --unknown` would leave open."""
    if confidence.error is None:
        return
    out.print(f"calibration error: {confidence.error:.1f} points")
    table = Table("predict --unknown --at-least", "threshold", "answered", "right", box=None)
    for one in trade_off(confidence, chosen_on) if chosen_on is not None else ():
        table.add_row(
            f"{one['at_least']:g}", f"{one['threshold']:.4g}", percent(one["answered"]), percent(one["right"])
        )
    if table.rows:
        out.print(table)


def rollback_command(model: Path, to: int | None = None) -> str:
    """The rollback command, ready to be copied."""
    return markup(f"cotransport rollback {shlex.quote(str(model))}" + ("" if to is None else f" --to {to}"))


def prune_command(model: Path) -> str:
    """The prune command, ready to be copied, without its option."""
    return markup(f"cotransport prune {shlex.quote(str(model))}")


def _gain(change: ClassAccuracy) -> float:
    """Points of accuracy that a class has gained; 0 if there is nothing to compare."""
    return 0.0 if change.before is None or change.after is None else change.after - change.before


def _show_classes(changes: Sequence[ClassAccuracy], new_classes: Sequence[str | int]) -> None:
    """Print how many held-out images of each class are recognised, before and now.

    Of many classes, it prints the new ones, and those of the others that lost most.
    """
    listed = list(changes)
    if len(listed) > SHOWN:
        new = [change for change in changes if change.name in new_classes]
        old = sorted((change for change in changes if change.name not in new_classes), key=_gain)
        listed = [*new[: max(SHOWN // 2, SHOWN - len(old))], *old][:SHOWN]
    table = Table("class", "before", "now", "", box=None, header_style="bold")
    for change in listed:
        images = (change.gained or 0) - (change.lost or 0)
        moved = f"[{'green' if images > 0 else 'red'}]{images:+}[/]" if images else ""
        moved = "new" if change.name in new_classes else moved
        before = "" if change.before is None else recognised(change.before, change.images)
        table.add_row(markup(change.name), before, recognised(change.after, change.images), moved)
    out.print(table)
    if len(changes) > len(listed):
        which = ", of the old ones those that lost most" * (len(new_classes) < len(changes))
        out.print(f"{len(listed)} of {len(changes)} classes{which}; --json has all", style="dim")


def percent(value: float | None) -> str:
    """A percentage, or a dash."""
    return "–" if value is None else f"{value:.1f} %"
