"""The current version in memory, and predictions for several requests at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cotransport.data.decoding import Encoded
from cotransport.errors import ModelError
from cotransport.learner.prediction import Prediction, Predictor, predict_files
from cotransport.learner.snapshots import restored
from cotransport.lessons.information import answer_threshold
from cotransport.model.folder import MANIFEST
from cotransport.model.manifest import VersionRecord
from cotransport.model.store import ModelStore
from cotransport.server.failures import RefusedError

AT_LEAST = 0.95
"""Share of right answers that the threshold for `unknown` aims at."""
MOST_WAITING = 256
"""Largest number of requests that wait for an answer."""
MOST_TOGETHER = 256
"""Largest number of files that are predicted together, unless one request has more."""
NOTHING_LEARNED = "the model knows no class yet. Teach it one first"


class LoadedVersion(NamedTuple):
    """A version in memory."""

    record: VersionRecord
    predictor: Predictor
    threshold: float | None
    """The lowest probability of an answer that is not unknown; None if there are too few held-out images to say."""


class CurrentVersion:
    """The current version of a model. It follows the manifest, whoever changes it."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._seen: tuple[int, int, int] | None = None
        self._loaded: LoadedVersion | None = None

    def signature(self) -> tuple[int, int, int] | None:
        """A value that changes when the manifest is replaced; None if there is no manifest."""
        try:
            found = (self._model / MANIFEST).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def get(self) -> LoadedVersion:
        """The version that is current now. It is loaded if it has changed."""
        seen = self.signature()
        if seen is None:
            self._seen = self._loaded = None
            raise RefusedError(409, NOTHING_LEARNED)
        if self._loaded is None or seen != self._seen:
            try:
                self._loaded = self._load()
            except ModelError:  # versions may have been removed while it was read
                if self.signature() == seen:
                    raise
                return self.get()
            self._seen = seen
        return self._loaded

    def _load(self) -> LoadedVersion:
        store = ModelStore(self._model)
        manifest = store.manifest()
        if manifest.current is None:
            raise RefusedError(409, NOTHING_LEARNED)
        record = manifest.version(manifest.current)
        if self._loaded is not None and self._loaded.record == record:
            return self._loaded
        predictor = Predictor(*restored(store.read(record.number)))
        threshold = None
        with suppress(ModelError):
            threshold = answer_threshold(self._model, AT_LEAST, record.number).probability
        return LoadedVersion(record, predictor, threshold)


class Answer(NamedTuple):
    """Predictions for the files of one request, and the version that made them."""

    version: int
    threshold: float | None
    """The lowest probability of an answer that is not unknown."""
    predictions: list[Prediction]


class _Waiting(NamedTuple):
    files: list[Encoded]
    top: int
    answer: asyncio.Future[Answer]


class Batcher:
    """Answers requests in batches. Each batch has all requests that arrived during the one before."""

    def __init__(self, version: CurrentVersion) -> None:
        self._version = version
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "predict")
        self.batches = self.files = 0
        """What was predicted so far."""

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    async def predict(self, files: list[Encoded], top: int) -> Answer:
        """Predictions for these files."""
        if len(self._waiting) >= MOST_WAITING:
            raise RefusedError(429, "too many requests are waiting. Try again in a moment")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(files, top, answer))
        self._arrived.set()
        return await answer

    async def run(self) -> None:
        """Answer requests until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while batch := self._next_batch():
                    try:
                        answers = await loop.run_in_executor(self._thread, self._answers, batch)
                    except Exception as error:
                        for one in batch:
                            if not one.answer.done():  # the client may have gone
                                one.answer.set_exception(error)
                        continue
                    for one, answer in zip(batch, answers, strict=True):
                        if not one.answer.done():
                            one.answer.set_result(answer)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].files) <= MOST_TOGETHER):
            one = self._waiting.popleft()
            if not one.answer.done():
                batch.append(one)
                count += len(one.files)
        return batch

    def _answers(self, batch: Sequence[_Waiting]) -> list[Answer]:
        """Predictions for all requests of a batch, by the version that is current when it starts."""
        record, predictor, threshold = self._version.get()
        files = [file for one in batch for file in one.files]
        predictions = predict_files(predictor, files, max(one.top for one in batch), threshold)
        answers = [
            Answer(
                record.number,
                threshold,
                [found._replace(classes=found.classes[: one.top]) for found in islice(predictions, len(one.files))],
            )
            for one in batch
        ]
        self.batches += 1
        self.files += len(files)
        return answers
