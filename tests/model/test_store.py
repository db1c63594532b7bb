from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data import EncodedImages, PixelImages
from cotransport.data.decoding import Encoded, png
from cotransport.data.memory import Memory
from cotransport.errors import ConfigError, ModelError, StorageError
from cotransport.lessons.lesson import evaluate, info
from cotransport.model.store import ModelStore, Snapshot, seal
from cotransport.settings.sections import Backbone, Device, HeadSettings
from cotransport.system.files import checksum
from tests.conftest import blobs, classifier

SYNCS = 13
"""Files and folders that are synced when a version is written."""
OLD = Path(__file__).parent.parent / "models"


def pixels(*values: int) -> PixelImages:
    return PixelImages(torch.stack([torch.full((4, 4, 3), value, dtype=torch.uint8) for value in values]))


def snapshot(*exemplars: PixelImages | EncodedImages, held_out: tuple[PixelImages, ...] = ()) -> Snapshot:
    names = tuple(f"class {number}" for number in range(len(exemplars)))
    tensors = {"network.a": torch.arange(6.0).view(2, 3).T, "plan": torch.empty(0, 2)}
    return Snapshot(
        {"seed": 3}, names, (len(names),), 4, tensors, Memory(exemplars), Memory(held_out), {"accuracy": 90.0}
    )


def written(folder: Path, *snapshots: Snapshot) -> ModelStore:
    store = ModelStore(folder)
    with store.locked():
        for one in snapshots:
            store.write(one)
    return store


def values(images: Any) -> list[int]:
    if isinstance(images, PixelImages):
        return [int(value) for value in images.pixels[:, 0, 0, 0]]
    return [len(images.item(place).data) for place in range(len(images))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder with two versions that a classifier has learned."""
    clf = classifier("coil").learn(blobs(2, 8))
    clf.save(tmp_path / "model")
    clf.learn(blobs(2, 8, first=2)).save(tmp_path / "model")
    return tmp_path / "model"


class TestVersions:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        one = snapshot(pixels(1, 2), pixels(3), held_out=(pixels(4), pixels(5, 6)))
        found = written(tmp_path / "m", one).read()
        assert found.classes == one.classes
        assert (found.task_sizes, found.image_size, found.settings, found.metrics) == (
            (2,),
            4,
            {"seed": 3},
            {"accuracy": 90.0},
        )
        assert found.tensors.keys() == one.tensors.keys()
        assert all(torch.equal(found.tensors[name], tensor) for name, tensor in one.tensors.items())
        assert [values(images) for images in found.memory.exemplars] == [[1, 2], [3]]
        assert [values(images) for images in found.held_out.exemplars] == [[4], [5, 6]]

    def test_numbers_as_names_stay_numbers(self, tmp_path: Path) -> None:
        clf = classifier("replay")
        images = blobs(2, 6).images.pixels  # type: ignore[union-attr]
        clf.learn(images, [7] * 6 + [3] * 6).save(tmp_path / "m")
        assert IncrementalClassifier.load(tmp_path / "m").classes_.tolist() == [3, 7]

    def test_every_version_can_be_read(self, model: Path) -> None:
        first, second = (IncrementalClassifier.load(model, number) for number in (1, 2))
        assert len(first.classes_) == 2
        assert len(second.classes_) == 4
        assert IncrementalClassifier.load(model).classes_.tolist() == second.classes_.tolist()

    def test_another_version_is_made_current(self, model: Path) -> None:
        store = ModelStore(model)
        with store.locked():
            store.make_current(1)
        assert len(IncrementalClassifier.load(model).classes_) == 2
        with pytest.raises(ModelError, match=r"there is no version 5. Versions: 1, 2"), store.locked():
            store.make_current(5)

    def test_a_refused_version_is_kept_and_not_current(self, model: Path) -> None:
        store = ModelStore(model)
        with store.locked():
            assert store.write(snapshot(pixels(1)), parent=2, refused="it forgets") == 3
        manifest = store.manifest()
        assert manifest.current == 2
        assert manifest.version(3).refused == "it forgets"
        assert store.read(3).classes == ("class 0",)

    def test_only_one_is_kept_if_so_wanted(self, tmp_path: Path) -> None:
        store = written(tmp_path / "m", snapshot(pixels(1, 2)), snapshot(pixels(1), pixels(3)))
        with store.locked():
            store.keep_only(store.write(snapshot(pixels(4), pixels(3))))
        assert sorted(str(path.relative_to(store.folder)) for path in store.folder.glob("*/*")) == [
            "images/0002.parquet",
            "images/0003.parquet",
            "versions/0003",
        ]
        assert [values(images) for images in store.read().memory.exemplars] == [[4], [3]]
        with store.locked():  # what was removed is not referred to
            store.write(snapshot(pixels(1, 2)))
        assert [values(images) for images in store.read().memory.exemplars] == [[1, 2]]


class TestImages:
    def test_images_are_stored_once(self, tmp_path: Path) -> None:
        store = written(
            tmp_path / "m",
            snapshot(pixels(1, 2, 3), pixels(4, 5)),
            snapshot(pixels(1, 2), pixels(4), pixels(6), held_out=(pixels(3),)),
        )
        import pyarrow.parquet

        rows = [pyarrow.parquet.read_metadata(path).num_rows for path in sorted((tmp_path / "m").glob("images/*"))]
        assert rows == [5, 1]
        assert [values(images) for images in store.read().memory.exemplars] == [[1, 2], [4], [6]]
        assert values(store.read().held_out.exemplars[0]) == [3]

    def test_a_new_store_knows_what_is_there(self, tmp_path: Path) -> None:
        written(tmp_path / "m", snapshot(pixels(1, 2)))
        written(tmp_path / "m", snapshot(pixels(2, 1)))
        assert len(list((tmp_path / "m").glob("images/*"))) == 1
        assert values(ModelStore(tmp_path / "m").read().memory.exemplars[0]) == [2, 1]

    def test_large_images_stay_as_they_were_encoded(self, tmp_path: Path) -> None:
        file = tmp_path / "photo.png"
        file.write_bytes(png(np.full((9, 7, 3), 8, np.uint8)))
        items = [file, Encoded(b"whatever it is", "a.jpg")]
        store = written(tmp_path / "m", snapshot(EncodedImages.of(items, 4)))
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

    def test_they_are_read_when_they_are_looked_at(self, model: Path) -> None:
        clf = IncrementalClassifier.load(model)
        shutil.rmtree(model / "images")
        assert clf.predict(blobs(4, 2)).shape == (8,)
        with pytest.raises(ModelError, match=r"parquet: missing"):
            clf.learn(blobs(1, 8, first=9))


class TestDamage:
    @pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "metrics.json"])
    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_of_a_versions_files(self, name: str, how: str, model: Path) -> None:
        path = model / "versions" / "0002" / name
        damage(path, how)
        with pytest.raises(ModelError, match=name):
            IncrementalClassifier.load(model)
        assert len(IncrementalClassifier.load(model, 1).classes_) == 2

    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_of_images(self, how: str, model: Path) -> None:
        damage(model / "images" / "0001.parquet", how)
        with pytest.raises(ModelError, match=r"0001\.parquet"):
            _ = IncrementalClassifier.load(model).state_.memory.exemplars

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "damaged"),
            ("[]", "not of a model"),
            ('{"kind": "something else"}', "not the manifest of a model"),
            ('{"kind": "cotransport model", "format": 99}', "format 99, made by a later release.*Upgrade"),
            ('{"kind": "cotransport model", "format": 1, "versions": 3}', "versions"),
            ('{"kind": "cotransport model", "format": 1}', "checksum differs"),
        ],
    )
    def test_of_the_manifest(self, text: str, message: str, model: Path) -> None:
        (model / "manifest.json").write_text(text)
        with pytest.raises(ModelError, match=message):
            IncrementalClassifier.load(model)

    def test_of_the_manifest_by_hand(self, model: Path) -> None:
        path = model / "manifest.json"
        path.write_text(path.read_text().replace('"current": 2', '"current": 1'))
        with pytest.raises(ModelError, match="changed by hand"):
            IncrementalClassifier.load(model)

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_text("")
        with pytest.raises(ModelError, match=r"not a model \(no manifest.json"):
            IncrementalClassifier.load(tmp_path / "photos")
        with pytest.raises(ModelError, match=r"not a model, and not empty \(a.jpg\)"):
            classifier("replay").learn(blobs(2, 4)).save(tmp_path / "photos")
        with pytest.raises(ModelError, match="no such folder"):
            IncrementalClassifier.load(tmp_path / "nowhere")
        with pytest.raises(ModelError, match="a file"):
            classifier("replay").learn(blobs(2, 4)).save(tmp_path / "photos" / "a.jpg")

    @pytest.mark.parametrize("lock", [False, True])
    @pytest.mark.parametrize("name", ["images/a.jpg", "versions/draft/thesis.tex", "unfinished/song.txt"])
    def test_folders_of_something_else_with_names_like_ours(self, name: str, lock: bool, tmp_path: Path) -> None:
        (tmp_path / "m" / name).parent.mkdir(parents=True)
        (tmp_path / "m" / name).write_text("precious")
        if lock:
            (tmp_path / "m" / ".lock").write_text("")
        else:
            (tmp_path / "m" / ".lock" / "inside").mkdir(parents=True)
        with pytest.raises(ModelError, match="not a model, and not empty"):
            classifier("replay").learn(blobs(2, 4)).save(tmp_path / "m")
        assert (tmp_path / "m" / name).read_text() == "precious"

    def test_what_others_have_put_into_a_model_stays(self, model: Path) -> None:
        (model / "versions" / "notes").mkdir()
        (model / "images" / "a.jpg").write_text("precious")
        IncrementalClassifier.load(model).save(model)
        assert (model / "versions" / "notes").is_dir()
        assert (model / "images" / "a.jpg").read_text() == "precious"

    @pytest.mark.parametrize("name", ["versions", "images", "unfinished", "manifest.json", ".lock"])
    def test_links_to_elsewhere(self, name: str, model: Path, tmp_path: Path) -> None:
        clf = IncrementalClassifier.load(model)
        if (model / name).exists():
            (model / name).rename(tmp_path / "elsewhere")
        else:
            (tmp_path / "elsewhere").mkdir()
        if (tmp_path / "elsewhere").is_dir():
            (tmp_path / "elsewhere" / "precious").write_text("")
        (model / name).symlink_to(tmp_path / "elsewhere")
        for use in (lambda: IncrementalClassifier.load(model), lambda: clf.save(model)):
            with pytest.raises(ModelError, match=rf"{name}: a link"):
                use()
        assert (tmp_path / "elsewhere").is_file() or (tmp_path / "elsewhere" / "precious").exists()

    def test_a_version_that_is_a_link(self, model: Path, tmp_path: Path) -> None:
        (model / "versions" / "0002").rename(tmp_path / "elsewhere")
        (model / "versions" / "0002").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ModelError, match=r"0002/weights\.safetensors: missing, or not a file"):
            IncrementalClassifier.load(model)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
    def test_a_pipe_does_not_keep_us_waiting(self, model: Path) -> None:
        (model / "manifest.json").unlink()
        os.mkfifo(model / "manifest.json")
        with pytest.raises(ModelError, match=r"manifest\.json: damaged \(not a file\)"):
            IncrementalClassifier.load(model)

    def test_weights_that_are_no_numbers(self, model: Path) -> None:
        one = ModelStore(model).read()
        weight = one.tensors["network.head.weight"]
        for change, message in (
            (weight * float("nan"), "not numbers"),
            (weight.to(torch.float8_e4m3fn), "several or unknown precisions"),
        ):
            other = Snapshot(**{**vars(one), "tensors": {**one.tensors, "network.head.weight": change}})
            with pytest.raises(ModelError, match=message):
                IncrementalClassifier.from_snapshot(other)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"classes": ["a", "a", "b", "c"]}, "two classes have the same name"),
            ({"classes": ["a" * 2000, "b", "c", "d"]}, "damaged"),
            ({"image_size": 10**5}, "image_size"),
            ({"exemplars": [{"pixels": True, "rows": [[1, 0, 10**400]]}] * 4}, "damaged"),
        ],
    )
    def test_of_what_a_version_says(self, change: dict[str, Any], message: str, model: Path) -> None:
        path = model / "versions" / "0002" / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        sealed(model, path)
        with pytest.raises(ModelError, match=rf"model\.json: .*{message}"):
            IncrementalClassifier.load(model)

    def test_metrics_that_are_nested_too_deeply(self, model: Path) -> None:
        path = model / "versions" / "0002" / "metrics.json"
        path.write_text("[" * 100 + "]" * 100)
        sealed(model, path)
        with pytest.raises(ModelError, match=r"metrics\.json: damaged \(nested too deeply\)"):
            IncrementalClassifier.load(model)

    def test_images_that_claim_to_be_enormous_are_not_decoded_at_once(self, tmp_path: Path) -> None:
        one = snapshot(PixelImages(torch.zeros(2, 4, 4, 3, dtype=torch.uint8)))
        found = written(tmp_path / "m", Snapshot(**{**vars(one), "image_size": 8192})).read()
        assert isinstance(found.memory.exemplars[0], EncodedImages)

    def test_weights_of_another_network(self, model: Path) -> None:
        one = ModelStore(model).read()
        for change in ({"network.head.weight": torch.zeros(4, 3)}, {"network.more": torch.zeros(1)}):
            other = Snapshot(**{**vars(one), "tensors": {**one.tensors, **change}})
            with pytest.raises(
                ModelError, match=f"the weights do not fit the network, first at '{next(iter(change))[8:]}"
            ):
                IncrementalClassifier.from_snapshot(other)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"method": {"name": "nonsense"}}, "'nonsense' is not a method"),
            ({"backbone": {"name": "fast", "width": 10**9}}, "cannot be made"),
            ({"backbone": {"name": "fast", "width": 10**5}}, "do not fit"),
            ({"schedule": {"epoch": 3}}, "did you mean 'epochs'"),
            ({"surprise": 1}, "'surprise', which is of a later release"),
            ({"seed": "x"}, "seed: give a whole number"),
            ({"image_size": 10**6}, "image_size: give a whole number from 1 to 8,192"),
            ({"normalisation": [1, 2]}, "normalisation"),
            ({"optimiser": {"weight_decay": 1e308}}, "weight_decay"),
            ({"augmentation": {"crop_padding": 2**30}}, "crop_padding"),
        ],
    )
    def test_settings_that_cannot_be(self, settings: dict[str, Any], message: str, model: Path) -> None:
        one = ModelStore(model).read()
        other = Snapshot(**{**vars(one), "settings": {**one.settings, **settings}})
        with pytest.raises(ModelError, match=message):
            IncrementalClassifier.from_snapshot(other)


def sealed(model: Path, path: Path) -> None:
    """Make the manifest say that a file is as it should be."""
    manifest = model / "manifest.json"
    values = json.loads(manifest.read_text())
    record = {"sha256": checksum(path), "bytes": path.stat().st_size}
    if path.parent.name == "images":
        values["images"][str(int(path.stem))] = record
    else:
        values["versions"][int(path.parent.name) - 1]["files"][path.name] = record
    manifest.write_text(json.dumps(values | {"checksum": seal(values)}))


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if how == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "link":
        elsewhere = path.parent.parent / "elsewhere"
        elsewhere.write_bytes(content)
        path.symlink_to(elsewhere)


class TestWriters:
    def test_two_are_kept_apart(self, model: Path) -> None:
        with ModelStore(model).locked():
            with pytest.raises(ModelError, match="another process is writing to it"), ModelStore(model).locked():
                pass
            assert len(IncrementalClassifier.load(model).classes_) == 4  # a reader does not care

    def test_what_a_killed_one_has_left_is_removed(self, model: Path) -> None:
        (model / "versions" / ".0003.part").mkdir()
        (model / "versions" / "0003").mkdir()
        (model / "versions" / "0003" / "model.json").write_text("{")
        (model / "images" / "0003.parquet").write_text("half")
        (model / "images" / ".0003.parquet.part").write_text("half")
        assert IncrementalClassifier.load(model).save(model) == 3
        assert sorted(path.name for path in (model / "versions").iterdir()) == ["0001", "0002", "0003"]
        assert sorted(path.name for path in (model / "images").iterdir()) == ["0001.parquet", "0002.parquet"]

    @pytest.mark.parametrize("fails_at", range(SYNCS))
    def test_a_full_disk_at_any_moment_leaves_the_version_before(
        self, fails_at: int, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every file is synced before it counts; the n-th of these fails."""
        import errno

        from cotransport.system import files

        clf = IncrementalClassifier.load(model).learn(blobs(1, 8, first=7))
        synced, sync = [0], files.os.fsync

        def fsync(descriptor: int) -> None:
            synced[0] += 1
            if synced[0] > fails_at:
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(descriptor)

        monkeypatch.setattr(files.os, "fsync", fsync)
        with pytest.raises(StorageError, match="No space left on device"):
            clf.save(model)
        monkeypatch.undo()
        # the last two are of the manifest: the file, and the folder that it has been renamed in
        assert len(IncrementalClassifier.load(model).classes_) == (4 if fails_at < SYNCS - 1 else 5)
        clf.save(model)
        assert len(IncrementalClassifier.load(model).classes_) == 5


class TestOwnBackbone:
    @staticmethod
    def module() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6))

    def test_it_is_given_again(self, tmp_path: Path) -> None:
        clf = classifier("replay")
        clf.backbone = self.module()
        clf.learn(blobs(2, 6)).save(tmp_path / "m")
        with pytest.raises(ModelError, match=r"load\(..., backbone=module\)"):
            IncrementalClassifier.load(tmp_path / "m")
        module = self.module()
        before = [parameter.clone() for parameter in module.parameters()]
        loaded = IncrementalClassifier.load(tmp_path / "m", backbone=module)
        assert torch.equal(loaded.scores(blobs(2, 3)).head, clf.scores(blobs(2, 3)).head)
        assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))

    def test_its_buffers_may_be_of_any_precision_and_masks(self, tmp_path: Path) -> None:
        def module() -> nn.Module:
            made = nn.Sequential(nn.Flatten(), nn.Linear(8 * 8 * 3, 4))
            made.register_buffer("mask", torch.full((2,), float("-inf"), dtype=torch.float64))
            return made

        data = blobs(2, 8)
        clf = IncrementalClassifier("replay", module(), schedule={"epochs": 1}, device=Device(accelerator="cpu"))
        clf.learn(data).save(tmp_path / "m")
        again = IncrementalClassifier.load(tmp_path / "m", backbone=module(), device=Device(accelerator="cpu"))
        np.testing.assert_array_equal(again.predict_proba(data), clf.predict_proba(data))
        assert again.state_.network.backbone.get_buffer("mask").dtype == torch.float64

    @pytest.mark.parametrize("backbone", ["fast", nn.Identity()])
    def test_none_is_needed_where_it_has_a_name(self, backbone: Any, model: Path) -> None:
        with pytest.raises(ConfigError, match="nothing, if it was made with a name"):
            IncrementalClassifier.load(model, backbone=backbone)

    def test_one_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        clf = classifier("replay")
        clf.backbone = self.module()
        clf.learn(blobs(2, 6)).save(tmp_path / "m")
        other = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 6))
        with pytest.raises(ModelError, match="Give a module of the kind"):
            IncrementalClassifier.load(tmp_path / "m", backbone=other)


@pytest.mark.parametrize("folder", sorted(OLD.glob("format-*")), ids=lambda path: path.name)
def test_models_of_earlier_formats_can_be_read_used_and_taught(folder: Path, tmp_path: Path) -> None:
    """Made once by the release that introduced the format, with what it said then; see `models/README.md`."""
    shutil.copytree(folder / "model", tmp_path / "model")
    expected = json.loads((folder / "expected.json").read_text())
    clf = IncrementalClassifier.load(tmp_path / "model", device=Device(accelerator="cpu"))
    assert clf.classes_.tolist() == expected["classes"]
    said = clf.predict_proba(blobs(len(expected["classes"]), 2, seed=5))
    np.testing.assert_allclose(said, expected["probabilities"], atol=1e-4)
    assert [change.after for change in evaluate(tmp_path / "model")] == expected["held_out"]
    assert [one["classes"] for one in info(tmp_path / "model")["versions"]] == [2, 4]
    clf.learn(blobs(1, 8, first=9)).save(tmp_path / "model")
    assert clf.head == HeadSettings(linear_scale=0.2)
    assert clf.backbone == Backbone(name="fast", width=4)
