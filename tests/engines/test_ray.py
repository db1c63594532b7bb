"""Jobs on a real Ray: embedded with two CPUs, and a cluster of two nodes that loses one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotransport.cli.jobs import EngineName, parallel_for
from cotransport.engines.job import resources_of
from cotransport.errors import ConfigError
from cotransport.settings.sections import Device
from tests.engines.helpers import RUNS, finished, results, started, stopped, wait_for_a_job, wait_for_jobs
from tests.experiments.helpers import quick_recipe

ROOT = Path(__file__).parent.parent.parent
needs_ray = pytest.mark.usefixtures("ray_is_installed")


@pytest.fixture
def ray_is_installed() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'cotransport[ray]'")


def test_a_job_asks_for_what_the_recipe_says() -> None:
    assert resources_of(Device()).cpus == 1
    asked = resources_of(Device(processes=2, threads=3, accelerator="gpu"))
    assert (asked.cpus, asked.gpus) == (6, 2)
    assert resources_of(Device(processes=2, accelerator="cpu")).gpus == 0


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.setenv(name, "as before")
    with pytest.raises(ConfigError, match=r"--engine ray: .*pip install 'cotransport\[ray\]'"):
        parallel_for(EngineName.ray, None, [quick_recipe()])


@pytest.mark.slow
@needs_ray
def test_an_embedded_ray_is_stopped_and_resumed(expected: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    process = started("--engine", "ray", out=tmp_path, RAY_ADDRESS="")
    wait_for_a_job(tmp_path, process)
    code, printed = stopped(process, signal.SIGTERM)
    assert code == 143, printed
    assert "--engine ray --resume" in printed
    begun = [run for run in RUNS if (tmp_path / run / "unfinished" / "job.json").exists()]
    assert begun
    for run in begun:
        assert f"{run}: stopped" in printed
        assert "stopped by SIGTERM" in (tmp_path / "jobs" / f"{run}.log").read_text(encoding="utf-8")
    code, printed = finished("--engine", "ray", "--resume", out=tmp_path, RAY_ADDRESS="")
    assert code == 0, printed
    assert results(tmp_path) == expected
    assert (tmp_path / "report.html").exists()


@pytest.fixture
def cluster(ray_is_installed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A cluster with a token. `RAY_ADDRESS` is its address."""
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engines.cluster"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        monkeypatch.setenv("RAY_ADDRESS", process.stdout.readline().strip())
        yield process
        process.stdin.close()
        process.wait()


@pytest.mark.slow
def test_jobs_of_a_node_that_dies_go_on_elsewhere(
    cluster: subprocess.Popen[str], expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    process = started("--engine", "ray", out=tmp_path)
    wait_for_jobs(tmp_path, process)
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    cluster.stdin.write("kill\n")
    cluster.stdin.flush()
    assert cluster.stdout.readline() == "killed\n"
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0, printed
    logs = [(tmp_path / "jobs" / f"{run}.log").read_text(encoding="utf-8") for run in RUNS]
    assert sorted(log.count("reading images") for log in logs) == [1, 2]  # one job was started twice
    assert results(tmp_path) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("ray_is_installed")
def test_a_node_that_does_not_see_the_folder_is_named(tmp_path: Path) -> None:
    """On one machine all nodes see the same folders, so the node's answer is another one."""
    script = f"""
import sys
from pathlib import Path
from cotransport.engines import ray_cluster
from cotransport.engines.job import EngineJob
from cotransport.errors import RunError
def blind(paths): return [path for path in paths if "shared-" in path.name]
blind.__module__ = "__main__"
ray_cluster._missing = blind
out = Path({str(tmp_path)!r})
(out / "jobs").mkdir()
with ray_cluster.RayEngine() as engine:
    try:
        engine.submit([EngineJob("coil-seed1", out, "coil-seed1")])
    except RunError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RAY_ADDRESS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert f"{tmp_path}: the node " in done.stdout
    assert "(127.0.0.1) does not see it. Give --out a folder that all nodes share" in done.stdout
    assert not list((tmp_path / "jobs").iterdir())
