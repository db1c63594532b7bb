"""The semantic mapping between classes: a part of the methods that transport classifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from cotransport.methods.base import Part

if TYPE_CHECKING:
    from torch import Tensor


class ClassMapping(Part):
    """How a transport plan between classes is computed (Eq. 6 to 8)."""

    reg: Annotated[float, Field(gt=0)] = 0.45
    """Strength of the transport plan's regularisation. With a larger value, each class is mixed from more classes."""
    centres: Literal["unit", "raw"] = "unit"
    """Class centres of unit-length features (`unit`), or of the features themselves, exactly as in Eq. 7 (`raw`)."""

    @property
    def unit(self) -> bool:
        """Whether features and centres are brought to unit length."""
        return self.centres == "unit"

    def plan(self, centres: Tensor, origin: slice, goal: slice) -> Tensor:
        """The plan from the origin classes to the goal classes, given the centres (classes, d) of all classes."""
        from cotransport.transport import transport_cost, transport_plan

        return transport_plan(transport_cost(centres[origin], centres[goal]), self.reg)
