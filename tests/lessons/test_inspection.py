"""What a model knows, what its lessons cost, and what it confuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cotransport import IncrementalClassifier
from cotransport.data.fingerprint import image_digest
from cotransport.errors import ModelError
from cotransport.learner.prediction import Predictor
from cotransport.lessons import inspection
from cotransport.lessons.inspection import inspect, similarities
from cotransport.lessons.ownership import prune, rename
from cotransport.model.store import ModelStore
from cotransport.networks.heads import CosineHead, DiscriminantHead
from cotransport.overview import Choice
from tests.conftest import blobs, classifier
from tests.lessons.helpers import choose, learn
from tests.model.helpers import accept, damage


class TestKnownClasses:
    def test_classes_come_with_their_lesson_and_images(self, model: Path) -> None:
        found = inspect(model)
        assert (found.name, found.version, found.method, found.backbone) == ("m", 2, "COIL (tuned)", "resnet8")
        assert (found.image_size, found.exemplars, found.held_out) == (8, 16, 8)
        assert [(one.name, one.arrived) for one in found.classes] == [
            ("class 0", 1),
            ("class 1", 1),
            ("class 2", 2),
            ("class 3", 2),
        ]
        assert [(one.exemplars, one.held_out) for one in found.classes] == [(4, 2)] * 4
        assert [[photograph.use for photograph in one.photographs] for one in found.classes] == [["exemplar"] * 4] * 4

    def test_pictures_are_the_first_exemplars(self, model: Path) -> None:
        exemplars = ModelStore(model).read().memory.exemplars
        for number, one in enumerate(inspect(model).classes):
            shown = [np.asarray(Image.open(io.BytesIO(photo.picture.data))) for photo in one.photographs]
            for place, picture in enumerate(shown):
                assert (picture == exemplars[number].item(place)).all()

    def test_held_out_images_fill_up(self, first: Path, tmp_path: Path) -> None:
        learn(tmp_path / "m", first, choose(memory={"per_class": 1}))
        uses = [photograph.use for photograph in inspect(tmp_path / "m").classes[0].photographs]
        assert uses == ["exemplar", "held out", "held out"]

    def test_there_are_few_pictures_of_many_classes(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspection, "MOST_PICTURES", 3)
        assert [len(one.photographs) for one in inspect(model).classes] == [1, 1, 1, 0]
        monkeypatch.setattr(inspection, "MOST_PICTURES", 9)
        assert [len(one.photographs) for one in inspect(model).classes] == [2, 2, 2, 2]

    def test_transported_classes_name_their_sources(self, model: Path) -> None:
        shares = IncrementalClassifier.load(model).built_from()
        assert shares
        for one in inspect(model).classes:
            found = {f"class {other.number}": other.share for other in one.built_from}
            assert found == shares.get(one.name, {})

    def test_a_renamed_class_keeps_its_lesson(self, model: Path) -> None:
        rename(model, "class 1", "tabby")
        found = inspect(model)
        assert [(one.name, one.arrived) for one in found.classes][1:3] == [("tabby", 1), ("class 2", 2)]
        assert (found.versions[2].taught, found.versions[2].changes) == ("class 1 renamed to tabby", ())

    def test_after_pruning_the_first_lesson_is_unknown(self, model: Path) -> None:
        prune(model, 1)
        assert [one.arrived for one in inspect(model).classes] == [None, None, 2, 2]


class TestSimilarities:
    def test_classes_are_compared_by_their_weights(self) -> None:
        """Around the mean (1, 1), the weights are (3, 0), (0, 3) and (-3, -3)."""
        head = CosineHead(2, scale=1.0)
        head.grow(3)
        head.weight.data = torch.tensor([[4.0, 1.0], [1.0, 4.0], [-2.0, -2.0]])
        half = -(0.5**0.5)
        expected = torch.tensor([[1.0, 0.0, half], [0.0, 1.0, half], [half, half, 1.0]], dtype=torch.float64)
        assert torch.allclose(similarities(head), expected)

    def test_a_discriminant_compares_the_means_of_its_images(self) -> None:
        """The same differences to the mean: sums of two, one and four images."""
        head = DiscriminantHead(2)
        head.grow(3)
        head.observe(
            torch.tensor([[3.0, 1.0], [5.0, 1.0], [1.0, 4.0], *[[-2.0, -2.0]] * 4]),
            torch.tensor([0, 0, 1, 2, 2, 2, 2]),
        )
        assert similarities(head)[0].tolist() == pytest.approx([1.0, 0.0, -(0.5**0.5)])

    def test_only_classes_with_something_in_common_are_named(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cosines = torch.tensor([[1.0, 0.25, -0.5, 0.75], [0.25, 1.0, 0.0, 0.0], [0.0] * 4, [0.0] * 4])
        monkeypatch.setattr(inspection, "similarities", lambda _: cosines)
        similar = [one.similar for one in inspect(model).classes]
        assert similar == [((3, 0.75), (1, 0.25)), ((0, 0.25),), (), ()]


@pytest.fixture
def mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both held-out images of the first of four classes are taken for the second; the other six are recognised."""
    wrong = [[0.2, 0.6, 0.1, 0.1], [0.05, 0.9, 0.0, 0.05]]
    right = [[0.96 if place == number // 2 else 0.04 / 3 for place in range(4)] for number in range(2, 8)]
    monkeypatch.setattr(Predictor, "probabilities", lambda *_: torch.tensor(wrong + right, dtype=torch.float64))


@pytest.mark.usefixtures("mistaken")
class TestAnswers:
    def test_mistakes_have_pictures_most_confident_first(self, model: Path) -> None:
        answers = inspect(model).answers
        assert answers is not None
        (mistake,) = answers.mistakes
        assert (mistake.true, mistake.predicted, mistake.images, answers.wrong_pairs) == (0, 1, 2, 1)
        assert [example.probability for example in mistake.examples] == [0.9, 0.6]
        held_out = ModelStore(model).read().held_out.exemplars[0]
        for example, place in zip(mistake.examples, (1, 0), strict=True):
            shown = np.asarray(Image.open(io.BytesIO(example.picture.data)))
            assert (shown == held_out.item(place)).all()
            assert example.id == image_digest(held_out.item(place)).hex()[:12]

    def test_right_answers_are_counted(self, model: Path) -> None:
        found = inspect(model)
        assert found.answers is not None
        assert (found.answers.images, found.answers.right) == (8, 6)
        assert [one.recognised for one in found.classes] == [0, 2, 2, 2]
        assert found.answers.confusion == ((0, 2, 0, 0), (0, 2, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2))

    def test_thresholds_and_probabilities(self, model: Path) -> None:
        """Six right answers at 0.96, wrong ones at 0.9 and 0.6: 6 of 7 are too few for 90 %."""
        answers = inspect(model).answers
        assert answers is not None
        assert answers.curve == (Choice(0.6, 100.0, 75.0), Choice(0.9, 87.5, 600 / 7), Choice(0.96, 75.0, 100.0))
        assert answers.wanted == tuple((at_least, Choice(0.96, 75.0, 100.0)) for at_least in (90, 95, 99))
        # eight answers in ten parts: |0.6 - 0|, |0.9 - 0| and six times |0.96 - 1|
        assert answers.calibration_error == pytest.approx(100 * (0.6 + 0.9 + 6 * 0.04) / 8)
        assert sum(part.answers for part in answers.parts) == 8

    def test_there_is_no_matrix_of_very_many_classes(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspection, "MOST_IN_MATRIX", 3)
        answers = inspect(model).answers
        assert answers is not None
        assert answers.confusion is None
        assert len(answers.mistakes) == 1


class TestVersions:
    def test_lessons_say_what_they_taught(self, model: Path) -> None:
        first, second = inspect(model).versions
        assert (first.new_classes, second.new_classes) == (("class 0", "class 1"), ("class 2", "class 3"))
        assert (first.parent, second.parent, second.is_current, first.is_ancestor) == (None, 1, True, True)
        assert [one.is_new for one in second.changes] == [False, False, True, True]
        assert second.images == 36
        assert second.seconds is not None

    @pytest.mark.parametrize(
        ("lost", "gained", "verdict"), [(4, 0, "chance"), (5, 0, "loss"), (0, 5, "gain"), (0, 0, None)]
    )
    def test_small_losses_may_be_chance(self, lost: int, gained: int, verdict: str | None, model: Path) -> None:
        path = model / "versions" / "0002" / "metrics.json"
        metrics = json.loads(path.read_text())
        metrics["per_class"][0] |= {"lost": lost, "gained": gained}
        metrics["per_class"][1] |= {"lost": 0, "gained": 0}
        path.write_text(json.dumps(metrics))
        accept(model, path)
        second = inspect(model).versions[1]
        assert (second.changes[0].verdict, second.verdict) == (verdict, verdict)
        assert second.changes[1].verdict is None

    def test_a_refused_version_is_listed_beside_the_current_one(self, beginner: Path, second: Path) -> None:
        store = ModelStore(beginner)
        with store.locked():
            store.write(store.read(), parent=1, refused="it lost too much")
        kept, refused = inspect(beginner).versions
        assert (kept.is_current, kept.is_ancestor) == (True, True)
        assert (refused.is_current, refused.is_ancestor, refused.refused) == (False, False, "it lost too much")

    def test_damage_to_another_version_is_reported(self, model: Path) -> None:
        damage(model / "versions" / "0001" / "metrics.json", "truncated")
        found = inspect(model)
        assert found.versions[0].damaged is not None
        assert "metrics.json: damaged" in found.versions[0].damaged
        assert found.versions[1].damaged is None
        assert [one.arrived for one in found.classes] == [None, None, 2, 2]


@pytest.mark.parametrize(
    "file", ["versions/0002/weights.safetensors", "versions/0002/model.json", "images/0001.parquet"]
)
def test_damage_to_the_current_version_is_an_error(file: str, model: Path) -> None:
    damage(model / file, "changed")
    with pytest.raises(ModelError, match=rf"{Path(file).name}: damaged"):
        inspect(model)


def test_a_model_that_was_saved_from_python_has_no_lessons(tmp_path: Path) -> None:
    classifier("replay").learn(blobs(2, 8)).save(tmp_path / "m")
    found = inspect(tmp_path / "m")
    assert found.answers is None
    assert (found.versions[0].taught, found.versions[0].changes) == (None, ())
    assert [one.recognised for one in found.classes] == [0, 0]


def test_progress_is_reported(model: Path) -> None:
    steps: list[str] = []
    inspect(model, steps.append)
    assert steps == ["reading the model", "recognising 8 held-out images", "making thumbnails"]
