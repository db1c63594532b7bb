"""Networks of transformers: small ones with random weights, saved by the library itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, CotransportWarning, ModelError
from cotransport.learner.onnx import export
from cotransport.networks.folding import fold_batch_norms
from cotransport.networks.libraries import transformers_models
from cotransport.networks.libraries.backbone import build, load, published
from cotransport.settings.sections import Backbone
from cotransport.settings.validation import validated
from tests.conftest import blobs, classifier
from tests.networks.libraries.helpers import COMMIT, hub_cache

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")

SMALL_VIT = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
VIT = {**SMALL_VIT, "image_size": 32, "patch_size": 8}
CONVNEXT = {"hidden_sizes": [4, 8, 8, 8], "depths": [1, 1, 1, 1]}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 4, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2}
SMALL: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("beit", "clip_vision_model", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit"), VIT),
    **dict.fromkeys(("siglip_vision_model", "vit", "vit_msn"), VIT),
    **dict.fromkeys(("convnext", "convnextv2", "dinov3_convnext"), CONVNEXT),
    **dict.fromkeys(("swin", "swinv2"), SWIN),
    "bit": {"embedding_size": 8, "hidden_sizes": [32, 32], "depths": [1, 1], "num_groups": 2},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.1, "hidden_dim": 320},
    "mobilenet_v1": {"depth_multiplier": 0.25},
    "mobilenet_v2": {"depth_multiplier": 0.35},
    "regnet": {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "groups_width": 4},
    "resnet": {"embedding_size": 4, "hidden_sizes": [4, 6], "depths": [1, 1], "layer_type": "basic"},
}
IMAGES = {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}
COLOURS = {"image_mean": [0.5, 0.25, 0.0], "image_std": [0.5, 0.5, 0.25]}


def saved(folder: Path, kind: str, *, images: dict[str, Any] | None = None, classifies: bool = False) -> Path:
    """A small network with random weights, as the library saves it."""
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind])
    made = transformers.AutoModelForImageClassification if classifies else transformers.AutoModel
    torch.manual_seed(3)
    made.from_config(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**IMAGES, **COLOURS} if images is None else images))
    return folder


def features(module: torch.nn.Module, seed: int = 0) -> torch.Tensor:
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        found: torch.Tensor = module.eval()(images.contiguous(memory_format=torch.channels_last))
    return found


@pytest.mark.parametrize("kind", sorted(transformers_models.FIRST_TOKEN | transformers_models.POOLED))
def test_every_type_is_loaded_and_built_again(tmp_path: Path, kind: str) -> None:
    backbone = load(Backbone(name=f"folder:{saved(tmp_path, kind)}")).to(memory_format=torch.channels_last)
    found = features(backbone)
    assert found.ndim == 2
    torch.testing.assert_close(features(fold_batch_norms(backbone)), found, rtol=1e-3, atol=1e-4)
    again = build(backbone.record, backbone.state_dict())
    again.load_state_dict(backbone.state_dict())
    torch.testing.assert_close(features(again), found)


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_features_are_what_the_classifier_sees(tmp_path: Path, kind: str) -> None:
    """The library's own logits are the classifier's answer to our features."""
    backbone = load(Backbone(name=f"folder:{saved(tmp_path, kind, classifies=True)}"))
    whole = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(whole.classifier(backbone.eval()(images)), whole(images).logits)


def test_the_part_of_clip_that_sees_images_is_used(tmp_path: Path) -> None:
    text = {**SMALL_VIT, "vocab_size": 20, "max_position_embeddings": 4}
    config = transformers.CLIPConfig(vision_config=VIT, text_config=text, projection_dim=4)
    whole = transformers.CLIPModel(config).eval()
    whole.save_pretrained(tmp_path)
    with pytest.warns(
        CotransportWarning, match=r"no preprocessor_config\.json, so images are normalised by the colours"
    ):
        backbone = load(Backbone(name=f"folder:{tmp_path}"))
    assert (backbone.record.model, backbone.record.image_size) == ("clip_vision_model", 32)
    torch.testing.assert_close(features(backbone), features(_Seen(whole)))


class _Seen(torch.nn.Module):
    """What CLIP makes of images before it projects them."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.whole.vision_model(pixel_values=images).pooler_output
        return found


@pytest.mark.parametrize(
    ("images", "side", "crop", "mean", "deviation"),
    [
        ({**IMAGES, **COLOURS}, 32, 0.8, (127.5, 63.75, 0), (127.5, 127.5, 63.75)),
        ({"size": {"height": 48, "width": 48}, **COLOURS}, 48, 1, (127.5, 63.75, 0), (127.5, 127.5, 63.75)),
        ({"size": 24, "crop_pct": 0.5, "do_normalize": False}, 24, 0.5, (0, 0, 0), (255, 255, 255)),
        ({**COLOURS, "do_rescale": False}, 32, 1, (0.5, 0.25, 0), (0.5, 0.5, 0.25)),
        ({**COLOURS, "rescale_factor": 0.5}, 32, 1, (1, 0.5, 0), (1, 1, 0.5)),
    ],
)
def test_images_are_seen_as_the_image_processor_says(
    tmp_path: Path,
    images: dict[str, Any],
    side: int,
    crop: float,
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
) -> None:
    found = published(f"folder:{saved(tmp_path, 'vit', images=images)}")
    assert (found.image_size, found.crop, found.mean, found.deviation) == (side, crop, mean, deviation)


def test_a_classifier_learns_is_saved_and_loaded_without_the_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "vit", "vit")
    settings = {"freeze_backbone": True, "image_size": 32}
    clf = classifier("analytic", **settings).set_params(backbone=f"folder:{folder}").learn(blobs(2, 6))
    clf.save(tmp_path / "model")
    for file in folder.iterdir():
        file.unlink()
    loaded = IncrementalClassifier.load(tmp_path / "model")
    test = blobs(2, 4, seed=5)
    assert torch.equal(loaded.scores(test).head, clf.scores(test).head)
    assert loaded.learn(blobs(1, 6, first=2)).classes_.tolist() == ["class 0", "class 1", "class 2"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_a_classifier_is_exported(tmp_path: Path, kind: str) -> None:
    """The export itself compares the file's answers with the model's."""
    pytest.importorskip("onnxscript", reason="pip install 'cotransport[onnx]'")
    name = f"folder:{saved(tmp_path / 'network', kind)}"
    clf = classifier("analytic", freeze_backbone=True, image_size=32).set_params(backbone=name).learn(blobs(2, 6))
    export(clf.predictor(), tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_a_size_that_the_network_does_not_take_is_an_error(tmp_path: Path) -> None:
    own = classifier("analytic", freeze_backbone=True, image_size=8)
    clf = own.set_params(backbone=f"folder:{saved(tmp_path, 'vit')}")
    with pytest.raises(ConfigError, match="backbone: does not take images of 8 x 8 pixels"):
        clf.learn(blobs(2, 6))


def test_a_network_in_the_hubs_cache_is_found_by_its_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    saved(hub_cache(monkeypatch, tmp_path, "owner/net", "v1"), "resnet")
    for revision in ("v1", COMMIT):
        assert load(Backbone(name=f"hf:owner/net@{revision}")).record.weights == f"owner/net@{COMMIT}"
    with pytest.raises(ConfigError, match=r"owner/net@v2: config\.json is not on this machine.*no network in tests"):
        load(Backbone(name="hf:owner/net@v2"))


class TestRefused:
    @staticmethod
    def changed(folder: Path, **changes: Any) -> str:
        path = saved(folder, "resnet") / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return f"folder:{folder}"

    def test_types_that_are_not_known(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="networks of the type 'gpt2' are not supported"):
            published(self.changed(tmp_path, model_type="gpt2"))

    def test_settings_that_are_not_a_networks(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"config\.json is not that of a network"):
            published(self.changed(tmp_path, layer_type="none"))

    def test_code_that_comes_with_a_network_is_not_run(self, tmp_path: Path) -> None:
        (tmp_path / "evil.py").write_text("raise SystemExit('it was run')")
        own = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
        name = self.changed(tmp_path, auto_map=own, _attn_implementation="owner/kernel", use_kernels=True)
        assert not {"auto_map", "_attn_implementation", "use_kernels"} & load(Backbone(name=name)).record.config.keys()

    def test_weights_in_pickles(self, tmp_path: Path) -> None:
        folder = saved(tmp_path, "resnet")
        (folder / "model.safetensors").unlink()
        torch.save({}, folder / "pytorch_model.bin")
        with pytest.raises(ConfigError, match=r"no model\.safetensors, the only kind of weights that is read"):
            load(Backbone(name=f"folder:{folder}"))

    def test_weights_of_another_network(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"model\.safetensors"):
            load(Backbone(name=self.changed(tmp_path, depths=[2, 1])))

    def test_an_image_processor_that_makes_no_sense(self, tmp_path: Path) -> None:
        folder = saved(tmp_path, "resnet", images={"size": 10**6})
        with pytest.raises(ConfigError, match="its images have no size that can be used"):
            published(f"folder:{folder}")
        (folder / "preprocessor_config.json").write_text('{"image_mean": "red"}')
        with pytest.raises(ConfigError, match=r"preprocessor_config\.json cannot be used"):
            published(f"folder:{folder}")


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"hidden_size": 100_000, "intermediate_size": 100_000}, ModelError, "which is larger"),
        ({"num_hidden_layers": 100_000}, ModelError, "which is larger"),
        ({"image_size": 100_000, "patch_size": 1}, ModelError, "which is larger"),
        ({"_attn_implementation": "owner/kernel"}, ConfigError, "does not know the setting '_attn_implementation'"),
        ({"hidden_act": "evil"}, ConfigError, "cannot build vit"),
    ],
)
def test_a_strangers_record_builds_nothing_large(
    tmp_path: Path, config: dict[str, Any], error: type[Exception], message: str
) -> None:
    backbone = load(Backbone(name=f"folder:{saved(tmp_path, 'vit')}"))
    values = backbone.record.model_dump(mode="json")
    record = validated(type(backbone.record), {**values, "config": {**values["config"], **config}}, "record")
    with pytest.raises(error, match=message):
        build(record, backbone.state_dict())
