"""Finetune: cross-entropy on the new images alone. It keeps no exemplars, so it forgets: the lower bound."""

from __future__ import annotations

from cotransport.methods.base import Method
from cotransport.settings.sections import Budget


class Finetune(Method):
    """Cross-entropy on new images, no memory."""

    name = "finetune"
    title = "Finetune"

    def budget(self, budget: Budget) -> Budget:
        """No exemplars."""
        return Budget(total=0)
