"""Trainings that end early: the decision, the learning rate after it, and what is resumed. Steps of two images."""

from __future__ import annotations

import pytest
import torch

from cotransport.data import Batch
from cotransport.networks.network import Output
from cotransport.settings.sections import Schedule
from cotransport.training.early_end import EarlyEnd
from cotransport.training.processes import processes_for
from tests.helpers import CPU

PLANNED, STEPS = 10, 2


def early_end(**settings: object) -> EarlyEnd:
    schedule = Schedule(**{"shape": "constant", "enough": 0.75, **settings})  # type: ignore[arg-type]
    return EarlyEnd(schedule, processes_for(CPU), STEPS)


def feed(end: EarlyEnd, right: list[int], planned: int = PLANNED, first: int = 0) -> EarlyEnd:
    """Steps with so many right answers of two, from step `first` on."""
    images, labels = torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])
    for number, count in enumerate(right, first):
        predicted = [0, 1] if count == 2 else [0, 0] if count else [1, 0]
        output = Output(torch.zeros(2, 4), torch.eye(2)[predicted])
        end.update(number, planned, Batch(images, labels, 1.0, 2), output)
    return end


def test_it_is_decided_when_enough_images_of_an_epoch_are_recognised() -> None:
    end = feed(early_end(), [2, 0, 0, 2])  # a half in both epochs
    assert end.epochs(PLANNED) == PLANNED
    feed(end, [1, 2], first=4)  # three quarters
    assert end.epochs(PLANNED) == 3 + 2


def test_then_the_learning_rate_falls_to_zero() -> None:
    end = feed(early_end(), [0, 0, 2, 2])
    assert end.epochs(PLANNED) == 3
    assert [end.learning_rate_factor(step, PLANNED) for step in (4, 5)] == pytest.approx([0.75, 0.25])


def test_it_falls_from_where_it_was() -> None:
    """After two of ten epochs, a warm-up of five has reached two fifths."""
    end = feed(early_end(warmup=0.5), [0, 0, 2, 2])
    assert [end.learning_rate_factor(step, PLANNED) for step in (4, 5)] == pytest.approx([0.4 * 0.75, 0.4 * 0.25])


@pytest.mark.parametrize(("planned", "epochs"), [(2, 2), (3, 3), (4, 3)])
def test_a_training_that_would_not_end_earlier_stays_as_planned(planned: int, epochs: int) -> None:
    end = feed(early_end(shape="cosine"), [0, 0, 2, 2], planned)
    assert end.epochs(planned) == epochs


def test_by_default_nothing_ends_early() -> None:
    end = feed(early_end(enough=None), [2, 2, 2, 2])
    assert end.epochs(PLANNED) == PLANNED
    assert end.state_dict() == {}


@pytest.mark.parametrize("done", [1, 3, 4])
def test_it_resumes_within_an_epoch_and_after_the_decision(done: int) -> None:
    right = [1, 1, 1, 2, 0, 0]
    whole, again = feed(early_end(), right), early_end()
    again.load_state_dict({name: value.clone() for name, value in feed(early_end(), right[:done]).state_dict().items()})
    feed(again, right[done:], first=done)
    assert whole.epochs(PLANNED) == again.epochs(PLANNED) == 3
