"""Analytic: a linear discriminant on the features of a fixed backbone, computed from sums over all images.

Nothing is forgotten: learning classes one after another gives the same classifier as learning all at once, in any order
(Hayes and Kanan, 2020: deep streaming linear discriminant analysis). No image is kept, only sums of features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from cotransport.methods.base import Method
from cotransport.settings.sections import Budget, HeadSettings

if TYPE_CHECKING:
    from cotransport.networks.heads import Head
    from cotransport.networks.network import Network
    from cotransport.training.loop import Trainer
    from cotransport.training.task_data import TaskData


class Analytic(Method):
    """A linear discriminant on fixed features, without training: nothing is forgotten, and no image is kept."""

    name = "analytic"
    title = "Analytic"
    needs_fixed_features = True

    shrinkage: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the features' covariance that is replaced by its mean variance in all directions."""

    def budget(self, budget: Budget) -> Budget:
        """No exemplars."""
        return Budget(total=0)

    def make_head(self, dimension: int, settings: HeadSettings) -> Head:
        """A head that keeps sums of features."""
        from cotransport.networks.heads import DiscriminantHead

        return DiscriminantHead(dimension)

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Add the new images to the sums, and compute the classifier."""
        from cotransport.networks.heads import DiscriminantHead

        assert isinstance(network.head, DiscriminantHead)
        network.head.observe(trainer.features(network, data.new.images), data.new.labels)
        network.head.solve(self.shrinkage)
