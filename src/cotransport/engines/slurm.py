"""Jobs as an array job of Slurm, through submitit.

Slurm starts each job's process, and may start it again: shortly before the time limit, or when the job is preempted,
the process saves its state and the job is queued again. Partition, account and time limit come from
Slurm's own environment variables, such as SBATCH_PARTITION, SBATCH_ACCOUNT and SBATCH_TIMELIMIT. The folder of results
must be one that all nodes share.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any

from cotransport.engines.job import JOBS, Ended, EngineJob, Resources
from cotransport.errors import ConfigError

MINUTES = 24 * 60
"""Time limit of a job, unless SBATCH_TIMELIMIT gives another one."""
RESTARTS = 1000
"""How often a job may reach its time limit. It resumes each time."""
SECONDS_BETWEEN_POLLS = 0.2


class SlurmEngine:
    """Submits jobs as an array job.

    jobs : the number of jobs at a time, at most; None for as many as Slurm allows.
    """

    def __init__(self, jobs: int | None = None) -> None:
        try:
            import submitit
        except ModuleNotFoundError:
            raise ConfigError("--engine slurm: submitit is not installed. pip install 'cotransport[slurm]'") from None
        if submitit.SlurmExecutor.affinity() < 0:
            raise ConfigError("--engine slurm: there is no srun here. Start the command on a login node of the cluster")
        self._most = jobs
        self._running: dict[Any, EngineJob] = {}

    def __enter__(self) -> SlurmEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)

    @property
    def is_busy(self) -> bool:
        """Whether a job waits or runs."""
        return bool(self._running)

    def submit(self, jobs: Sequence[EngineJob]) -> None:
        """Submit an array job for each experiment. Jobs with the same needs share an array."""
        for out, resources in sorted({(job.out, job.resources) for job in jobs}, key=str):
            import submitit

            own = [job for job in jobs if (job.out, job.resources) == (out, resources)]
            executor = submitit.SlurmExecutor(folder=out / JOBS / "slurm", max_num_timeout=RESTARTS)
            executor.update_parameters(**self._parameters(resources, len(own)))
            try:
                submitted = executor.map_array(ArrayTask(), own)
            except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError) as error:
                raise ConfigError(f"--engine slurm: sbatch refused the array job ({error})") from None
            self._running |= dict(zip(submitted, own, strict=True))

    def _parameters(self, resources: Resources, jobs: int) -> dict[str, Any]:
        found = {
            "job_name": "cotransport",
            "time": MINUTES,
            "ntasks_per_node": 1,
            "cpus_per_task": resources.cpus,
            "array_parallelism": self._most or jobs,
        }
        return found | ({"gpus_per_node": resources.gpus} if resources.gpus else {})

    def wait(self, seconds: float) -> list[Ended]:
        """Wait at most this long. Returns the jobs that have ended since the last call."""
        end = time.monotonic() + seconds
        while True:
            done = [task for task in self._running if task.done()]
            if done or time.monotonic() >= end:
                return [_ended(self._running.pop(task), task) for task in done]
            time.sleep(SECONDS_BETWEEN_POLLS)

    def stop(self, number: signal.Signals) -> None:
        """Cancel all jobs. Slurm sends SIGTERM to those that run, which then save their state."""
        for task in self._running:
            task.cancel()


class ArrayTask:
    """What Slurm runs for each job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, job: EngineJob) -> int:
        """Start the job's process and wait until it ends; returns its exit code."""
        self._process = job.start()
        while self._process.poll() is None:
            time.sleep(SECONDS_BETWEEN_POLLS)
        return self._process.returncode

    def checkpoint(self, job: EngineJob) -> Any:  # noqa: ANN401 (submitit's, which is not typed)
        """Called before the time limit is reached: the process saves its state. Returns what is queued again."""
        from submitit.helpers import DelayedSubmission

        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        return DelayedSubmission(ArrayTask(), job)


def _ended(job: EngineJob, task: Any) -> Ended:  # noqa: ANN401 (submitit's)
    import submitit

    try:
        return Ended(job, task.result())
    except submitit.core.utils.FailedJobError as error:
        return Ended(job, None, f"Slurm's job {task.job_id} failed: {str(error).strip().splitlines()[0]}")
    except submitit.core.utils.UncompletedJobError:
        return Ended(job, None, f"Slurm's job {task.job_id} ended without a result ({task.state})")
