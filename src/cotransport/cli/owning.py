"""The subcommands for the owner of a model, such as info, rollback, rename and export; and example-data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal as file_size
from rich.table import Table

from cotransport.cli.console import err, out, print_json
from cotransport.cli.model_output import SHOWN, AsJson, Model, percent, prune_command, rollback_command
from cotransport.errors import ConfigError
from cotransport.system.text import markup

app = typer.Typer()


@app.command(epilog="Example: [bold]cotransport info model[/]")
def info(model: Model, as_json: AsJson = False) -> None:
    """Show a model and its versions: classes, accuracy, exemplars and size."""
    from cotransport.lessons.information import describe

    facts = describe(model)
    if as_json:
        print_json(facts)
        return
    if facts["method"] is None:
        state = "no version is current" if facts["current"] is None else f"version {facts['current']} is damaged"
        out.print(
            f"[bold]{markup(model)}[/]: [red]{state}[/]; choose another with {rollback_command(model)} --to VERSION",
            soft_wrap=True,
        )
    size = facts["image_size"]
    if size is not None:
        exemplars, held_out = facts["exemplars"], facts["held_out"]
        out.print(
            f"[bold]{markup(model)}[/]: version {facts['current']}, {len(facts['classes'])} classes, "
            f"{markup(facts['method'])} with the backbone {markup(facts['backbone'])}, {size} x {size} pixels\n"
            f"{exemplars:,} exemplars, {held_out:,} held-out images; {file_size(facts['bytes'])} in all",
            soft_wrap=True,
        )
    if facts["classes"]:
        out.print(f"it knows {markup(_listed(facts['classes']))}", soft_wrap=True)
    table = Table("", "version", "from", "classes", "accuracy", "change on old classes", "size", "made", box=None)
    latest = facts["versions"][-SHOWN:]
    for one in latest:
        table.add_row(
            "→" if one["version"] == facts["current"] else "",
            str(one["version"]),
            str(one["parent"] or "–"),
            str(one.get("classes", "–")),
            percent(one.get("accuracy")) + (f" of {one['tested']:,}" if one.get("accuracy") is not None else ""),
            _change_in_points(one),
            file_size(one["bytes"]),
            markup(one["made"][:10]),
        )
    out.print(table)
    out.print("accuracy on the held-out images; old classes are those known before the lesson", style="dim")
    if len(facts["versions"]) > SHOWN:
        out.print(f"the latest {SHOWN} of {len(facts['versions']):,} versions; --json has all", style="dim")
    for one in latest:
        names = one.get("new_classes", [])
        notes = [f"version {one['version']} learned {_listed(names)}"] if names else []
        notes += [f"version {one['version']}: {one['change']}"] if one.get("change") else []
        at_first = " at first" if one["version"] == facts["current"] else ""
        notes += [f"version {one['version']} was refused{at_first}: {one['refused']}"] if one["refused"] else []
        notes += [f"version {one['version']} is damaged: {one['damaged']}"] if one["damaged"] else []
        for note in notes:
            out.print(markup(note), style="dim", soft_wrap=True)
    if facts["unfinished"]:
        out.print(
            f"a lesson from {markup(facts['unfinished'])} is not finished; repeat its command to resume it",
            soft_wrap=True,
        )


def _listed(names: Sequence[str | int]) -> str:
    """Names of classes, separated by commas; of very many, the first ones."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(str(name) for name in names[:SHOWN]) + more


def _change_in_points(version: Mapping[str, Any]) -> str:
    """How many points of accuracy the classes known before have gained or lost, and whether that is certain."""
    lost, likely = version.get("forgetting"), version.get("likely_loss")
    if lost is None or version.get("change"):
        return "–"
    doubt = " (may be chance)" if lost and likely is not None and likely[0] <= 0 <= likely[1] else ""
    return f"{-lost:+.1f} points{doubt}" if lost else "no change"


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport rollback model[/]  to the version before\n\n"
    "[bold]cotransport rollback model --to 3[/]  to any version, earlier or later"
)
def rollback(
    model: Model,
    to: Annotated[
        int | None, typer.Option(help="A version; 0 is the empty model.", show_default="the parent of the current one")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make another version current. No version is removed.

    If no version is current (`--to 0`), the next lesson starts from nothing.
    """
    from cotransport.lessons.information import rollback as go_back

    before, now = go_back(model, to)
    if as_json:
        print_json({"before": before, "current": now})
        return
    if before == now:
        out.print(f"version {now} is current already")
        return
    what = f"version {now} is current now" if now else "the model is empty now; its versions are kept"
    out.print(f"{what}; to undo: {rollback_command(model, before)}", soft_wrap=True)


@app.command(epilog="Example: [bold]cotransport rename model tabby 'tabby cat'[/]")
def rename(
    model: Model,
    old: Annotated[str, typer.Argument(help="The class's name.", metavar="OLD", show_default=False)],
    new: Annotated[str, typer.Argument(help="Its new name.", metavar="NEW", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Give a class another name. This makes a new version; nothing is trained."""
    from cotransport.lessons.ownership import rename as give_name

    version = give_name(model, old, new)
    if as_json:
        print_json({"version": version})
        return
    out.print(f"version {version}: {markup(old)} is called {markup(new)} now", soft_wrap=True)


@app.command(epilog="Example: [bold]cotransport remove model tabby[/]")
def remove(
    model: Model,
    name: Annotated[str, typer.Argument(help="The class's name.", metavar="CLASS", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Remove a class. This makes a new version; nothing is trained. A later lesson can teach the class again."""
    from cotransport.lessons.removal import remove as remove_class

    with err.status("measuring the other classes"):
        removed = remove_class(model, name)
    report = removed.report
    if as_json:
        accuracy = {"before": report and report.old_before, "after": report and report.old_after}
        values = {"version": removed.version, "images": removed.images, "held_by": removed.held_by}
        print_json(values | {"accuracy": accuracy})
        return
    words = [f"[bold]version {removed.version}[/] no longer knows {markup(name)}"]
    if report is not None and report.accuracy is not None:
        words.append(f"the other classes: {percent(report.old_before)} before, {percent(report.old_after)} now")
    out.print("; ".join(words), soft_wrap=True)
    if removed.held_by:
        out.print(
            f"versions that still have images of it: {', '.join(map(str, removed.held_by))}. To remove every version "
            f"except the new one, with these images: {prune_command(model)} --keep 1",
            soft_wrap=True,
        )


@app.command(
    "remove-image",
    epilog="Examples:\n\n"
    "[bold]cotransport remove-image model photos/week1/anna/3.jpg[/]  by a copy of the image\n\n"
    "[bold]cotransport remove-image model 5f3a09c1d2e4[/]  by its id",
)
def remove_image(
    model: Model,
    images: Annotated[
        list[str], typer.Argument(help="Files, or ids of stored images.", metavar="IMAGE...", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Remove images from all versions of a model. What was learned from them stays."""
    from cotransport.lessons.image_removal import remove_images

    with err.status("comparing all stored images"):
        removed = remove_images(model, images)
    if as_json:
        print_json(removed._asdict() | {"images": [one._asdict() for one in removed.images]})
        return
    table = Table(box=None, header_style="bold")
    for header in ("removed", "id", "class", "exemplar in versions", "held out in versions"):
        table.add_column(header, overflow="fold")
    for one in removed.images:
        cells = (", ".join(map(str, values)) for values in (one.classes, one.exemplar_in, one.held_out_in))
        table.add_row(*(markup(cell or "–") for cell in (one.given, one.id, *cells)))
    out.print(table)
    for version, names in removed.without_exemplars.items():
        out.print(f"version {version} has no exemplar left of: {markup(', '.join(map(str, names)))}", soft_wrap=True)
    if removed.learned_from:
        out.print(
            f"versions that have learned from them: {', '.join(map(str, removed.learned_from))}. Their weights are "
            "unchanged; only a new model, taught without these images, has certainly learned nothing from them",
            soft_wrap=True,
        )
    out.print(
        "lessons do not record images that they train on but do not keep, so other versions may have learned from "
        "these images too",
        soft_wrap=True,
        style="dim",
    )


@app.command(epilog="Example: [bold]cotransport prune model --keep 3[/]")
def prune(
    model: Model,
    keep: Annotated[int, typer.Option(help="Number of versions to keep, newest first.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Remove old versions, with the images that only they need. The current version is always kept."""
    from cotransport.lessons.information import describe
    from cotransport.lessons.ownership import prune as remove_versions

    before = describe(model)["bytes"]
    removed = remove_versions(model, keep)
    freed = before - describe(model)["bytes"]
    if as_json:
        print_json({"removed": removed, "bytes": freed})
        return
    which = ", ".join(map(str, removed)) or "none"
    out.print(f"removed versions: {which}; freed {file_size(freed)}")


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport images model[/]  a page of all images, model-images.html\n\n"
    "[bold]cotransport images model --class tabby[/]  the images of one class"
)
def images(
    model: Model,
    class_name: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="The images of one class.", show_default="all classes")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--out", help="The page to write.", show_default="MODEL-images.html")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page of the images that a model keeps, with their ids: exemplars and held-out images."""
    from cotransport.cli.model_pages import show_images
    from cotransport.lessons.stored_images import list_images

    if as_json:
        print_json(
            [
                {
                    "id": image.id,
                    "class": image.class_name,
                    "file": image.file_name,
                    "exemplar_in": image.exemplar_in,
                    "held_out_in": image.held_out_in,
                }
                for image in list_images(model, class_name)
            ]
        )
        return
    show_images(model, class_name, file)


@app.command(epilog="Example: [bold]cotransport check model[/]")
def check(model: Model, as_json: AsJson = False) -> None:
    """Compare every file of a model with its checksum. Exit code 1 if something is wrong."""
    from cotransport.lessons.ownership import check as verify

    with err.status("reading all files"):
        problems = verify(model)
    if as_json:
        print_json({"problems": problems})
    for problem in () if as_json else problems:
        out.print(f"[red]{markup(problem)}[/]", soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    if not as_json:
        out.print("every file is as it was written")


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport export model --onnx model.onnx[/]  to run it without this package\n\n"
    "[bold]cotransport export model --archive model.tar[/]  to move or keep it as one file"
)
def export(
    model: Model,
    onnx: Annotated[Path | None, typer.Option(help="The ONNX file to write.", show_default=False)] = None,
    archive: Annotated[
        Path | None, typer.Option(help="The archive to write: .tar, or .tar.gz to compress it.", show_default=False)
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="The version to use, with --onnx.", show_default="the current one")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as one file.

    An ONNX file takes decoded images and gives probabilities. Its metadata has the class names and the pre-processing.
    An archive has all versions of the model, for [bold]cotransport import[/].
    """
    if onnx is not None and archive is None:
        from cotransport.learner.onnx import export as write_onnx
        from cotransport.learner.prediction import Predictor
        from cotransport.learner.snapshots import restored
        from cotransport.model.store import ModelStore

        file = onnx
        write_onnx(Predictor(*restored(ModelStore(model).read(version))), file)
    elif archive is not None and onnx is None:
        from cotransport.model.archive import write_archive

        if version is not None:
            raise ConfigError("--version: an archive has all versions. Leave it out")
        file = archive
        with err.status("reading all files"):
            write_archive(model, file)
    else:
        raise ConfigError("--onnx, --archive: give exactly one of them")
    size = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "bytes": size})
        return
    out.print(f"[bold]{markup(file)}[/]  {file_size(size)}", soft_wrap=True)


@app.command("import", epilog="Example: [bold]cotransport import model.tar model[/]")
def import_model(
    archive: Annotated[
        Path, typer.Argument(help="A file that export --archive has written.", metavar="FILE", show_default=False)
    ],
    model: Annotated[Path, typer.Argument(help="A new folder.", metavar="MODEL", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Make a model folder from an archive. Every file is checked before the folder appears."""
    from cotransport.model.archive import read_archive

    with err.status("reading all files"):
        manifest = read_archive(archive, model)
    versions = [version.number for version in manifest.versions]
    if as_json:
        print_json({"model": str(model), "current": manifest.current, "versions": versions})
        return
    count = f"{len(versions)} version{'s' * (len(versions) != 1)}"
    out.print(f"[bold]{markup(model)}[/]  {count}, current: {manifest.current or 'none'}", soft_wrap=True)


@app.command(
    "example-data",
    epilog="Example:\n\n[bold]cotransport example-data digits[/], then [bold]cotransport learn model digits/first[/]",
)
def example_data(
    folder: Annotated[Path, typer.Argument(help="A new folder.", metavar="DIR", show_default=False)],
) -> None:
    """Write images of handwritten digits into folders, to try the commands on."""
    from cotransport.data.examples import write_digits

    for place, contents in write_digits(folder).items():
        out.print(f"[bold]{markup(place)}[/]  {markup(contents)}", soft_wrap=True)
