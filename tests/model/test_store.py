"""Versions in a model folder: written as a whole, shared images, damage found when they are read."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch

from cotransport import IncrementalClassifier
from cotransport.data import EncodedImages, PixelImages
from cotransport.data.decoding import Encoded, png
from cotransport.errors import ModelError, StorageError
from cotransport.lessons.comparison import evaluate
from cotransport.lessons.information import describe
from cotransport.lessons.ownership import check
from cotransport.model.snapshot import Snapshot
from cotransport.model.store import ModelStore
from cotransport.settings.sections import Backbone, Device, HeadSettings
from cotransport.system import files
from tests.conftest import blobs, classifier
from tests.model.helpers import accept, change_manifest, damage, full_disk, pixels, snapshot, store_with, values

SYNCS = 13
"""Files and folders that are synced when a version is written."""
EARLIER_FORMATS = Path(__file__).parent.parent / "models"


class TestVersions:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        one = snapshot(pixels(1, 2), pixels(3), held_out=(pixels(4), pixels(5, 6)))
        found = store_with(tmp_path / "m", one).read()
        assert found.classes == one.classes
        assert (found.task_sizes, found.image_size) == ((2,), 4)
        assert (found.settings, found.metrics) == ({"seed": 3}, {"accuracy": 90.0})
        assert found.tensors.keys() == one.tensors.keys()
        assert all(torch.equal(found.tensors[name], tensor) for name, tensor in one.tensors.items())
        assert [values(images) for images in found.memory.exemplars] == [[1, 2], [3]]
        assert [values(images) for images in found.held_out.exemplars] == [[4], [5, 6]]

    def test_whole_numbers_as_names_stay_whole_numbers(self, tmp_path: Path) -> None:
        one = snapshot(pixels(1), pixels(2))
        found = store_with(tmp_path / "m", Snapshot(**{**vars(one), "classes": (7, 3)})).read()
        assert found.classes == (7, 3)

    def test_every_version_can_be_read(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)), snapshot(pixels(1), pixels(2)))
        assert store.read(1).classes == ("class 0",)
        assert store.read(2).classes == store.read().classes == ("class 0", "class 1")
        with store.locked():
            store.make_current(1)
        assert store.read().classes == ("class 0",)

    def test_a_refused_version_is_kept_and_not_current(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)), snapshot(pixels(1), pixels(2)))
        with store.locked():
            assert store.write(snapshot(pixels(1)), parent=2, refused="too much is lost") == 3
        manifest = store.manifest()
        assert manifest.current == 2
        assert (manifest.version(3).refused, manifest.version(3).parent) == ("too much is lost", 2)
        assert store.read(3).classes == ("class 0",)

    def test_of_refused_versions_alone_none_is_current(self, tmp_path: Path) -> None:
        store = ModelStore(tmp_path / "m")
        with store.locked():
            store.write(snapshot(pixels(1)), refused="too much is lost")
        with pytest.raises(ModelError, match=r"no version is current\. Choose one with `cotransport rollback --to`"):
            store.read()

    def test_only_one_is_kept_if_asked_for(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1, 2)), snapshot(pixels(1), pixels(3)))
        with store.locked():
            store.keep_only(store.write(snapshot(pixels(4), pixels(3))))
        assert sorted(str(path.relative_to(store.path)) for path in store.path.glob("*/*")) == [
            "images/0002.parquet",
            "images/0003.parquet",
            "versions/0003",
        ]
        assert [values(images) for images in store.read().memory.exemplars] == [[4], [3]]
        with store.locked():
            store.keep_only(3)  # there is nothing left to remove
            store.write(snapshot(pixels(1, 2)))  # does not refer to images that were removed
        assert [values(images) for images in store.read().memory.exemplars] == [[1, 2]]

    def test_numbers_are_never_used_twice(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)), snapshot(pixels(1)))
        with store.locked():
            store.keep_only(2)
            assert store.write(snapshot(pixels(1))) == 3

    def test_there_is_a_last_number(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)))
        versions = json.loads((store.path / "manifest.json").read_text())["versions"]
        change_manifest(store.path, versions=[versions[0] | {"number": 10**6 - 1}])
        with pytest.raises(ModelError, match="too many versions"), store.locked():
            store.write(snapshot(pixels(1)))


class TestSharedTensors:
    def test_are_stored_once(self, tmp_path: Path) -> None:
        large, more = torch.arange(5000.0), torch.arange(10.0)
        first = with_shared(snapshot(pixels(1)), a=large)
        second = with_shared(snapshot(pixels(1), pixels(2)), a=large.clone(), b=more)
        store = store_with(tmp_path / "m", first, second, second)
        sizes = {path.name: path.stat().st_size for path in store.path.glob("tensors/*")}
        assert sizes.keys() == {"0001.safetensors", "0002.safetensors"}
        assert sizes["0002.safetensors"] < 1000 < sizes["0001.safetensors"]
        assert (store.path / "versions" / "0003" / "weights.safetensors").stat().st_size < 1000
        for number, one in enumerate((first, second, second), 1):
            found = store.read(number)
            assert found.shared == one.shared
            assert found.tensors.keys() == one.tensors.keys()
            assert all(torch.equal(found.tensors[name], tensor) for name, tensor in one.tensors.items())

    def test_equal_values_of_another_shape_or_type_are_others(self, tmp_path: Path) -> None:
        zeros = {"a": torch.zeros(4), "b": torch.zeros(2, 2), "c": torch.zeros(4, dtype=torch.int32)}
        found = store_with(tmp_path / "m", with_shared(snapshot(pixels(1)), **zeros)).read()
        assert [(found.tensors[name].shape, found.tensors[name].dtype) for name in zeros] == [
            (tensor.shape, tensor.dtype) for tensor in zeros.values()
        ]

    def test_are_removed_with_the_last_version_that_needs_them(self, tmp_path: Path) -> None:
        first = with_shared(snapshot(pixels(1)), a=torch.ones(3))
        second = with_shared(snapshot(pixels(1)), a=torch.ones(3), b=torch.zeros(3))
        store = store_with(tmp_path / "m", first, second)
        with store.locked():
            store.keep({2})
        assert [path.name for path in sorted(store.path.glob("tensors/*"))] == ["0001.safetensors", "0002.safetensors"]
        with store.locked():
            store.keep_only(store.write(snapshot(pixels(1))))
        assert list(store.path.glob("tensors/*")) == []

    def test_only_models_that_have_some_need_the_newer_format(self, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", snapshot(pixels(1)))
        assert store.manifest().format == 1
        with store.locked():
            store.write(with_shared(snapshot(pixels(1)), a=torch.ones(3)))
        assert store.manifest().format == 2

    @pytest.mark.parametrize("how", ["changed", "truncated", "removed", "link"])
    def test_damage_is_found(self, how: str, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", with_shared(snapshot(pixels(1)), a=torch.ones(3)))
        damage(store.path / "tensors" / "0001.safetensors", how)
        assert len(check(store.path)) == 1
        with pytest.raises(ModelError, match=r"tensors/0001\.safetensors: (damaged|missing)"):
            store.read()
        with pytest.raises(ModelError, match=r"tensors/0001\.safetensors: (damaged|missing)"), store.locked():
            store.make_current(1)

    @pytest.mark.parametrize(
        ("place", "message"),
        [([1, "0" * 64], r"0001\.safetensors: lacks a tensor"), ([7, "0" * 64], r"no record of tensors/0007")],
    )
    def test_tensors_that_are_not_there_are_found(self, place: list[Any], message: str, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", with_shared(snapshot(pixels(1)), a=torch.ones(3)))
        path = store.path / "versions" / "0001" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"shared": {"a": place}}))
        accept(store.path, path)
        with pytest.raises(ModelError, match=message):
            store.read()

    def test_equal_tensors_are_stored_once_and_restored_apart(self, tmp_path: Path) -> None:
        found = store_with(tmp_path / "m", with_shared(snapshot(pixels(1)), a=torch.ones(3), b=torch.ones(3))).read()
        found.tensors["a"][0] = 5
        assert found.tensors["b"].tolist() == [1, 1, 1]

    @pytest.mark.parametrize(
        ("names", "message"), [(["network.a"], "both shared and the version's own"), (list("abcd"), "too often")]
    )
    def test_hostile_names_are_refused(self, names: list[str], message: str, tmp_path: Path) -> None:
        store = store_with(tmp_path / "m", with_shared(snapshot(pixels(1)), a=torch.ones(3)))
        path = store.path / "versions" / "0001" / "model.json"
        values = json.loads(path.read_text())
        path.write_text(json.dumps(values | {"shared": dict.fromkeys(names, values["shared"]["a"])}))
        accept(store.path, path)
        with pytest.raises(ModelError, match=message):
            store.read()


def with_shared(one: Snapshot, **tensors: torch.Tensor) -> Snapshot:
    """A version that shares these tensors with others."""
    return replace(one, tensors={**one.tensors, **tensors}, shared=frozenset(tensors))


class TestImages:
    def test_are_stored_once(self, tmp_path: Path) -> None:
        store = store_with(
            tmp_path / "m",
            snapshot(pixels(1, 2, 3), pixels(4, 5)),
            snapshot(pixels(1, 2), pixels(4), pixels(6), held_out=(pixels(3),)),
        )
        rows = [pyarrow.parquet.read_metadata(path).num_rows for path in sorted((tmp_path / "m").glob("images/*"))]
        assert rows == [5, 1]
        assert [values(images) for images in store.read().memory.exemplars] == [[1, 2], [4], [6]]
        assert values(store.read().held_out.exemplars[0]) == [3]

    def test_a_later_process_finds_what_is_stored(self, tmp_path: Path) -> None:
        store_with(tmp_path / "m", snapshot(pixels(1, 2)))
        store_with(tmp_path / "m", snapshot(pixels(2, 1)))
        assert len(list((tmp_path / "m").glob("images/*"))) == 1
        assert values(ModelStore(tmp_path / "m").read().memory.exemplars[0]) == [2, 1]

    def test_large_ones_keep_their_encoding(self, tmp_path: Path) -> None:
        file = tmp_path / "photo.png"
        file.write_bytes(png(np.full((9, 7, 3), 8, np.uint8)))
        items = [file, Encoded(b"whatever it is", "a.jpg")]
        store = store_with(tmp_path / "m", snapshot(EncodedImages.of(items, 4)))
        file.unlink()
        (images,) = store.read().memory.exemplars
        assert isinstance(images, EncodedImages)
        assert images.size == 4
        first, second = (images.item(place) for place in range(2))
        assert isinstance(first, Encoded)
        assert isinstance(second, Encoded)
        assert first.data == png(np.full((9, 7, 3), 8, np.uint8))
        assert "photo.png" in first.name
        assert second.data == b"whatever it is"

    def test_are_read_when_they_are_first_needed(self, model: Path) -> None:
        clf = IncrementalClassifier.load(model)
        shutil.rmtree(model / "images")
        assert clf.predict(blobs(4, 2)).shape == (8,)
        with pytest.raises(ModelError, match=r"parquet: missing"):
            clf.learn(blobs(1, 8, first=9))

    def test_that_claim_to_be_enormous_are_not_decoded_at_once(self, tmp_path: Path) -> None:
        one = snapshot(PixelImages(torch.zeros(2, 4, 4, 3, dtype=torch.uint8)))
        found = store_with(tmp_path / "m", Snapshot(**{**vars(one), "image_size": 8192})).read()
        assert isinstance(found.memory.exemplars[0], EncodedImages)


class TestDamage:
    @pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "metrics.json"])
    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_of_a_versions_file_is_found_and_other_versions_are_read(self, name: str, how: str, model: Path) -> None:
        damage(model / "versions" / "0002" / name, how)
        with pytest.raises(ModelError, match=name):
            IncrementalClassifier.load(model)
        assert len(IncrementalClassifier.load(model, 1).classes_) == 2

    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_of_images_is_found(self, how: str, model: Path) -> None:
        damage(model / "images" / "0001.parquet", how)
        with pytest.raises(ModelError, match=r"0001\.parquet"):
            _ = IncrementalClassifier.load(model).state_.memory.exemplars

    @pytest.mark.parametrize("how", ["changed", "truncated", "missing"])
    def test_of_images_is_found_before_a_version_is_added(self, how: str, model: Path) -> None:
        damage(model / "images" / "0001.parquet", how)
        with pytest.raises(ModelError, match=r"0001\.parquet"):
            classifier("replay").learn(blobs(2, 4)).save(model)
        assert ModelStore(model).manifest().current == 2

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"classes": ["a", "a", "b", "c"]}, "two classes have the same name"),
            ({"classes": ["a", "b", "c"]}, "the numbers of classes do not agree"),
            ({"task_sizes": [2, 3]}, "the numbers of classes do not agree"),
            ({"classes": ["a" * 2000, "b", "c", "d"]}, "damaged"),
            ({"image_size": 10**5}, "image_size"),
            ({"exemplars": [{"pixels": True, "rows": [[1, 0, 10**400]]}] * 4}, "damaged"),
        ],
    )
    def test_of_what_a_version_says_is_found(self, change: dict[str, Any], message: str, model: Path) -> None:
        path = model / "versions" / "0002" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        accept(model, path)
        with pytest.raises(ModelError, match=rf"model\.json: .*{message}"):
            IncrementalClassifier.load(model)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [([[1, 0, 10**6]], r"0001\.parquet: has fewer images"), ([[7, 0, 1]], r"no record of images/0007\.parquet")],
    )
    def test_rows_that_are_not_there_are_found(self, rows: list[list[int]], message: str, model: Path) -> None:
        path = model / "versions" / "0002" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"exemplars": [{"pixels": True, "rows": rows}] * 4}))
        accept(model, path)
        with pytest.raises(ModelError, match=message):
            _ = IncrementalClassifier.load(model).state_.memory.exemplars

    def test_weights_that_are_no_tensors_are_found(self, model: Path) -> None:
        path = model / "versions" / "0002" / "weights.safetensors"
        path.write_bytes(b"nonsense")
        accept(model, path)
        with pytest.raises(ModelError, match=r"weights\.safetensors: damaged"):
            IncrementalClassifier.load(model)

    def test_choices_that_are_no_section_are_found(self, model: Path) -> None:
        path = model / "versions" / "0002" / "metrics.json"
        path.write_text(json.dumps({"chosen": [3]}))
        accept(model, path)
        changed = model / "versions" / "0002" / "model.json"
        changed.write_text(json.dumps(json.loads(changed.read_text()) | {"chosen": None}))
        accept(model, changed)
        with pytest.raises(ModelError, match=r"the chosen settings are not a section\. Restore it from a backup"):
            ModelStore(model).read()

    def test_metrics_that_are_nested_too_deeply_are_found(self, model: Path) -> None:
        path = model / "versions" / "0002" / "metrics.json"
        path.write_text("[" * 100 + "]" * 100)
        accept(model, path)
        with pytest.raises(ModelError, match=r"metrics\.json: damaged \(nested too deeply\)"):
            IncrementalClassifier.load(model)


class TestWriters:
    def test_what_a_killed_one_has_left_is_removed(self, model: Path) -> None:
        (model / "versions" / ".0003.part").mkdir()
        (model / "versions" / "0003").mkdir()
        (model / "versions" / "0003" / "model.json").write_text("{")
        (model / "images" / "0003.parquet").write_text("half")
        (model / "images" / ".0003.parquet.part").write_text("half")
        assert IncrementalClassifier.load(model).save(model) == 3
        assert sorted(path.name for path in (model / "versions").iterdir()) == ["0001", "0002", "0003"]
        assert sorted(path.name for path in (model / "images").iterdir()) == ["0001.parquet", "0002.parquet"]

    def test_files_of_other_people_stay(self, model: Path) -> None:
        (model / "versions" / "notes").mkdir()
        (model / "images" / "a.jpg").write_text("precious")
        IncrementalClassifier.load(model).save(model)
        assert (model / "versions" / "notes").is_dir()
        assert (model / "images" / "a.jpg").read_text() == "precious"

    @pytest.mark.parametrize("fails_at", range(SYNCS))
    def test_a_full_disk_at_any_moment_leaves_the_version_before(
        self, fails_at: int, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every file is synced before it counts; the n-th sync fails."""
        clf = IncrementalClassifier.load(model).learn(blobs(1, 8, first=7))
        full_disk(monkeypatch, fails_at)
        with pytest.raises(StorageError, match="No space left on device"):
            clf.save(model)
        monkeypatch.undo()
        # the last two syncs are of the manifest: of the file, and of the folder in which it was renamed
        assert len(IncrementalClassifier.load(model).classes_) == (4 if fails_at < SYNCS - 1 else 5)
        clf.save(model)
        assert len(IncrementalClassifier.load(model).classes_) == 5

    def test_a_version_takes_as_many_syncs_as_the_test_above_lets_fail(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clf = IncrementalClassifier.load(model).learn(blobs(1, 8, first=7))
        synced: list[int] = []
        monkeypatch.setattr(files.os, "fsync", synced.append)
        clf.save(model)
        assert len(synced) == SYNCS


@pytest.mark.parametrize("folder", sorted(EARLIER_FORMATS.glob("format-*")), ids=lambda path: path.name)
def test_models_of_earlier_formats_can_be_read_used_and_taught(folder: Path, tmp_path: Path) -> None:
    """Each was made by the release that introduced its format, which also wrote the expected values."""
    model = Path(shutil.copytree(folder / "model", tmp_path / "model"))
    expected = json.loads((folder / "expected.json").read_text())
    clf = IncrementalClassifier.load(model, device=Device(accelerator="cpu"))
    assert clf.classes_.tolist() == expected["classes"]
    found = clf.predict_proba(blobs(len(expected["classes"]), 2, seed=5))
    np.testing.assert_allclose(found, expected["probabilities"], atol=1e-4)
    assert [one.after for one in evaluate(model).per_class] == expected["held_out"]
    assert [one["classes"] for one in describe(model)["versions"]] == [2, 4]
    clf.learn(blobs(1, 8, first=9)).save(model)
    assert clf.settings_.head == HeadSettings(linear_scale=0.2)
    assert clf.settings_.backbone == Backbone(name="fast", width=4)
    assert len(IncrementalClassifier.load(model).classes_) == 5
