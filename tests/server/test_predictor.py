"""Requests that are answered together, and the version that answers them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cotransport.errors import ModelError
from cotransport.lessons.information import rollback
from cotransport.lessons.ownership import prune
from cotransport.server import predictor
from cotransport.server.failures import RefusedError
from cotransport.server.predictor import Batcher, CurrentVersion
from tests.server.helpers import images

PHOTOS = [file for files in images(4, 3).values() for file in files]


def answers_of(batcher: Batcher, *requests: slice) -> Any:
    """The answers to requests that arrive at the same time."""

    async def ask() -> Any:
        working = asyncio.create_task(batcher.run())
        try:
            asked = (batcher.predict(PHOTOS[places], top=number + 1) for number, places in enumerate(requests))
            return await asyncio.gather(*asked, return_exceptions=True)
        finally:
            working.cancel()

    return ask()


def test_requests_that_arrive_together_are_one_batch_and_get_their_own_answers(model: Path) -> None:
    async def run() -> None:
        batcher = Batcher(CurrentVersion(model))
        alone = [(await answers_of(Batcher(CurrentVersion(model)), slice(n, n + 1)))[0] for n in range(5)]
        found = await answers_of(batcher, slice(0, 1), slice(1, 4), slice(4, 5))
        assert batcher.batches == 1
        assert [len(one.predictions) for one in found] == [1, 3, 1]
        assert [len(one.predictions[0].classes) for one in found] == [1, 2, 3]
        together = [one for answer in found for one in answer.predictions]
        for one, other in zip(together, alone, strict=True):
            assert one.path == other.predictions[0].path
            assert one.classes[0][0] == other.predictions[0].classes[0][0]
            assert one.classes[0][1] == pytest.approx(other.predictions[0].classes[0][1], abs=1e-6)

    asyncio.run(run())


def test_large_batches_are_divided(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "MOST_TOGETHER", 4)

    async def run() -> None:
        batcher = Batcher(CurrentVersion(model))
        await answers_of(batcher, slice(0, 3), slice(3, 4), slice(4, 11), slice(0, 1))
        assert batcher.batches == 3  # 3 + 1, 7, 1

    asyncio.run(run())


def test_an_error_reaches_every_request_of_its_batch_and_no_other(tmp_path: Path, model: Path) -> None:
    async def run() -> None:
        found = await answers_of(Batcher(CurrentVersion(tmp_path / "none")), slice(0, 1), slice(1, 2))
        assert [type(one) for one in found] == [RefusedError, RefusedError]
        assert found[0].status == 409

    asyncio.run(run())


def test_a_request_that_is_given_up_does_not_stop_the_others(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is held up until the client of one of its requests has gone."""
    gone, original = threading.Event(), predictor.predict_files

    def held_up(*arguments: Any) -> Any:
        assert gone.wait(30)
        return original(*arguments)

    monkeypatch.setattr(predictor, "predict_files", held_up)

    async def run() -> None:
        batcher = Batcher(CurrentVersion(model))
        working = asyncio.create_task(batcher.run())
        first, second = (asyncio.create_task(batcher.predict(PHOTOS[:1], 1)) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        gone.set()
        assert len((await second).predictions) == 1
        working.cancel()

    asyncio.run(run())


def test_the_current_version_is_loaded_once_and_again_when_it_changes(model: Path) -> None:
    current = CurrentVersion(model)
    first = current.get()
    assert current.get() is first
    assert first.record.number == 2
    rollback(model)
    second = current.get()
    assert second.record.number == 1
    assert second.threshold is not None
    rollback(model, to=1)  # the manifest is replaced, and names the same version
    assert current.get() is second
    prune(model, keep=1)
    assert current.get().record.number == 1


def test_a_damaged_version_is_an_error(model: Path) -> None:
    (model / "versions" / "0002" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="damaged"):
        CurrentVersion(model).get()
