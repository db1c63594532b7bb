"""Memory and disk of a run, with and without streaming: `python -m benchmarks.streaming [--images N] [--classes N]`.

The data set is synthetic: noise in parquet files, which does not compress, so a file is as large as its pixels. Linux
only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np

from cotransport.data.decoding import png
from cotransport.experiments.results import RESULT, Result

SIDE = 128
"""Side of the images in pixels. A file has 48 KiB."""
PER_FILE = 1000
"""Images of a parquet file."""
POLL = 0.1
"""Seconds between two looks at the process."""


class Peak(NamedTuple):
    """The largest values during a run, in MiB."""

    memory: float
    """Anonymous memory: pages of mapped files, which the system can drop, do not count."""
    disk: float
    """The library's cache and temporary files, beside the data set itself."""


def write_noise(folder: Path, split: str, images: int, classes: int) -> None:
    """Write a split of noise, with mixed classes."""
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=[f"class {n}" for n in range(classes)])}
    )
    random = np.random.RandomState(images)
    for number in range(0, images, PER_FILE):
        labels = [place % classes for place in range(number, min(number + PER_FILE, images))]
        pixels = (random.randint(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in labels)
        columns = {"image": [{"bytes": png(image), "path": None} for image in pixels], "label": labels}
        table = datasets.Dataset.from_dict(columns, features=features)
        table.to_parquet(folder / f"{split}-{number // PER_FILE:05d}.parquet", batch_size=100)


def peak_of(command: list[str], cache: Path, folder: Path) -> Peak:
    """Run a command, and watch its memory and disk.

    cache : folder of the library's copies.
    folder : folder of temporary files.
    """
    variables = os.environ | {"HF_DATASETS_CACHE": str(cache), "TMPDIR": str(folder)}
    memory = disk = 0.0
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            try:
                memory = max(memory, _anonymous(process.pid))
                disk = max(disk, (_size_below(cache) + _deleted_files(process.pid)) / 2**20)
            except OSError:  # a file was removed, or the process has ended
                pass
            time.sleep(POLL)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Peak(memory, disk)


def _anonymous(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


def _size_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _deleted_files(pid: int) -> int:
    """Bytes of the temporary files that a process has open. They have no name any more."""
    opened = Path(f"/proc/{pid}/fd").iterdir()
    return sum(file.stat().st_size for file in opened if str(file.readlink()).endswith(" (deleted)"))


def main() -> None:
    """Measure and print both runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--classes", type=int, default=20)
    arguments = parser.parse_args()
    overrides = ["stream={tasks: 10}", "data.image_size=72", "methods=[replay]", "seeds=[1]", "memory.total=100"]
    overrides += ["backbone={name: resnet8, width: 4}", "schedule.epochs=1", "device={accelerator: cpu, threads: 1}"]
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "noise").mkdir()
        write_noise(folder / "noise", "train", arguments.images, arguments.classes)
        write_noise(folder / "noise", "test", arguments.images // 10, arguments.classes)
        print(f"data set: {_size_below(folder / 'noise') / 2**20:,.0f} MiB", flush=True)
        for streaming in ("false", "true"):
            out = folder / f"run-{streaming}"
            words = [f"data.source={folder / 'noise'}", f"data.streaming={streaming}", *overrides]
            command = [sys.executable, "-m", "cotransport", "run", "digits", "--quiet", "--out", str(out)]
            command += [word for override in words for word in ("--set", override)]
            started = time.perf_counter()
            peak = peak_of(command, folder / f"cache-{streaming}", folder)
            seconds = time.perf_counter() - started
            results.append(Result.load(out / "replay-seed1" / RESULT))
            print(
                f"streaming={streaming}: {peak.disk:,.0f} MiB of disk, {peak.memory:,.0f} MiB of memory, "
                f"{seconds:.0f} s",
                flush=True,
            )
    mapped, streamed = ([step.top1 for step in result.steps] for result in results)
    print("accuracies are equal" if mapped == streamed else f"accuracies differ: {mapped}, {streamed}")
    print("commit", results[0].environment["commit"])


if __name__ == "__main__":
    main()
