"""Training on several machines: two torchrun agents on this one, with two processes each, and Lightning's own way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cotransport.errors import ConfigError
from cotransport.settings.sections import Device
from cotransport.training.processes import as_launched
from tests.experiments.helpers import comparable
from tests.helpers import run_python

ROOT = Path(__file__).parent.parent.parent
SETTINGS = (
    "stream={step: 2, subset: 5}",
    "schedule={epochs: 2, batch_size: 32}",
    "methods=[coil]",
    "device.accelerator=cpu",
    "device.checkpoint_seconds=0",
)
WORDS = ["cotransport", "run", "digits", *(word for setting in SETTINGS for word in ("--set", setting))]
LONGEST_SECONDS = 180


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of one of four processes on two machines."""
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("torchrun")
def test_torchrun_gives_the_numbers_of_processes_and_machines() -> None:
    for device in (Device(), Device(processes=2, nodes=2)):
        launched = as_launched(device)
        assert (launched.processes, launched.nodes) == (2, 2)
    with pytest.raises(ConfigError, match=r"torchrun started 2 processes on each of 2 machines.*3 on each of 1"):
        as_launched(Device(processes=3))


def test_without_torchrun_the_settings_give_them() -> None:
    assert as_launched(Device(processes=3)) == Device(processes=3)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def agents(*module: str) -> list[subprocess.Popen[str]]:
    """Two torchrun agents, each with two processes."""
    port = free_port()
    where = ["--master-addr", "127.0.0.1", "--master-port", str(port), "--nnodes", "2", "--nproc-per-node", "2"]
    return [
        started("-m", "torch.distributed.run", *where, "--node-rank", str(node), "-m", *module) for node in range(2)
    ]


def started(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def printed(processes: list[subprocess.Popen[str]]) -> list[str]:
    """What processes print until they end; none may fail."""
    found = [process.communicate(timeout=LONGEST_SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], found
    return found


def result(out: Path) -> dict[str, Any]:
    return comparable(json.loads((out / "coil-seed1" / "result.json").read_text(encoding="utf-8")))


@pytest.mark.processes
def test_four_processes_of_two_agents_learn_what_one_process_learns(tmp_path: Path) -> None:
    four, one = tmp_path / "four", tmp_path / "one"
    four.mkdir(), one.mkdir()
    running = agents("tests.methods.two_processes", str(four), "1", "coil")
    run_python("-m", "tests.methods.two_processes", str(one), "1", "coil")
    printed(running)
    ranks = [torch.load(four / f"1-{rank}.pt") for rank in range(4)]
    alone = torch.load(one / "1-0.pt")
    for key, tensors in ranks[0].items():
        for other in ranks[1:]:
            assert all(torch.equal(value, other[key][name]) for name, value in tensors.items()), key
    for name, value in alone["coil", "plain"].items():
        if not name.startswith("exemplars"):  # the last digits of weights differ, so other exemplars may be chosen
            torch.testing.assert_close(value, ranks[0]["coil", "plain"][name], rtol=1e-3, atol=1e-4)
    assert torch.equal(alone["given", "weights"]["exemplars"], ranks[0]["given", "weights"]["exemplars"])


@pytest.mark.killed
@pytest.mark.processes
def test_a_killed_agent_is_resumed_to_the_same_result_up_to_rounding(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    said = printed(agents(*WORDS, "--out", str(whole)))
    assert said[0].count("task 3/3: ") == 1
    assert "task" not in said[1]
    environment = json.loads((whole / "coil-seed1" / "result.json").read_text(encoding="utf-8"))["environment"]
    assert environment["processes"] == 4
    running = agents(*WORDS, "--out", str(killed))
    end = time.monotonic() + LONGEST_SECONDS
    while not list(killed.glob("coil-seed1/unfinished/*/training-*")):
        assert time.monotonic() < end
        time.sleep(0.02)
    running[1].send_signal(signal.SIGKILL)
    assert "Start all of them again with --resume" in running[0].communicate(timeout=LONGEST_SECONDS)[0]
    assert running[0].returncode != 0
    assert not (killed / "coil-seed1" / "result.json").exists()
    running[1].communicate()
    printed(agents(*WORDS, "--out", str(killed), "--resume"))
    found, expected = result(killed), result(whole)
    for step, other in zip(found["steps"], expected["steps"], strict=True):
        plans = [values.pop("transport") for values in (step, other)]
        if plans[0] is not None:  # the last digit may differ, by the order in which four processes add
            assert np.allclose(plans[0]["plan"], plans[1]["plan"], rtol=1e-6)
    assert found == expected


@pytest.mark.processes
def test_two_machines_in_lightnings_own_way(tmp_path: Path) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = ["-m", *WORDS, "--set", "device.nodes=2", "--out", str(tmp_path)]
    said = printed([started(*words, **where, NODE_RANK=str(node)) for node in range(2)])
    assert said[0].count("task 3/3: ") == 1
    assert "task" not in said[1]
    values = json.loads((tmp_path / "coil-seed1" / "result.json").read_text(encoding="utf-8"))
    assert values["environment"]["processes"] == 2
