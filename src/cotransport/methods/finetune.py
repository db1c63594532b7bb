"""Finetune: cross-entropy on the new images alone. It keeps no exemplars and forgets; the lower bound."""

from __future__ import annotations

from cotransport.config import Budget
from cotransport.methods.base import Method


class Finetune(Method):
    """Cross-entropy on new images, no memory."""

    name = "finetune"
    title = "Finetune"

    def budget(self, budget: Budget) -> Budget:
        """No exemplars."""
        return Budget(total=0)
