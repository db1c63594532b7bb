"""Several runs at a time, each in a process of its own: on this machine, on a Ray cluster or through Slurm.

A job is one run of a recipe: one method with one seed. Its process is our own command, which resumes the run in the
same folder, so that results, checkpoints and signals are those of a run in a single process. Its
recipe, log and progress are files in the folder `jobs` of the experiment. An engine only decides where and when jobs
start.
"""

from cotransport.engines.job import Ended, Engine, EngineJob, Resources
from cotransport.engines.sweep import Failure, JobState, finish, prepare

__all__ = ["Ended", "Engine", "EngineJob", "Failure", "JobState", "Resources", "finish", "prepare"]
