import copy

import pytest
import torch
from torch import Tensor, nn

from cotransport.networks import backbones
from cotransport.networks.folding import fold_batch_norms
from cotransport.settings.sections import BACKBONE_NAMES, Backbone


def norms_left(module: nn.Module, size: int = 8) -> int:
    """Fold a module, check that it gives the same features, and count the batch norms that are left.

    The batch norms get random statistics and weights first, as after a training.
    """
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    module.eval()
    folded, images = fold_batch_norms(copy.deepcopy(module)), torch.randn(4, 3, size, size)
    with torch.no_grad():
        expected, found = module(images), folded(images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    return sum(isinstance(part, nn.BatchNorm2d) for part in folded.modules())


@pytest.mark.parametrize("name", BACKBONE_NAMES)
def test_backbones_are_folded(name: str) -> None:
    after_pooling = 3 if name == "fast" else 0  # a pooling layer stands between the convolution and the norm
    assert norms_left(backbones.build(Backbone(name=name), 32), 32) == after_pooling


def test_two_norms_in_a_row_are_both_folded() -> None:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.AdaptiveMaxPool2d(1), nn.Flatten()]
    assert norms_left(nn.Sequential(*layers)) == 0


def test_a_convolution_that_is_used_twice_is_not_folded() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first, self.second = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.conv(self.first(self.conv(x)))).mean(dim=(2, 3))

    assert norms_left(Shared()) == 2


def test_a_convolution_whose_output_is_used_twice_is_not_folded() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return (self.norm(y) + y).mean(dim=(2, 3))

    assert norms_left(Branching()) == 1


def test_a_convolution_with_a_reparametrised_weight_is_not_folded() -> None:
    convolution = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    assert norms_left(nn.Sequential(convolution, nn.BatchNorm2d(4), nn.AdaptiveMaxPool2d(1), nn.Flatten())) == 1


def test_modules_called_by_keyword_are_not_folded() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(input=self.conv(input=x)).mean(dim=(2, 3))

    assert norms_left(Keyword()) == 1


def test_a_backbone_that_cannot_be_traced_is_not_changed() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3)) if x.mean() > 0 else x.amax(dim=(2, 3))

    plain = Branching()
    assert fold_batch_norms(plain) is plain
