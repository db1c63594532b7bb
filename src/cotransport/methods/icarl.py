"""iCaRL: rehearsal with distillation, and the nearest class mean at prediction (Rebuffi et al., 2017)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cotransport.methods.base import Method
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.rehearsal import Rehearsal, distilled_objective
from cotransport.methods.retrospection import Retrospection

if TYPE_CHECKING:
    from cotransport.networks.network import Network
    from cotransport.training.loop import Trainer
    from cotransport.training.objective import Objective
    from cotransport.training.task_data import TaskData


class ICarl(Method):
    """Rehearsal with distillation; it predicts the class with the nearest mean of its exemplars' features."""

    name = "icarl"
    title = "iCaRL"

    predict_with: Literal["head", "ncm"] = "ncm"
    rehearsal: Rehearsal = Rehearsal()
    retrospection: Retrospection = Retrospection()
    mapping: ClassMapping = ClassMapping()

    def objective(self, network: Network, data: TaskData, trainer: Trainer) -> Objective:
        """Eq. 3, and Eq. 5 if its weight is not 0."""
        return distilled_objective(self.rehearsal, self.retrospection, self.mapping, network, data, trainer)
