"""What the user sees while something takes long, on a terminal and elsewhere."""

from __future__ import annotations

import io
import math
import sys
import time
from typing import Literal

import pytest
from rich.console import Console

from cotransport.training import display
from cotransport.training.display import ConsoleListener, duration, shown, with_bar
from cotransport.training.progress import TrainingProgress


def progress(step: int, **changes: object) -> TrainingProgress:
    """The progress after some of ten steps, five in each of two epochs."""
    values: dict[str, object] = {
        "task": 0,
        "epoch": 1,
        "epochs": 2,
        "step": step,
        "steps": 10,
        "images": 100 * step,
        "loss": 7.0 if step else math.nan,
        "cross_entropy": 0.5 if step else math.nan,
        "accuracy": 50.0 if step else math.nan,
        "learning_rate": 0.1,
        "images_per_second": 100.0 if step else math.nan,
        "seconds_left": 1.0,
        "epoch_done": step == 5,
        "threads": 1,
        "compile_seconds": None,
    }
    return TrainingProgress(**(values | changes))  # type: ignore[arg-type]


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def show_two_tasks(console: Console, clock: Clock) -> None:
    """The first of two jobs up to the middle of its second task."""
    with ConsoleListener(console) as listener:
        listener.planned(2, [])
        clock.now = 100.0  # images are read
        listener.job_started("replay, seed 1", ["a note"], [1000.0, 3000.0], 0)
        listener.training(progress(0))
        clock.now = 110.0
        listener.training(progress(5, compile_seconds=75.0))
        listener.task_done("90.0 % on 2 classes", "nearest mean –; 20.0 s, 100 images/s")
        listener.training(progress(0, task=1))
        clock.now = 150.0
        listener.training(progress(5, task=1))


@pytest.fixture
def lines(clock: Clock) -> list[str]:
    """What is printed where there is no terminal."""
    file = io.StringIO()
    show_two_tasks(Console(file=file, width=200), clock)
    return file.getvalue().splitlines()


def test_the_time_left_covers_later_tasks_and_jobs(lines: list[str]) -> None:
    # 2,500 of 8,000 pieces of work took 50 seconds, so the other 5,500 will take 110
    assert "1 min 50 s left" in lines[-1]
    assert "task 2/2 epoch 1/2" in lines[-1]


def test_cross_entropy_accuracy_and_speed_are_shown(lines: list[str]) -> None:
    assert "cross-entropy 0.500  train 50.0 %  100 images/s" in lines[-1]


def test_nothing_is_shown_of_a_training_without_a_step(lines: list[str]) -> None:
    assert not any("nan" in line for line in lines)


def test_the_time_to_compile_is_shown(lines: list[str]) -> None:
    assert any("compiled in 1 min 15 s" in line for line in lines)


def test_a_finished_task_is_shown(lines: list[str]) -> None:
    assert "  task 1/2: 90.0 % on 2 classes (nearest mean –; 20.0 s, 100 images/s)" in lines


def test_a_job_is_shown_with_its_notes(lines: list[str]) -> None:
    assert lines[:3] == ["reading images", "replay, seed 1", "  a note"]


def test_a_line_comes_at_most_every_ten_seconds(clock: Clock) -> None:
    file = io.StringIO()
    with ConsoleListener(Console(file=file, width=200)) as listener:
        listener.job_started("", [], [1.0], 0)
        listener.training(progress(0))
        for second in range(1, 31):
            clock.now = float(second)
            listener.training(progress(1))
    assert len(file.getvalue().splitlines()) == 3


def test_kept_jobs_are_named(clock: Clock) -> None:
    file = io.StringIO()
    with ConsoleListener(Console(file=file, width=200)) as listener:
        listener.planned(0, ["coil-seed1", "[red]-seed1"])
    assert file.getvalue().splitlines() == [
        "finished before and kept: coil-seed1, [red]-seed1",
        "nothing is left to run",
    ]


@pytest.mark.parametrize(
    ("done", "message"), [(1, "task 1 was learned before"), (2, "tasks 1 to 2 were learned before")]
)
def test_a_resumed_job_says_what_was_done_before(done: int, message: str, clock: Clock) -> None:
    file = io.StringIO()
    with ConsoleListener(Console(file=file, width=200)) as listener:
        listener.job_started("replay, seed 1", [], [1000.0, 1000.0, 1000.0], done)
        listener.training(progress(4, task=done))
        clock.now = 20.0
        listener.training(progress(6, task=done))
    lines = file.getvalue().splitlines()
    assert lines[1:3] == [f"  {message}", f"  task {done + 1} resumes after step 4 of 10"]
    # this process has done 200 pieces of work in 20 seconds, and what is left counts from step 6
    left = 400 + 1000 * (2 - done)
    assert f"{duration(left / 10)} left" in lines[-1]


def test_a_job_of_one_task_does_not_count_tasks(clock: Clock) -> None:
    file = io.StringIO()
    with ConsoleListener(Console(file=file, width=200)) as listener:
        listener.job_started("", [], [1.0], 0)
        listener.training(progress(4))
        clock.now = 20.0
        listener.training(progress(6))
    lines = file.getvalue().splitlines()
    assert lines[0] == "  the training resumes after step 4 of 10"
    assert lines[1].startswith("  epoch 1/2  cross-entropy")


def test_the_first_pass_over_a_folder_is_shown(clock: Clock) -> None:
    file = io.StringIO()
    with ConsoleListener(Console(file=file, width=200)) as listener:
        listener.reading(1000, 4000)
        clock.now = 20.0
        listener.reading(3000, 4000)
    assert file.getvalue().splitlines() == ["  reading images: 75 %  3,000 of 4,000 files"]


@pytest.mark.parametrize(("width", "has_numbers"), [(120, True), (80, False)])
def test_a_terminal_shows_a_bar_with_as_much_as_fits(width: int, has_numbers: bool, clock: Clock) -> None:
    file = io.StringIO()
    show_two_tasks(Console(file=file, width=width, force_terminal=True, color_system=None), clock)
    printed = file.getvalue()
    assert "task 2/2 epoch 1/2" in printed
    assert " 62 %" in printed  # 2,500 of 4,000
    assert "1 min 50 s left" in printed
    assert ("cross-entropy 0.500" in printed) == has_numbers
    assert "task 1/2: 90.0 % on 2 classes" in printed


def test_things_are_handed_on_with_or_without_a_bar() -> None:
    terminal, file = io.StringIO(), io.StringIO()
    console = Console(file=terminal, width=100, force_terminal=True, color_system=None)
    assert list(with_bar(iter("abc"), 3, console)) == ["a", "b", "c"]
    assert "3 of 3" in terminal.getvalue()
    assert list(with_bar(iter("abc"), 3, Console(file=file))) == ["a", "b", "c"]
    assert file.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(59.6, "1 min 0 s"), (3600.0, "1 h 0 min"), (0.2, "0 s")])
def test_durations_are_rounded_before_they_are_divided(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class TestShown:
    @pytest.mark.parametrize(
        ("verbose", "is_terminal", "is_notebook", "expected"),
        [
            ("auto", False, False, False),
            ("auto", True, False, True),
            ("auto", False, True, True),
            (True, False, False, True),
            (False, True, True, False),
        ],
    )
    def test_on_a_terminal_in_a_notebook_or_on_demand(
        self,
        verbose: bool | Literal["auto"],
        is_terminal: bool,
        is_notebook: bool,
        expected: bool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
        monkeypatch.setattr("rich.console._is_jupyter", lambda: is_notebook)
        monkeypatch.setattr(display, "find_spec", lambda _: None)  # rich draws bars in notebooks with ipywidgets
        with shown(verbose) as listener:
            assert isinstance(listener, ConsoleListener) == expected

    @pytest.mark.parametrize(("widgets", "has_bar"), [(None, False), ("installed", True)])
    def test_a_notebook_has_a_bar_if_it_can_draw_one(
        self, widgets: str | None, has_bar: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(display, "find_spec", {"ipywidgets": widgets}.get)
        listener = ConsoleListener(Console(file=io.StringIO(), force_jupyter=True))
        assert (listener._progress is not None) == has_bar
