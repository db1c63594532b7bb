"""Renaming a class, removing old versions and checking all files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, ModelError
from cotransport.lessons.information import describe, rollback
from cotransport.lessons.ownership import check, prune, rename
from cotransport.model.store import ModelStore
from tests.conftest import blobs, classifier
from tests.lessons.helpers import learn, stop_after_an_epoch

TEST = blobs(4, 5, seed=7)


class TestRename:
    def test_only_the_name_changes(self, model: Path) -> None:
        before = IncrementalClassifier.load(model)
        assert rename(model, "class 1", "tabby cat") == 3
        after = IncrementalClassifier.load(model)
        assert after.classes_.tolist() == ["class 0", "tabby cat", "class 2", "class 3"]
        assert (before.predict_proba(TEST) == after.predict_proba(TEST)).all()
        facts = describe(model)
        assert (facts["current"], facts["versions"][2]["parent"]) == (3, 2)
        assert facts["versions"][2]["accuracy"] == facts["versions"][1]["accuracy"]
        assert facts["versions"][2]["forgetting"] == 0
        assert facts["versions"][2]["new_classes"] == []
        assert facts["versions"][2]["change"] == "class 1 renamed to tabby cat"
        assert (facts["exemplars"], facts["held_out"]) == (16, 8)
        assert not (model / "images" / "0003.parquet").exists()  # no image is stored again

    def test_what_is_confused_with_the_class_has_its_new_name(self, model: Path) -> None:
        confused = [
            {"name": "class 1", "predicted": "class 0", "images": 3},
            {"name": "class 2", "predicted": "class 1", "images": 2},
        ]
        store = ModelStore(model)
        snapshot = store.read()
        with store.locked():
            store.write(replace(snapshot, metrics={**snapshot.metrics, "confusions": confused}), parent=2)
        rename(model, "class 1", "tabby")
        confused[0]["name"] = confused[1]["predicted"] = "tabby"
        assert store.read().metrics["confusions"] == confused

    def test_it_can_be_undone_and_taught_further(self, beginner: Path, second: Path) -> None:
        rename(beginner, "class 1", "tabby")
        learn(beginner, second)
        assert describe(beginner)["classes"] == ["class 0", "tabby", "class 2", "class 3"]
        assert rollback(beginner, 1) == (3, 1)
        assert describe(beginner)["classes"] == ["class 0", "class 1"]

    def test_a_model_that_was_saved_from_python(self, tmp_path: Path) -> None:
        clf = classifier("replay").learn(blobs(2, 8).images.pixels.numpy(), [5] * 8 + [7] * 8)  # type: ignore[union-attr]
        clf.save(tmp_path / "m")
        assert rename(tmp_path / "m", "7", "9") == 2
        assert describe(tmp_path / "m")["classes"] == [5, 9]
        with pytest.raises(ConfigError, match="classes of this model are whole numbers"):
            rename(tmp_path / "m", "5", "five")

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("cat", "dog", "'cat': the model does not know this class. It knows: class 0, class 1"),
            ("class 0", "class 1", "'class 1': another class has this name"),
            ("class 0", "class 0", "'class 0': the class has this name already"),
            ("class 0", "", "not a class name"),
            ("class 0", "a\x1bb", "not a class name"),
            ("class 0", "x" * 1001, "not a class name"),
        ],
    )
    def test_mistakes_change_nothing(self, beginner: Path, old: str, new: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            rename(beginner, old, new)
        assert describe(beginner)["current"] == 1

    def test_an_unfinished_lesson_comes_first(self, beginner: Path, second: Path) -> None:
        stop_after_an_epoch(beginner, second)
        with pytest.raises(ModelError, match="a lesson is not finished"):
            rename(beginner, "class 0", "cat")

    def test_a_folder_that_is_no_model_gets_no_lock(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="not a model"):
            rename(tmp_path, "a", "b")
        assert list(tmp_path.iterdir()) == []


class TestPrune:
    def test_the_newest_and_the_current_version_stay(self, model: Path) -> None:
        for name in ("a", "b", "c"):
            rename(model, describe(model)["classes"][0], name)
        rollback(model, 2)
        assert prune(model, keep=1) == [1, 3, 4]
        assert [one["version"] for one in describe(model)["versions"]] == [2, 5]
        assert sorted(path.name for path in (model / "versions").iterdir()) == ["0002", "0005"]
        assert check(model) == []
        assert len(IncrementalClassifier.load(model).classes_) == 4

    def test_images_of_removed_versions_go_too(self, tmp_path: Path) -> None:
        for seed in (0, 1):
            classifier("replay", seed=seed).learn(blobs(2, 8, seed=seed)).save(tmp_path / "m")
        assert prune(tmp_path / "m", keep=1) == [1]
        assert [path.name for path in (tmp_path / "m" / "images").iterdir()] == ["0002.parquet"]

    def test_more_than_there_are(self, model: Path) -> None:
        assert prune(model, keep=9) == []

    def test_at_least_one(self, model: Path) -> None:
        with pytest.raises(ConfigError, match="--keep 0: give at least 1"):
            prune(model, keep=0)


class TestCheck:
    def test_a_whole_model(self, model: Path) -> None:
        assert check(model) == []

    @pytest.mark.parametrize(
        "file", ["versions/0001/weights.safetensors", "versions/0002/model.json", "images/0001.parquet"]
    )
    def test_every_damage_is_named_once(self, model: Path, file: str) -> None:
        path = model / file
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))
        (model / "versions" / "0002" / "metrics.json").unlink()
        problems = check(model)
        assert len(problems) == 2
        assert any(file in problem and "its checksum differs" in problem for problem in problems)
        assert any("metrics.json: missing" in problem for problem in problems)

    def test_no_current_version(self, model: Path) -> None:
        store = ModelStore(model)
        with store.locked():
            store.replace_manifest(store.manifest().model_copy(update={"current": None}))
        assert check(model) == [f"{model}: no version is current. Choose one with `cotransport rollback --to`"]


def test_paths_may_be_strings(model: Path) -> None:
    assert rename(str(model), "class 0", "nought") == 3
    assert prune(str(model), keep=1) == [1, 2]
    assert check(str(model)) == []
    assert describe(str(model))["current"] == 3
