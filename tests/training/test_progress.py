from __future__ import annotations

import math
import time

import pytest
import torch
from torch import Tensor

from cotransport.data import Batch
from cotransport.errors import TrainingError
from cotransport.networks.network import Output
from cotransport.settings.sections import Schedule
from cotransport.training import progress
from cotransport.training.objective import Moment
from cotransport.training.processes import processes_for
from cotransport.training.progress import Meter, TrainingProgress
from tests.conftest import blobs
from tests.helpers import CPU, STILL, always, cross_entropy, quick_trainer, small_network, trained

IMAGES = 8
"""Images in a step of `Steps`."""


class Steps:
    """A meter of two epochs of four steps, its reports, and a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: int = 0, compiled: bool = False) -> None:
        self.seconds, self.number = 0.0, done
        monkeypatch.setattr(time, "perf_counter", lambda: self.seconds)
        self.reports: list[TrainingProgress] = []
        self.meter = Meter(
            processes_for(CPU),
            self.reports.append,
            task=0,
            epochs=2,
            steps_per_epoch=4,
            threads=3,
            steps_done=done,
            compiled=compiled,
        )

    def take(self, seconds: float, loss: float = 1.0) -> None:
        self.seconds += seconds
        batch = Batch(torch.zeros(IMAGES, 3, 2, 2), torch.zeros(IMAGES, dtype=torch.int64), weight=1.0, total=IMAGES)
        output = Output(torch.zeros(IMAGES, 4), torch.tensor([[1.0, 0.0]] * IMAGES))
        self.meter.update(self.number, batch, output, torch.tensor(loss), 0.1)
        self.number += 1


def test_the_first_report_comes_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    (report,) = Steps(monkeypatch).reports
    assert (report.epoch, report.epochs, report.step, report.steps, report.threads) == (1, 2, 0, 8, 3)
    assert math.isnan(report.loss)
    assert math.isnan(report.images_per_second)
    assert not report.epoch_done


def test_reports_come_twice_a_second_and_after_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    for _ in range(8):
        steps.take(0.3)
    assert [report.step for report in steps.reports] == [0, 2, 4, 6, 8]
    assert [report.step for report in steps.reports if report.epoch_done] == [4, 8]


def test_the_speed_leaves_the_first_step_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes ten seconds, every later one takes two: eight images in two seconds."""
    steps = Steps(monkeypatch)
    steps.take(10)
    assert steps.reports[-1].images_per_second == pytest.approx(IMAGES / 10)
    assert steps.reports[-1].seconds_left == pytest.approx(7 * 10)
    for _ in range(3):
        steps.take(2)
    assert steps.reports[-1].images_per_second == pytest.approx(IMAGES / 2)
    assert steps.reports[-1].seconds_left == pytest.approx(4 * 2)
    assert steps.reports[-1].compile_seconds is None


def test_the_first_step_of_a_compiled_network_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch, compiled=True)
    assert steps.reports[-1].compile_seconds is None
    steps.take(10)
    steps.take(2)
    assert steps.reports[-1].compile_seconds == 10


def test_a_resumed_training_counts_steps_from_its_start_and_images_from_its_resumption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = Steps(monkeypatch, done=5)
    assert (steps.reports[0].step, steps.reports[0].epoch) == (5, 2)
    for _ in range(3):
        steps.take(1)
    last = steps.reports[-1]
    assert (last.step, last.images, last.seconds_left, last.epoch_done) == (8, 3 * IMAGES, 0, True)


def test_a_loss_that_is_not_finite_is_found_at_the_end_of_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    for loss in (1.0, math.nan, math.inf):
        steps.take(1, loss)
    with pytest.raises(TrainingError, match=r"the loss is not finite, first at step 2 of 4 in epoch 1, in task 1"):
        steps.take(1)


def test_a_long_epoch_is_checked_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "CHECK_EVERY", 3)
    steps = Steps(monkeypatch)
    steps.take(1, math.nan)
    steps.take(1)
    with pytest.raises(TrainingError, match="first at step 1 of 4"):
        steps.take(1)


def test_a_training_that_diverges_names_its_first_step_and_the_remedy() -> None:
    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        value = cross_entropy(batch, output, moment)
        return value * math.nan if (moment.epoch, moment.step) >= (1, 2) else value

    with pytest.raises(TrainingError, match=r"first at step 3 of 3 in epoch 2, in task 1.*learning_rate"):
        quick_trainer().fit(small_network(), blobs(2, 20), always(loss))


def test_weights_that_are_not_finite_are_found_after_the_last_step() -> None:
    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        return (output.features.sum() * 0).sqrt()  # 0, with a slope that is not finite

    trainer = quick_trainer(schedule=Schedule(epochs=1, batch_size=40))
    with pytest.raises(TrainingError, match="the weights are not finite after the last step"):
        trainer.fit(small_network(), blobs(2, 20), always(loss))


def test_reports_of_a_training() -> None:
    reports: list[TrainingProgress] = []
    trained(blobs(2, 20), quick_trainer(listener=reports.append, augmentation=STILL))
    ends = [report for report in reports if report.epoch_done]
    assert [report.epoch for report in ends] == [1, 2, 3]
    assert [report.images for report in ends] == [40, 80, 120]
    assert ends[-1].step == ends[-1].steps == 9
    assert ends[-1].seconds_left == 0
    assert ends[-1].loss < ends[0].loss
    assert 0 <= ends[0].accuracy <= ends[-1].accuracy <= 100


def test_the_cross_entropy_does_not_depend_on_the_weights_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits are 1 for the right class and 0 for the other: log(1 + 1/e) at every step."""
    steps = Steps(monkeypatch)
    for loss in (1.0, 2.0, 30.0, 400.0):
        steps.take(1, loss)
    assert [report.loss for report in steps.reports[1:]] == [1.0, 1.5, 11.0, 108.25]
    for report in steps.reports[1:]:
        assert report.cross_entropy == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-6)


def test_reported_loss_and_accuracy_are_means_of_the_epoch() -> None:
    seen: list[tuple[float, int, int]] = []
    reports: list[TrainingProgress] = []

    def loss(batch: Batch, output: Output, moment: Moment) -> Tensor:
        value = cross_entropy(batch, output, moment)
        if moment.epoch == 2:
            hits = int((output.logits.argmax(dim=1) == batch.labels).sum())
            seen.append((value.item(), hits, len(batch.labels)))
        return value

    quick_trainer(listener=reports.append).fit(small_network(), blobs(2, 20), always(loss))
    images = sum(count for _, _, count in seen)
    assert reports[-1].loss == pytest.approx(sum(value * count for value, _, count in seen) / images, rel=1e-5)
    assert reports[-1].cross_entropy == pytest.approx(reports[-1].loss, rel=1e-5)
    assert reports[-1].accuracy == pytest.approx(100 * sum(hits for _, hits, _ in seen) / images)
