"""The subcommands for the owner of a model: info, rollback, rename, prune, check and export; and example-data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal as file_size
from rich.table import Table

from cotransport.cli.console import err, out, print_json
from cotransport.cli.model_output import SHOWN, AsJson, Model, percent, rollback_command
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
    table = Table("", "version", "from", "classes", "accuracy", "accuracy lost", "size", "made", box=None)
    latest = facts["versions"][-SHOWN:]
    for one in latest:
        lost = one.get("forgetting")
        table.add_row(
            "→" if one["version"] == facts["current"] else "",
            str(one["version"]),
            str(one["parent"] or "–"),
            str(one.get("classes", "–")),
            percent(one.get("accuracy")),
            "–" if lost is None else f"{lost:.1f}",
            file_size(one["bytes"]),
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
            f"a lesson from {markup(facts['unfinished'])} is not finished; repeat its command to resume it",
            soft_wrap=True,
        )


@app.command(
    epilog="Examples:\n\n"
    "[bold]cotransport rollback model[/]  to the version before\n\n"
    "[bold]cotransport rollback model --to 3[/]  to any version, earlier or later"
)
def rollback(
    model: Model,
    to: Annotated[int | None, typer.Option(help="A version.", show_default="the parent of the current one")] = None,
    as_json: AsJson = False,
) -> None:
    """Make another version current. No version is removed."""
    from cotransport.lessons.information import rollback as go_back

    before, now = go_back(model, to)
    if as_json:
        print_json({"before": before, "current": now})
        return
    if before == now:
        out.print(f"version {now} is current already")
        return
    out.print(f"version {now} is current now; to undo: {rollback_command(model, before)}", soft_wrap=True)


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


@app.command(epilog="Example: [bold]cotransport prune model --keep 3[/]")
def prune(
    model: Model,
    keep: Annotated[int, typer.Option(help="Number of versions to keep, newest first.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Remove old versions, to free disk space. The current version is always kept."""
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


@app.command(epilog="Example: [bold]cotransport export model --onnx model.onnx[/]")
def export(
    model: Model,
    onnx: Annotated[Path, typer.Option(help="The file to write.", show_default=False)],
    version: Annotated[int | None, typer.Option(help="The version to use.", show_default="the current one")] = None,
) -> None:
    """Write a model as an ONNX file, to run it without this package.

    The file takes decoded images and gives probabilities. Its metadata has the class names and the pre-processing.
    """
    from cotransport.learner.onnx import export as write_onnx
    from cotransport.learner.prediction import Predictor
    from cotransport.learner.snapshots import restored
    from cotransport.model.store import ModelStore

    write_onnx(Predictor(*restored(ModelStore(model).read(version))), onnx)
    out.print(f"[bold]{markup(onnx)}[/]  {file_size(onnx.stat().st_size)}", soft_wrap=True)


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
