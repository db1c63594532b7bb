from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cotransport.data import Shard
from cotransport.errors import ConfigError
from cotransport.settings.sections import Device
from cotransport.training.processes import check_device, chosen_precision, processes_for
from tests.helpers import CPU, run_python


def test_settings_start_their_processes_once() -> None:
    assert processes_for(Device(accelerator="cpu")) is processes_for(Device(accelerator="cpu"))


def test_one_process_decides_and_reduces_alone() -> None:
    alone, tensor = processes_for(CPU), torch.tensor([1.0, -2.0])
    assert (alone.count, alone.is_first, alone.shard) == (1, True, Shard(0, 1))
    assert alone.device == torch.device("cpu")
    assert alone.decide_once(lambda: "decided") == "decided"
    assert alone.broadcast("value") == "value"
    assert alone.largest(-3) == -3
    assert all(torch.equal(alone.reduce(tensor, by), tensor) for by in ("mean", "sum", "max"))
    alone.wait_for_all()
    alone.synchronise()


def test_an_error_of_the_decision_is_raised() -> None:
    def fail() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        processes_for(CPU).decide_once(fail)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)],
)
def test_networks_compute_in_the_chosen_precision(precision: str, dtype: torch.dtype) -> None:
    device = Device(accelerator="cpu", precision=precision)  # type: ignore[arg-type]
    with processes_for(device).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize(
    ("capabilities", "precision"),
    [({"avx512_bf16": True}, "bf16-mixed"), ({"amx_bf16": True}, "bf16-mixed"), ({"avx512_f": True}, "32-true")],
)
def test_the_fastest_precision_of_a_cpu_is_the_one_it_has_instructions_for(
    capabilities: dict[str, bool], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert chosen_precision(Device(accelerator="cpu", precision="fastest")) == precision
    assert chosen_precision(Device(accelerator="cpu", precision="fastest", processes=2)) == precision
    assert chosen_precision(Device(accelerator="cpu")) == "32-true"
    assert chosen_precision(Device(accelerator="cpu", precision="64-true")) == "64-true"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("check", [processes_for, check_device])
def test_a_device_that_the_machine_does_not_have(check: object) -> None:
    with pytest.raises(ConfigError, match=r"device: .*accelerator: cpu"):
        check(Device(accelerator="cuda"))  # type: ignore[operator]


def test_checking_a_device_starts_no_process() -> None:
    check_device(CPU)
    check_device(Device(accelerator="cpu", processes=2))


def test_one_process_on_a_cpu_predicts_without_lightning() -> None:
    """Importing Fabric takes more than a second. A training needs it, a prediction does not."""
    script = """
import sys, torch
from cotransport.data import PixelImages
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Device
from cotransport.training.inference import outputs
from cotransport.training.processes import check_device, processes_for
device, head = Device(accelerator="cpu"), CosineHead(12, 10.0)
head.grow(2)
check_device(device)
network = Network(torch.nn.Flatten(), head, torch.zeros(3), torch.ones(3))
outputs(network, PixelImages(torch.zeros(4, 2, 2, 3, dtype=torch.uint8)), device)
print("lightning_fabric" in sys.modules)
processes_for(device).fabric
print("lightning_fabric" in sys.modules)
"""
    assert run_python("-c", script).split() == ["False", "True"]


@pytest.mark.processes
def test_two_processes_agree(tmp_path: Path) -> None:
    """Rank 0 has the values 1 and -1, rank 1 has the values 2 and -2."""
    run_python("-m", "tests.training.agreement", str(tmp_path))
    for rank in (0, 1):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found == {
            "shard": [rank, 2],
            "is_first": rank == 0,
            "decided": "by rank 0",
            "calls": 1 if rank == 0 else 0,
            "error": "ConfigError: from rank 0",
            "broadcast": "from rank 0",
            "largest": [2, -1],
            "sum": [3, -3],
            "mean": [1.5, -1.5],
            "max": [2, -1],
        }
