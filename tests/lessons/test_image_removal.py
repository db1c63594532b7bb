"""Removing images from all versions of a model: by a file or by an id, and what remains of them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from pyarrow import parquet
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data.fingerprint import image_digest
from cotransport.errors import ConfigError, DataError, ModelError
from cotransport.lessons import image_removal
from cotransport.lessons.image_removal import remove_images
from cotransport.lessons.information import describe, rollback
from cotransport.lessons.ownership import check, prune, rename
from cotransport.lessons.removal import remove
from cotransport.model.store import ModelStore
from tests.conftest import blobs, classifier
from tests.lessons.helpers import choose, image_bytes, learn, stop_after_an_epoch

FROZEN = nn.Sequential(nn.AvgPool2d(2), nn.Flatten())


def stored(model: Path, version: int, kind: str = "memory") -> list[bytes]:
    return image_bytes(getattr(ModelStore(model).read(version), kind))


def save(pixels: bytes, path: Path, **options: object) -> Path:
    Image.frombytes("RGB", (8, 8), pixels).save(path, **options)  # type: ignore[arg-type]
    return path


class TestFiles:
    @pytest.mark.parametrize("kind", ["memory", "held_out"])
    def test_an_image_leaves_all_versions(self, kind: str, model: Path, tmp_path: Path) -> None:
        wanted = stored(model, 1, kind)[1]
        removed = remove_images(model, [str(save(wanted, tmp_path / "copy.bmp"))])
        (one,) = removed.images
        has_it = {"memory": one.exemplar_in, "held_out": one.held_out_in}
        assert has_it.pop(kind) == [1, 2]
        assert has_it.popitem()[1] == []
        assert one.classes == ["class 0"]
        assert removed.learned_from == ([1, 2] if kind == "memory" else [])
        assert removed.without_exemplars == {}
        newest = describe(model)["versions"][1]
        assert (newest["tested"], newest["held_out"]) == (8, 7 if kind == "held_out" else 8)
        for version in (1, 2):
            assert wanted not in stored(model, version) + stored(model, version, "held_out")
        assert check(model) == []
        facts = describe(model)
        assert facts["exemplars"] + facts["held_out"] == 23

    def test_the_predictions_stay(self, model: Path, tmp_path: Path) -> None:
        test, before = blobs(4, 3, seed=5), IncrementalClassifier.load(model).predict_proba(blobs(4, 3, seed=5))
        remove_images(model, [str(save(stored(model, 1)[0], tmp_path / "copy.png"))])
        assert (IncrementalClassifier.load(model).predict_proba(test) == before).all()

    @pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
    def test_images_that_are_not_square(self, fit: str, tmp_path: Path) -> None:
        pixels = torch.randint(256, (2, 4, 5, 9, 3), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        for name, images in zip("ab", pixels, strict=True):
            (tmp_path / "data" / name).mkdir(parents=True)
            for number, image in enumerate(images):
                Image.fromarray(image.numpy()).save(tmp_path / "data" / name / f"{number}.png")
        chosen = choose(image_size=5, memory={"per_class": 4}, prediction={"fit": fit})
        learn(tmp_path / "m", tmp_path / "data", chosen)
        (one,) = remove_images(tmp_path / "m", [str(tmp_path / "data" / "a" / "2.png")]).images
        assert one.classes == ["a"]

    def test_photographs_in_their_own_encoding(self, tmp_path: Path) -> None:
        """Images above 64 pixels are stored as files, and found by their bytes or their pixels."""
        for name in ("a", "b"):
            (tmp_path / "data" / name).mkdir(parents=True)
            for number in range(4):
                torch.manual_seed(number + 10 * (name == "b"))
                image = Image.frombytes("RGB", (6, 5), torch.randint(256, (90,)).to(torch.uint8).numpy().tobytes())
                image.resize((90, 80)).save(tmp_path / "data" / name / f"{number}.png")
        model = tmp_path / "m"
        learn(model, tmp_path / "data", choose(image_size=72, memory={"per_class": 50}, schedule={"epochs": 1}))
        first, other = tmp_path / "data" / "a" / "1.png", tmp_path / "data" / "b" / "2.png"
        assert len(remove_images(model, [str(first)]).images) == 1
        buffer = io.BytesIO()
        Image.open(other).save(buffer, "BMP")
        (tmp_path / "copy.bmp").write_bytes(buffer.getvalue())
        (one,) = remove_images(model, [str(tmp_path / "copy.bmp")]).images
        assert one.classes == ["b"]
        assert describe(model)["exemplars"] + describe(model)["held_out"] == 6
        assert not any(first.read_bytes() in path.read_bytes() for path in model.rglob("*.parquet"))

    def test_an_image_that_is_not_stored(self, model: Path, tmp_path: Path) -> None:
        changed = bytearray(stored(model, 1)[0])
        changed[0] ^= 64
        copy = save(bytes(changed), tmp_path / "other.png")
        closest = image_digest(ModelStore(model).read(1).memory.exemplars[0].item(0)).hex()[:12]
        # one of 192 values differs by 64
        with pytest.raises(
            ModelError, match=rf"not among the images.*most similar one is {closest}: .* by 0\.3 of 255"
        ):
            remove_images(model, [str(copy)])
        assert len(remove_images(model, [closest]).images) == 1

    def test_what_is_not_an_image(self, model: Path, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        with pytest.raises(DataError, match=r"notes\.txt"):
            remove_images(model, [str(tmp_path / "notes.txt")])


class TestIds:
    def test_several_at_once(self, model: Path) -> None:
        images = ModelStore(model).read(2).memory.exemplars
        ids = [image_digest(images[number].item(0)).hex()[:12] for number in (0, 2)]
        removed = remove_images(model, ids)
        assert [(one.given, one.id) for one in removed.images] == list(zip(ids, ids, strict=True))
        assert [one.exemplar_in for one in removed.images] == [[1, 2], [2]]
        assert len(stored(model, 2)) == 14

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("cat.png", "no such file, and not the id"),
            ("0123", "not the id"),
            ("0" * 12, "no stored image has this id"),
        ],
    )
    def test_mistakes_change_nothing(self, given: str, message: str, model: Path) -> None:
        valid = image_digest(ModelStore(model).read(1).memory.exemplars[0].item(0)).hex()
        before = (model / "manifest.json").read_bytes()
        with pytest.raises((ConfigError, ModelError), match=message):
            remove_images(model, [valid, given])
        assert (model / "manifest.json").read_bytes() == before


class TestWhatRemains:
    def test_versions_that_were_taught_later_have_learned_from_it(self, model: Path, tmp_path: Path) -> None:
        rollback(model, 1)
        rename(model, "class 0", "nought")  # version 3, from version 1
        digest = image_digest(ModelStore(model).read(2).memory.exemplars[3].item(0)).hex()
        removed = remove_images(model, [digest])
        assert (removed.images[0].exemplar_in, removed.learned_from) == ([2], [2])
        digest = image_digest(ModelStore(model).read(3).memory.exemplars[0].item(0)).hex()
        removed = remove_images(model, [digest])
        assert removed.learned_from == [1, 2, 3]
        assert removed.images[0].classes == ["class 0", "nought"]

    def test_a_class_without_exemplars_is_named(self, model: Path) -> None:
        images = ModelStore(model).read(2).memory.exemplars[3]
        ids = [image_digest(images.item(place)).hex() for place in range(len(images))]
        assert remove_images(model, ids).without_exemplars == {2: ["class 3"]}

    def test_features_go_too(self, tmp_path: Path) -> None:
        clf = classifier("replay", freeze_backbone=True, normalisation="imagenet").set_params(backbone=FROZEN)
        clf.learn(blobs(2, 8)).save(tmp_path / "m")
        clf.learn(blobs(2, 8, first=2)).save(tmp_path / "m")
        digest = image_digest(clf.state_.memory.exemplars[0].item(0))
        remove_images(tmp_path / "m", [digest.hex()])
        for version in (1, 2):
            state = IncrementalClassifier.load(tmp_path / "m", version, backbone=FROZEN).state_
            assert state.features is not None
            assert len(state.features.digests) == len(state.memory) == 8 * version - 1
            assert digest not in state.features.digests
        assert not any(digest in path.read_bytes() for path in (tmp_path / "m").rglob("*.*"))
        assert check(tmp_path / "m") == []

    def test_it_can_be_taught_further(self, beginner: Path, second: Path) -> None:
        remove_images(beginner, [image_digest(ModelStore(beginner).read().memory.exemplars[0].item(0)).hex()])
        assert learn(beginner, second).version == 2
        assert len(describe(beginner)["classes"]) == 4


def test_images_of_a_removed_class_leave_with_the_last_version_that_has_them(model: Path) -> None:
    images = stored(model, 2)[4:8] + stored(model, 2, "held_out")[2:4]
    encoded = [bytes(row["image"]) for path in model.glob("images/*") for row in parquet.read_table(path).to_pylist()]
    remove(model, "class 1")
    assert sorted(path.name for path in model.glob("images/*")) == ["0001.parquet", "0002.parquet"]
    assert prune(model, keep=1) == [1, 2]
    left = b"".join(path.read_bytes() for path in model.glob("images/*"))
    gone = [one for one in encoded if one not in left]
    assert sorted(Image.open(io.BytesIO(one)).tobytes() for one in gone) == sorted(images)
    assert check(model) == []


def test_a_damaged_version_does_not_stop_prune(model: Path) -> None:
    rename(model, "class 0", "nought")
    rollback(model, 3)
    (model / "versions" / "0003" / "model.json").unlink()
    with pytest.warns(UserWarning, match="their images are still in the model folder"):
        assert prune(model, keep=1) == [1, 2]


def test_an_unfinished_lesson_comes_first(beginner: Path, second: Path) -> None:
    stop_after_an_epoch(beginner, second)
    with pytest.raises(ModelError, match="a lesson is not finished"):
        remove_images(beginner, ["0" * 12])


def test_a_folder_that_is_no_model_gets_no_lock(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model"):
        remove_images(tmp_path, ["0" * 12])
    assert list(tmp_path.iterdir()) == []


def test_two_images_with_similar_ids(beginner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_removal, "_ID", re.compile(""))  # so that an id without letters is tried
    with pytest.raises(ConfigError, match=r"12 images have ids that begin like this\. Give more characters"):
        remove_images(beginner, [""])
