"""Real processes are killed at random moments, many times. They end with the same results as undisturbed ones."""

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

from cotransport import IncrementalClassifier
from cotransport.data.fingerprint import image_digest
from cotransport.lessons.image_removal import remove_images
from cotransport.lessons.information import describe
from cotransport.lessons.options import LessonOptions
from cotransport.lessons.ownership import check
from cotransport.lessons.teaching import learn
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Budget, Device
from cotransport.training.feature_cache import digests_of
from tests.conftest import blobs, classifier
from tests.experiments.helpers import comparable, run_digits
from tests.lessons.helpers import write

pytestmark = [
    pytest.mark.killed,
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="processes are started by forking, to be quick"
    ),
]
KILLS = 20
LONGEST_SECONDS = 120.0
"""Time that the last process may take, which is not killed."""


def seconds(target: Callable[..., None], *arguments: object) -> float:
    """The time that a function takes."""
    started = time.perf_counter()
    target(*arguments)
    return time.perf_counter() - started


def kill_often(target: Callable[..., None], *arguments: object, seed: int, longest: float) -> int:
    """Run a function in processes that are killed at random times, until one finishes; returns the number of kills."""
    context, moments = multiprocessing.get_context("fork"), random.Random(seed)
    kills = 0
    while True:
        process = context.Process(target=target, args=arguments)
        process.start()
        if kills < KILLS:
            process.join(moments.uniform(longest / 20, longest))
        else:
            process.join(LONGEST_SECONDS)
        if not process.is_alive():
            assert process.exitcode == 0
            return kills
        process.kill()
        process.join()
        kills += 1


def small_run(out: Path, method: str) -> None:
    settings = ("stream={subset: 6, tasks: 3}", "schedule.epochs=2", "device.checkpoint_seconds=0")
    run_digits(*settings, f"methods=[{method}]", out=out, resume=True)


def outcome(out: Path) -> dict[str, Any]:
    """A run's result without times."""
    (path,) = out.glob("*/result.json")
    return comparable(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("method", ["coil", "bic", "oracle"])
def test_a_killed_run_ends_like_an_undisturbed_one(method: str, tmp_path: Path) -> None:
    took = seconds(small_run, tmp_path / "whole", method)
    kills = kill_often(small_run, tmp_path / "killed", method, seed=len(method), longest=took / 4)
    assert kills > 3
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")
    (folder,) = (tmp_path / "killed").iterdir()
    assert [path.name for path in folder.iterdir()] == ["result.json"]


def write_lessons(folder: Path) -> list[Path]:
    """Three lessons of two classes in image files."""
    return [write(blobs(2, 20, first=2 * number, seed=number), folder / str(number)) for number in range(3)]


def small_lessons(model: Path, lessons: list[Path]) -> None:
    """Learn all lessons, as a script does that is started again: the last finished one is repeated."""
    chosen = {"backbone": "resnet8", "memory": {"per_class": 5}, "schedule": {"epochs": 3, "batch_size": 16}}
    options = LessonOptions(chosen, device=Device(accelerator="cpu", checkpoint_seconds=0))
    known = describe(model)["classes"] if (model / "manifest.json").exists() else []
    for lesson in lessons[max(0, len(known) // 2 - 1) :]:
        learn(model, str(lesson), options)


def hashes(model: Path) -> dict[str, str]:
    """Checksums of everything in a model folder, without times."""
    found = {}
    for path in sorted(model.rglob("*.*")):
        if path.name == "metrics.json":
            metrics = json.loads(path.read_text())
            metrics.pop("times")
            found[str(path.relative_to(model))] = json.dumps(metrics)
        elif path.suffix in {".safetensors", ".parquet"} or path.name == "model.json":
            found[str(path.relative_to(model))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_a_model_with_killed_lessons_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    lessons = write_lessons(tmp_path / "lessons")
    took = seconds(small_lessons, tmp_path / "whole", lessons)
    kills = kill_often(small_lessons, tmp_path / "killed", lessons, seed=1, longest=took / 4)
    assert kills > 3
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "whole")
    assert len(hashes(tmp_path / "whole")) == 3 * 4
    leftovers = [path.name for path in (tmp_path / "killed").iterdir()]
    assert sorted(leftovers) == [".lock", "images", "manifest.json", "versions"]


def test_a_reader_never_sees_half_a_version(tmp_path: Path) -> None:
    """A writer is killed again and again. Everything that is read meanwhile is whole."""
    lessons = write_lessons(tmp_path / "lessons")
    model = tmp_path / "model"
    learn(model, str(lessons[0]), LessonOptions({"backbone": "resnet8", "schedule": {"epochs": 1}}))
    context, moments = multiprocessing.get_context("fork"), random.Random(2)
    for _ in range(KILLS):
        before, reads = len(ModelStore(model).manifest().versions), moments.randint(1, 5)
        writer = context.Process(target=save_for_ever, args=(model,))
        writer.start()
        end = time.perf_counter() + LONGEST_SECONDS
        while reads:  # after the writer's first version, so that it is killed while it writes another one
            snapshot = ModelStore(model).read()
            assert len(snapshot.memory.exemplars) == 2
            reads -= len(ModelStore(model).manifest().versions) > before
            assert time.perf_counter() < end
        writer.kill()
        writer.join()


def test_a_killed_removal_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    model, context, moments = tmp_path / "model", multiprocessing.get_context("fork"), random.Random(3)
    clf = classifier("replay", memory=Budget(per_class=KILLS))
    for number in range(2):
        clf.learn(blobs(2, KILLS, first=2 * number, seed=number)).save(model)
    images = clf.state_.memory.exemplars[0]
    digests = [image_digest(images.item(index)) for index in range(KILLS)]
    longest = 2 * seconds(remove_image, model, digests[0])
    outcomes = set()
    for digest in digests[1:]:
        process = context.Process(target=remove_image, args=(model, digest))
        process.start()
        process.join(moments.uniform(0, longest))
        process.kill()
        process.join()
        assert check(model) == []
        stored = [digest in digests_of(ModelStore(model).read(version).memory.exemplars[0]) for version in (1, 2)]
        assert stored in ([True, True], [False, False])
        outcomes.add(stored[0])
        longest *= 1.3 if stored[0] else 0.8  # so that both happen, however busy the machine is
        if stored[0]:
            remove_image(model, digest)
    assert outcomes == {True, False}
    assert [len(ModelStore(model).read(version).memory.exemplars[0]) for version in (1, 2)] == [0, 0]


def remove_image(model: Path, digest: bytes) -> None:
    remove_images(model, [digest.hex()])


def save_for_ever(model: Path) -> None:
    classifier = IncrementalClassifier.load(model)
    while True:
        classifier.save(model)
