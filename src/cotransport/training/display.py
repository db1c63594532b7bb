"""Progress of long work: a bar on a terminal and in a notebook; elsewhere, a line every few seconds."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cotransport.system.text import markup
from cotransport.training.listener import Listener, NullListener
from cotransport.training.progress import TrainingProgress
from cotransport.training.time_left import PassTimeLeft, TimeLeft

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0
WIDE = 100
"""Columns of a terminal, at least, that has room for all numbers beside the bar."""


class ConsoleListener:
    """Shows the job, task, epoch, cross-entropy, training accuracy, speed, and the time left for all planned work.

    verbose : whether details are shown too.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console, self._verbose = console, verbose
        self._progress = _bar(console) if _has_bar(console) else None
        self._time_left = TimeLeft()
        self._printed = time.perf_counter()
        self._features = PassTimeLeft()

    def __enter__(self) -> ConsoleListener:
        if self._progress:
            self._progress.start()
            self._bar = self._progress.add_task("reading images", total=None, numbers="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def planned(self, jobs: int, kept: Sequence[str]) -> None:
        """`jobs` jobs will run. Those named in `kept` were finished earlier and are kept."""
        self._time_left.planned(jobs)
        if kept:
            self._console.print(f"finished before and kept: {markup(', '.join(kept))}", soft_wrap=True)
        if not jobs:
            self._console.print("nothing is left to run")
        elif not self._progress:
            self._console.print("reading images")

    def job_started(self, title: str, notes: Sequence[str], work: Sequence[float], tasks_done: int) -> None:
        """A job starts, or resumes after `tasks_done` tasks."""
        self._time_left.job_started(work, tasks_done)
        if title:
            self._console.print(f"[bold]{markup(title)}[/]")
        for note in notes:
            self._console.print(f"  {markup(note)}", soft_wrap=True)
        if tasks_done:
            tasks = f"tasks 1 to {tasks_done} were" if tasks_done > 1 else "task 1 was"
            self._console.print(f"  {tasks} learned before")
        if self._progress:
            self._progress.reset(self._bar, total=sum(work), completed=0, description="starting", numbers="")

    def note(self, text: str, hint: str = "") -> None:
        """Something that the user should know. `hint` is what to do about it on the command line."""
        self._console.print(f"  {markup(f'{text}; {hint}' if hint else text)}", soft_wrap=True)

    def details(self, text: str) -> None:
        """Something for a user who wants to know more."""
        if self._verbose:
            for line in text.splitlines():
                self._console.print(f"  {markup(line)}", soft_wrap=True, style="dim", highlight=False)

    def trial(self, progress: TrainingProgress) -> None:
        """A training that only helps to choose a network has made progress."""
        left = "" if math.isnan(progress.seconds_left) else f"{duration(progress.seconds_left)} left"
        self._show("trying another network", progress.step, progress.steps, left)

    def reading(self, done: int, files: int) -> None:
        """The first pass over a folder of images has seen `done` of `files` files."""
        self._show("reading images", done, files, f"{done:,} of {files:,} files")

    def features(self, done: int, images: int) -> None:
        """A frozen backbone has seen `done` of `images` images."""
        seconds = self._features.update(done, images)
        left = "" if math.isnan(seconds) else f"{duration(seconds)} left"
        self._show("computing features", done, images, left)

    def _show(self, what: str, done: int, total: int, numbers: str) -> None:
        """Show work that comes before the training."""
        now = time.perf_counter()
        if self._progress:
            self._progress.reset(self._bar, total=total, completed=done, description=what, numbers=numbers)
        elif done < total and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self._console.print(f"  {what}: {100 * done / total:.0f} %  {numbers}")

    def training(self, progress: TrainingProgress) -> None:
        """The training of a task has made progress."""
        now, clock = time.perf_counter(), self._time_left
        resumes = clock.training(progress) and progress.step
        if resumes:  # a resumed training was partly done by an earlier process
            which = f"task {progress.task + 1} resumes" if clock.tasks > 1 else "the training resumes"
            self._console.print(f"  {which} after step {progress.step} of {progress.steps}")
        where = f"epoch {progress.epoch}/{progress.epochs}"
        if clock.tasks > 1:
            where = f"task {progress.task + 1}/{clock.tasks} {where}"
        numbers = "" if math.isnan(progress.loss) else self._numbers(progress, clock.seconds)
        if self._progress:
            self._progress.update(self._bar, completed=clock.completed, description=where, numbers=numbers)
        elif numbers and now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            self._console.print(f"  {where}  {numbers}")
        if progress.compile_seconds is not None and progress.epoch_done and progress.epoch == 1:
            self._console.print(f"  [dim]compiled in {duration(progress.compile_seconds)}[/]")

    def testing(self) -> None:
        """A lesson is learned, and the held-out images are predicted."""
        if self._progress:
            self._progress.reset(self._bar, total=None, description="testing", numbers="")

    def task_done(self, summary: str, details: str) -> None:
        """A task is learned and evaluated."""
        self._time_left.task_done()
        where = f"task {self._time_left.task}/{self._time_left.tasks}"
        self._console.print(f"  {where}: {markup(summary)} [dim]({markup(details)})[/]")

    def _numbers(self, progress: TrainingProgress, seconds_left: float) -> str:
        """Cross-entropy, accuracy, speed and time left in one line; a narrow terminal gets the time left only."""
        time_left = "" if math.isnan(seconds_left) else f"{duration(seconds_left)} left"
        if self._console.is_terminal and self._console.width < WIDE:
            return time_left
        speed = f"{progress.images_per_second:,.0f} images/s"
        return f"cross-entropy {progress.cross_entropy:.3f}  train {progress.accuracy:.1f} %  {speed}  {time_left}"


@contextmanager
def shown(verbose: bool | Literal["auto"]) -> Iterator[Listener]:
    """A listener that shows the progress on standard error, or one that ignores it.

    verbose : `auto` shows it on a terminal and in a notebook only.
    """
    console = Console(stderr=True)
    if verbose is False or (verbose == "auto" and not sys.stderr.isatty() and not console.is_jupyter):
        yield NullListener()
        return
    with ConsoleListener(console) as listener:
        yield listener


def with_bar(things: Iterable[T], total: int, console: Console) -> Iterator[T]:
    """The same things. On a terminal, a bar shows how many have come, and the time left."""
    columns = (TextColumn("{task.completed:,} of {task.total:,}"), BarColumn(bar_width=24), TimeRemainingColumn())
    # standard output may go to a file, so it is not redirected
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, disable=not console.is_terminal
    ) as progress:
        yield from progress.track(things, total=total)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds; the smaller units only where they matter.

    >>> [duration(seconds) for seconds in (7.2, 75, 7325)]
    ['7 s', '1 min 15 s', '2 h 2 min']
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _has_bar(console: Console) -> bool:
    """Whether a bar can be drawn; in a notebook, rich needs ipywidgets for it."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def _bar(console: Console) -> Progress:
    """A bar with numbers beside it."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[numbers]}", style="dim"),
        console=console,
        transient=True,
    )
