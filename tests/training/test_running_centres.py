from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from cotransport.data import Mixed
from cotransport.training.objective import Moment
from cotransport.training.processes import processes_for
from cotransport.training.running_centres import RunningCentres
from cotransport.transport import class_centres
from tests.helpers import CPU

EVERY_STEP = Moment(1, 9, 0, 4)
"""In epochs of four steps."""


def running_centres(*, unit: bool = True) -> RunningCentres:
    return RunningCentres(5, 6, processes_for(CPU), unit=unit)


@pytest.mark.parametrize("unit", [True, False])
def test_one_batch_with_all_images_gives_the_class_centres(unit: bool) -> None:
    features, labels = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    centres = running_centres(unit=unit)
    centres.observe(features, labels, EVERY_STEP)
    torch.testing.assert_close(centres.centres(), class_centres(features, labels, 5, unit=unit))


def test_batches_of_an_epoch_ago_lose_their_weight() -> None:
    """Equal batches keep their centres. After a change, the old ones fade by 1 - 1/steps in each step."""
    centres, labels = running_centres(), torch.arange(5)
    first, second = torch.eye(5, 6), torch.eye(5, 6).roll(1, dims=0)
    for _ in range(50):
        centres.observe(first, labels, EVERY_STEP)
    torch.testing.assert_close(centres.centres(), first)
    for _ in range(4):
        centres.observe(second, labels, EVERY_STEP)
    left = (1 - 1 / 4) ** 4
    torch.testing.assert_close(centres.centres(), F.normalize(left * first + (1 - left) * second))


def test_a_mixed_image_counts_for_both_classes() -> None:
    """Features are not brought to unit length, so a centre is a weighted mean: (3/4 * 4 + 1/2 * 8) / (3/4 + 1/2)."""
    centres = RunningCentres(2, 1, processes_for(CPU), unit=False)
    mixed = Mixed(torch.tensor([1, 0]), torch.tensor([0.25, 0.5]))
    centres.observe(torch.tensor([[4.0], [8.0]]), torch.tensor([0, 1]), EVERY_STEP, mixed)
    torch.testing.assert_close(centres.centres(), torch.tensor([[7 / 1.25], [(4 / 4 + 8 / 2) / 0.75]]))


def test_a_class_that_is_missing_from_a_batch_keeps_its_centre() -> None:
    centres = running_centres()
    centres.observe(torch.eye(5, 6), torch.arange(5), EVERY_STEP)
    centres.observe(torch.ones(4, 6), torch.arange(1, 5), EVERY_STEP)
    torch.testing.assert_close(centres.centres()[0], torch.eye(5, 6)[0])
    assert not torch.allclose(centres.centres()[1], torch.eye(5, 6)[1])


def test_it_resumes_from_its_state() -> None:
    centres, resumed = running_centres(), running_centres()
    centres.observe(torch.eye(5, 6), torch.arange(5), EVERY_STEP)
    resumed.load_state_dict({name: tensor.clone() for name, tensor in centres.state_dict().items()})
    for twin in (centres, resumed):
        twin.observe(torch.ones(5, 6), torch.arange(5), EVERY_STEP)
    assert torch.equal(centres.centres(), resumed.centres())
