import pytest
import torch
from torch import nn

from cotransport.errors import ConfigError
from cotransport.networks import backbones
from cotransport.networks.fast_net import FastNet
from cotransport.settings.sections import BACKBONE_NAMES, Backbone


def test_every_known_name_can_be_built() -> None:
    assert tuple(backbones.BACKBONES) == BACKBONE_NAMES


@pytest.mark.parametrize(
    ("name", "size", "dimension"),
    [("resnet32", 32, 64), ("resnet20", 8, 64), ("resnet18", 32, 512), ("resnet18", 96, 512)],
)
def test_backbones_map_images_to_features(name: str, size: int, dimension: int) -> None:
    backbone = backbones.build(Backbone(name=name), size)
    assert backbone(torch.zeros(2, 3, size, size)).shape == (2, dimension)
    assert backbones.feature_dimension(backbone, size) == dimension


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"backbone\.name: 'resnet23' is not known"):
        backbones.build(Backbone(name="resnet23"), 32)


def test_the_features_may_have_another_length() -> None:
    backbone = backbones.build(Backbone(name="resnet8", dimension=2), 8)
    assert backbone(torch.randn(4, 3, 8, 8)).shape == (4, 2)
    assert backbones.feature_dimension(backbone, 8) == 2


def test_short_features_are_centred_in_training() -> None:
    backbone = backbones.build(Backbone(name="resnet8", dimension=2), 8).train()
    features = backbone(torch.randn(64, 3, 8, 8))
    torch.testing.assert_close(features.mean(dim=0), torch.zeros(2), atol=1e-4, rtol=0)
    assert torch.isfinite(backbone(torch.randn(1, 3, 8, 8))).all()  # a single image has no deviation


def test_the_fast_net_is_found_with_and_without_layers_after_it() -> None:
    for dimension in (None, 2):
        backbone = backbones.build(Backbone(name="fast", width=8, dimension=dimension), 8)
        assert isinstance(backbones.find_fast_net(backbone), FastNet)
    assert backbones.find_fast_net(backbones.build(Backbone(name="resnet8"), 8)) is None


def test_a_module_that_gives_no_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"one image gave \(1, 3, 8, 8\)"):
        backbones.feature_dimension(nn.Identity(), 8)
