"""Started by `test_processes.py`: two processes write what they agree on to OUT/<rank>.json.

python -m tests.training.agreement OUT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from cotransport.errors import ConfigError
from cotransport.settings.sections import Device
from cotransport.training.processes import processes_for


def main(out: Path) -> None:
    """Call everything that needs the other process."""
    processes = processes_for(Device(accelerator="cpu", processes=2))
    rank, calls = processes.shard.rank, list[int]()
    values = torch.tensor([1.0, -1.0]) * (rank + 1)

    def decide() -> str:
        calls.append(rank)
        return f"by rank {rank}"

    def fail() -> None:
        raise ConfigError(f"from rank {rank}")

    found: dict[str, object] = {
        "shard": [rank, processes.shard.processes],
        "is_first": processes.is_first,
        "decided": processes.decide_once(decide),
        "calls": len(calls),
        "broadcast": processes.broadcast(f"from rank {rank}"),
        "largest": [processes.largest(rank + 1), processes.largest(-rank - 1)],
        "sum": processes.reduce(values.clone(), "sum").tolist(),
        "mean": processes.reduce(values.clone(), "mean").tolist(),
        "max": processes.reduce(values.clone(), "max").tolist(),
    }
    try:
        processes.decide_once(fail)
    except ConfigError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    processes.wait_for_all()
    (out / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
