from __future__ import annotations

import pytest
import torch

from cotransport.data import Batch
from cotransport.networks.network import Output
from cotransport.training.objective import Moment, Objective


@pytest.mark.parametrize(("epoch", "step", "progress"), [(0, 0, 0.0), (0, 3, 3 / 40), (5, 0, 0.5), (9, 3, 39 / 40)])
def test_progress_counts_epochs_and_steps(epoch: int, step: int, progress: float) -> None:
    assert Moment(epoch, 10, step, 4).progress == pytest.approx(progress)


def test_an_objective_is_called_like_its_loss() -> None:
    batch = Batch(torch.zeros(1, 3, 2, 2), torch.zeros(1, dtype=torch.int64), weight=1.0, total=1)
    output, moment = Output(torch.zeros(1, 4), torch.zeros(1, 2)), Moment(0, 1, 0, 1)
    objective = Objective(lambda *given: torch.tensor(float(given == (batch, output, moment))))
    assert objective(batch, output, moment).item() == 1
    assert objective.state is None
