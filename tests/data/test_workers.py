from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from cotransport.data.decoding import Pixels
from cotransport.data.workers import AHEAD, MOST_WORKERS, PIECE, Request, decode_batches, default_workers


def numbered(index: int) -> Pixels:
    return np.full((4, 4, 3), index, np.uint8)


def requests(batches: int, images: int) -> list[list[Request]]:
    return [[(batch * images + number, 1.0) for number in range(images)] for batch in range(batches)]


def test_few_images_are_decoded_without_workers() -> None:
    assert default_workers(PIECE) == 0
    assert 1 <= default_workers(PIECE + 1) <= MOST_WORKERS


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_images_keep_their_order(workers: int) -> None:
    batches = list(decode_batches(numbered, 4, requests(10, PIECE + 3), workers))
    assert [int(square[0, 0, 0]) for batch in batches for square in batch] == list(range(10 * (PIECE + 3)))


def test_several_workers_share_a_batch() -> None:
    both = threading.Barrier(2)  # passed only if two threads wait for it at the same time

    def item(index: int) -> Pixels:
        if index % PIECE == 0:
            both.wait(timeout=20)
        return numbered(index)

    assert len(list(decode_batches(item, 4, requests(1, 2 * PIECE), 2))) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_no_more_is_decoded_than_some_batches_ahead(workers: int) -> None:
    asked = list[int]()

    def endless() -> object:
        while True:
            asked.append(len(asked))
            yield [(0, 1.0)]

    batches = decode_batches(numbered, 4, endless(), workers)  # type: ignore[arg-type]
    next(batches)
    assert len(asked) == (1 + AHEAD if workers else 1)
    batches.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_workers_do_not_keep_a_program_alive() -> None:
    """The program ends while the iterator is still alive."""
    script = """
import numpy as np
from cotransport.data.workers import decode_batches
squares = decode_batches(lambda index: np.zeros((4, 4, 3), np.uint8), 4, [[(i, 1.0)] for i in range(99)], 1)
next(squares)
raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 7
