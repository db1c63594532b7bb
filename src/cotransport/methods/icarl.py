"""iCaRL: rehearsal with distillation, and the nearest class mean at prediction (Rebuffi et al., 2017)."""

from __future__ import annotations

from typing import Literal

from cotransport.methods.distilling import Distilling


class ICarl(Distilling):
    """Eq. 3, herded exemplars, and prediction by the nearest mean of the exemplars' features."""

    name = "icarl"
    title = "iCaRL"

    predict_with: Literal["head", "ncm"] = "ncm"
