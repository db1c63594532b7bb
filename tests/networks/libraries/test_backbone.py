"""Backbones of other libraries in a classifier: learned with, saved, and loaded without a download."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.model.store import ModelStore
from cotransport.networks.libraries.backbone import checksum, load, published
from cotransport.settings.sections import Backbone
from tests.conftest import blobs, classifier
from tests.networks.libraries.helpers import (
    hub_cache,
    install_timm,
    publish_on_timms_hub,
    published_weights,
)

TEST = blobs(3, 4, seed=5)


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> IncrementalClassifier:
    """A classifier on a frozen network of the stand-in for timm, after two tasks."""
    install_timm(monkeypatch)
    publish_on_timms_hub(monkeypatch, tmp_path / "hub")
    clf = classifier("analytic", freeze_backbone=True).set_params(backbone="timm:tiny.a1")
    return clf.learn(blobs(2, 6)).learn(blobs(1, 6, first=2))  # type: ignore[no-any-return]


def changed(clf: IncrementalClassifier, **changes: Any) -> None:
    """Restore a classifier whose record was changed by a stranger."""
    snapshot = snapshot_of(clf.state_, clf.settings_)
    snapshot.settings["backbone"].update(changes)
    restored(snapshot)


def test_images_are_normalised_as_the_weights_expect(taught: IncrementalClassifier) -> None:
    assert taught.state_.network.mean.flatten().tolist() == [127.5, 63.75, 0]
    assert taught.state_.network.deviation.flatten().tolist() == [127.5, 127.5, 63.75]


def test_a_saved_model_needs_the_library_but_no_download(
    taught: IncrementalClassifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taught.save(tmp_path / "model")
    hub_cache(monkeypatch, tmp_path / "empty hub", "timm/tiny.a1", "main")
    loaded = IncrementalClassifier.load(tmp_path / "model")
    assert torch.equal(loaded.scores(TEST).head, taught.scores(TEST).head)
    loaded.learn(blobs(1, 6, first=3)).save(tmp_path / "model")
    assert len(list((tmp_path / "model" / "tensors").iterdir())) == 1  # stored once for both versions
    with pytest.raises(ConfigError, match=r"model\.safetensors is not on this machine, and the hub does not give it"):
        classifier("analytic", freeze_backbone=True).set_params(backbone="timm:tiny.a1").learn(blobs(2, 6))


def test_the_model_says_where_its_weights_came_from(taught: IncrementalClassifier, tmp_path: Path) -> None:
    taught.save(tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "versions" / "0001" / "model.json").read_text())["settings"]
    own = {name: tensor for name, tensor in published_weights().items() if not name.startswith("fc.")}
    assert settings["backbone"]["name"] == "timm:tiny.a1"
    assert settings["backbone"]["library"]["weights"].startswith("timm/tiny.a1@0123456789abcdef")
    assert settings["backbone"]["library"]["sha256"] == checksum(own)


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    taught: IncrementalClassifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taught.save(tmp_path / "model")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    for use in (lambda: IncrementalClassifier.load(tmp_path / "model"), lambda: published("timm:tiny")):
        with pytest.raises(ConfigError, match="needs timm, which is not installed: pip install timm"):
            use()


def test_a_library_that_does_not_fit_torch_is_named(taught: IncrementalClassifier, monkeypatch: Any) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nmore")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(
        ConfigError, match=r"timm, which cannot be imported \(operator torchvision::nms does not exist\)"
    ):
        published("timm:tiny")


def test_it_can_be_trained_too(taught: IncrementalClassifier, tmp_path: Path) -> None:
    clf = classifier("replay").set_params(backbone={"name": "timm:tiny.a1", "dimension": 4}).learn(blobs(2, 6))
    clf.save(tmp_path / "trained")
    loaded = IncrementalClassifier.load(tmp_path / "trained")
    assert torch.equal(loaded.scores(TEST).head, clf.scores(TEST).head)
    trained = loaded.state_.network.state_dict()["backbone.0.network.conv1.weight"]
    assert not torch.equal(trained, published_weights()["conv1.weight"])


def test_weights_that_have_changed_are_refused(taught: IncrementalClassifier, monkeypatch: Any, tmp_path: Path) -> None:
    taught.save(tmp_path / "model")
    loaded = IncrementalClassifier.load(tmp_path / "model")
    files = hub_cache(monkeypatch, tmp_path / "other hub", "timm/tiny.a1", "main")
    save_file(published_weights(seed=6), files / "model.safetensors")
    with pytest.raises(ConfigError, match=r"the weights of timm:tiny\.a1 have changed since the model was made"):
        loaded.fit(blobs(2, 6))


class TestStrangers:
    """Models with records that no training has written."""

    def test_without_a_record_nothing_is_downloaded(self, taught: IncrementalClassifier, monkeypatch: Any) -> None:
        monkeypatch.setattr("cotransport.networks.libraries.timm_models.hub_file", lambda *_: pytest.fail("download"))
        with pytest.raises(ModelError, match=r"backbone\.library: missing"):
            changed(taught, library=None)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model": "hf-hub:owner"}, "model"),
            ({"model": "other"}, "timm does not know 'other'"),
            ({"config": {"checkpoint_path": "evil.pth"}}, "checkpoint_path is not supported"),
            ({"library": "torch"}, "library: 'torch' is not allowed"),
        ],
    )
    def test_a_wrong_record_is_refused(self, taught: IncrementalClassifier, change: Any, message: str) -> None:
        record = snapshot_of(taught.state_, taught.settings_).settings["backbone"]["library"]
        with pytest.raises(ModelError, match=message):
            changed(taught, library=record | change)

    def test_a_layer_that_is_larger_than_the_weights_is_refused(self, taught: IncrementalClassifier) -> None:
        with pytest.raises(ModelError, match="the weights do not fit the network, which is larger"):
            changed(taught, dimension=10**9)

    def test_a_network_that_is_larger_than_the_weights_is_refused(
        self, taught: IncrementalClassifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.networks.libraries.helpers.network", lambda classes: torch.nn.Linear(2**22, 2))
        with torch.device("meta"), pytest.raises(ModelError, match="the network, which is larger"):
            changed(taught)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json cannot be read.*Give a folder with config\.json and model"):
        load(Backbone(name=f"folder:{tmp_path}"))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="is not a network's configuration"):
        load(Backbone(name=f"folder:{tmp_path}"))


def test_the_checksum_depends_on_names_shapes_and_values() -> None:
    one = {"a": torch.zeros(2), "b": torch.ones(1)}
    assert checksum(one) == checksum(dict(reversed(one.items())))
    others = [{"a": torch.zeros(2)}, one | {"a": torch.zeros(1, 2)}, one | {"b": torch.zeros(1)}]
    assert checksum(one) not in {checksum(other) for other in others}


def test_old_models_have_no_record(tmp_path: Path) -> None:
    clf = classifier("replay").learn(blobs(2, 6))
    clf.save(tmp_path)
    assert ModelStore(tmp_path).read().settings["backbone"]["library"] is None
