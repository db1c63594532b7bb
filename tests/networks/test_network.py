import copy

import pytest
import torch
from torch import Tensor, nn

from cotransport.errors import ConfigError
from cotransport.networks import backbones
from cotransport.networks.folding import fold_batch_norms
from cotransport.networks.heads import CosineHead, LinearHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Backbone


def weights(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "size", "dimension"),
    [("resnet32", 32, 64), ("resnet20", 8, 64), ("resnet18", 32, 512), ("resnet18", 96, 512)],
)
def test_backbones_map_images_to_features(name: str, size: int, dimension: int) -> None:
    backbone = backbones.build(Backbone(name=name), size)
    assert backbone(torch.zeros(2, 3, size, size)).shape == (2, dimension)
    assert backbones.feature_dimension(backbone, size) == dimension


def test_resnet32_is_the_papers() -> None:
    # He et al. count 0.46 M parameters: 3 * 3 * (3 * 16 + 10 * 16 * 16 + 16 * 32 + 9 * 32 * 32 + 32 * 64 + 9 * 64 * 64)
    # in the convolutions, and twice (11 * 16 + 10 * 32 + 10 * 64) in the norms
    convolutions = 9 * (3 * 16 + 10 * 16 * 16 + 16 * 32 + 9 * 32 * 32 + 32 * 64 + 9 * 64 * 64)
    norms = 2 * (11 * 16 + 10 * 32 + 10 * 64)
    assert weights(backbones.build(Backbone(name="resnet32"), 32)) == convolutions + norms
    layers = [m for m in backbones.build(Backbone(name="resnet32"), 32).modules() if isinstance(m, nn.Conv2d)]
    assert len(layers) + 1 == 32  # and the classifier


def test_resnet18_is_the_usual_one() -> None:
    # 11,689,512 parameters with 1,000 classes (He et al.), of which the classifier has 513,000
    large = backbones.build(Backbone(name="resnet18"), 224)
    assert weights(large) == 11_689_512 - 513_000
    small = backbones.build(Backbone(name="resnet18"), 32)
    assert weights(small) == weights(large) - 64 * 3 * (7 * 7 - 3 * 3)


def test_stems_reduce_the_resolution_as_they_say() -> None:
    images = torch.zeros(1, 3, 64, 64)
    assert backbones.small_stem(8)(images).shape == (1, 8, 64, 64)
    assert backbones.large_stem(8)(images).shape == (1, 8, 16, 16)
    chosen = backbones.build(Backbone(name="resnet18", stem="large"), 32)
    assert any(isinstance(module, nn.MaxPool2d) for module in chosen.modules())


def test_unknown_backbone_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'resnet23' is not known; did you mean 'resnet.*Known: .*resnet18"):
        backbones.build(Backbone(name="resnet23"), 32)


def test_a_module_that_gives_no_vectors_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"one image gave \(1, 3, 8, 8\)"):
        backbones.feature_dimension(nn.Identity(), 8)


def head_with(weight: list[list[float]], scale: float) -> CosineHead:
    head = CosineHead(len(weight[0]), scale)
    head.weight = nn.Parameter(torch.tensor(weight))
    return head


def test_cosine_head_by_hand() -> None:
    head = head_with([[3.0, 4.0], [-1.0, 0.0]], scale=10.0)
    # the feature (0, 2) has cosine 4 / 5 with the first class and 0 with the second
    torch.testing.assert_close(head(torch.tensor([[0.0, 2.0]])), torch.tensor([[8.0, 0.0]]))


def test_logits_do_not_depend_on_lengths() -> None:
    head = head_with([[1.0, 2.0], [2.0, -1.0]], scale=5.0)
    longer = head_with([[3.0, 6.0], [4.0, -2.0]], scale=5.0)
    features = torch.tensor([[0.3, -0.7]])
    torch.testing.assert_close(head(features), longer(10 * features))


def test_growing_keeps_old_weights_and_scale() -> None:
    head = head_with([[1.0, 2.0]], scale=7.0)
    head.grow(3)
    assert head.classes == 4
    assert head.weight[0].tolist() == [1.0, 2.0]
    assert head.weight.requires_grad
    assert head.scale.item() == 7.0
    assert len({tuple(row) for row in head.weight.tolist()}) == 4


def test_linear_head_by_hand() -> None:
    head = LinearHead(2, 0.5, bias=True)
    head.grow(2)
    assert head.bias is not None
    assert head.bias.tolist() == [0.0, 0.0]
    head.weight, head.bias = (
        nn.Parameter(torch.tensor([[3.0, 4.0], [-1.0, 0.0]])),
        nn.Parameter(torch.tensor([0.0, 2.0])),
    )
    features = torch.tensor([[1.0, 2.0]])
    # dot products 11 and -1, halved, and a bias
    torch.testing.assert_close(head(features), torch.tensor([[5.5, 1.5]]))
    torch.testing.assert_close(head.logits(features, torch.tensor([[2.0, 1.0]])), torch.tensor([[2.0]]))
    head.grow(1)
    torch.testing.assert_close(head(features)[:, :2], torch.tensor([[5.5, 1.5]]))
    assert head.bias[2].item() == 0


def test_growing_by_nothing() -> None:
    head = head_with([[1.0, 2.0]], scale=7.0)
    head.grow(0)
    assert head.weight.tolist() == [[1.0, 2.0]]


def small_network() -> Network:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = CosineHead(4, 10.0)
    head.grow(2)
    return Network(backbone, head, torch.tensor([10.0, 20.0, 30.0]), torch.tensor([1.0, 2.0, 3.0]))


class Recorder(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        self.seen = images
        return images.mean(dim=(2, 3))


def test_images_are_normalised_by_colour() -> None:
    recorder = Recorder()
    head = CosineHead(3, 10.0)
    network = Network(recorder, head, torch.tensor([10.0, 20.0, 30.0]), torch.tensor([1.0, 2.0, 4.0]))
    network(torch.full((1, 3, 2, 2), 30, dtype=torch.uint8))
    # (30 - 10) / 1, (30 - 20) / 2, (30 - 30) / 4
    assert recorder.seen[0, :, 0, 0].tolist() == [20.0, 5.0, 0.0]


def test_a_frozen_copy_stays_as_it_is() -> None:
    network = small_network().train()
    frozen = network.frozen()
    images = torch.randint(0, 255, (4, 3, 8, 8)).float()
    before = frozen(images).logits
    output = network(images)  # moves the running statistics of the original
    output.logits.sum().backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(frozen(images).logits, before)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_statistics_are_part_of_the_state() -> None:
    state = small_network().state_dict()
    assert state["mean"].flatten().tolist() == [10.0, 20.0, 30.0]
    assert "head.scale" in state


def in_use(module: nn.Module) -> nn.Module:
    """A module whose batch norms have statistics and weights as after a training."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return module.eval()


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


@pytest.mark.parametrize("name", [*backbones.BACKBONES])
def test_a_folded_backbone_gives_the_same_features(name: str) -> None:
    plain = in_use(backbones.build(Backbone(name=name), 32))
    images = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        expected, found = plain(images), fold_batch_norms(copy.deepcopy(plain))(images)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))
    after_pools = 3 if name == "fast" else 0  # their convolutions are not right before them
    assert norms(fold_batch_norms(copy.deepcopy(plain))) == after_pools


def test_a_convolution_that_is_used_twice_is_not_folded() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first, self.second = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.conv(self.first(self.conv(x)))).mean(dim=(2, 3))

    plain, images = in_use(Shared()), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(fold_batch_norms(copy.deepcopy(plain))(images), plain(images))
    assert norms(fold_batch_norms(plain)) == 2


def test_a_convolution_whose_output_is_needed_twice_is_not_folded() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return (self.norm(y) + y).mean(dim=(2, 3))

    plain, images = in_use(Branching()), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(fold_batch_norms(copy.deepcopy(plain))(images), plain(images))


def test_two_norms_in_a_row_are_both_folded() -> None:
    plain = in_use(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.AdaptiveMaxPool2d(1), nn.Flatten())
    )
    images = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(fold_batch_norms(copy.deepcopy(plain))(images), plain(images))
    assert norms(fold_batch_norms(plain)) == 0


def test_a_convolution_with_a_reparametrised_weight_is_not_folded() -> None:
    convolution = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    plain = in_use(nn.Sequential(convolution, nn.BatchNorm2d(4), nn.AdaptiveMaxPool2d(1), nn.Flatten()))
    images = torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(fold_batch_norms(copy.deepcopy(plain))(images), plain(images))
    assert norms(fold_batch_norms(plain)) == 1


def test_modules_called_by_keyword_do_no_harm() -> None:
    class Keyword(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(input=self.conv(input=x)).mean(dim=(2, 3))

    plain, images = in_use(Keyword()), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(fold_batch_norms(copy.deepcopy(plain))(images), plain(images))


def test_a_backbone_that_cannot_be_traced_is_left_alone() -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3)) if x.mean() > 0 else x.amax(dim=(2, 3))

    plain = Choosing()
    assert fold_batch_norms(plain) is plain


@pytest.mark.parametrize("size", [2, 8, 16, 17, 28, 32, 33, 64, 96, 224])
def test_the_fast_net_takes_images_of_any_size(size: int) -> None:
    backbone = backbones.build(Backbone(name="fast", width=8), size)
    assert backbones.feature_dimension(backbone, size) == 32
    trunk = [part for part in backbone.modules() if isinstance(part, backbones.FastBlock)]
    assert len(trunk) == 3
    inputs: list[Tensor] = []
    trunk[0].register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    backbone.train()(torch.zeros(1, 3, size, size))  # a single image is enough to train on
    assert inputs[0].shape[-1] <= 28  # so larger images do not cost much more


def test_the_fast_nets_stem_whitens_patches() -> None:
    """The responses to patches are uncorrelated, and their variances are v / (v + ridge) for each direction's v."""
    torch.manual_seed(0)
    backbone = backbones.FastNet(8, 32)
    images = torch.randn(256, 3, 32, 32)
    images = 3 * nn.functional.avg_pool2d(images, 3, stride=1, padding=1)  # neighbours resemble each other
    backbone.look_at(images)
    filters = backbone.stem.flatten(1)
    half = backbones.STEM_FILTERS // 2
    assert torch.equal(filters[:half], -filters[half:])
    patches = images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(-1, 48)
    responses = patches @ filters[:half].T
    covariance = torch.cov(responses.T, correction=0)
    variances = torch.linalg.eigvalsh(torch.cov(patches.T, correction=0)).flip(0)[:half]
    torch.testing.assert_close(covariance, torch.diag(variances / (variances + 0.05)), rtol=1e-3, atol=1e-3)


def test_the_fast_nets_stem_is_not_trained() -> None:
    backbone = backbones.FastNet(8, 32)
    assert "stem" in backbone.state_dict()
    assert "stem" not in dict(backbone.named_parameters())
