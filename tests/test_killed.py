"""Real processes killed at random moments, many times: what they end with is what an undisturbed one ends with."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cotransport.experiments import run as experiment
from cotransport.experiments.recipe import load_recipe
from cotransport.lessons import lesson as production
from cotransport.lessons.lesson import Wishes
from cotransport.settings.sections import Device
from tests.conftest import blobs
from tests.experiments.test_run import Quiet
from tests.lessons.test_lesson import write

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are started by forking, to be quick"
)
KILLS = 20
SLOWEST = 120.0
"""Seconds that an undisturbed end may take, at most."""


def seconds(target: Callable[..., None], *arguments: object) -> float:
    """How long a function takes."""
    begun = time.perf_counter()
    target(*arguments)
    return time.perf_counter() - begun


def killed_often(target: Callable[..., None], *arguments: object, seed: int, longest: float) -> int:
    """Run a function in processes that are killed after random times until it has come to its end; how many were."""
    context, moments = multiprocessing.get_context("fork"), random.Random(seed)
    kills = 0
    while True:
        process = context.Process(target=target, args=arguments)
        process.start()
        if kills < KILLS:
            process.join(moments.uniform(longest / 20, longest))
        else:
            process.join(SLOWEST)
        if not process.is_alive():
            assert process.exitcode == 0
            return kills
        process.kill()
        process.join()
        kills += 1


def small_run(out: Path, method: str) -> None:
    settings = ["stream.subset=6", "stream.tasks=3", "schedule.epochs=2", "device.checkpoint_seconds=0"]
    recipe = load_recipe("digits", [*settings, "device.accelerator=cpu", f"methods=[{method}]"])
    experiment.run(recipe, out, resume=True, watcher=Quiet())


def outcome(out: Path) -> dict[str, Any]:
    """A run's result without times."""
    (path,) = out.glob("*/result.json")
    values: dict[str, Any] = json.loads(path.read_text())
    values.pop("environment")
    for step in values["steps"]:
        step.pop("train_seconds"), step.pop("images_per_second")
    return values


@pytest.mark.parametrize("method", ["coil", "bic", "oracle"])
def test_a_run_that_is_killed_ends_like_one_that_is_not(method: str, tmp_path: Path) -> None:
    took = seconds(small_run, tmp_path / "whole", method)
    kills = killed_often(small_run, tmp_path / "killed", method, seed=len(method), longest=took / 4)
    assert kills > 3
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    (folder,) = (tmp_path / "killed").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["epochs.json", "recipe.json", "result.json"]


def write_lessons(folder: Path) -> list[Path]:
    """Three lessons of two classes in image files."""
    return [write(blobs(2, 20, first=2 * number, seed=number), folder / str(number)) for number in range(3)]


def small_lessons(model: Path, lessons: list[Path]) -> None:
    """Every lesson once more from the first on, as a script would that is started again."""
    chosen = {"backbone": "resnet8", "memory": {"per_class": 5}, "schedule": {"epochs": 3, "batch_size": 16}}
    wishes = Wishes(chosen, device=Device(accelerator="cpu", checkpoint_seconds=0))
    learned = production.info(model)["classes"] if (model / "manifest.json").exists() else []
    for lesson in lessons[max(0, len(learned) // 2 - 1) :]:
        production.learn(model, str(lesson), wishes)


def hashes(model: Path) -> dict[str, str]:
    """Checksums of all that a model is, without times."""
    found = {}
    for path in sorted(model.rglob("*.*")):
        if path.name == "metrics.json":
            metrics = json.loads(path.read_text())
            metrics.pop("times")
            found[str(path.relative_to(model))] = json.dumps(metrics)
        elif path.suffix in {".safetensors", ".parquet"} or path.name == "model.json":
            found[str(path.relative_to(model))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_a_model_whose_lessons_are_killed_ends_like_one_whose_are_not(tmp_path: Path) -> None:
    lessons = write_lessons(tmp_path / "lessons")
    took = seconds(small_lessons, tmp_path / "whole", lessons)
    kills = killed_often(small_lessons, tmp_path / "killed", lessons, seed=1, longest=took / 4)
    assert kills > 3
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "whole")
    assert len(hashes(tmp_path / "whole")) == 3 * 4
    leftovers = [path.name for path in (tmp_path / "killed").iterdir()]
    assert sorted(leftovers) == [".lock", "images", "manifest.json", "versions"]


def test_a_reader_never_sees_half_a_version(tmp_path: Path) -> None:
    """While a writer is killed again and again, whatever is read is whole."""
    lessons = write_lessons(tmp_path / "lessons")
    model = tmp_path / "model"
    production.learn(model, str(lessons[0]), Wishes({"backbone": "resnet8", "schedule": {"epochs": 1}}))
    context = multiprocessing.get_context("fork")
    seen = set()
    for round_ in range(10 * KILLS):
        if round_ >= KILLS and len(seen) > 3:
            break
        writer = context.Process(target=_saves_for_ever, args=(model,))
        writer.start()
        end = time.perf_counter() + 0.15
        while time.perf_counter() < end:
            snapshot = production.ModelStore(model).read()
            seen.add(len(production.ModelStore(model).manifest().versions))
            assert len(snapshot.memory.exemplars) == 2
        writer.kill()
        writer.join()
    assert len(seen) > 3


def _saves_for_ever(model: Path) -> None:
    classifier = production.IncrementalClassifier.load(model)
    while True:
        classifier.save(model)
