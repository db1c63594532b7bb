"""The ONNX file: what it predicts, and what its metadata says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cotransport.errors import ConfigError, ModelError
from cotransport.learner.onnx import export
from cotransport.settings.sections import Schedule
from tests.conftest import blobs, classifier
from tests.learner.helpers import module

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SMALL = module()
"""A backbone that is exported more quickly than `resnet8`."""


@pytest.mark.parametrize(("method", "backbone"), [("coil", "resnet8"), ("bic", SMALL), ("wa", SMALL), ("icarl", SMALL)])
def test_it_predicts_what_the_classifier_predicts(method: str, backbone: object, tmp_path: Path) -> None:
    clf = classifier(method).set_params(backbone=backbone)
    clf.learn(blobs(2, 12)).learn(blobs(2, 12, first=2, seed=1))
    export(clf.predictor(), tmp_path / "m.onnx")
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


@pytest.mark.parametrize(("crop", "share"), [(None, 0.875), (1.0, 1.0)])
def test_large_images_are_cut_to_their_middle(tmp_path: Path, crop: float | None, share: float) -> None:
    images = np.random.RandomState(0).randint(0, 255, (4, 72, 72, 3), np.uint8)
    settings = {"schedule": Schedule(epochs=1, batch_size=4), "prediction": {"crop": crop}, "image_size": 72}
    clf = classifier("replay", **settings).learn(images, ["é", "b", "é", "b"])
    export(clf.predictor(), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == ["b", "é"]
    assert json.loads(metadata["preprocessing"])["centre_share"] == share


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
