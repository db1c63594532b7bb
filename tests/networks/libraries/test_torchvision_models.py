"""Networks of torchvision: by a stand-in for the library, and by the library itself where it can be imported."""

from __future__ import annotations

import pytest
import torch

from cotransport.errors import ConfigError
from cotransport.networks.libraries import torchvision_models
from cotransport.networks.libraries.backbone import build, load, published
from cotransport.settings.sections import Backbone
from tests.networks.libraries.helpers import install_torchvision, library_or_skip, network, published_weights

NAME = "torchvision:tiny@IMAGENET1K_V1"


def test_features_are_those_before_the_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    install_torchvision(monkeypatch)
    whole = network()
    whole.load_state_dict(published_weights())
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(load(Backbone(name=NAME)).eval()(images), whole.eval()[:-1](images))  # type: ignore[index]


def test_weights_are_read_without_running_code(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install_torchvision(monkeypatch)
    load(Backbone(name=NAME))
    assert calls == [
        {
            "url": "https://example.org/tiny-v1.pth",
            "progress": False,
            "check_hash": True,
            "weights_only": True,
            "map_location": "cpu",
        }
    ]


def test_the_record_says_what_is_needed_to_build_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = install_torchvision(monkeypatch)
    backbone = load(Backbone(name=NAME))
    record = backbone.record
    assert (record.library, record.model) == ("torchvision", "tiny")
    assert record.weights == "https://example.org/tiny-v1.pth"
    assert (record.image_size, record.crop) == (16, 16 / 20)
    assert record.mean == (127.5, 63.75, 0)
    again = build(record, backbone.state_dict())
    assert again.state_dict().keys() == backbone.state_dict().keys()
    assert len(calls) == 1  # nothing is downloaded again


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tinny@IMAGENET1K_V1", "no suitable network 'tinny'; did you mean 'tiny'"),
        ("squeezenet1_0@IMAGENET1K_V1", "no suitable network 'squeezenet1_0'"),
        ("tiny@V3", "no weights 'V3' of tiny. Known: IMAGENET1K_V1, IMAGENET1K_V2$"),
    ],
)
def test_names_that_torchvision_does_not_know(monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    install_torchvision(monkeypatch)
    with pytest.raises(ConfigError, match=message):
        published(f"torchvision:{name}")


def test_weights_that_cannot_be_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    install_torchvision(monkeypatch)
    monkeypatch.setattr("tests.networks.libraries.helpers.published_weights", lambda: {"other": torch.zeros(1)})
    with pytest.raises(ConfigError, match="the weights IMAGENET1K_V1 of torchvision's tiny cannot be loaded"):
        load(Backbone(name=NAME))


@pytest.mark.parametrize(
    ("name", "weights", "dimension"),
    [
        ("resnet18", "IMAGENET1K_V1", 512),
        ("mobilenet_v3_small", "IMAGENET1K_V1", 1024),
        ("regnet_y_400mf", "IMAGENET1K_V2", 440),
    ],
)
def test_the_library_itself(name: str, weights: str, dimension: int) -> None:
    library_or_skip("torchvision")
    assert published(f"torchvision:{name}@{weights}").image_size == 224
    assert torchvision_models.build(name).eval()(torch.zeros(1, 3, 64, 64)).shape == (1, dimension)
