"""iCaRL: rehearsal with distillation, and the nearest class mean at prediction (Rebuffi et al., 2017)."""

from __future__ import annotations

from typing import Literal

from cotransport.methods.rehearsal import Distilling


class ICarl(Distilling):
    """Rehearsal with distillation; the answer is the class with the nearest mean of its exemplars' features."""

    name = "icarl"
    title = "iCaRL"

    predict_with: Literal["head", "ncm"] = "ncm"
