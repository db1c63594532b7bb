"""The ONNX file: what it predicts, and what its metadata says."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps
from torch import nn

from cotransport.data import evaluation_squares
from cotransport.errors import ConfigError, ModelError
from cotransport.learner.onnx import export
from cotransport.learner.prediction import predict_files
from cotransport.settings.sections import PredictionSettings, Schedule
from tests.conftest import blobs, classifier
from tests.learner.helpers import module

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SMALL = module()
"""A backbone that is exported more quickly than `resnet8`."""
ANY_SIZE = nn.Sequential(nn.Conv2d(3, 6, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""One that takes images of any size."""


@pytest.mark.parametrize(("method", "backbone"), [("coil", "resnet8"), ("bic", SMALL), ("wa", SMALL), ("icarl", SMALL)])
def test_it_predicts_what_the_classifier_predicts(method: str, backbone: object, tmp_path: Path) -> None:
    clf = classifier(method).set_params(backbone=backbone)
    clf.learn(blobs(2, 12)).learn(blobs(2, 12, first=2, seed=1))
    export(clf.predictor(), str(tmp_path / "m.onnx"))
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    for count in (1, 7):  # any number of images
        test = blobs(4, count, seed=5)
        (found,) = session.run(None, {"images": test.images.pixels.numpy()})  # type: ignore[union-attr]
        np.testing.assert_allclose(found, clf.predict_proba(test), atol=1e-5)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == clf.classes_.tolist()
    preprocessing = json.loads(metadata["preprocessing"])
    assert (preprocessing["image_size"], preprocessing["centre_share"]) == (8, 1.0)


@pytest.mark.parametrize("method", ["replay", "icarl"])
def test_it_averages_over_a_flip_as_the_classifier_does(method: str, tmp_path: Path) -> None:
    clf = classifier(method, prediction={"flip": True}).set_params(backbone=SMALL).learn(blobs(2, 12))
    export(clf.predictor(), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    test = blobs(2, 3, seed=5)
    (found,) = session.run(None, {"images": test.images.pixels.numpy()})  # type: ignore[union-attr]
    np.testing.assert_allclose(found, clf.predict_proba(test), atol=1e-5)
    plain = clf.set_params(prediction={"flip": False}).predict_proba(test)
    assert np.abs(found - plain).max() > 1e-4


def photographs(folder: Path) -> list[Path]:
    """Image files of many kinds: odd, tall and wide ones, large JPEG files, and every way to store colours."""
    y, x = np.mgrid[0:400, 0:600]
    large = np.stack([x * 0.4, y * 0.6, 127 + 100 * np.sin(x * y / 900)], axis=2).astype(np.uint8)
    large ^= np.random.RandomState(0).randint(0, 32, large.shape, np.uint8)
    image = Image.fromarray(large[:87, :131])
    alpha = Image.fromarray(np.dstack([large[:87, :131], large[:87, 131:262, 0]]))
    files: list[tuple[str, Image.Image, dict[str, object]]] = [
        ("odd.png", image, {}),
        ("odd.jpg", image, {"quality": 90}),
        ("odd.webp", image, {}),
        ("large.jpg", Image.fromarray(large), {}),
        ("larger.jpg", Image.fromarray(large.repeat(3, axis=0).repeat(3, axis=1)[:1113, :1777]), {}),
        ("square.jpg", Image.fromarray(large[:72, :72]), {}),
        ("small.png", Image.fromarray(large[:5, :9]), {}),
        ("tall.png", Image.fromarray(large[:400, :31]), {}),
        ("wide.jpg", Image.fromarray(large[:31, :600]), {}),
        ("grey.jpg", image.convert("L"), {}),
        ("cmyk.jpg", image.convert("CMYK"), {}),
        ("alpha.png", alpha, {}),
        ("grey-alpha.png", alpha.convert("LA"), {}),
        ("palette.png", image.quantize(16), {}),
        ("palette-alpha.png", image.quantize(16), {"transparency": bytes(range(0, 256, 16))}),
        ("palette.gif", image.quantize(16), {"transparency": 3}),
        ("16-bit.png", Image.fromarray(large[:87, :131, 0].astype(np.uint16) * 200), {}),
        ("one-bit.tif", image.convert("1"), {}),
    ]
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files.append((f"turned-{orientation}.jpg", Image.fromarray(large[:201, :333]), {"exif": exif}))
    for name, picture, options in files:
        picture.save(folder / name, **options)
    return [folder / name for name, *_ in files]


def prepared(path: Path, preprocessing: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """The steps of the metadata, written down by somebody who has only read them."""
    size, share, fit = (preprocessing[name] for name in ("image_size", "centre_share", "fit"))
    image: Image.Image = Image.open(path)
    image.draft("RGB", (preprocessing["jpeg_draft"], preprocessing["jpeg_draft"]))
    image = ImageOps.exif_transpose(image)
    if image.mode == "I;16":
        image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
    image = image.convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image).convert("RGB")
    width, height = image.size
    if fit == "crop":
        w = h = max(1, math.floor(share * min(width, height) + 0.5))
    else:
        w, h = max(1, math.floor(share * width + 0.5)), max(1, math.floor(share * height + 0.5))
    left, top = (width - w) // 2, (height - h) // 2
    image = image.crop((left, top, left + w, top + h))
    if fit != "pad":
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))
    shorter = max(1, math.floor(size * min(w, h) / max(w, h) + 0.5))
    width, height = (size, shorter) if w >= h else (shorter, size)
    square = Image.new("RGB", (size, size), (128, 128, 128))
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), ((size - width) // 2, (size - height) // 2))
    return np.asarray(square)


@pytest.mark.parametrize(
    ("prediction", "size", "share"),
    [
        ({}, 72, 0.875),
        ({"crop": 1.0}, 72, 1.0),
        ({"crop": 0.31}, 72, 0.31),
        ({}, 24, 1.0),
        ({"fit": "pad"}, 72, 1.0),
        ({"fit": "pad"}, 24, 1.0),
        ({"fit": "stretch"}, 72, 1.0),
        ({"fit": "stretch", "crop": 0.9}, 72, 0.9),
    ],
    ids=str,
)
def test_its_metadata_lead_to_the_same_answers(
    prediction: dict[str, Any], size: int, share: float, tmp_path: Path
) -> None:
    paths = photographs(tmp_path)
    settings = {"schedule": Schedule(epochs=1, batch_size=8), "prediction": prediction, "image_size": size}
    clf = classifier("replay", **settings).set_params(backbone=ANY_SIZE).learn(paths[:8], ["é", "b"] * 4)
    export(clf.predictor(), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    names, preprocessing = json.loads(metadata["classes"]), json.loads(metadata["preprocessing"])
    assert (preprocessing["image_size"], preprocessing["centre_share"]) == (size, share)
    assert names == ["b", "é"]
    decoded, cut, scaled, _ = preprocessing["steps"]  # the sentences say what the fields hold
    assert f"draft('RGB', ({preprocessing['jpeg_draft']}, {preprocessing['jpeg_draft']}))" in decoded
    assert f"floor({share} * " in cut
    assert f"{size} x {size}" in scaled
    assert ("(128, 128, 128)" in scaled) == (prediction.get("fit") == "pad")
    inputs = np.stack([prepared(path, preprocessing) for path in paths])
    view = PredictionSettings(**prediction).view
    ((_, seen),) = evaluation_squares(paths, size, lambda *_: None, view=view)
    for path, own, other in zip(paths, inputs, seen.pixels.numpy(), strict=True):
        assert (own == other).all(), path.name
    (found,) = session.run(None, {"images": inputs})
    np.testing.assert_allclose(found, clf.predict_proba(paths), atol=1e-4)
    answers = list(predict_files(clf.predictor(), paths))
    assert [answer.classes[0][0] for answer in answers] == [names[number] for number in found.argmax(axis=1)]


def test_a_missing_library_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    clf = classifier("replay").learn(blobs(2, 4))
    with pytest.raises(ConfigError, match=r"pip install 'cotransport\[onnx\]'"):
        export(clf.predictor(), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_place_that_is_no_file_is_refused(tmp_path: Path) -> None:
    predictor = classifier("replay").learn(blobs(2, 4)).predictor()
    for place in (tmp_path, tmp_path / "nowhere" / "m.onnx"):
        with pytest.raises(ConfigError, match="a folder, or in a folder that does not exist"):
            export(predictor, place)


def test_class_means_need_exemplars(tmp_path: Path) -> None:
    clf = classifier("finetune").learn(blobs(2, 4)).set_params(method={"name": "finetune", "predict_with": "ncm"})
    with pytest.raises(ModelError, match="needs an exemplar of every class"):
        export(clf.predictor(), tmp_path / "m.onnx")


def test_a_network_that_predicts_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = classifier("replay").set_params(backbone=SMALL).learn(blobs(2, 4)).predictor()
    session = SimpleNamespace(run=lambda *_: (np.zeros((2, 2), np.float32),))
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: session)
    with pytest.raises(ModelError, match="predictions differ from the model's"):
        export(predictor, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())
