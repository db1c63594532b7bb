"""What a server adds to the forward pass: requests per second and latencies over loopback."""

from __future__ import annotations

import http.client
import io
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks import learning
from benchmarks.measure import Figure, in_turns, undisturbed
from cotransport import IncrementalClassifier

TOKEN = "benchmark"
CLIENTS = (1, 8, 64)
REQUESTS = 1200
"""Requests of each measurement, of all clients together."""
SIZE, CLASSES = 32, 10
BOUNDARY = "part"


def serving() -> Iterator[Figure]:
    """Requests with one image each, from clients that wait for an answer before they ask again."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        classifier = IncrementalClassifier("replay", "fast", schedule={"epochs": 1}, device=learning.DEVICE)
        classifier.learn(learning.noise(64, SIZE, CLASSES)).save(model)
        network = classifier.predictor()._network  # the copy that predicts
        body = _form(_picture())
        with _served(model) as (port, process):
            _ask(port, body, 50, [])  # warm
            for clients in CLIENTS:
                before = _processor_seconds(process)
                seconds, latencies = _load(port, body, clients)
                used = _processor_seconds(process) - before
                chunk = learning.fixed_batch(SIZE, CLASSES, clients).images
                times = max(1, 512 // clients)
                bare = in_turns({"bare": partial(learning.bare_forward, network, chunk, times)}, rounds=5)["bare"]
                ideal = clients * times / undisturbed(bare)
                reached = REQUESTS / seconds
                ordered = sorted(latencies)
                yield Figure(
                    "serving",
                    f"{clients} client{'s' * (clients > 1)}, {SIZE} x {SIZE} pixels, fast net",
                    reached,
                    "requests/s",
                    note=f"median {1000 * statistics.median(ordered):.1f} ms, 99 % within "
                    f"{1000 * ordered[int(0.99 * len(ordered))]:.1f} ms; {ideal:,.0f} images/s in the bare forward "
                    f"pass of {clients}, share {reached / ideal:.2f}; "
                    f"{1000 * used / REQUESTS:.1f} ms of processor time for a request",
                )


@contextmanager
def _served(model: Path) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: its port and its process id."""
    command = [sys.executable, "-m", "cotransport", "serve", str(model), "--port", "0", "--token", TOKEN]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r":(\d+)/", server.stdout.readline())
        assert found is not None
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(60)


def _processor_seconds(process: int) -> float:
    """The processor time of a process, as Linux reports it; NaN elsewhere."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _load(port: int, body: bytes, clients: int) -> tuple[float, list[float]]:
    """The seconds that all requests take, and the latency of each."""
    latencies: list[float] = []
    threads = [threading.Thread(target=_ask, args=(port, body, REQUESTS // clients, latencies)) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    assert len(latencies) == REQUESTS // clients * clients
    return seconds * REQUESTS / len(latencies), latencies


def _ask(port: int, body: bytes, times: int, latencies: list[float]) -> None:
    """Ask again and again over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    for _ in range(times):
        started = time.perf_counter()
        connection.request("POST", "/api/predict?top=1", body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        latencies.append(time.perf_counter() - started)
    connection.close()


def _picture() -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _form(picture: bytes) -> bytes:
    """A form with one file."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    return head.encode() + picture + f"\r\n--{BOUNDARY}--\r\n".encode()
