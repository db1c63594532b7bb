"""Networks of timm: by a stand-in for the library, and by the library itself where it can be imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cotransport.errors import ConfigError
from cotransport.networks.libraries import timm_models
from cotransport.networks.libraries.backbone import build, load, published
from cotransport.settings.sections import Backbone
from tests.networks.libraries.helpers import (
    COMMIT,
    install_timm,
    library_or_skip,
    network,
    publish_on_timms_hub,
    published_weights,
)


def folder(place: Path, **changes: Any) -> Path:
    """A network in the layout of timm's hub."""
    place.mkdir(exist_ok=True)
    seen = {"tag": "a1", "input_size": [3, 24, 24], "crop_pct": 1.0, "mean": [0.5], "std": [0.5]}
    config = {"architecture": "tiny", "num_classes": 10, "pretrained_cfg": seen} | changes
    (place / "config.json").write_text(json.dumps(config))
    save_file(published_weights(), place / "model.safetensors")
    return place


class TestByName:
    def test_features_are_those_before_the_classifier(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        install_timm(monkeypatch)
        publish_on_timms_hub(monkeypatch, tmp_path)
        backbone = load(Backbone(name="timm:tiny")).eval()
        whole = network()
        whole.load_state_dict(published_weights())
        images = torch.randn(2, 3, 16, 16)
        assert torch.equal(backbone(images), whole.eval()[:-1](images))  # type: ignore[index]

    def test_the_record_says_what_is_needed_to_build_it_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        calls = install_timm(monkeypatch)
        publish_on_timms_hub(monkeypatch, tmp_path)
        record = load(Backbone(name="timm:tiny")).record
        assert (record.library, record.model, record.weights) == ("timm", "tiny.a1", f"timm/tiny.a1@{COMMIT}")
        assert (record.image_size, record.crop) == (16, 0.5)
        assert record.mean == (127.5, 63.75, 0)
        assert record.deviation == (127.5, 127.5, 63.75)
        assert build(record, published_weights()).record == record
        assert calls[-1] == {"name": "tiny.a1", "pretrained": False, "num_classes": 0}  # nothing is downloaded

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("tinny", "timm does not know 'tinny'; did you mean 'tiny'"),
            ("tiny.b2", r"timm:tiny\.b2: Invalid pretrained tag \(b2\)"),
            ("tiny.pickled", "has no weights on the Hugging Face hub"),
        ],
    )
    def test_names_that_timm_does_not_know(self, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
        install_timm(monkeypatch)
        with pytest.raises(ConfigError, match=message):
            published(f"timm:{name}")


class TestFolder:
    def test_is_recognised_by_its_configuration(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        calls = install_timm(monkeypatch)
        arguments = {"num_classes": 10, "in_chans": 3, "global_pool": "avg"}
        record = load(Backbone(name=f"folder:{folder(tmp_path, model_args=arguments)}")).record
        assert (record.library, record.model, record.image_size) == ("timm", "tiny.a1", 24)
        assert record.config == {"global_pool": "avg"}
        assert record.mean == (127.5, 127.5, 127.5)
        build(record, published_weights())
        assert calls[-1] == {"name": "tiny.a1", "pretrained": False, "num_classes": 0, "global_pool": "avg"}

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"architecture": "hf-hub:owner/evil"}, "write timm:NAME"),
            ({"architecture": "tinny"}, "timm does not know 'tinny'"),
            ({"model_args": {"checkpoint_path": "evil.pth"}}, "model_args: checkpoint_path is not supported"),
            ({"model_args": {"in_chans": 1}}, "does not take images with three colours"),
        ],
    )
    def test_what_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        install_timm(monkeypatch)
        with pytest.raises(ConfigError, match=message):
            published(f"folder:{folder(tmp_path, **changes)}")

    def test_only_safetensors_are_read(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        install_timm(monkeypatch)
        (folder(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
        with pytest.raises(ConfigError, match=r"model\.safetensors: no such file"):
            load(Backbone(name=f"folder:{tmp_path}"))

    def test_weights_of_another_network_are_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        install_timm(monkeypatch)
        save_file({"other": torch.zeros(1)}, folder(tmp_path) / "model.safetensors")
        with pytest.raises(ConfigError, match=r"model\.safetensors: does not fit timm's tiny\.a1"):
            load(Backbone(name=f"folder:{tmp_path}"))


def test_a_records_arguments_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    install_timm(monkeypatch)
    with pytest.raises(ConfigError, match="checkpoint_path is not supported"):
        timm_models.build("tiny.a1", {"checkpoint_path": "evil.pth"})


class TestReal:
    def test_the_library_itself(self, tmp_path: Path) -> None:
        timm = library_or_skip("timm")
        whole = timm.create_model("resnet18.a1_in1k", pretrained=False).eval()
        config = {"architecture": "resnet18", "pretrained_cfg": whole.pretrained_cfg}
        (tmp_path / "config.json").write_text(json.dumps(config))
        save_file(whole.state_dict(), tmp_path / "model.safetensors")
        backbone = load(Backbone(name=f"folder:{tmp_path}")).eval()
        assert published("timm:resnet18.a1_in1k").image_size == backbone.record.image_size == 224
        images = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            expected = whole.forward_head(whole.forward_features(images), pre_logits=True)
            torch.testing.assert_close(backbone(images), expected)
        again = build(backbone.record, backbone.state_dict())
        again.load_state_dict(backbone.state_dict())
