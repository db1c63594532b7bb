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
            "the nearest class mean needs an exemplar of every class, and some have none. Give images of them with "
            "--known-classes extend"
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
    if fit == "crop":
        cut = f"crop the central square: side = floor({share!r} * min(width, height) + 0.5)"
    else:
        cut = f"crop the central part: w = floor({share!r} * width + 0.5), h = floor({share!r} * height + 0.5)"
    w, h = ("side", "side") if fit == "crop" else ("w", "h")
    cut += f", all at least 1; left = floor((width - {w}) / 2), top = floor((height - {h}) / 2)"
    scaled = f"resize it to {size} x {size} pixels"
    if fit == "pad":
        scaled = (
            f"resize it so that the longer side is {size}, the other one floor({size} * shorter / longer + 0.5), at "
            "least 1"
        )
    scaled += " with Pillow's BILINEAR filter (antialiased; reducing_gap=None)"
    if fit == "pad":
        scaled += (
            f"; paste it onto a {size} x {size} square of the colour {GREY}: left = floor(({size} - width) / 2), top = "
            f"floor(({size} - height) / 2)"
        )
    return [
        f"decode the first frame, a JPEG after Pillow's draft('RGB', ({draft}, {draft})), which takes 1/2, 1/4 or 1/8 "
        f"of the resolution as long as both sides keep {draft} pixels; keep the upper 8 bits of 16-bit values, blend "
        "transparent parts with white, convert to RGB; turn it as the EXIF orientation says",
        cut,
        scaled,
        "give uint8 from 0 to 255, (n, height, width, 3); the network normalises them itself",
    ]


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
