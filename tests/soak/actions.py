"""The commands under test: those that change a model, and a run of an experiment."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cotransport.errors import ModelError
from cotransport.lessons.image_removal import remove_images
from cotransport.lessons.information import rollback
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.ownership import check, prune, rename
from cotransport.lessons.removal import remove
from cotransport.lessons.stored_images import list_images
from cotransport.lessons.teaching import learn
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Device
from tests.conftest import blobs
from tests.experiments.helpers import comparable, run_digits
from tests.lessons.helpers import write
from tests.soak.children import in_children

CPU = Device(accelerator="cpu", checkpoint_seconds=0)
OPTIONS = LessonOptions(
    {"backbone": "resnet8", "memory": {"per_class": 3}, "schedule": {"epochs": 2, "batch_size": 16}}, device=CPU
)
IMAGE = "image.txt"
"""File beside the model: the id of the image that `remove-image` removes."""


@dataclass(frozen=True)
class Action:
    """A command on a folder, and what must hold whatever fault it meets."""

    name: str
    act: Callable[[Path], object]
    """The command, in a folder with a model `work` and some `lessons`."""
    outcome: Callable[[Path], dict[str, Any]]
    """What is in the folder, without times: the same with a fault as without."""
    check: Callable[[Path], dict[str, Any]]
    """Facts about a folder that can be read at any time. Raises an error unless it is whole."""
    members: Callable[[Path], Sequence[Callable[[], object]]] | None = None
    """What each of several processes does; None if the command is a single process."""

    def processes(self, place: Path) -> Sequence[Callable[[], object]]:
        """What each process does."""
        return [partial(self.act, place)] if self.members is None else self.members(place)


def make_start(folder: Path) -> None:
    """A model with two lessons, the images of a third, and an empty place for a run."""
    for number in range(3):
        write(blobs(2, 8, first=2 * number, seed=number), folder / "lessons" / str(number))
    for number in range(2):
        learn(folder / "work", folder / "lessons" / str(number), OPTIONS)
    (folder / IMAGE).write_text(list_images(folder / "work")[0].id)


def copy_of(start: Path, place: Path) -> Path:
    """A fresh copy of the start."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)
    return place


def files(folder: Path) -> dict[str, Any]:
    """Every file in a model folder with its checksum. Times, and checksums of files with times, are left out."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(_without_times(path)).hexdigest() for path in found}


def _without_times(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix != ".json":
        return content
    try:
        values = json.loads(content)
    except ValueError:  # half a file, which the next writer removes
        return content
    for name in ("times", "checksum"):
        values.pop(name, None)
    for version in values.get("versions", []):
        version.pop("made")
        version["files"].pop("metrics.json")
    return json.dumps(values).encode()


def check_model(model: Path) -> dict[str, Any]:
    """The current version of a model, and the weights of all versions; nothing before its first lesson.

    Raises an error unless every version is whole, and the current one can be used.
    """
    store = ModelStore(model)
    if not store.exists:
        return {}
    wrong = check(model)
    if wrong:
        raise AssertionError(f"check: {wrong}")
    snapshot, manifest = store.read(), store.manifest()
    _ = snapshot.memory.exemplars, snapshot.held_out.exemplars
    weights = {str(one.number): one.files["weights.safetensors"].sha256 for one in manifest.versions}
    return {"current": manifest.current, **weights}


def run_outcome(place: Path) -> dict[str, Any]:
    """The results of a run, and the names of its files."""
    folder = place / "run"
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: comparable(json.loads(path.read_text())) if path.name == "result.json" else None
        for name, path in found.items()
    }


def check_run(place: Path) -> dict[str, Any]:
    """The results of a run. Raises an error unless they are whole."""
    return {name: result for name, result in run_outcome(place).items() if result is not None}


def run(place: Path) -> None:
    """A short run of an experiment, resumed if it was started."""
    settings = ("stream={subset: 4, tasks: 2}", "methods=[coil]", "schedule.batch_size=512")
    run_digits(*settings, "device.checkpoint_seconds=0", out=place / "run", resume=True)


def _learn(place: Path, model: str, lesson: int) -> None:
    """A lesson, under a name that is the same in every place."""
    os.chdir(place)
    learn(place / model, f"lessons/{lesson}", OPTIONS)


def _remove_image(place: Path) -> None:
    """Remove an image. If it is gone already, the command removes what an interrupted one has left, and refuses."""
    wanted = (place / IMAGE).read_text()
    try:
        remove_images(place / "work", [wanted])
    except ModelError:
        if wanted in {one.id for one in list_images(place / "work")}:
            raise


def _on_model(name: str, act: Callable[[Path], object], model: str = "work") -> Action:
    return Action(name, act, lambda place: files(place / model), lambda place: check_model(place / model))


LEARN = _on_model("learn", lambda place: _learn(place, "work", 2))
FIRST = _on_model("learn, first lesson", lambda place: _learn(place, "new", 0), "new")
RUN = Action("run", run, run_outcome, check_run)
CHANGES = (
    _on_model("remove", lambda place: remove(place / "work", "class 0", device=CPU)),
    _on_model("remove-image", _remove_image),
    _on_model("rename", lambda place: rename(place / "work", "class 0", "zero")),
    _on_model("prune", lambda place: prune(place / "work", 1)),
    _on_model("rollback", lambda place: rollback(place / "work", 1)),
)
ACTIONS = (LEARN, RUN, *CHANGES)


def trained_together(action: Action) -> Action:
    """A command that trains in two processes, which are started as torchrun starts them."""

    def members(place: Path) -> Sequence[Callable[[], object]]:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port = found.getsockname()[1]

        def member(rank: int) -> None:
            sizes = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "soak"}
            os.environ.update({name: str(value) for name, value in (sizes | where).items()})
            action.act(place)

        return [partial(member, rank) for rank in range(2)]

    def act(place: Path) -> None:
        ended = in_children(members(place))
        if any(one.how != "done" for one in ended):
            raise AssertionError(f"in two processes: {ended}")

    return Action(f"{action.name}, two processes", act, action.outcome, action.check, members)


def given_twice(action: Action) -> Action:
    """A command that is given twice at the same time."""

    def members(place: Path) -> Sequence[Callable[[], object]]:
        return [partial(action.act, place)] * 2

    return Action(f"{action.name}, given twice at a time", action.act, action.outcome, action.check, members)


IN_TWO_PROCESSES = (trained_together(LEARN), trained_together(RUN), *map(given_twice, CHANGES))
