"""Whether two checkouts compute the same, to the last digit: for changes that must not change any result.

    python tests/identity.py record before.json --source ../other-checkout/src
    python tests/identity.py record after.json
    python tests/identity.py compare before.json after.json

`record` runs the digits demo, a short CIFAR-100 run (if COTRANSPORT_DATA has it) and three lessons into a model folder,
each on one thread, and writes down every number in their results except times. Only the command line and the files it
leaves are used, so the checkouts may be organised differently inside.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent
IGNORED = {"train_seconds", "images_per_second", "environment", "times", "made", "release", "description"}
"""Fields that may differ: times, the environment, and a recipe's description."""
RUNS: dict[str, list[str]] = {
    "digits": ["run", "digits"],
    "digits-ablation": ["run", "digits-ablation", "--set", "schedule.epochs=4"],
    "digits-retrospection": [
        *("run", "digits", "--set", "schedule.epochs=4", "--set", "stream.tasks=3"),
        *("--set", "methods=[icarl, bic, wa, coil]", "--set", "loss.label_smoothing=0.1"),
        *("--set", "methods.icarl.rt_weight=1", "--set", "methods.bic.rt_weight=1", "--set", "methods.wa.rt_weight=1"),
        *("--set", "methods.coil.rt_centres=exact", "--set", "methods.coil.rt_images=new"),
        *("--set", "methods.coil.centres=raw", "--set", "methods.coil.distil_over=all"),
    ],
}
CIFAR = [
    *("run", "cifar100-b0-10-fast", "--set", "stream.subset=15", "--set", "stream.tasks=3"),
    *("--set", "schedule.epochs=2", "--set", "memory.total=200", "--set", "methods=[replay, coil, coil-tuned]"),
]
LESSONS: list[list[str]] = [
    ["first", "--epochs", "6"],
    ["second", "--epochs", "6"],
    ["third", "--epochs", "4", "--method", "coil", "--max-forgetting", "0"],
]


def main() -> None:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record")
    record.add_argument("file", type=Path)
    record.add_argument("--source", type=Path, default=ROOT / "src", help="the src folder of a checkout")
    compare = commands.add_parser("compare")
    compare.add_argument("files", type=Path, nargs=2)
    arguments = parser.parse_args()
    if arguments.command == "record":
        with tempfile.TemporaryDirectory() as scratch:
            found = recorded(arguments.source.resolve(), Path(scratch))
        arguments.file.write_text(json.dumps(found, indent=1, sort_keys=True))
        return
    before, after = (json.loads(file.read_text()) for file in arguments.files)
    differences = list(differing(before, after, ""))
    for place in differences[:20]:
        print(place)
    print(f"{len(differences)} differences" if differences else f"identical: {', '.join(before)}")
    sys.exit(bool(differences))


def recorded(source: Path, scratch: Path) -> dict[str, Any]:
    """All results of one checkout."""
    runs = dict(RUNS)
    if (Path(os.environ.get("COTRANSPORT_DATA", "")) / "cifar100").is_dir():
        runs["cifar100"] = CIFAR
    found: dict[str, Any] = {}
    for name, words in runs.items():
        out = scratch / name
        run(source, *words, "--set", "device.threads=1", "--out", str(out))
        found[name] = {path.parent.name: result(path) for path in sorted(out.glob("*/result.json"))}
        found[name]["summary"] = summary(out / "summary.csv")
    found["lessons"] = lessons(source, scratch)
    return found


def lessons(source: Path, scratch: Path) -> dict[str, Any]:
    """What three lessons leave in a model folder, and what it then says of unseen images."""
    digits, model = scratch / "images", scratch / "model"
    run(source, "example-data", str(digits))
    for folder, *options in LESSONS:
        lesson = ("learn", str(model), str(digits / folder), *options)
        run(source, *lesson, "--set", "device.threads=1", allowed={0, 3})
    found: dict[str, Any] = {}
    for version in sorted((model / "versions").iterdir()):
        tensors = load_file(version / "weights.safetensors")
        found[version.name] = {
            "weights": {name: digest(tensor.numpy().tobytes()) for name, tensor in sorted(tensors.items())},
            "model": comparable(json.loads((version / "model.json").read_text())),
            "accuracy": json.loads((version / "metrics.json").read_text())["per_class"],
        }
    answers = run(source, "predict", str(model), str(digits / "unseen"), "--json", "--top", "3")
    found["predictions"] = [json.loads(line)["predictions"] for line in answers.splitlines()]
    return found


def run(source: Path, *words: str, allowed: frozenset[int] | set[int] = frozenset({0})) -> str:
    """Run the command of a checkout and return what it prints."""
    command = [sys.executable, "-c", "from cotransport.cli.main import main; main()", *words]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
    print(f"done: {' '.join(words[:3])}", flush=True)
    return done.stdout


def result(path: Path) -> Any:
    """The comparable part of a run's result."""
    return comparable(json.loads(path.read_text()))


def summary(path: Path) -> list[str]:
    """A summary table without the columns of times."""
    lines = [line.split(",") for line in path.read_text().splitlines()]
    kept = [place for place, name in enumerate(lines[0]) if "seconds" not in name]
    return [",".join(line[place] for place in kept) for line in lines]


def comparable(value: Any) -> Any:
    """A JSON value without the fields that may differ."""
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items() if key not in IGNORED}
    return [comparable(inner) for inner in value] if isinstance(value, list) else value


def digest(data: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def differing(before: Any, after: Any, place: str) -> Any:
    """The places at which two JSON values differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differing(before.get(key), after.get(key), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differing(one, other, f"{place}/{number}")
    elif before != after:
        yield f"{place}: {str(before)[:60]} != {str(after)[:60]}"


if __name__ == "__main__":
    main()
