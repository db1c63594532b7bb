"""The commands around a model folder: learn, predict, evaluate, info, rollback, export; and example-data."""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cotransport.cli.console import FLAG, err, markup, out, print_json, told_how_to_go_on, visible
from cotransport.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cotransport.lessons.lesson import Change, Outcome, Prediction

app = typer.Typer()

SHOWN = 40
"""Classes that a table lists, at most."""
MUCH = 25
"""Points by which a class is forgotten so much that it is worth a word."""

Model = Annotated[Path, typer.Argument(help="The model's folder.", metavar="MODEL", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON, for programs.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting of a recipe, such as schedule.learning_rate=0.1. Repeatable.",
    ),
]


class KnownClasses(str, Enum):
    """What is done with images of a class that is known already."""

    refuse = "refuse"
    extend = "extend"


class Format(str, Enum):
    """How predictions are printed."""

    table = "table"
    jsonl = "jsonl"
    csv = "csv"


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport learn model photos/week1[/]  a new model, or new classes for it\n\n"
    "[bold]cotransport learn model photos/week2 --max-forgetting 3[/]  only if old classes lose 3 points at most\n\n"
    "[bold]cotransport learn model more-cats --known-classes extend[/]  more images of classes that it knows\n\n"
    "[bold]cotransport learn model photos --method wa --minutes 10[/]  another method, and a time budget"
)
def learn(
    model: Model,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder with a subfolder of images per class, or a Hugging Face data set (path or id).",
            show_default=False,
        ),
    ],
    method: Annotated[
        str | None, typer.Option(help="How to learn (see `methods`).", show_default="coil-tuned, or the model's")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="The network. A model keeps it for life.", show_default="by the machine")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Pixels of a side. A model keeps it for life.", show_default="by the images")
    ] = None,
    memory: Annotated[
        int | None, typer.Option(help="Images of old classes that are kept, in all.", show_default="50 of each class")
    ] = None,
    memory_per_class: Annotated[int | None, typer.Option(help="The same, for each class.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Times that each image is seen.", show_default="by the images")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for about so long, instead.")] = None,
    known_classes: Annotated[
        KnownClasses, typer.Option(help="Images of a class that the model knows: refuse them, or learn from them too.")
    ] = KnownClasses.refuse,
    held_out: Annotated[
        float, typer.Option(help="Share of each class that is kept to test with, 50 images at most.")
    ] = 0.1,
    max_forgetting: Annotated[
        float | None,
        typer.Option(
            help="Points of accuracy that the classes known before may lose in this lesson. If they lose more, the new "
            "version is kept beside and the old one stays current (exit code 3)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.", show_default="0")] = None,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar=FLAG, help="Throw an unfinished lesson away.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model new classes; the first call makes it.

    Settings are chosen by the images and printed; what you ask for of method, memory, training and --set counts, now
    and in later lessons. If it is interrupted in any way, the same command goes on.
    """
    if memory is not None and memory_per_class is not None:
        raise typer.BadParameter("--memory and --memory-per-class exclude each other")
    if epochs is not None and minutes is not None:
        raise typer.BadParameter("--epochs and --minutes exclude each other")
    if max_forgetting is not None and not 0 <= max_forgetting <= 100:
        raise typer.BadParameter(f"--max-forgetting {max_forgetting:g}: give points of accuracy from 0 to 100")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise typer.BadParameter(f"--minutes {minutes:g}: give a time above 0")
    if not 0 < held_out < 1:
        raise typer.BadParameter(f"--held-out {held_out:g}: give a share above 0 and below 1")
    from cotransport.cli.progress import LessonProgress
    from cotransport.lessons import lesson as production
    from cotransport.training.loop import fabric_for

    chosen: dict[str, Any] = {}
    plain = {"method": method, "backbone": backbone, "image_size": image_size, "seed": seed}
    chosen |= {name: value for name, value in plain.items() if value is not None}
    if memory is not None or memory_per_class is not None:
        chosen["memory"] = {"total": memory} if memory is not None else {"per_class": memory_per_class}
    if epochs is not None:
        chosen["schedule"] = {"epochs": epochs, "seconds_per_task": None}
    if minutes is not None:
        chosen["schedule"] = {"seconds_per_task": 60 * minutes}
    wishes = _wishes(chosen, overrides or ())
    wishes = replace(wishes, held_out=held_out, known_classes=known_classes.value, max_forgetting=max_forgetting)
    again = [word for word in sys.argv[1:] if word != "--overwrite"]
    with told_how_to_go_on(shlex.join(["cotransport", *again])):
        first = fabric_for(wishes.device).is_global_zero
        console = (err if as_json else out) if first else Console(quiet=True)
        with LessonProgress(console) as progress:
            outcome = production.learn(model, data, wishes, overwrite=overwrite, observer=progress)
    if first:
        _show_outcome(model, outcome, as_json=as_json)
    if outcome.refused is not None:
        raise typer.Exit(3)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport predict model a.jpg b.png[/]\n\n"
    "[bold]cotransport predict model photos/new 'archive/**/*.jpg' --top 3[/]  folders and patterns\n\n"
    "[bold]cotransport predict model photos --format csv > answers.csv[/]"
)
def predict(
    model: Model,
    images: Annotated[
        list[str],
        typer.Argument(help="Image files, folders of them, or patterns.", metavar="IMAGE...", show_default=False),
    ],
    top: Annotated[int, typer.Option(help="So many of the likeliest classes.", min=1)] = 1,
    form: Annotated[
        Format, typer.Option("--format", help="A table for people, JSON lines or CSV for programs.")
    ] = Format.table,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="The same as --format jsonl.")] = False,
    version: Annotated[int | None, typer.Option(help="A version.", show_default="the current one")] = None,
) -> None:
    """Say which class images are of.

    A file that is no image is reported, and the others are predicted all the same (exit code 1).
    """
    if as_json and form is Format.csv:
        raise typer.BadParameter("--json and --format csv exclude each other")
    from cotransport import IncrementalClassifier
    from cotransport.cli.progress import with_bar
    from cotransport.lessons import lesson as production

    form = Format.jsonl if as_json else form
    paths, nothing = _files(images)
    if not paths:
        raise DataError(f"{nothing[0] or 'an empty name'}: no images there. Check the path")
    for word in nothing:
        err.print(f"[red]{markup(word)}: no images there[/]", soft_wrap=True)
    classifier = IncrementalClassifier.load(model, version)
    answers = production.predictions(classifier, paths, top)
    if form is Format.table or not out.is_terminal:  # otherwise the answers themselves show how it goes
        answers = with_bar(answers, len(paths), err)
    failed = _print_predictions(answers, form, top)
    if failed:
        err.print(f"{failed} of {len(paths)} file{'s' * (len(paths) > 1)} could not be read")
    if failed or nothing:
        raise typer.Exit(1)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport evaluate model[/]  on the images that were held out\n\n"
    "[bold]cotransport evaluate model photos/checked[/]  on other images of classes that it knows"
)
def evaluate(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A folder with a subfolder per class, or a Hugging Face data set.",
            show_default="the images that were held out",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="A version.", show_default="the current one")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="data.label_column, for example. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy of each class."""
    from cotransport.lessons import lesson as production

    wishes = _wishes({}, overrides or ())
    if wishes.chosen:
        key = next(iter(wishes.chosen))
        raise ConfigError(f"--set {key}: evaluate has settings of data and device only, such as data.label_column")
    with err.status("looking at images"):
        changes = production.evaluate(model, data, version=version, wishes=wishes)
    accuracy, images = production.mean(changes, "after"), sum(change.images for change in changes)
    if as_json:
        print_json(
            {
                "accuracy": accuracy,
                "images": images,
                "per_class": [{"name": one.name, "images": one.images, "accuracy": one.after} for one in changes],
            }
        )
        return
    table = Table("class", "images", "accuracy", box=None, header_style="bold")
    listed = sorted(changes, key=lambda change: change.after or 0.0) if len(changes) > SHOWN else changes
    for change in listed[:SHOWN]:
        table.add_row(markup(change.name), str(change.images), _percent(change.after))
    out.print(table)
    if len(changes) > SHOWN:
        out.print(f"the {SHOWN} worst of {len(changes)} classes; --json has all", style="dim")
    out.print(f"[bold]{_percent(accuracy)}[/] of {images:,} images")


@app.command(epilog="Example: [bold]cotransport info model[/]")
def info(model: Model, as_json: AsJson = False) -> None:
    """Show a model's versions: classes, accuracy, memory and size."""
    from cotransport.lessons import lesson as production

    facts = production.info(model)
    if as_json:
        print_json(facts)
        return
    size = facts["image_size"]
    out.print(
        f"[bold]{markup(model)}[/]: version {facts['current']}, {len(facts['classes'])} classes, "
        f"{markup(facts['method'])} with the backbone {markup(facts['backbone'])}, {size} x {size} pixels\n"
        f"{facts['exemplars']:,} images of its classes are remembered, {facts['held_out']:,} held out; "
        f"{_size(facts['bytes'])} in all",
        soft_wrap=True,
    )
    table = Table("", "version", "from", "classes", "accuracy", "forgetting", "size", "made", box=None)
    latest = facts["versions"][-SHOWN:]
    for one in latest:
        forgetting = one.get("forgetting")
        table.add_row(
            "→" if one["version"] == facts["current"] else "",
            str(one["version"]),
            str(one["parent"] or "–"),
            str(one.get("classes", "–")),
            _percent(one.get("accuracy")),
            "–" if forgetting is None else f"{forgetting:.1f}",
            _size(one["bytes"]),
            markup(one["made"][:10]),
        )
    out.print(table)
    if len(facts["versions"]) > SHOWN:
        out.print(f"the latest {SHOWN} of {len(facts['versions']):,} versions; --json has all", style="dim")
    for one in latest:
        names = one.get("new_classes", [])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        learned = ", ".join(str(name) for name in names[:SHOWN]) + more
        notes = [f"version {one['version']} learned {learned}"] if names else []
        at_first = " at first" if one["version"] == facts["current"] else ""
        notes += [f"version {one['version']} was refused{at_first}: {one['refused']}"] if one["refused"] else []
        notes += [f"version {one['version']} is damaged: {one['damaged']}"] if one["damaged"] else []
        for note in notes:
            out.print(markup(note), style="dim", soft_wrap=True)
    if facts["unfinished"]:
        out.print(
            f"a lesson from {markup(facts['unfinished'])} is not finished; repeat its command to go on", soft_wrap=True
        )


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport rollback model[/]  to the version before\n\n"
    "[bold]cotransport rollback model --to 3[/]  to any version, also forward"
)
def rollback(
    model: Model,
    to: Annotated[int | None, typer.Option(help="A version.", show_default="the one before the current")] = None,
    as_json: AsJson = False,
) -> None:
    """Make another version the current one. None is removed."""
    from cotransport.lessons import lesson as production

    before, now = production.rollback(model, to)
    if as_json:
        print_json({"before": before, "current": now})
        return
    if before == now:
        out.print(f"version {now} is current already")
        return
    out.print(f"version {now} is current now; back with: {_rollback(model, before)}", soft_wrap=True)


@app.command(epilog="Example: [bold]cotransport export model --onnx model.onnx[/]")
def export(
    model: Model,
    onnx: Annotated[Path, typer.Option(help="The file to write.", show_default=False)],
    version: Annotated[int | None, typer.Option(help="A version.", show_default="the current one")] = None,
) -> None:
    """Write a model as an ONNX file, to run it without this package.

    It takes decoded images and gives probabilities; class names and pre-processing are in the file's metadata.
    """
    from cotransport import IncrementalClassifier
    from cotransport.learner import onnx as onnx_export

    onnx_export.export(IncrementalClassifier.load(model, version), onnx)
    out.print(f"[bold]{markup(onnx)}[/]  {_size(onnx.stat().st_size)}", soft_wrap=True)


@app.command(
    "example-data",
    epilog="Example:\n\n[bold]cotransport example-data digits[/], then [bold]cotransport learn model digits/first[/]",
)
def example_data(
    folder: Annotated[Path, typer.Argument(help="A new folder.", metavar="DIR", show_default=False)],
) -> None:
    """Write images of handwritten digits into folders, to try everything with."""
    from cotransport.data import examples

    for place, told in examples.write_digits(folder).items():
        out.print(f"[bold]{markup(place)}[/]  {markup(told)}", soft_wrap=True)


def _wishes(chosen: dict[str, Any], overrides: Sequence[str]) -> Any:  # noqa: ANN401 (Wishes, which takes torch along)
    from cotransport.lessons.lesson import Wishes
    from cotransport.settings.overrides import apply_overrides
    from cotransport.settings.sections import Device
    from cotransport.settings.validation import validated

    apply_overrides(chosen, overrides)
    for section in ("data", "device"):
        if not isinstance(chosen.get(section, {}), dict):
            raise ConfigError(f"--set {section}: give one of its keys, such as {section}.KEY=VALUE")
    data, device = chosen.pop("data", {}), chosen.pop("device", {})
    return Wishes(chosen, data=data, device=validated(Device, device, "device"))


def _files(images: Iterable[str]) -> tuple[list[Path], list[str]]:
    """The files that are meant: files, what is below folders, and what patterns match; and words that mean none."""
    import glob

    from cotransport.data.folders import images_below

    paths: list[Path] = []
    nothing: list[str] = []
    for word in images:
        path = Path(word)
        if not word:
            found = []
        elif path.is_dir():
            found = images_below(path)
        elif not path.exists() and glob.has_magic(word):
            matches = [Path(match) for match in sorted(glob.glob(word, recursive=True))]  # noqa: PTH207 (absolute ones too)
            found = [match for match in matches if match.is_file()]
        else:
            found = [path]
        paths += found
        nothing += [] if found else [word]
    return paths, nothing


def _print_predictions(answers: Iterable[Prediction], form: Format, top: int) -> int:
    """Print answers as they come; returns how many files could not be read."""
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
            print_json({"image": answer.path, "predictions": best, "error": answer.error}, indent=None)
        elif form is Format.csv:
            cells = [cell for name, share in answer.classes for cell in (visible(name), f"{share:.6f}")]
            writer.writerow([visible(answer.path), *cells, *[""] * (2 * top - len(cells)), visible(answer.error or "")])
        elif answer.error is None:
            for place, (name, share) in enumerate(answer.classes):
                table.add_row("" if place else markup(visible(answer.path)), markup(name), f"{share:.3f}")
        if answer.error is not None:
            err.print(f"[red]{markup(answer.error)}[/]", soft_wrap=True)
    if form is Format.table and table.rows:
        out.print(table)
    return failed


def _show_outcome(model: Path, outcome: Outcome, *, as_json: bool) -> None:
    report = outcome.report
    if as_json:
        values = report.model_dump(mode="json")
        print_json(
            {
                "version": outcome.version,
                "promoted": outcome.refused is None,
                "refused": outcome.refused,
                "already": outcome.already,
                **values,
            }
        )
        return
    if outcome.already and outcome.refused is None:
        done = "it is current now" if outcome.promoted else "nothing to do"
        told = f"version {outcome.version} has learned exactly these images before: {done}"
        otherwise = "begin a new model" if outcome.parent is None else f"go back first: {_rollback(model)}"
        out.print(f"{told}. To learn them otherwise, {otherwise}", soft_wrap=True)
        return
    _show_changes(report.per_class, report.lesson.new_classes)
    words = [f"[bold]version {outcome.version}[/] recognises {_percent(report.accuracy)} of all held-out images"]
    if report.accuracy is None:
        words = [f"[bold]version {outcome.version}[/] is made; there are too few images to hold some out and test with"]
    if report.forgetting is not None:
        words.append(
            f"the classes known before: {_percent(report.old_before)} before, {_percent(report.old_after)} now"
        )
    out.print("; ".join(words), soft_wrap=True)
    lost = [one for one in report.per_class if _points(one) <= -MUCH]
    if lost and outcome.refused is None:
        names = ", ".join(f"{one.name} ({_points(one):.0f})" for one in sorted(lost, key=_points)[:5])
        out.print(
            f"[yellow]much forgotten:[/] {markup(names)}. More remembered images (--memory-per-class) or another "
            f"method may help; the version before comes back with: {_rollback(model)}",
            soft_wrap=True,
        )
    if outcome.refused is not None:
        err.print(
            f"[bold red]not promoted:[/] {markup(outcome.refused)}. The version before stays current; to use this one: "
            f"{_rollback(model, outcome.version)}",
            soft_wrap=True,
        )


def _rollback(model: Path, to: int | None = None) -> str:
    """The command, as it can be typed."""
    return markup(f"cotransport rollback {shlex.quote(str(model))}" + ("" if to is None else f" --to {to}"))


def _points(change: Change) -> float:
    """By how much a class is recognised better than before."""
    return 0.0 if change.before is None or change.after is None else change.after - change.before


def _show_changes(changes: Sequence[Change], new_classes: Sequence[str | int]) -> None:
    """What was learned and forgotten, class by class; of many classes those that changed most."""
    listed = list(changes)
    if len(listed) > SHOWN:
        new = [change for change in changes if change.name in new_classes]
        old = sorted((change for change in changes if change.name not in new_classes), key=_points)
        listed = [*new[: max(SHOWN // 2, SHOWN - len(old))], *old][:SHOWN]
    table = Table("class", "held out", "before", "now", "", box=None, header_style="bold")
    for change in listed:
        points = _points(change)
        moved = f"[{'green' if points > 0 else 'red'}]{points:+.1f}[/]" if points else ""
        moved = "new" if change.name in new_classes else moved
        before = "" if change.before is None else _percent(change.before)
        table.add_row(markup(change.name), str(change.images), before, _percent(change.after), moved)
    out.print(table)
    if len(changes) > len(listed):
        which = ", the most forgotten of the old ones" * (len(new_classes) < len(changes))
        out.print(f"{len(listed)} of {len(changes)} classes{which}; --json has all", style="dim")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _size(count: int) -> str:
    """Bytes in a unit that people read.

    >>> _size(512), _size(123_456), _size(5_000_000_000)
    ('512 B', '123 kB', '5.0 GB')
    """
    if count < 1000:
        return f"{count} B"
    if count < 1_000_000:
        return f"{count / 1000:.0f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
