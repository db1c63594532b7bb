"""Several jobs on this machine: real processes, signals and failures."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from cotransport.engines import local
from cotransport.engines.local import MEMORY, gpu_groups, jobs_at_a_time
from tests.engines.helpers import RUNS, finished, results, started, stopped, wait_for, wait_for_jobs
from tests.experiments.helpers import quick_recipe

TWO = "methods=[replay, coil]"


@pytest.mark.parametrize(
    ("settings", "cores", "gibibytes", "jobs"),
    [
        ((TWO, "seeds=[1, 2]"), 8, 100, 4),  # no more than there are runs
        ((TWO, "seeds=[1, 2]"), 3, 100, 3),
        ((TWO, "seeds=[1, 2]", "device.threads=2"), 7, 100, 3),
        ((TWO, "seeds=[1, 2]", "device.processes=2"), 4, 100, 2),
        ((TWO, "seeds=[1, 2]"), 8, 6, 2),  # 2.5 GiB for each
        ((TWO, "seeds=[1, 2]"), 8, 1, 1),
    ],
)
def test_as_many_jobs_as_cores_and_memory_allow(
    settings: tuple[str, ...], cores: int, gibibytes: int, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "available_cores", lambda: cores)
    monkeypatch.setattr(local, "available_memory", lambda: gibibytes << 30)
    assert MEMORY == 2.5 * 2**30
    assert jobs_at_a_time([quick_recipe(*settings)]) == jobs


def test_gpus_are_divided_among_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 5)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_groups(1) == ["0", "1", "2", "3", "4"]
    assert gpu_groups(2) == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7")
    assert gpu_groups(1) == ["3", "GPU-7"]
    assert gpu_groups(4) == ["3,GPU-7"]


@pytest.mark.slow
def test_interrupted_jobs_resume_to_the_results_of_a_single_process(
    expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    process = started("--jobs", "2", out=tmp_path)
    records = [tmp_path / run / "unfinished" / "job.json" for run in RUNS]
    wait_for_jobs(tmp_path, process)
    code, printed = stopped(process, signal.SIGINT)
    assert code == 130, printed
    assert all(f"{run}: stopped" in printed for run in RUNS)
    assert "--jobs 2 --resume" in printed
    assert all(record.exists() for record in records)
    assert results(tmp_path) == {}
    code, printed = finished("--jobs", "2", "--resume", out=tmp_path)
    assert code == 0, printed
    assert results(tmp_path) == expected
    assert {path.name for path in (tmp_path / "jobs").iterdir()} == {"recipe.yaml", *(f"{run}.log" for run in RUNS)}
    assert (tmp_path / "report.html").exists()
    assert [path.name for path in (tmp_path / "coil-seed1").iterdir()] == ["result.json"]


@pytest.mark.slow
def test_a_failed_job_leaves_the_others_alone(expected: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    code, printed = finished("--engine", "local", "--jobs", "2", "--set", "methods.coil.pt_weight=1e38", out=tmp_path)
    assert code == 1, printed
    assert "1 job failed" in printed
    assert f"log: {tmp_path / 'jobs' / 'coil-seed1.log'}" in printed
    assert "coil-seed1: the loss is not finite" in printed
    assert "report: " in printed
    found = results(tmp_path)
    assert set(found) == {"replay-seed1"}
    assert found["replay-seed1"]["steps"] == expected["replay-seed1"]["steps"]


@pytest.mark.killed
def test_jobs_save_their_state_if_the_command_is_killed(tmp_path: Path) -> None:
    process = started("--jobs", "2", out=tmp_path)
    wait_for_jobs(tmp_path, process)
    process.kill()
    process.wait()
    logs = [tmp_path / "jobs" / f"{run}.log" for run in RUNS]
    wait_for(lambda: all("stopped by SIGTERM" in log.read_text(encoding="utf-8") for log in logs))
