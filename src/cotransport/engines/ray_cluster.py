"""Jobs as tasks of Ray: on the cluster that RAY_ADDRESS names, or on an embedded Ray on this machine.

Only Ray Core is used. A task starts the job's process and waits for it. If its node dies, Ray starts the task again on
another node, and the new process resumes from the last checkpoint. The folder of results must be one that all nodes
share.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotransport.engines.job import JOBS, Ended, EngineJob
from cotransport.errors import ConfigError, RunError
from cotransport.system.files import storage_errors
from cotransport.system.machine import available_cores

RETRIES = 5
"""How often a job is started again after its node or its worker has died."""
SECONDS_BETWEEN_POLLS = 0.2
SECONDS_FOR_NODES = 120.0
"""Time that a node gets to answer whether it sees the folder of results."""
OBJECT_STORE = 80 << 20
"""Bytes of Ray's shared memory on this machine; almost nothing is put there."""


class RayEngine:
    """Runs jobs as tasks of Ray.

    jobs : the number of jobs at a time, at most; None for as many as the cluster has room for.
    """

    def __init__(self, jobs: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if not os.environ.get("RAY_ADDRESS"):  # whether a cluster needs a token is its owner's choice
            os.environ["RAY_AUTH_MODE"] = "token"  # nobody else on this machine can submit tasks
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # keeps Ray on the loopback interface, on Linux too
        try:
            import ray  # noqa: F401 (it reads the variables above)
        except ModuleNotFoundError:
            raise ConfigError("--engine ray: Ray is not installed. pip install 'cotransport[ray]'") from None
        self._most = jobs
        self._queue: list[EngineJob] = []
        self._running: dict[Any, EngineJob] = {}

    def __enter__(self) -> RayEngine:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            _connect()
        finally:
            for number, handler in before.items():  # Ray has set its own
                signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        for task in self._running:
            ray.cancel(task, force=True)
        ray.shutdown()

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._queue or self._running)

    def submit(self, jobs: Sequence[EngineJob]) -> None:
        """Take on jobs, once every node sees their folders. They start when the cluster has room for them."""
        for folder in sorted({job.out for job in jobs}):
            _check_shared(folder, sorted({job.folder for job in jobs}))
        self._queue += jobs

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most this long. Returns the jobs that have ended since the last call."""
        import ray

        while self._queue and (self._most is None or len(self._running) < self._most):
            job = self._queue.pop(0)
            options = {"num_cpus": job.resources.cpus, "num_gpus": job.resources.gpus, "max_retries": RETRIES}
            self._running[ray.remote(**options)(_run).options(name=job.name).remote(job)] = job
        ready, _ = ray.wait(list(self._running), timeout=seconds)
        return [_ended(self._running.pop(task), task) for task in ready]

    def stop(self, number: signal.Signals) -> None:
        """Start no more jobs, and tell those that run to save their state and end."""
        import ray

        self._queue.clear()
        for task in self._running:
            ray.cancel(task, force=False)


def _connect() -> None:
    """Join the cluster that RAY_ADDRESS names, or start Ray on this machine, for this process only."""
    import ray

    address = os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"RAY_ADDRESS={address}: the cluster cannot be joined ({reason}). Start it, or unset the variable to "
                "use this machine alone"
            ) from None
        return
    ray.init(
        address="local",
        num_cpus=available_cores(),
        include_dashboard=False,
        object_store_memory=OBJECT_STORE,
        _node_ip_address="127.0.0.1",
        **quiet,
    )


def _check_shared(folder: Path, others: Sequence[Path]) -> None:
    """Raise an error that names a node that does not see the folder of results, or the folder of the command."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mark = folder / JOBS / f"shared-{secrets.token_hex(8)}"
    with storage_errors(mark):
        mark.touch()
    try:
        nodes = {f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})": node for node in _living_nodes()}
        check = ray.remote(num_cpus=0, max_retries=0)(_missing)
        answers = {
            name: check.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
                [mark, *others]
            )
            for name, node in nodes.items()
        }
        for name, answer in answers.items():
            try:
                missing = ray.get(answer, timeout=SECONDS_FOR_NODES)
            except ray.exceptions.RayError as error:
                raise RunError(f"the node {name} does not respond ({str(error).splitlines()[0]}). Remove it") from None
            if mark in missing:
                raise RunError(f"{folder}: the node {name} does not see it. Give --out a folder that all nodes share")
            if missing:
                raise RunError(
                    f"{missing[0]}: the node {name} has no such folder. Start the command in a folder that all nodes "
                    "share"
                )
    finally:
        mark.unlink(missing_ok=True)


def _living_nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _missing(paths: Sequence[Path]) -> list[Path]:
    """The paths that are not there, on the node where this is called."""
    return [path for path in paths if not path.exists()]


def _run(job: EngineJob) -> int:
    """Start a job's process on this node and wait until it ends; returns its exit code. Cancelled, it is stopped."""
    process = job.start()
    try:
        while process.poll() is None:
            time.sleep(SECONDS_BETWEEN_POLLS)  # `ray.cancel` does not interrupt a system call
    except KeyboardInterrupt:
        process.terminate()
    return process.wait()


def _ended(job: EngineJob, task: Any) -> Ended:  # noqa: ANN401 (Ray's reference)
    import ray

    try:
        return Ended(job, ray.get(task))
    except ray.exceptions.TaskCancelledError:
        return Ended(job, None, "cancelled")
    except ray.exceptions.RayError as error:
        return Ended(job, None, f"lost by Ray: {str(error).strip().splitlines()[0]}")
