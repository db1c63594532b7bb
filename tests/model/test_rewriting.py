"""Rewriting a model folder without some images: all versions stay whole, whenever the process ends."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from torch import Tensor

from cotransport.data.fingerprint import image_digest
from cotransport.errors import ModelError, StorageError
from cotransport.lessons.ownership import check
from cotransport.model import rewriting
from cotransport.model.folder import ModelFolder
from cotransport.model.rewriting import rewrite
from cotransport.model.snapshot import Snapshot
from cotransport.model.store import ModelStore
from cotransport.system import files
from tests.helpers import Killed
from tests.model.helpers import accept, change_manifest, damage, full_disk, pixels, snapshot, store_with, values

SYNCS = 2 + 2 + 3 * (2 + 5) + 2
"""Files and folders that are synced when the model of `three_versions` is rewritten: each file and its folder; of each
version `model.json`, its folder, then all three files, the folder and the one above."""


def digest(value: int) -> bytes:
    return image_digest(pixels(value).item(0))


def with_features(one: Snapshot, *rows: int) -> Snapshot:
    """A version that shares a backbone and some features with others."""
    tensors = {"backbone": torch.ones(50), "features": torch.tensor(rows)}
    return replace(one, tensors={**one.tensors, **tensors}, shared=frozenset(tensors))


def three_versions(folder: Path) -> ModelStore:
    return store_with(
        folder,
        with_features(snapshot(pixels(1, 2, 3)), 1, 2, 3),
        with_features(snapshot(pixels(1, 2), pixels(4, 5), held_out=(pixels(6), pixels(3))), 1, 2, 4, 5),
        with_features(snapshot(pixels(5)), 5),
    )


def without_rows(tensors: dict[str, Tensor], values: set[int]) -> dict[str, Tensor]:
    kept = [value for value in tensors["features"].tolist() if value not in values]
    if len(kept) == len(tensors["features"]):
        return tensors
    return tensors | {"features": torch.tensor(kept)}


def remove(store: ModelStore, *gone: int) -> None:
    with store.locked():
        rewrite(store, without={digest(value) for value in gone}, edit=partial(without_rows, values=set(gone)))


def contents(store: ModelStore) -> list[tuple[list[list[int]], list[list[int]], list[int]]]:
    """Exemplars, held-out images and features of each version."""
    found = []
    for version in store.manifest().versions:
        one = store.read(version.number)
        assert one.tensors["backbone"].tolist() == [1.0] * 50
        assert torch.equal(one.tensors["network.a"], torch.arange(6.0).view(2, 3).T)
        assert one.metrics == {"accuracy": 90.0}
        parts = [[values(images) for images in memory.exemplars] for memory in (one.memory, one.held_out)]
        found.append((*parts, one.tensors["features"].tolist()))
    return found  # type: ignore[return-value]


BEFORE = [([[1, 2, 3]], [], [1, 2, 3]), ([[1, 2], [4, 5]], [[6], [3]], [1, 2, 4, 5]), ([[5]], [], [5])]
AFTER = [([[1, 3]], [], [1, 3]), ([[1], [4, 5]], [[6], [3]], [1, 4, 5]), ([[5]], [], [5])]
"""Without the image 2."""


class TestWithout:
    def test_an_image_leaves_all_versions(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        assert contents(store) == BEFORE
        remove(store, 2)
        assert contents(store) == AFTER
        assert check(store.path) == []
        assert store.manifest().format == 3
        assert [(one.number, one.folder) for one in store.manifest().versions] == [(1, 4), (2, 5), (3, 6)]

    def test_nothing_of_it_is_left_in_any_file(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        (old,) = (
            row for row in pyarrow.parquet.read_table(store.image_file(1)).to_pylist() if row["digest"] == digest(2)
        )
        remove(store, 2)
        for path in store.path.rglob("*.*"):
            assert digest(2) not in path.read_bytes()
            assert old["image"] not in path.read_bytes()
        assert sorted(path.name for path in store.path.glob("images/*")) == ["0002.parquet", "0004.parquet"]
        assert sorted(path.name for path in store.path.glob("tensors/*")) == ["0003.safetensors", "0004.safetensors"]

    def test_files_of_versions_that_do_not_have_it_stay(self, tmp_path: Path) -> None:
        """The image 6 is in the second file and the second version alone."""
        store = three_versions(tmp_path / "m")
        before = {path: path.read_bytes() for path in store.path.glob("versions/0001/*")}
        with store.locked():
            rewrite(store, without={digest(6)})
        assert {path: path.read_bytes() for path in before} == before
        assert store.image_file(1).exists()
        assert [one.folder for one in store.manifest().versions] == [None, 4, 5]  # both refer to the second file

    def test_a_class_may_lose_all_of_its_images(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        remove(store, 5)
        assert contents(store)[2] == ([[]], [], [])
        assert store.read().classes == ("class 0",)

    def test_it_can_be_written_to_and_rewritten_again(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        remove(store, 2)
        with store.locked():
            assert store.write(with_features(snapshot(pixels(1, 7)), 1, 7)) == 4
        assert contents(store) == [*AFTER, ([[1, 7]], [], [1, 7])]
        remove(ModelStore(store.path), 1)
        assert contents(store)[3] == ([[7]], [], [7])
        with store.locked():
            store.make_current(1)
            store.keep({1, 4})
        assert contents(store) == [([[3]], [], [3]), ([[7]], [], [7])]
        assert check(store.path) == []

    def test_an_image_that_is_not_there(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        before = (store.path / "manifest.json").read_bytes()
        with store.locked():
            rewrite(store, without={b"nothing"})
        # rows and tensors that nobody needs are all there is to remove, and there are none
        assert (store.path / "manifest.json").read_bytes() == before


def test_images_that_no_version_needs_are_removed(tmp_path: Path) -> None:
    store = three_versions(tmp_path / "m")
    with store.locked():
        store.keep({2, 3})
        rewrite(store)
        store.keep({3})
        rewrite(store)
    assert contents(store) == BEFORE[2:]
    (path,) = store.path.glob("images/*")
    assert pyarrow.parquet.read_metadata(path).num_rows == 1


class TestFaults:
    @pytest.mark.parametrize("fails_at", range(SYNCS))
    def test_a_full_disk_at_any_moment_leaves_the_old_folder_or_the_new_one(
        self, fails_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = three_versions(tmp_path / "m")
        with monkeypatch.context() as patch:
            full_disk(patch, fails_at)
            with pytest.raises(StorageError, match="No space left on device"):
                remove(store, 2)
        # the last two syncs are of the manifest: of the file, and of the folder in which it was renamed
        assert contents(ModelStore(store.path)) == (BEFORE if fails_at < SYNCS - 1 else AFTER)
        assert check(store.path) == []
        remove(ModelStore(store.path), 2)
        assert contents(store) == AFTER
        assert_no_leftovers(store)

    def test_it_takes_as_many_syncs_as_the_test_above_lets_fail(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, synced = three_versions(tmp_path / "m"), list[int]()
        monkeypatch.setattr(files.os, "fsync", synced.append)
        remove(store, 2)
        assert len(synced) == SYNCS

    @pytest.mark.parametrize("moment", ["replace_manifest", "remove_unlisted"])
    def test_killed_before_and_after_the_manifest(
        self, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, calls, real = three_versions(tmp_path / "m"), [0], getattr(ModelFolder, moment)

        def kill(self: ModelFolder, *arguments: object) -> None:
            calls[0] += 1
            if moment == "replace_manifest" or calls[0] == 2:  # it also runs at the start
                raise Killed
            real(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(ModelFolder, moment, kill)
            with pytest.raises(Killed):
                remove(store, 2)
        assert contents(ModelStore(store.path)) == (BEFORE if moment == "replace_manifest" else AFTER)
        remove(ModelStore(store.path), 2)  # removes what is left over, too
        assert contents(store) == AFTER
        assert_no_leftovers(store)

    @pytest.mark.parametrize("file", ["images/0001.parquet", "tensors/0001.safetensors", "versions/0002/model.json"])
    def test_a_damaged_file_changes_nothing(self, file: str, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        damage(store.path / file, "changed")
        before = (store.path / "manifest.json").read_bytes()
        with pytest.raises(ModelError, match="its checksum differs"):
            remove(store, 2)
        assert (store.path / "manifest.json").read_bytes() == before

    def test_rows_that_are_not_there_are_found(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        path = store.path / "versions" / "0003" / "model.json"
        rows = {"exemplars": [{"pixels": True, "rows": [[2, 1, 10**15]]}]}
        path.write_text(json.dumps(json.loads(path.read_text()) | rows))
        accept(store.path, path)
        with pytest.raises(ModelError, match=r"0002\.parquet: has fewer images"):
            remove(store, 2)

    def test_two_versions_in_one_folder_are_refused(self, tmp_path: Path) -> None:
        store = three_versions(tmp_path / "m")
        versions = [one.model_dump(mode="json") for one in store.manifest().versions]
        change_manifest(store.path, versions=[versions[0] | {"folder": 2}, *versions[1:]])
        with pytest.raises(ModelError, match="two versions have the same number"):
            store.manifest()

    def test_numbers_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = three_versions(tmp_path / "m")
        monkeypatch.setattr(rewriting, "MOST_VERSIONS", 5)
        with pytest.raises(ModelError, match="too many versions"):
            remove(store, 2)


def assert_no_leftovers(store: ModelStore) -> None:
    manifest = store.manifest()
    assert {path.name for path in store.path.glob("versions/*")} == {f"{one.place:04d}" for one in manifest.versions}
    assert {int(path.stem) for path in store.path.glob("images/*")} == set(map(int, manifest.images))
    assert {int(path.stem) for path in store.path.glob("tensors/*")} == set(map(int, manifest.tensors))
