"""Image networks of transformers, from a folder in its layout. Code that comes with a network is never run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cotransport.errors import ConfigError, CotransportWarning
from cotransport.networks.libraries.hub import IMAGES, WEIGHTS
from cotransport.networks.libraries.source import (
    WHITE,
    PublishedNetwork,
    colours,
    first_line,
    image_side,
    import_library,
)
from cotransport.settings.validation import nearest
from cotransport.system.files import read_json

FIRST_TOKEN = {"vit", "deit", "vit_msn"}
"""Types whose classifiers take the first token. They have a pooling layer too, but few checkpoints train it."""
POOLED = {
    *("beit", "bit", "clip_vision_model", "convnext", "convnextv2", "dinov2", "dinov2_with_registers"),
    *("dinov3_convnext", "dinov3_vit", "efficientnet", "mobilenet_v1", "mobilenet_v2", "regnet", "resnet"),
    *("siglip_vision_model", "swin", "swinv2"),
}
"""Types that pool their features themselves. Other types are refused: some of them load further networks."""
IMAGE_PARTS = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}
"""Types of images and texts, and the type of the part that sees images."""
LEFT_OUT = {
    *("architectures", "auto_map", "dtype", "id2label", "label2id", "model_type", "out_features", "out_indices"),
    *("output_attentions", "output_hidden_states", "problem_type", "return_dict", "stage_names", "torch_dtype"),
    *("transformers_version", "use_cache"),
}
"""Settings that do not change the features, and those that could load code."""
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
USUAL_SIDE = 224


class _Pooled(nn.Module):
    """Maps images (n, 3, h, w) to features (n, d)."""

    def __init__(self, model: nn.Module, *, first_token: bool) -> None:
        super().__init__()
        self.model, self._first_token = model, first_token

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(pixel_values=images)
        features: Tensor = output.last_hidden_state[:, 0] if self._first_token else output.pooler_output.flatten(1)
        return features


def find(folder: Path, config: Mapping[str, Any], origin: str) -> PublishedNetwork:
    """A network in a folder.

    config : the content of config.json.
    origin : where the folder came from.
    """
    import_library("transformers")
    kind, values = str(config.get("model_type")), config
    if kind in IMAGE_PARTS:
        kind, values = IMAGE_PARTS[kind], config.get("vision_config") or {}
    _check_kind(kind, origin)
    try:
        given = _plain(_config(kind, {key: value for key, value in values.items() if key not in LEFT_OUT}))
        known = {key: value for key, value in given.items() if key in _known_settings(kind)}
    except Exception as error:  # transformers raises many types for wrong settings
        raise ConfigError(f"{origin}: config.json does not describe a network ({first_line(error)})") from None
    return PublishedNetwork(
        library="transformers",
        model=kind,
        weights=origin,
        config=known,
        load=lambda: (_with_weights(folder, kind, known, origin), origin),
        **_seen(folder, known, origin),
    )


def build(kind: str, config: Mapping[str, Any]) -> nn.Module:
    """The architecture of a network, with random weights. Nothing is downloaded.

    kind : the type of the model.
    config : the network's settings, as a record has them.
    """
    transformers = import_library("transformers")
    _check_kind(kind, "backbone")
    unknown = config.keys() - _known_settings(kind)
    if unknown:
        raise ConfigError(f"backbone: transformers does not know the setting {min(unknown)!r} of {kind}. Upgrade it")
    with _quiet(transformers):
        model = transformers.AutoModel.from_config(_config(kind, config), trust_remote_code=False, **_arguments(kind))
    return _Pooled(model, first_token=kind in FIRST_TOKEN)


def _with_weights(folder: Path, kind: str, config: Mapping[str, Any], origin: str) -> nn.Module:
    transformers = import_library("transformers")
    if not (folder / WEIGHTS).is_file():
        raise ConfigError(f"{origin}: {WEIGHTS} is missing. Weights are read from no other file")
    try:
        with _quiet(transformers):
            model, found = transformers.AutoModel.from_pretrained(
                folder,
                config=_config(kind, config),
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                **_arguments(kind),
            )
    except Exception as error:  # transformers, torch and safetensors raise many types
        raise ConfigError(f"{origin}: {WEIGHTS} does not fit config.json ({first_line(error)})") from None
    if found["missing_keys"]:
        missing = min(found["missing_keys"])
        raise ConfigError(f"{origin}: {WEIGHTS} has no weights for {missing}. Choose another network")
    return _Pooled(model.float(), first_token=kind in FIRST_TOKEN)


def _check_kind(kind: str, origin: str) -> None:
    if kind not in FIRST_TOKEN | POOLED:
        known = sorted(FIRST_TOKEN | POOLED | IMAGE_PARTS.keys())
        raise ConfigError(
            f"{origin}: networks of the type {kind!r} are not supported{nearest(kind, known)} "
            f"Supported: {', '.join(known)}"
        )


def _arguments(kind: str) -> dict[str, bool]:
    return {"add_pooling_layer": False} if kind in {"vit", "deit"} else {}


def _config(kind: str, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 (a configuration of transformers)
    return import_library("transformers").AutoConfig.for_model(kind, **values)


def _known_settings(kind: str) -> set[str]:
    """The settings of a type of network. Others are not passed to the library: they could mean anything."""
    return set(_plain(_config(kind, {})))


def _plain(config: Any) -> dict[str, Any]:  # noqa: ANN401
    """The settings of a configuration that matter for the features."""
    return {key: value for key, value in config.to_dict().items() if key not in LEFT_OUT and not key.startswith("_")}


def _seen(folder: Path, config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """How the network sees images, according to its image processor."""
    own = config.get("image_size", USUAL_SIDE)
    own = own[0] if isinstance(own, list | tuple) and own else own
    if not (folder / IMAGES).is_file():
        message = f"{origin}: {IMAGES} is missing, so images are normalised with the statistics of ImageNet"
        warnings.warn(message, CotransportWarning, stacklevel=2)
        statistics = {"mean": colours(IMAGENET_MEAN), "deviation": colours(IMAGENET_DEVIATION)}
        return {"image_size": image_side(own, origin), "crop": 1.0, **statistics}
    try:
        given = read_json(folder / IMAGES)
        white = 1 / given.get("rescale_factor", 1 / WHITE) if given.get("do_rescale", True) else 1.0
        normalised = given.get("do_normalize", True)
        mean = colours(given.get("image_mean", IMAGENET_MEAN) if normalised else [0.0], white)
        deviation = colours(given.get("image_std", IMAGENET_DEVIATION) if normalised else [1.0], white)
        resized = _side(given.get("size")) or own
        cropped = _side(given.get("crop_size")) if given.get("do_center_crop") else None
        crop = cropped / resized if cropped else given.get("crop_pct") or 1.0
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"{origin}: {IMAGES} cannot be used ({first_line(error)})") from None
    side = image_side(cropped or resized, origin)
    return {"image_size": side, "crop": min(1.0, float(crop)), "mean": mean, "deviation": deviation}


def _side(size: object) -> int | None:
    """The side of square images, from the forms in which image processors give it."""
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    return size if isinstance(size, int) else None


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:  # noqa: ANN401
    """Silence the library's progress bars and advice."""
    logging = transformers.utils.logging
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
