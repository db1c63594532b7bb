"""What the user sees while something takes long: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cotransport.cli.console import markup
from cotransport.experiments.results import TaskResult
from cotransport.experiments.run import Run
from cotransport.training.loop import TrainingProgress

T = TypeVar("T")
BarType = TypeVar("BarType", bound="_Bar")
SECONDS_BETWEEN_LINES = 10.0
WIDE = 100
"""Columns of a terminal in which all figures have room beside the bar."""


class _Bar:
    """A bar on a terminal while it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = _progress(console) if console.is_terminal else None

    def __enter__(self: BarType) -> BarType:
        if self._progress:
            self._progress.start()
            self._bar = self._progress.add_task("reading images", total=None, figures="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()


class ConsoleWatcher(_Bar):
    """Shows the run, task, epoch, loss, training accuracy, speed, and the time left for everything that is planned."""

    def __init__(self, console: Console, metric: Literal["top1", "top5"] = "top1") -> None:
        super().__init__(console)
        self._runs, self._number, self._metric = 0, 0, metric
        self._begun = self._told = time.perf_counter()
        self._done = 0.0  # work done in this experiment, before the current task
        self._work: list[float] = []
        self._task = 0
        self._earlier: float | None = None  # work that an earlier process has done for the current task

    def planned(self, runs: int, kept: Sequence[Run]) -> None:
        """So many runs are to be done; some were finished before and are kept."""
        self._runs = runs
        if kept:
            names = markup(", ".join(one.folder for one in kept))
            self._console.print(f"finished before and kept: {names}", soft_wrap=True)
        if not runs:
            self._console.print("nothing is left to run")
        elif not self._progress:
            self._console.print("reading images")

    def run_begun(self, run: Run, work: Sequence[float], done: int = 0) -> None:
        """A run begins, or goes on after some of its tasks."""
        self._work, self._task, self._earlier = list(work), done, None
        self._by_mean = run.method.predict_with == "ncm"
        self._number += 1
        if self._number == 1:
            self._begun = time.perf_counter()  # the time to read images is not to be expected again
        self._console.print(f"[bold]{markup(run.label)}[/], seed {run.seed} (run {self._number} of {self._runs})")
        if done:
            self._console.print(
                f"  tasks 1 to {done} were learned before" if done > 1 else "  task 1 was learned before"
            )
        if self._progress:
            self._progress.reset(self._bar, total=sum(work), completed=0, description="task 1", figures="")

    def figures(self, figures: TrainingProgress) -> None:
        """The training of a task goes on."""
        now = time.perf_counter()
        done = self._work[self._task] * figures.step / figures.steps
        if self._earlier is None:  # a training that was taken up again has not done all of it now
            self._earlier = done
            if figures.step:
                self._console.print(f"  task {figures.task + 1} goes on after step {figures.step} of {figures.steps}")
        where = f"task {figures.task + 1}/{len(self._work)} epoch {figures.epoch}/{figures.epochs}"
        told = "" if math.isnan(figures.loss) else _told(figures, self._seconds_left(done, now), self._console)
        if self._progress:
            completed = sum(self._work[: self._task]) + done
            self._progress.update(self._bar, completed=completed, description=where, figures=told)
        elif told and now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            self._console.print(f"  {where}  {told}")
        if figures.compile_seconds is not None and figures.epoch_done and figures.epoch == 1:
            self._console.print(f"  [dim]compiled in {_duration(figures.compile_seconds)}[/]")

    def task_done(self, step: TaskResult) -> None:
        """A task is learned and evaluated."""
        self._task += 1
        self._done += self._work[self._task - 1] - (self._earlier or 0.0)
        self._earlier = None
        own = step.top1 if self._metric == "top1" else step.top5
        name, beside = ("head", step.head_top1) if self._by_mean else ("nearest mean", step.ncm_top1)
        accuracy, other = ("–" if value is None else f"{value:.1f} %" for value in (own, beside))
        classes = "1 class" if step.classes_seen == 1 else f"{step.classes_seen} classes"
        self._console.print(
            f"  task {self._task}/{len(self._work)}: {accuracy} on {classes} "
            f"[dim]({name} {other}; {step.train_seconds:.1f} s, {step.images_per_second:,.0f} images/s)[/]"
        )

    def _seconds_left(self, done: float, now: float) -> float:
        """By the work that is left in this run and, as much again, in every later one."""
        left = sum(self._work[self._task :]) - done + (self._runs - self._number) * sum(self._work)
        return (now - self._begun) / (self._done + done - (self._earlier or 0.0)) * left


class LessonProgress(_Bar):
    """Shows what was chosen for a lesson, and how its training goes."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._told = time.perf_counter()

    def begun(self, told: Sequence[str]) -> None:
        """What was chosen for the lesson."""
        for line in told:
            self._console.print(f"  {markup(line)}", soft_wrap=True)

    def figures(self, figures: TrainingProgress) -> None:
        """The training goes on."""
        where, told = (
            f"epoch {figures.epoch}/{figures.epochs}",
            _told(figures, figures.seconds_left, self._console),
        )
        now = time.perf_counter()
        if figures.step and not told:
            self._console.print(f"  goes on after step {figures.step} of {figures.steps}")
        if self._progress:
            self._progress.update(
                self._bar, total=figures.steps, completed=figures.step, description=where, figures=told
            )
        elif told and now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            self._console.print(f"  {where}  {told}")


def with_bar(things: Iterable[T], total: int, console: Console) -> Iterator[T]:
    """Things as they come, with a bar on a terminal that says how many came and how long the others will take."""
    columns = (TextColumn("{task.completed:,} of {task.total:,}"), BarColumn(bar_width=24), TimeRemainingColumn())
    # what is printed meanwhile may go to a file, so it is left alone
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal
    ) as progress:
        yield from progress.track(things, total=total)


def _progress(console: Console) -> Progress:
    """A bar, with what there is to say beside it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[figures]}", style="dim"),
        console=console,
        transient=True,
    )


def _told(figures: TrainingProgress, seconds_left: float, console: Console) -> str:
    """How a training goes, in a line; nothing before there is anything to say, and less in a narrow terminal."""
    if math.isnan(figures.loss):
        return ""
    time_left = f"{_duration(seconds_left)} left"
    if console.is_terminal and console.width < WIDE:
        return time_left
    speed = f"{figures.images_per_second:,.0f} images/s"
    return f"loss {figures.loss:.3f}  train {figures.accuracy:.1f} %  {speed}  {time_left}"


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds, as many as tell something.

    >>> [_duration(seconds) for seconds in (7.2, 75, 7325)]
    ['7 s', '1 min 15 s', '2 h 2 min']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
