"""Analytic: a linear discriminant on the features of a frozen backbone, computed from sums over all images.

Later tasks lose nothing of what earlier ones taught: the classifier is the one that all images at once would give, in
any order (Hayes and Kanan, 2020: deep streaming linear discriminant analysis). No image is kept, only sums of features.
This holds if the normalisation of colours does not come from the first images, as for the pretrained backbones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, field_validator

from cotransport.errors import ConfigError
from cotransport.methods.base import Method
from cotransport.settings.sections import Budget, HeadSettings

if TYPE_CHECKING:
    from cotransport.networks.heads import Head
    from cotransport.networks.network import Network
    from cotransport.training.loop import Trainer
    from cotransport.training.task_data import TaskData


class Analytic(Method):
    """A linear discriminant on frozen features: the same classifier as from all images at once; no image is kept."""

    name = "analytic"
    title = "Analytic"
    needs_frozen_backbone = True

    power: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The power to which every feature is raised, so that the features of a class are spread more evenly around their
    mean. 1 leaves them as they are. It cannot be changed after the first task."""
    shrinkage: Annotated[float, Field(gt=0, le=1)] = 0.6
    """How far the features' covariance is shrunk towards a sphere with the same mean variance: near 0, hardly; 1,
    correlations are ignored."""

    @field_validator("predict_with")
    @classmethod
    def _no_class_means(cls, value: str) -> str:
        if value == "ncm":
            raise ValueError("the nearest class mean needs exemplars, and this method keeps none. Use head")
        return value

    def budget(self, budget: Budget) -> Budget:
        """No exemplars."""
        return Budget(total=0)

    def make_head(self, dimension: int, settings: HeadSettings) -> Head:
        """A head that keeps sums of features."""
        from cotransport.networks.heads import DiscriminantHead

        return DiscriminantHead(dimension, self.power)

    def learn(self, network: Network, data: TaskData, trainer: Trainer) -> None:
        """Add the new images to the sums, and compute the classifier."""
        from cotransport.networks.heads import DiscriminantHead

        assert isinstance(network.head, DiscriminantHead)
        if not math.isclose(network.head.power.item(), self.power, rel_tol=1e-6):
            raise ConfigError(
                f"method.power: the sums of this model are of features to the power {network.head.power:g}. Keep "
                "it, or start a new model"
            )
        network.head.observe(trainer.features(network, data.new.images), data.new.labels)
        network.head.solve(self.shrinkage)
        network.head.calibrate(self.shrinkage)
