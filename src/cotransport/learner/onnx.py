"""A classifier as one ONNX file that runs without this package: it takes pixels and gives probabilities."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.data.decoding import GREY, draft_side
from cotransport.data.evaluation import centre_share
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.prediction import Predictor
from cotransport.learner.state import State
from cotransport.networks.network import Network
from cotransport.settings.sections import Fit, PredictionSettings
from cotransport.system.files import AnyPath, atomic_write
from cotransport.training.inference import mirrored_mean
from cotransport.version import __version__

TOLERANCE = 1e-3
"""Largest difference, at most, between the file's probabilities and the model's."""


class _Exported(nn.Module):
    """From decoded square images to probabilities, by the head or by the nearest class mean."""

    def __init__(self, network: Network, means: Tensor | None, scale: float, *, flip: bool, temperature: float) -> None:
        super().__init__()
        self.network, self.scale, self.flip, self.temperature = network, scale, flip, temperature
        self.means = None if means is None else nn.Parameter(means, requires_grad=False)

    def forward(self, images: Tensor) -> Tensor:
        """Uint8 (n, size, size, 3) -> float32 (n, classes)."""
        pixels = images.permute(0, 3, 1, 2).float()
        output = mirrored_mean(self.network, pixels) if self.flip else self.network(pixels)
        scores = output.logits
        if self.means is not None:
            scores = self.scale * F.linear(F.normalize(output.features), self.means)
        return F.softmax(scores / self.temperature, dim=1)


def export(predictor: Predictor, path: AnyPath) -> None:
    """Write a classifier as an ONNX file.

    Input `images`: uint8 (n, size, size, 3), RGB. Output `probabilities`: float32 (n, classes). The metadata has the
    class names (`classes`) and the pre-processing of images (`preprocessing`), both as JSON.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed. pip install 'cotransport[onnx]'") from None
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigError(f"{path}: a folder, or in a folder that does not exist. Give a file in an existing folder")
    state, means = predictor.state, predictor.class_means if predictor.uses_class_means else None
    if predictor.uses_class_means and means is None:
        raise ModelError(
            "the nearest class mean needs an exemplar of every class, and some have none",
            hint="Give images of them with --known-classes extend",
        )
    network, settings = state.network.frozen().cpu().float(), predictor.settings.prediction
    module = _Exported(
        network, means, predictor.mean_scale, flip=settings.flip, temperature=settings.temperature
    ).eval()
    shape = (2, state.image_size, state.image_size, 3)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings(), torch.no_grad(), atomic_write(path) as beside:
        warnings.simplefilter("ignore")  # the exporter's warnings are for developers
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            module,
            (images,),
            dynamo=True,
            input_names=["images"],
            output_names=["probabilities"],
            dynamic_shapes={"images": {0: "n"}},
            verbose=False,
        )
        assert program is not None
        model = program.model_proto
        onnx.helper.set_model_props(
            model, {name: _text(value) for name, value in _metadata(state, predictor.settings.prediction).items()}
        )
        model.producer_name, model.producer_version = "cotransport", __version__
        onnx.checker.check_model(model)
        beside.write_bytes(model.SerializeToString())
        session = onnxruntime.InferenceSession(str(beside), providers=["CPUExecutionProvider"])
        (answer,) = session.run(None, {"images": images.numpy()})
        if not torch.allclose(torch.from_numpy(answer), module(images), atol=TOLERANCE):
            raise ModelError(f"{path}: the exported network's predictions differ from the model's. Nothing was written")


def _metadata(state: State, settings: PredictionSettings) -> dict[str, Any]:
    size = state.image_size
    share = centre_share(size, settings.view)
    return {
        "classes": list(state.classes),
        "preprocessing": {
            "image_size": size,
            "fit": settings.fit,
            "centre_share": share,
            "jpeg_draft": draft_side(size, share),
            "steps": _steps(size, share, settings.fit),
        },
    }


def _steps(size: int, share: float, fit: Fit) -> list[str]:
    """The steps from an image file to the network's input, to the pixel: what `data.decoding` does."""
    draft = draft_side(size, share)
    return [
        f"decode the first frame, a JPEG after Pillow's draft('RGB', ({draft}, {draft})), which takes 1/2, 1/4 or 1/8 "
        f"of the resolution as long as both sides keep {draft} pixels; keep the upper 8 bits of 16-bit values, blend "
        "transparent parts with white, convert to RGB; turn it as the EXIF orientation says",
        f"crop the central part: {_central_part(share, fit)}, each at least 1; left = floor((width - w) / 2), top = "
        "floor((height - h) / 2)",
        f"resize it to {_scaled_size(size, fit)} with Pillow's BILINEAR filter (antialiased; reducing_gap=None)"
        + (_border(size) if fit == "pad" else ""),
        "give uint8 from 0 to 255, (n, height, width, 3); the network normalises them itself",
    ]


def _central_part(share: float, fit: Fit) -> str:
    if fit == "crop":
        return f"w = h = floor({share!r} * min(width, height) + 0.5)"
    return f"w = floor({share!r} * width + 0.5), h = floor({share!r} * height + 0.5)"


def _scaled_size(size: int, fit: Fit) -> str:
    if fit != "pad":
        return f"{size} x {size} pixels"
    return f"W = floor({size} * w / max(w, h) + 0.5), H = floor({size} * h / max(w, h) + 0.5), each at least 1,"


def _border(size: int) -> str:
    return (
        f"; paste it onto a square of {size} x {size} pixels of the colour {GREY} at left = floor(({size} - W) / 2), "
        f"top = floor(({size} - H) / 2)"
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
