"""Runs on streamed data: the same results as without streaming, and only one task's images on the disk."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from cotransport.data.decoding import Item
from cotransport.data.streaming import TemporaryImages
from cotransport.experiments.results import Result
from tests.data.test_hugging_face import hf_cache as hf_cache  # noqa: PLC0414 (a fixture)
from tests.data.test_hugging_face import parquet
from tests.experiments.helpers import StopsAfterTask, comparable, run_digits

pytestmark = pytest.mark.usefixtures("hf_cache")
SETTINGS = ("stream={step: 2}", "backbone={name: resnet8, width: 4}", "device.threads=1", "memory.total=12")


def noise(count: int, side: int, seed: int) -> datasets.Dataset:
    """Images of four classes, mixed, with a brightness that depends on the class."""
    random = np.random.RandomState(seed)
    labels = random.permutation(np.arange(count) % 4)
    pixels = [random.randint(50 * label, 50 * label + 100, (side, side, 3), dtype=np.uint8) for label in labels]
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=list("abcd"))})
    columns = {"img": [Image.fromarray(image) for image in pixels], "label": labels.tolist()}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(params=[pytest.param(8, marks=pytest.mark.slow, id="pixels"), pytest.param(72, id="encoded")])
def run_on(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., list[Result]]:
    """Run methods on a data set of small or large images."""
    folder = parquet(tmp_path / "noise", train=noise(32, request.param, 0), test=noise(16, request.param, 1))

    def run(methods: str, out: str, streaming: str = "true", **options: Any) -> list[Result]:
        data = (f"data.source={folder}", f"data.streaming={streaming}", f"methods=[{methods}]")
        return run_digits(*SETTINGS, *data, out=tmp_path / out, **options)

    return run


def without_streaming(result: Result) -> dict[str, Any]:
    values = comparable(result.model_dump())
    del values["recipe"]["data"]["streaming"]
    return values


def test_results_are_the_same_as_without_streaming(run_on: Callable[..., list[Result]]) -> None:
    streamed, mapped = run_on("coil, oracle", "streamed"), run_on("coil, oracle", "mapped", "false")
    assert [without_streaming(result) for result in streamed] == [without_streaming(result) for result in mapped]


@pytest.mark.parametrize("method", [pytest.param("icarl", marks=pytest.mark.slow), "oracle"])
def test_a_streamed_run_is_resumed(method: str, run_on: Callable[..., list[Result]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_on(method, "stopped", listener=StopsAfterTask())
    [resumed], [whole] = run_on(method, "stopped", resume=True), run_on(method, "whole")
    assert comparable(resumed.model_dump()) == comparable(whole.model_dump())


def test_images_of_earlier_tasks_are_not_kept(
    run_on: Callable[..., list[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: weakref.WeakSet[TemporaryImages] = weakref.WeakSet()
    counts = []
    create = TemporaryImages.__init__

    def recorded(self: TemporaryImages, items: Iterable[Item]) -> None:
        counts.append(len(alive))
        alive.add(self)
        create(self, items)

    monkeypatch.setattr(TemporaryImages, "__init__", recorded)
    run_on("replay, finetune", "run")
    assert len(counts) == 2 * 2 * 2  # methods, tasks, training and test
    assert counts[::2] == [0] * 4  # training images come first
    assert max(counts) <= 1
