"""Array jobs of Slurm. No Slurm is needed: small programs stand in for sbatch, srun, sacct and scancel."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cotransport.cli.jobs import EngineName, parallel_for
from cotransport.engines.job import EngineJob
from cotransport.errors import ConfigError
from tests.engines.helpers import finished, results
from tests.experiments.helpers import quick_recipe

SBATCH = """#!/bin/bash
# starts all tasks of the array at once
script="${@: -1}"
cp "$script" "$STAND_IN/submitted.sh"
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for index in $(seq 0 "$last"); do
    SLURM_JOB_ID=$((8 + index)) SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$index SLURM_NTASKS=1 SLURM_PROCID=0 \\
        SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1 SLURM_JOB_NODELIST=here \\
        setsid bash "$script" >/dev/null 2>&1 </dev/null &
done
echo "Submitted batch job 7"
"""
SRUN = """#!/bin/bash
while [ "$1" != "$PYTHON" ]; do shift; done
exec "$@"
"""
SACCT = """#!/bin/bash
printf 'JobID|State|NodeList\\n7_0|RUNNING|here\\n7_1|RUNNING|here\\n'
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stand in for those of Slurm."""
    pytest.importorskip("submitit", reason="submitit is not installed: pip install 'cotransport[slurm]'")
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT, "scancel": "#!/bin/bash\n"}.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(folder))
    monkeypatch.setenv("PYTHON", sys.executable)
    return folder


@pytest.mark.slow
def test_an_array_job_has_the_results_of_a_single_process(
    slurm: Path, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, printed = finished("--engine", "slurm", "--jobs", "5", out=out)
    assert code == 0, printed
    assert results(out) == expected
    script = (slurm / "submitted.sh").read_text(encoding="utf-8")
    for line in ("--array=0-1%2", "--cpus-per-task=1", "--time=1440", "--job-name=cotransport"):
        assert f"#SBATCH {line}" in script
    assert (out / "report.html").exists()


def test_without_slurm_or_submitit_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    recipes = [quick_recipe()]
    pytest.importorskip("submitit")
    with pytest.raises(ConfigError, match="--engine slurm: there is no srun here"):
        parallel_for(EngineName.slurm, None, recipes)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"pip install 'cotransport\[slurm\]'"):
        parallel_for(EngineName.slurm, None, recipes)


@pytest.mark.usefixtures("slurm")
def test_before_the_time_limit_a_job_is_stopped_and_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cotransport.engines.slurm import ArrayTask

    monkeypatch.setattr(sys, "executable", "/bin/sleep")  # of these words, it accepts none
    (tmp_path / "jobs").mkdir()
    job = EngineJob("coil-seed1", tmp_path, "coil-seed1")
    assert ArrayTask()(job) == 1
    (tmp_path / "sleeping").write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    (tmp_path / "sleeping").chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "sleeping"))
    task, codes = ArrayTask(), list[int]()
    waiting = threading.Thread(target=lambda: codes.append(task(job)))
    waiting.start()
    while task._process is None:
        time.sleep(0.01)
    again = task.checkpoint(job)
    waiting.join(timeout=10)
    assert codes == [-signal.SIGTERM]
    assert again.args == (job,)
