import pytest
import torch
from torch import Tensor, nn

from cotransport.networks import backbones
from cotransport.networks.fast_net import STEM_FILTERS, FastBlock, FastNet
from cotransport.settings.sections import Backbone


@pytest.mark.parametrize("size", [2, 8, 16, 17, 28, 32, 33, 64, 96, 224])
def test_the_fast_net_takes_images_of_any_size(size: int) -> None:
    backbone = backbones.build(Backbone(name="fast", width=8), size)
    assert backbones.feature_dimension(backbone, size) == 32
    trunk = [part for part in backbone.modules() if isinstance(part, FastBlock)]
    assert len(trunk) == 3
    inputs: list[Tensor] = []
    trunk[0].register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    backbone.train()(torch.zeros(1, 3, size, size))  # it can be trained on a single image
    assert inputs[0].shape[-1] <= 28  # larger images do not cost much more


def test_the_fast_nets_stem_whitens_patches() -> None:
    """The responses to patches are uncorrelated, and their variances are v / (v + ridge) for each direction's v."""
    torch.manual_seed(0)
    backbone = FastNet(8, 32)
    images = torch.randn(256, 3, 32, 32)
    images = 3 * nn.functional.avg_pool2d(images, 3, stride=1, padding=1)  # neighbouring pixels are similar
    backbone.fit_stem(images)
    filters = backbone.stem.flatten(1)
    half = STEM_FILTERS // 2
    assert torch.equal(filters[:half], -filters[half:])
    patches = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 48)
    responses = patches @ filters[:half].T
    covariance = torch.cov(responses.T, correction=0)
    variances = torch.linalg.eigvalsh(torch.cov(patches.T, correction=0)).flip(0)[:half]
    torch.testing.assert_close(covariance, torch.diag(variances / (variances + 0.05)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("last_relu", [True, False])
def test_features_are_negative_only_without_the_last_relu(last_relu: bool) -> None:
    torch.manual_seed(0)
    backbone = backbones.build(Backbone(name="fast", width=8, last_relu=last_relu), 32).eval()
    lowest = backbone(torch.randn(64, 3, 32, 32)).min().item()
    assert lowest >= 0 if last_relu else lowest < 0


def test_the_fast_nets_stem_is_not_trained() -> None:
    backbone = FastNet(8, 32)
    assert "stem" in backbone.state_dict()
    assert "stem" not in dict(backbone.named_parameters())
