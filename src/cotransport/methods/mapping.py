"""The semantic mapping between classes, a part of methods that transport classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from cotransport.methods.base import Part

if TYPE_CHECKING:
    from torch import Tensor


class ClassMapping(Part):
    """How a transport plan between classes is computed (Eq. 6 to 8)."""

    reg: Annotated[float, Field(gt=0)] = 0.45
    """Regulariser of the transport plan. A larger value mixes each class from more classes."""
    centres: Literal["unit", "raw"] = "unit"
    """Class centres of unit-length features, or of the raw features (the letter of Eq. 7)."""

    @property
    def unit(self) -> bool:
        """Whether features and centres are brought to unit length."""
        return self.centres == "unit"

    def plan(self, centres: Tensor, origin: slice, goal: slice) -> Tensor:
        """The plan from the origin classes to the goal classes, given the centres (classes, d) of all classes."""
        from cotransport.transport import transport_cost, transport_plan

        return transport_plan(transport_cost(centres[origin], centres[goal]), self.reg)
