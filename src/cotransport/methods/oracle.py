"""Oracle: joint training on all images seen, from scratch at every task. The upper bound, outside the protocol."""

from __future__ import annotations

from cotransport.methods.base import Method
from cotransport.settings.sections import Budget


class Oracle(Method):
    """Replay with an unlimited memory, from scratch at every task."""

    name = "oracle"
    title = "Oracle"
    from_scratch = True

    def budget(self, budget: Budget) -> None:
        """Every image is kept."""
        return
