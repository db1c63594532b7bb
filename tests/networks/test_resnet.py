import torch
from torch import nn

from cotransport.networks import backbones
from cotransport.networks.resnet import large_stem, small_stem
from cotransport.settings.sections import Backbone


def weights(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_resnet32_has_the_published_size() -> None:
    # He et al. count 0.46 M parameters: 3 * 3 * (3 * 16 + 10 * 16 * 16 + 16 * 32 + 9 * 32 * 32 + 32 * 64 + 9 * 64 * 64)
    # in the convolutions, and twice (11 * 16 + 10 * 32 + 10 * 64) in the norms
    convolutions = 9 * (3 * 16 + 10 * 16 * 16 + 16 * 32 + 9 * 32 * 32 + 32 * 64 + 9 * 64 * 64)
    norms = 2 * (11 * 16 + 10 * 32 + 10 * 64)
    assert weights(backbones.build(Backbone(name="resnet32"), 32)) == convolutions + norms
    layers = [m for m in backbones.build(Backbone(name="resnet32"), 32).modules() if isinstance(m, nn.Conv2d)]
    assert len(layers) + 1 == 32  # and the classifier


def test_resnet18_has_the_published_size() -> None:
    # 11,689,512 parameters with 1,000 classes (He et al.), of which the classifier has 513,000
    large = backbones.build(Backbone(name="resnet18"), 224)
    assert weights(large) == 11_689_512 - 513_000
    small = backbones.build(Backbone(name="resnet18"), 32)
    assert weights(small) == weights(large) - 64 * 3 * (7 * 7 - 3 * 3)


def test_stems_keep_or_reduce_the_resolution() -> None:
    images = torch.zeros(1, 3, 64, 64)
    assert small_stem(8)(images).shape == (1, 8, 64, 64)
    assert large_stem(8)(images).shape == (1, 8, 16, 16)
    chosen = backbones.build(Backbone(name="resnet18", stem="large"), 32)
    assert any(isinstance(module, nn.MaxPool2d) for module in chosen.modules())
