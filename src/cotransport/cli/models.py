"""The subcommands that teach and use a model: learn, predict and evaluate."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from cotransport.cli.console import FLAG, err, is_first_process, out, print_json, resume_hint
from cotransport.cli.model_output import (
    SHOWN,
    AsJson,
    Format,
    Model,
    class_average,
    percent,
    print_predictions,
    show_confidence,
    show_outcome,
    trade_off,
)
from cotransport.cli.output import listening, note, progress_console, with_output_options
from cotransport.errors import ConfigError, DataError
from cotransport.overview import recognised
from cotransport.system.text import markup

if TYPE_CHECKING:
    from cotransport.data.decoding import Encoded
    from cotransport.lessons.options import LessonOptions

app = typer.Typer()
AT_LEAST = 95.0
"""Percentage of right answers that `predict --unknown` aims at, unless the user says otherwise."""

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting of a recipe, such as schedule.learning_rate=0.1. Can be repeated.",
    ),
]


class KnownClasses(str, Enum):
    """What to do with images of a class that is known already."""

    refuse = "refuse"
    extend = "extend"


class Fit(str, Enum):
    """How an image that is not square becomes a square."""

    crop = "crop"
    pad = "pad"
    stretch = "stretch"


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport learn model photos/week1[/]  a new model, or new classes for it\n\n"
    "[bold]cotransport learn model photos/week2 --max-forgetting 3[/]  refuses a loss of more than 3 points\n\n"
    "[bold]cotransport learn model more-cats --known-classes extend[/]  more images of classes that it knows\n\n"
    "[bold]cotransport learn model photos --method wa --minutes 10[/]  another method, and a time budget"
)
@with_output_options
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
        str | None,
        typer.Option(
            help="How to learn (see `methods`).",
            show_default="analytic on a frozen backbone, otherwise coil-tuned; later the model's",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="The network: a built-in one, or a pretrained one of another library (timm:NAME, "
            "torchvision:NAME@WEIGHTS, hf:ID@REVISION, folder:PATH). It cannot be changed later.",
            show_default="a trial decides: efficientnet-lite0, or from scratch",
        ),
    ] = None,
    freeze: Annotated[
        bool | None,
        typer.Option(
            "--freeze/--finetune",
            help="Leave a pretrained backbone unchanged, or train it too.",
            show_default="freeze it; later as in the last lesson",
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Side of the images in pixels. It cannot be changed later.",
            show_default="what a pretrained backbone was trained on (mostly 224), otherwise from the images",
        ),
    ] = None,
    fit: Annotated[
        Fit | None,
        typer.Option(
            help="Images that are not square: crop their centre, pad them with grey, or stretch them. It cannot be "
            "changed later.",
            show_default="crop",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            help="Exemplars (images of old classes that are kept), in all.",
            show_default="50 of each class; none with analytic",
        ),
    ] = None,
    memory_per_class: Annotated[int | None, typer.Option(help="Exemplars of each class.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the images.", show_default="from the images")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train for about this long, instead of a number of epochs.")
    ] = None,
    known_classes: Annotated[
        KnownClasses, typer.Option(help="Images of known classes: refuse them, or add them to the classes (extend).")
    ] = KnownClasses.refuse,
    held_out: Annotated[
        float, typer.Option(help="Share of each class that is held out for testing, at most 50 images.")
    ] = 0.1,
    max_forgetting: Annotated[
        float | None,
        typer.Option(
            help="Points of accuracy that the classes known before may lose in this lesson. If they lose more, and not "
            "by chance, the new version is kept, but the old one stays current (exit code 3)."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", show_default="0")] = None,
    overrides: Overrides = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", metavar=FLAG, help="Discard an unfinished lesson.")] = False,
    as_json: AsJson = False,
) -> None:
    """Teach a model new classes. The first lesson creates the model.

    Settings that you do not give are chosen from the images, and printed. Those that you give apply to later lessons
    too. If a lesson is interrupted in any way, the same command resumes it.
    """
    if memory is not None and memory_per_class is not None:
        raise typer.BadParameter("--memory and --memory-per-class are mutually exclusive")
    if epochs is not None and minutes is not None:
        raise typer.BadParameter("--epochs and --minutes are mutually exclusive")
    if max_forgetting is not None and not 0 <= max_forgetting <= 100:
        raise typer.BadParameter(f"--max-forgetting {max_forgetting:g}: give points of accuracy from 0 to 100")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise typer.BadParameter(f"--minutes {minutes:g}: give a time above 0")
    if not 0 < held_out < 1:
        raise typer.BadParameter(f"--held-out {held_out:g}: give a share above 0 and below 1")
    chosen: dict[str, Any] = {}
    plain = {"method": method, "backbone": backbone, "image_size": image_size, "seed": seed, "freeze_backbone": freeze}
    chosen |= {name: value for name, value in plain.items() if value is not None}
    if memory is not None or memory_per_class is not None:
        chosen["memory"] = {"total": memory} if memory is not None else {"per_class": memory_per_class}
    if fit is not None:
        chosen["prediction"] = {"fit": fit.value}
    if epochs is not None:
        chosen["schedule"] = {"epochs": epochs, "seconds_per_task": None}
    if minutes is not None:
        chosen["schedule"] = {"seconds_per_task": 60 * minutes}
    options = _options(
        chosen,
        overrides or (),
        held_out=held_out,
        known_classes=known_classes.value,
        max_forgetting=max_forgetting,
    )
    again = [word for word in sys.argv[1:] if word != "--overwrite"]
    with resume_hint(shlex.join(["cotransport", *again])):
        from cotransport.lessons.teaching import learn as teach

        is_first = is_first_process(options.device)
        with listening(stderr=as_json) as listener:
            outcome = teach(model, data, options, overwrite=overwrite, listener=listener)
    if is_first:
        show_outcome(model, outcome, as_json=as_json)
    if outcome.refused is not None:
        raise typer.Exit(3)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport predict model a.jpg b.png[/]\n\n"
    "[bold]cotransport predict model photos/new 'archive/**/*.jpg' --top 3[/]  folders and patterns\n\n"
    "[bold]cotransport predict model photos --format csv > answers.csv[/]\n\n"
    "[bold]curl -s https://example.org/cat.jpg | cotransport predict model -[/]  an image from standard input"
)
@with_output_options
def predict(
    model: Model,
    images: Annotated[
        list[str],
        typer.Argument(
            help="Image files, folders of them, or patterns. - reads an image from standard input.",
            metavar="IMAGE...",
            show_default=False,
        ),
    ],
    top: Annotated[int, typer.Option(help="Number of classes to show for each image, most likely first.", min=1)] = 1,
    form: Annotated[
        Format, typer.Option("--format", help="A table for people, JSON lines or CSV for programs.")
    ] = Format.table,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="The same as --format jsonl.")] = False,
    unknown: Annotated[
        bool, typer.Option("--unknown", metavar=FLAG, help="Answer `unknown` where the model is not sure enough.")
    ] = False,
    at_least: Annotated[
        float | None,
        typer.Option(
            help="With --unknown: percentage of the other answers that should be right.", show_default=f"{AT_LEAST:g}"
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="The version to use.", show_default="the current one")] = None,
) -> None:
    """Predict the class of each image.

    A file that is not an image is reported, and the others are still predicted (exit code 1).

    With --unknown, images whose most likely class has a low probability are `unknown`. How low is decided on the
    held-out images of the lessons.
    """
    if at_least is not None and not unknown:
        raise typer.BadParameter("--at-least sets the threshold of --unknown: give both")
    at_least = AT_LEAST if at_least is None else at_least
    if not 1 < at_least <= 100:
        raise typer.BadParameter(f"--at-least {at_least:g}: give a percentage above 1, and at most 100, such as 95")
    if as_json and form is Format.csv:
        raise typer.BadParameter("--json and --format csv are mutually exclusive")
    from cotransport.model.folder import ModelFolder

    files, empty = _files(images)
    ModelFolder(model).manifest()  # before torch is loaded: a model and images in the wrong order are a usual mistake
    from cotransport.learner.prediction import Predictor, predict_files
    from cotransport.learner.snapshots import restored
    from cotransport.model.store import ModelStore
    from cotransport.training.display import with_bar

    form = Format.jsonl if as_json else form
    if not files:
        raise DataError(f"{empty[0] or 'an empty name'}: no images there. Check the path")
    for word in empty:
        err.print(f"[red]{markup(word)}: no images there[/]", soft_wrap=True)
    predictor = Predictor(*restored(ModelStore(model).read(version)))
    threshold = None
    if unknown:
        from cotransport.lessons.chance import likely_share
        from cotransport.lessons.information import answer_threshold

        chosen = answer_threshold(model, at_least / 100, version)
        threshold = chosen.probability
        least, most = likely_share(chosen.right, chosen.answers)
        note(
            f"[dim]unknown: below a probability of {threshold:.4g}. Of {chosen.images:,} held-out images, "
            f"{chosen.answers:,} are answered, {chosen.right:,} of them correctly; so of the answers to other images, "
            f"likely {least:.0f} to {most:.0f} % are right[/]"
        )
    answers = predict_files(predictor, files, top, threshold)
    if form is Format.table or not out.is_terminal:  # otherwise the answers themselves show the progress
        answers = with_bar(answers, len(files), progress_console(stderr=True))
    failed = print_predictions(answers, form, top)
    if failed:
        err.print(f"{failed} of {len(files)} file{'s' * (len(files) > 1)} could not be read")
    if failed or empty:
        raise typer.Exit(1)


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport evaluate model[/]  on the held-out images\n\n"
    "[bold]cotransport evaluate model photos/checked[/]  on other images of classes that it knows"
)
@with_output_options
def evaluate(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A folder with a subfolder of images per class, or a Hugging Face data set (path or id).",
            show_default="the held-out images",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option(help="The version to use.", show_default="the current one")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting such as data.label_column. Can be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the accuracy of each class."""
    from cotransport.lessons.comparison import evaluate as measure
    from cotransport.lessons.records import macro_accuracy, mean_accuracy

    options = _options({}, overrides or ())
    if options.chosen:
        key = next(iter(options.chosen))
        raise ConfigError(f"--set {key}: evaluate takes settings of data and device only, such as data.label_column")
    if options.data and data is None:
        raise ConfigError("--set data: the held-out images have no settings. Leave it out, or give DATA")
    with progress_console(stderr=True).status("reading images"):
        classes, confidence, chosen_on = measure(model, data, version=version, options=options)
    accuracy, images = mean_accuracy(classes, "after"), sum(one.images for one in classes)
    if as_json:
        print_json(
            {
                "accuracy": accuracy,
                "macro_accuracy": macro_accuracy(classes),
                "images": images,
                "per_class": [{"name": one.name, "images": one.images, "accuracy": one.after} for one in classes],
                "calibration_error": confidence.error,
                "unknown": [] if chosen_on is None else trade_off(confidence, chosen_on),
            }
        )
        return
    table = Table("class", "recognised", "accuracy", box=None, header_style="bold")
    listed = sorted(classes, key=lambda one: one.after or 0.0) if len(classes) > SHOWN else classes
    for one in listed[:SHOWN]:
        table.add_row(markup(one.name), recognised(one.after, one.images), percent(one.after))
    out.print(table)
    if len(classes) > SHOWN:
        out.print(f"the {SHOWN} worst of {len(classes)} classes; --json has all", style="dim")
    out.print(f"[bold]{percent(accuracy)}[/] of {images:,} images{class_average(classes)}")
    show_confidence(confidence, chosen_on)


def _options(chosen: dict[str, Any], overrides: Sequence[str], **options: Any) -> LessonOptions:  # noqa: ANN401
    """The options of a lesson, from the command's options and `--set`."""
    from cotransport.lessons.options import LessonOptions
    from cotransport.settings.overrides import apply_overrides
    from cotransport.settings.sections import Device
    from cotransport.settings.validation import validated

    apply_overrides(chosen, overrides)
    for section in ("data", "device"):
        if not isinstance(chosen.get(section, {}), dict):
            raise ConfigError(f"--set {section}: give one of its keys, such as {section}.KEY=VALUE")
    data, device = chosen.pop("data", {}), chosen.pop("device", {})
    return LessonOptions(chosen, data=data, device=validated(Device, device, "device"), **options)


def _files(images: Iterable[str]) -> tuple[list[Path | Encoded], list[str]]:
    """The images of arguments, which are files, folders, patterns and `-`; and the arguments without any."""
    import glob

    from cotransport.data.files import check_local, images_below

    files: list[Path | Encoded] = []
    empty: list[str] = []
    for word in images:
        path = Path(word)
        found: Sequence[Path | Encoded] = []
        check_local(word)
        if not word:
            pass
        elif word == "-":
            found = [_standard_input()]
        elif path.is_dir():
            found = images_below(path)
        elif not path.exists() and glob.has_magic(word):
            matches = [Path(match) for match in sorted(glob.glob(word, recursive=True))]  # noqa: PTH207 (absolute ones too)
            found = [match for match in matches if match.is_file()]
        else:
            found = [path]
        files += found
        empty += [] if found else [word]
    return files, empty


def _standard_input() -> Encoded:
    """The image that is piped into the command."""
    from cotransport.data.decoding import Encoded

    if sys.stdin.isatty():
        raise DataError("-: standard input is a terminal. Pipe an image into the command, such as `... - < image.jpg`")
    return Encoded(sys.stdin.buffer.read(), "-")
