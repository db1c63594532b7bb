"""The course of a sweep, with an engine that starts no process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotransport.engines import Ended, EngineJob, JobState, Resources, finish, prepare
from cotransport.engines.progress import JobProgress, ProgressFile
from cotransport.errors import ConfigError, RunError
from cotransport.experiments.bundled import bundled_recipes
from cotransport.experiments.recipe import Recipe, load_recipe
from cotransport.settings.sections import Device
from cotransport.system import signals
from tests.experiments.helpers import REPLAY, Recorder, StopsAfterTask, quick_recipe, run_digits


def one_core(device: Device) -> Resources:
    return Resources()


class FakeEngine:
    """Ends one job in each call of `wait`, with given exit codes. Before, the job writes its progress."""

    def __init__(self, *codes: int, interrupted: bool = False) -> None:
        self.codes, self.queue, self.stopped = list(codes), list[EngineJob](), list[signal.Signals]()
        self.interrupted = interrupted

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *_: object) -> None:
        assert not self.queue

    @property
    def is_busy(self) -> bool:
        return bool(self.queue)

    def submit(self, jobs: Sequence[EngineJob]) -> None:
        self.queue += jobs

    def wait(self, seconds: float) -> list[Ended]:
        job = self.queue.pop(0)
        job.log.write_text(f"reading\nerror: no luck with {job.run}\n\n")
        JobProgress(phase="training", task=1, tasks=2).write(job.progress)
        if self.interrupted:
            signal.raise_signal(signal.SIGTERM)
        return [Ended(job, self.codes.pop(0))]

    def stop(self, number: signal.Signals) -> None:
        self.stopped.append(number)
        self.queue.clear()


def jobs_of(out: Path, *overrides: str) -> list[EngineJob]:
    return prepare([(quick_recipe(*overrides), out)], one_core, resume=False, overwrite=False)[1]


@pytest.mark.parametrize("name", sorted(bundled_recipes()))
def test_jobs_run_the_recipe_as_the_user_has_changed_it(name: str, tmp_path: Path) -> None:
    """Values that were not set stay so in the file, because the data may choose them."""
    recipe = load_recipe(name, ["augmentation.flip=false", "schedule.later_learning_rate=1e-7"])
    job = EngineJob("any", tmp_path, "any")
    from cotransport.engines.sweep import _write_recipe

    _write_recipe(recipe, job)
    again = load_recipe(str(job.recipe))
    assert again == recipe
    assert again.augmentation is not None
    assert again.augmentation.model_fields_set == recipe.augmentation.model_fields_set  # type: ignore[union-attr]


def test_every_run_that_is_left_becomes_a_job(tmp_path: Path) -> None:
    run_digits(*REPLAY, out=tmp_path)
    recipe = quick_recipe(*REPLAY, "methods=[replay, coil]", "seeds=[1, 2]")
    kept, jobs = prepare([(recipe, tmp_path)], lambda _: Resources(2), resume=False, overwrite=False)
    assert kept == ["replay-seed1"]
    assert [job.name for job in jobs] == ["coil-seed1", "replay-seed2", "coil-seed2"]
    assert {job.resources.cpus for job in jobs} == {2}
    other = recipe.model_copy(update={"name": "other"})
    kept, jobs = prepare([(recipe, tmp_path), (other, tmp_path / "o")], one_core, resume=False, overwrite=False)
    assert kept == ["digits/replay-seed1"]
    assert {job.name.partition("/")[0] for job in jobs} == {"digits", "other"}
    assert len(jobs) == 3 + 4


def test_an_unfinished_run_is_an_error_before_any_job_starts(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_digits(*REPLAY, out=tmp_path, listener=StopsAfterTask())
    with pytest.raises(RunError, match="an unfinished run"):
        jobs_of(tmp_path, *REPLAY)
    recipe = quick_recipe(*REPLAY)
    assert len(prepare([(recipe, tmp_path)], one_core, resume=True, overwrite=False)[1]) == 1
    assert (tmp_path / "replay-seed1").exists()
    assert len(prepare([(recipe, tmp_path)], one_core, resume=False, overwrite=True)[1]) == 1
    assert not (tmp_path / "replay-seed1").exists()


def test_a_run_cannot_follow_itself(tmp_path: Path) -> None:
    recipe: Recipe = quick_recipe(*REPLAY, f"follow={tmp_path}")
    with pytest.raises(ConfigError, match=r"follow: .*another --out"):
        prepare([(recipe, tmp_path)], one_core, resume=False, overwrite=True)


def test_failures_are_collected_with_their_last_words(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "methods=[replay, coil, wa]")
    seen: list[list[JobState]] = []
    failures = finish(FakeEngine(0, 1, -signal.SIGKILL), jobs, lambda states: seen.append(list(states)), ["old-seed1"])
    assert [state.state for state in seen[0]] == ["kept", "waiting", "waiting", "waiting"]
    assert [state.state for state in seen[-1]] == ["kept", "done", "failed", "failed"]
    assert [(failure.name, failure.log) for failure in failures] == [(job.name, job.log) for job in jobs[1:]]
    assert failures[0].reason == "no luck with coil-seed1"
    assert "SIGKILL" in failures[1].reason
    assert not list((tmp_path / "jobs").glob("*.json"))


def test_a_signal_is_passed_on_and_raised_when_all_jobs_have_stopped(tmp_path: Path) -> None:
    engine, seen = FakeEngine(143, 143, interrupted=True), list[Sequence[JobState]]()
    with signals.handled(), pytest.raises(signals.Interrupted) as interrupted:
        finish(engine, jobs_of(tmp_path, "methods=[replay, coil]"), seen.append)
    assert interrupted.value.exit_code == 143
    assert engine.stopped == [signal.SIGTERM]
    assert [state.state for state in seen[-1]] == ["stopped", "stopped"]


def test_the_progress_of_a_run_is_in_a_file(tmp_path: Path) -> None:
    path, inner = tmp_path / "progress.json", Recorder()

    class Watched(ProgressFile):
        seen: list[JobProgress | None] = []  # noqa: RUF012 (one test only)

        def task_done(self, summary: str, details: str) -> None:
            super().task_done(summary, details)
            self.seen.append(JobProgress.read(path))

    run_digits(*REPLAY, out=tmp_path / "out", listener=Watched(inner, path))
    last = Watched.seen[-1]
    assert [seen and (seen.learned, seen.task) for seen in Watched.seen] == [(1, 1), (2, 2), (3, 3)]
    assert last is not None
    assert (last.tasks, last.epochs, last.phase) == (3, 1, "training")
    assert last.result in inner.summaries[-1]
    assert len(inner.progress) > 3
    path.write_text("{", encoding="utf-8")
    assert JobProgress.read(path) is None
