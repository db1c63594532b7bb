"""Stand-ins for timm and torchvision with a tiny network, and a local cache of the Hugging Face hub.

The stand-ins have the functions of the real libraries that the package calls, with the same arguments and answers
(timm 1.0, torchvision 0.29). The tests named `TestReal...` run where the libraries can be imported.
"""

from __future__ import annotations

import enum
import importlib
import types
from collections import OrderedDict
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from cotransport.system.randomness import seeded

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIDE = 16
"""Side of the images that the stand-ins' weights were trained on."""


def network(classes: int = 10, width: int = 6) -> nn.Module:
    """A network with a classifier of `classes` classes; without one for 0."""
    layers: dict[str, nn.Module] = {
        "conv1": nn.Conv2d(3, width, 3, bias=False),
        "norm": nn.BatchNorm2d(width),
        "act": nn.ReLU(),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "fc": nn.Linear(width, classes) if classes else nn.Identity(),
    }
    return nn.Sequential(OrderedDict(layers))


def published_weights(seed: int = 5) -> dict[str, torch.Tensor]:
    """The weights that the stand-ins publish, with a classifier of ten classes."""
    with seeded(seed):
        return network().state_dict()


def library_or_skip(name: str) -> types.ModuleType:
    """A library, if it can be imported. Some builds of torchvision do not fit the installed torch."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def hub_cache(monkeypatch: pytest.MonkeyPatch, folder: Path, repository: str, revision: str) -> Path:
    """An empty repository in a local cache of the hub, with this revision; returns the folder of its files."""
    from huggingface_hub import HfApi, constants

    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("no network in tests")

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(HfApi, "model_info", unreachable)
    place = folder / f"models--{repository.replace('/', '--')}"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / revision).write_text(COMMIT)
    files = place / "snapshots" / COMMIT
    files.mkdir(parents=True)
    return files


class _TimmConfig(NamedTuple):
    """`timm.models.PretrainedCfg`."""

    architecture: str = "tiny"
    tag: str = "a1"
    hf_hub_id: str | None = "timm/tiny.a1"
    input_size: tuple[int, int, int] = (3, SIDE, SIDE)
    crop_pct: float = 0.5
    mean: tuple[float, ...] = (0.5, 0.25, 0.0)
    std: tuple[float, ...] = (0.5, 0.5, 0.25)

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def install_timm(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put a stand-in for timm in place; returns the list of the arguments of its `create_model`."""
    calls: list[dict[str, Any]] = []
    timm, data = _module(monkeypatch, "timm"), _module(monkeypatch, "timm.data")

    def get_pretrained_cfg(model_name: str) -> _TimmConfig:
        _, _, tag = model_name.partition(".")
        if tag not in {"", "a1", "pickled"}:
            raise RuntimeError(f"Invalid pretrained tag ({tag}) for tiny.")
        return _TimmConfig(tag="pickled", hf_hub_id=None) if tag == "pickled" else _TimmConfig()

    def create_model(
        model_name: str,
        pretrained: bool = False,
        pretrained_cfg_overlay: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> nn.Module:
        calls.append({"name": model_name, "pretrained": pretrained, **arguments})
        made = network(arguments.get("num_classes", 10))
        if pretrained:
            assert pretrained_cfg_overlay is not None
            stored = load_file(pretrained_cfg_overlay["file"])
            made.load_state_dict({name: tensor for name, tensor in stored.items() if not name.startswith("fc.")})
        return made

    def resolve_data_config(
        args: object = None, pretrained_cfg: Mapping[str, Any] | None = None, model: object = None
    ) -> dict[str, Any]:
        assert pretrained_cfg is not None
        return {key: pretrained_cfg[key] for key in ("input_size", "crop_pct", "mean", "std")}

    timm.is_model = lambda name: name == "tiny"  # type: ignore[attr-defined]
    timm.is_model_pretrained = lambda name: name in {"tiny", "tiny.a1"}  # type: ignore[attr-defined]
    timm.list_models = lambda: ["tiny"]  # type: ignore[attr-defined]
    timm.get_pretrained_cfg = get_pretrained_cfg  # type: ignore[attr-defined]
    timm.create_model = create_model  # type: ignore[attr-defined]
    timm.data = data  # type: ignore[attr-defined]
    data.resolve_data_config = resolve_data_config  # type: ignore[attr-defined]
    return calls


def publish_on_timms_hub(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Weights of timm:tiny.a1 in a local cache of the hub."""
    save_file(published_weights(), hub_cache(monkeypatch, folder, "timm/tiny.a1", "main") / "model.safetensors")


def install_torchvision(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put a stand-in for torchvision in place; returns the list of the arguments of its downloads."""
    calls: list[dict[str, Any]] = []

    class TinyWeights(enum.Enum):
        IMAGENET1K_V1 = "https://example.org/tiny-v1.pth"
        IMAGENET1K_V2 = "https://example.org/tiny-v2.pth"
        DEFAULT = "https://example.org/tiny-v2.pth"  # noqa: PIE796 (an alias, as in the library)

        @property
        def url(self) -> str:
            return self.value

        def transforms(self) -> types.SimpleNamespace:
            return types.SimpleNamespace(
                crop_size=[SIDE], resize_size=[20], mean=[0.5, 0.25, 0.0], std=[0.5, 0.5, 0.25]
            )

        def get_state_dict(self, **arguments: Any) -> dict[str, torch.Tensor]:
            calls.append({"url": self.url, **arguments})
            return published_weights()

    def get_model(name: str, weights: object = "not given") -> nn.Module:
        assert (name, weights) == ("tiny", None)
        return network()

    torchvision, models = _module(monkeypatch, "torchvision"), _module(monkeypatch, "torchvision.models")
    torchvision.models = models  # type: ignore[attr-defined]
    models.list_models = lambda module=None: ["squeezenet1_0", "tiny"]  # type: ignore[attr-defined]
    models.get_model_weights = lambda name: TinyWeights  # type: ignore[attr-defined]
    models.get_model = get_model  # type: ignore[attr-defined]
    return calls


def _module(monkeypatch: pytest.MonkeyPatch, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(importlib.import_module("sys").modules, name, module)
    return module
