"""Predictions of a learned state: by its head, by class means, and for image files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from cotransport.data import EncodedImages, LabelledImages, PixelImages
from cotransport.errors import ConfigError
from cotransport.learner.learning import learned
from cotransport.learner.prediction import Predictor, predict_files
from cotransport.learner.settings import LearnerSettings
from cotransport.networks.heads import CosineHead
from cotransport.settings.sections import Budget, HeadSettings, PredictionSettings, Schedule
from tests.conftest import blobs
from tests.helpers import pixels
from tests.imports import imported
from tests.learner.helpers import learner_settings

FORMAT_1 = Path(__file__).parent.parent / "models" / "format-1" / "model"
BY_MEANS = {"name": "replay", "predict_with": "ncm"}
QUICK = Schedule(epochs=2, batch_size=16, learning_rate=0.05)
TEST = blobs(4, 5, seed=8)


def two_tasks_learned(settings: LearnerSettings) -> Predictor:
    first = learned(None, blobs(2, 12), settings)
    return Predictor(learned(first, blobs(2, 12, first=2, seed=1), settings), settings)


def as_is(data: LabelledImages) -> LabelledImages:
    return data


def mirrored(data: LabelledImages) -> LabelledImages:
    return replace(data, images=PixelImages(pixels(data.images).flip(2)))


@pytest.fixture(scope="module")
def by_head() -> Predictor:
    return two_tasks_learned(learner_settings(schedule=QUICK))


@pytest.fixture(scope="module")
def by_means(by_head: Predictor) -> Predictor:
    return Predictor(by_head.state, learner_settings(BY_MEANS, schedule=QUICK))


class TestPredictor:
    def test_the_head_counts_unless_the_method_says_otherwise(self, by_head: Predictor, by_means: Predictor) -> None:
        scores = by_head.scores(TEST)
        assert scores.ncm is not None
        assert (by_head.uses_class_means, by_means.uses_class_means) == (False, True)
        assert torch.equal(by_head.decision(TEST), scores.head)
        assert torch.equal(by_means.decision(TEST), scores.ncm)
        assert by_head.deciding(scores) is scores.head
        assert by_means.deciding(scores) is scores.ncm

    def test_scores_of_the_head_are_the_networks_logits(self, by_head: Predictor) -> None:
        with torch.no_grad():
            output = by_head.state.network(TEST.images.pixels.permute(0, 3, 1, 2))  # type: ignore[union-attr]
        torch.testing.assert_close(by_head.scores(TEST).head, output.logits)
        torch.testing.assert_close(by_head.features(TEST), output.features)

    def test_the_nearest_class_mean_is_the_nearest(self, by_means: Predictor) -> None:
        """By hand: the mean of the unit features of each class's exemplars, and the smallest distance to it."""
        network, means = by_means.state.network, []
        with torch.no_grad():
            features = F.normalize(network(TEST.images.pixels.permute(0, 3, 1, 2)).features)  # type: ignore[union-attr]
            for images in by_means.state.memory.exemplars:
                units = F.normalize(network(images.pixels.permute(0, 3, 1, 2)).features)  # type: ignore[union-attr]
                means.append(F.normalize(units.mean(dim=0), dim=0))
        nearest = torch.cdist(features, torch.stack(means)).argmin(dim=1)
        assert by_means.decision(TEST).argmax(dim=1).tolist() == nearest.tolist()
        assert by_means.class_means is not None
        torch.testing.assert_close(by_means.class_means, torch.stack(means))

    def test_a_flip_at_prediction_changes_head_and_means_alike(self, by_head: Predictor) -> None:
        """Twin: logits and features of images and mirror images, averaged; class means of averaged features."""
        flipping = Predictor(by_head.state, replace(by_head.settings, prediction=PredictionSettings(flip=True)))
        exemplars = by_head.state.memory.labelled(by_head.state.classes)
        assert exemplars is not None
        both = [[by_head.outputs(mirror(images)) for mirror in (as_is, mirrored)] for images in (TEST, exemplars)]
        features, means_from = (F.normalize(one.features + other.features) for one, other in both)
        means = F.normalize(torch.stack([means_from[exemplars.labels == number].mean(dim=0) for number in range(4)]))
        scores = flipping.scores(TEST)
        torch.testing.assert_close(scores.head, (both[0][0].logits + both[0][1].logits) / 2)
        assert scores.ncm is not None
        torch.testing.assert_close(scores.ncm, by_head.mean_scale * features @ means.T)

    def test_class_means_are_computed_once(self, by_means: Predictor) -> None:
        assert by_means.class_means is by_means.class_means

    def test_cosines_to_means_are_scaled_like_the_heads(self, by_head: Predictor) -> None:
        head = by_head.state.network.head
        assert isinstance(head, CosineHead)
        assert by_head.mean_scale == head.scale.item()
        settings = learner_settings("wa", schedule=QUICK, head=HeadSettings(scale=7))
        linear = Predictor(learned(None, blobs(2, 8), settings), settings)
        assert linear.mean_scale == 7  # a linear head has no scale of cosines

    def test_probabilities_are_the_softmax_of_what_counts(self, by_head: Predictor, by_means: Predictor) -> None:
        for predictor in (by_head, by_means):
            found = predictor.probabilities(TEST)
            assert (found.shape, found.dtype) == ((20, 4), torch.float64)
            torch.testing.assert_close(found.sum(dim=1), torch.ones(20, dtype=torch.float64))
            assert torch.equal(found, predictor.decision(TEST).double().softmax(dim=1))

    def test_without_exemplars_there_are_no_means(self) -> None:
        settings = learner_settings("finetune", schedule=QUICK)
        predictor = Predictor(learned(None, blobs(2, 8), settings), settings)
        assert predictor.class_means is None
        assert predictor.scores(TEST).ncm is None
        assert predictor.decision(TEST).shape == (20, 2)
        asked = Predictor(predictor.state, learner_settings({"name": "finetune", "predict_with": "ncm"}))
        with pytest.raises(ConfigError, match=r"predict_with: the nearest class mean needs an exemplar of every class"):
            asked.decision(TEST)

    def test_one_class_without_exemplars_is_enough_for_none(self) -> None:
        first = learner_settings("finetune", schedule=QUICK, memory=Budget(per_class=3))
        second = learner_settings("replay", schedule=QUICK, memory=Budget(per_class=3))
        state = learned(learned(None, blobs(2, 8), first), blobs(2, 8, first=2), second)
        assert [len(images) for images in state.memory.exemplars] == [0, 0, 3, 3]
        assert Predictor(state, second).class_means is None

    def test_images_may_be_given_in_any_form_and_size(self, by_head: Predictor) -> None:
        pixels = TEST.images.pixels  # type: ignore[union-attr]
        expected = by_head.decision(TEST)
        for images in (TEST.images, pixels, pixels.numpy()):
            assert torch.equal(by_head.decision(images), expected)
        larger = pixels.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2).numpy()
        agree = by_head.decision(larger).argmax(dim=1) == expected.argmax(dim=1)
        assert agree.double().mean() > 0.9


class TestPredictFiles:
    @pytest.fixture
    def paths(self, tmp_path: Path) -> list[Path]:
        return files_of(TEST, tmp_path)

    def test_predictions_agree_with_the_predictor_in_the_order_of_the_files(
        self, by_head: Predictor, by_means: Predictor, paths: list[Path]
    ) -> None:
        for predictor in (by_head, by_means):
            found = list(predict_files(predictor, paths, top=2))
            best = predictor.probabilities(TEST).topk(2, dim=1)
            assert [one.path for one in found] == [str(path) for path in paths]
            assert [[name for name, _ in one.classes] for one in found] == [
                [predictor.state.classes[number] for number in row] for row in best.indices.tolist()
            ]
            shares = [[share for _, share in one.classes] for one in found]
            np.testing.assert_allclose(shares, best.values.numpy())

    def test_no_more_classes_are_listed_than_there_are(self, by_head: Predictor, paths: list[Path]) -> None:
        (found,) = predict_files(by_head, paths[:1], top=99)
        assert sorted(str(name) for name, _ in found.classes) == [f"class {number}" for number in range(4)]
        assert sum(share for _, share in found.classes) == pytest.approx(1)

    @pytest.mark.parametrize("crop", [None, 1.0])
    def test_large_images_are_seen_like_everywhere_else(self, tmp_path: Path, crop: float | None) -> None:
        """From 65 pixels on, images are decoded for each use, and their middle is looked at."""
        random = np.random.RandomState(0)
        paths = [tmp_path / f"{number}.png" for number in range(3)]
        for path in paths:
            Image.fromarray(random.randint(0, 255, (90, 120, 3), np.uint8)).save(path)
        settings = learner_settings(schedule=Schedule(epochs=1, batch_size=4), prediction=PredictionSettings(crop=crop))
        data = LabelledImages(EncodedImages.of(paths, 72), torch.tensor([0, 1, 0]), ("a", "b"))
        state = learned(None, data, settings)
        predictor = Predictor(state, settings)
        other = Predictor(state, learner_settings(prediction=PredictionSettings(crop=0.5)))
        assert not torch.allclose(predictor.features(paths), other.features(paths))
        found = [[share for _, share in sorted(one.classes)] for one in predict_files(predictor, paths, top=2)]
        np.testing.assert_allclose(found, predictor.probabilities(paths).numpy(), atol=1e-6)

    def test_a_bad_file_does_not_stop_the_others(self, by_head: Predictor, paths: list[Path], tmp_path: Path) -> None:
        (tmp_path / "bad.png").write_bytes(b"nonsense")
        truncated = tmp_path / "cut.png"
        truncated.write_bytes(paths[0].read_bytes()[:-30])
        asked = [paths[0], tmp_path / "bad.png", paths[1], truncated, tmp_path / "missing.png"] * 60  # several chunks
        found = list(predict_files(by_head, asked))
        assert [one.error is None for one in found] == [True, False, True, False, False] * 60
        assert all(one.classes == () for one in found if one.error is not None)
        assert "bad.png: not an image" in str(found[1].error)
        (one,), (other,) = found[0].classes, found[-5].classes  # in chunks of different sizes, which round differently
        assert one == (other[0], pytest.approx(other[1], rel=1e-4))
        expected = by_head.state.classes[int(by_head.decision([paths[0]]).argmax())]
        assert [one.classes[0][0] for one in found[::5]] == [expected] * 60


def files_of(data: LabelledImages, folder: Path) -> list[Path]:
    """Images as files, in their order."""
    paths = [folder / f"{number:03}.png" for number in range(len(data))]
    for number, path in enumerate(paths):
        Image.fromarray(data.images.item(number)).save(path)  # type: ignore[arg-type]
    return paths


def test_a_prediction_imports_neither_fabric_nor_scikit_learn(tmp_path: Path) -> None:
    (path,) = files_of(TEST.take(torch.tensor([0])), tmp_path)
    script = f"""
from pathlib import Path
from cotransport.learner.prediction import Predictor, predict_files
from cotransport.learner.snapshots import restored
from cotransport.model.store import ModelStore
predictor = Predictor(*restored(ModelStore(Path({str(FORMAT_1)!r})).read()))
(found,) = predict_files(predictor, [Path({str(path)!r})])
assert found.classes[0][0] == "class 0", found"""
    assert imported(script, ["lightning_fabric", "sklearn", "torch._dynamo", "pandas", "matplotlib"]) == []
