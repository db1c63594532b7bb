"""The commands under test: those that change a model, and a run of an experiment."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

CPU = Device(accelerator="cpu", checkpoint_seconds=0)
OPTIONS = LessonOptions(
    {"backbone": "resnet8", "memory": {"per_class": 3}, "schedule": {"epochs": 2, "batch_size": 16}}, device=CPU
)


@dataclass(frozen=True)
class Action:
    """A command on a folder, and what must hold whatever fault it meets."""

    name: str
    act: Callable[[Path], object]
    """The command. Its folder is named `work`; lessons are in `lessons` beside it."""
    outcome: Callable[[Path], Any]
    """What is in the folder, without times: the same with a fault as without."""
    check: Callable[[Path], None]
    """Raises an error unless the folder is whole, as it was before the command or as it is after it."""


def make_start(folder: Path) -> None:
    """A model with two lessons, the images of a third, and an empty place for a run."""
    for number in range(3):
        write(blobs(2, 8, first=2 * number, seed=number), folder / "lessons" / str(number))
    for number in range(2):
        learn(folder / "work", folder / "lessons" / str(number), OPTIONS)


def copy_of(start: Path, place: Path) -> Path:
    """A fresh copy of the start."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)
    return place


def files(folder: Path) -> dict[str, str]:
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


def check_model(place: Path) -> None:
    """Raise an error unless every version of a model is whole, and the current one can be used."""
    model = place / "work"
    wrong = check(model)
    if wrong:
        raise AssertionError(f"check: {wrong}")
    snapshot = ModelStore(model).read()
    _ = snapshot.memory.exemplars, snapshot.held_out.exemplars


def run_outcome(place: Path) -> dict[str, Any]:
    """The results of a run, and the names of its files."""
    folder = place / "run"
    results = {str(path): comparable(json.loads(path.read_text())) for path in sorted(folder.glob("*/result.json"))}
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    return {"results": list(results.values()), "files": names}


def run(place: Path) -> None:
    """A short run of an experiment, resumed if it was started."""
    settings = ("stream={subset: 4, tasks: 2}", "methods=[coil]", "schedule.batch_size=128")
    run_digits(*settings, "device.checkpoint_seconds=0", out=place / "run", resume=True)


def _remove_first_image(place: Path) -> None:
    first = list_images(place / "work")[0]
    remove_images(place / "work", [first.id])


def _on_model(name: str, act: Callable[[Path], object]) -> Action:
    return Action(name, act, lambda place: files(place / "work"), check_model)


ACTIONS = (
    _on_model("learn", lambda place: learn(place / "work", place / "lessons" / "2", OPTIONS)),
    Action("run", run, run_outcome, lambda place: None),
    _on_model("remove", lambda place: remove(place / "work", "class 0", device=CPU)),
    _on_model("remove-image", _remove_first_image),
    _on_model("rename", lambda place: rename(place / "work", "class 0", "zero")),
    _on_model("prune", lambda place: prune(place / "work", 1)),
    _on_model("rollback", lambda place: rollback(place / "work", 1)),
)
