"""The model folder: what counts as one, what is damaged, what is removed, and who may write."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from cotransport.errors import ModelError, StorageError
from cotransport.model.folder import ModelFolder
from tests.imports import imported
from tests.model.helpers import accept, change_manifest, damage, pixels, snapshot, store_with


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model folder with two versions and two image files."""
    return store_with(tmp_path / "small", snapshot(pixels(1, 2)), snapshot(pixels(1), pixels(3))).path


def test_a_folder_exists_once_it_has_a_version(tmp_path: Path, small: Path) -> None:
    assert ModelFolder(small).exists
    assert not ModelFolder(tmp_path / "nowhere").exists
    assert ModelFolder(small).unfinished == small / "unfinished"


def test_a_model_is_not_made_inside_another_one(small: Path) -> None:
    with pytest.raises(ModelError, match=r"inside the model .*Give that model, or a folder outside of it"):
        ModelFolder(small / "versions" / "1").locked().__enter__()
    assert not (small / "versions" / "1").exists()


def test_a_new_folder_is_removed_again_if_nothing_was_written_to_it(tmp_path: Path) -> None:
    new, known = ModelFolder(tmp_path / "new"), ModelFolder(tmp_path / "known")
    known.path.mkdir()
    for folder in (new, known):
        with pytest.raises(KeyError), folder.locked():
            raise KeyError
    assert not new.path.exists()
    assert known.path.is_dir()
    with pytest.raises(KeyError), new.locked():
        new.unfinished.mkdir()
        raise KeyError
    assert new.unfinished.is_dir()
    with new.locked():
        pass
    assert new.path.is_dir()


class TestManifest:
    def test_names_the_current_version_and_all_files(self, small: Path) -> None:
        manifest = ModelFolder(small).manifest()
        assert manifest.current == 2
        assert [(version.number, version.images) for version in manifest.versions] == [(1, [1]), (2, [1, 2])]
        assert set(manifest.images) == {"1", "2"}

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "damaged"),
            ("[]", "not part of a model"),
            ('{"kind": "something else"}', "not the manifest of a model"),
            ('{"kind": "cotransport model", "format": 99}', "format 99, made by a later release.*Upgrade"),
            ('{"kind": "cotransport model", "format": 1, "versions": 3}', "versions"),
            ('{"kind": "cotransport model", "format": 1}', "checksum differs"),
        ],
    )
    def test_is_checked(self, text: str, message: str, small: Path) -> None:
        (small / "manifest.json").write_text(text)
        with pytest.raises(ModelError, match=rf"manifest\.json: .*{message}"):
            ModelFolder(small).manifest()

    def test_must_not_be_changed_by_hand(self, small: Path) -> None:
        path = small / "manifest.json"
        path.write_text(path.read_text().replace('"current": 2', '"current": 1'))
        with pytest.raises(ModelError, match="changed by hand"):
            ModelFolder(small).manifest()

    def test_must_not_give_two_versions_the_same_number(self, small: Path) -> None:
        versions = json.loads((small / "manifest.json").read_text())["versions"]
        change_manifest(small, versions=[versions[0], versions[0]])
        with pytest.raises(ModelError, match="two versions have the same number"):
            ModelFolder(small).manifest()

    def test_keys_of_a_later_release_are_ignored(self, small: Path) -> None:
        change_manifest(small, later=True)
        assert ModelFolder(small).manifest().current == 2

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
    def test_a_pipe_is_refused_at_once(self, small: Path) -> None:
        (small / "manifest.json").unlink()
        os.mkfifo(small / "manifest.json")
        with pytest.raises(ModelError, match=r"manifest\.json: damaged \(not a file\)"):
            ModelFolder(small).manifest()


class TestOtherFolders:
    def test_are_not_models(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_text("")
        with pytest.raises(ModelError, match=r"not a model \(no manifest.json"):
            ModelFolder(tmp_path / "photos").manifest()
        with pytest.raises(ModelError, match="no such folder"):
            ModelFolder(tmp_path / "nowhere").manifest()
        with pytest.raises(ModelError, match="a file, not a model folder"):
            ModelFolder(tmp_path / "photos" / "a.jpg").manifest()

    def test_are_not_written_to(self, tmp_path: Path) -> None:
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "a.jpg").write_text("")
        with (
            pytest.raises(ModelError, match=r"not a model, and not empty \(a.jpg\)"),
            ModelFolder(tmp_path / "photos").locked(),
        ):
            pass
        with (
            pytest.raises(ModelError, match=r"a file\. Give a new folder's name"),
            ModelFolder(tmp_path / "photos" / "a.jpg").locked(),
        ):
            pass
        assert [path.name for path in (tmp_path / "photos").iterdir()] == ["a.jpg"]

    @pytest.mark.parametrize("has_lock", [False, True])
    @pytest.mark.parametrize("name", ["images/a.jpg", "versions/draft/thesis.tex", "unfinished/song.txt"])
    def test_with_names_like_a_models_are_not_written_to_either(
        self, name: str, has_lock: bool, tmp_path: Path
    ) -> None:
        (tmp_path / "m" / name).parent.mkdir(parents=True)
        (tmp_path / "m" / name).write_text("precious")
        if has_lock:
            (tmp_path / "m" / ".lock").write_text("")
        else:
            (tmp_path / "m" / ".lock" / "inside").mkdir(parents=True)
        with pytest.raises(ModelError, match="not a model, and not empty"), ModelFolder(tmp_path / "m").locked():
            pass
        assert (tmp_path / "m" / name).read_text() == "precious"

    def test_an_unfinished_first_lesson_is_explained(self, tmp_path: Path) -> None:
        with ModelFolder(tmp_path / "m").locked():
            (tmp_path / "m" / "unfinished" / "0").mkdir(parents=True)
        for name in ("job.json", "lesson.json", ".job.json.part", "training-0-3-0of1.safetensors"):
            (tmp_path / "m" / "unfinished" / name).write_text("")
        with pytest.raises(ModelError, match=r"its first lesson is not finished\. Repeat the command to resume it"):
            ModelFolder(tmp_path / "m").manifest()
        with ModelFolder(tmp_path / "m").locked():  # the same command may write
            pass


class TestLinks:
    @pytest.mark.parametrize("name", ["versions", "images", "unfinished", "manifest.json", ".lock"])
    def test_to_other_places_are_refused(self, name: str, small: Path, tmp_path: Path) -> None:
        if (small / name).exists():
            (small / name).rename(tmp_path / "elsewhere")
        else:
            (tmp_path / "elsewhere").mkdir()
        if (tmp_path / "elsewhere").is_dir():
            (tmp_path / "elsewhere" / "precious").write_text("")
        (small / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ModelError, match=rf"{name}: a symbolic link"):
            ModelFolder(small).manifest()
        with pytest.raises(ModelError, match=rf"{name}: a symbolic link"), ModelFolder(small).locked():
            pass
        assert (tmp_path / "elsewhere").is_file() or (tmp_path / "elsewhere" / "precious").exists()

    def test_in_place_of_a_version_are_refused(self, small: Path, tmp_path: Path) -> None:
        (small / "versions" / "0002").rename(tmp_path / "elsewhere")
        (small / "versions" / "0002").symlink_to(tmp_path / "elsewhere")
        folder = ModelFolder(small)
        with pytest.raises(ModelError, match=r"0002/model\.json: missing, or not a file"):
            folder.facts(folder.manifest().version(2))


class TestVersions:
    def test_facts_and_metrics_need_neither_weights_nor_images(self, small: Path) -> None:
        (small / "versions" / "0002" / "weights.safetensors").unlink()
        (small / "images" / "0001.parquet").unlink()
        folder = ModelFolder(small)
        version = folder.manifest().version(2)
        assert folder.facts(version) == (("class 0", "class 1"), 4, {"seed": 3}, 2, 0)
        assert folder.metrics(version) == {"accuracy": 90.0}

    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_damage_is_found_and_another_version_is_offered(self, how: str, small: Path) -> None:
        folder = ModelFolder(small)
        damage(small / "versions" / "0002" / "model.json", how)
        with pytest.raises(ModelError, match=r"0002/model\.json: .*or roll back to another version"):
            folder.facts(folder.manifest().version(2))
        assert folder.facts(folder.manifest().version(1)).classes == ("class 0",)

    def test_a_file_that_the_manifest_does_not_name_is_not_read(self, small: Path) -> None:
        versions = json.loads((small / "manifest.json").read_text())["versions"]
        del versions[1]["files"]["metrics.json"]
        change_manifest(small, versions=versions)
        folder = ModelFolder(small)
        with pytest.raises(ModelError, match=r"manifest\.json: version 2 has no metrics\.json"):
            folder.metrics(folder.manifest().version(2))

    def test_metrics_that_are_nested_too_deeply_are_damage(self, small: Path) -> None:
        path = small / "versions" / "0002" / "metrics.json"
        path.write_text("[" * 100 + "]" * 100)
        accept(small, path)
        folder = ModelFolder(small)
        with pytest.raises(ModelError, match=r"metrics\.json: damaged \(nested too deeply\)"):
            folder.metrics(folder.manifest().version(2))

    def test_metrics_that_are_not_a_mapping_say_nothing(self, small: Path) -> None:
        path = small / "versions" / "0002" / "metrics.json"
        path.write_text("[1, 2]")
        accept(small, path)
        folder = ModelFolder(small)
        assert folder.metrics(folder.manifest().version(2)) == {}


class TestMakeCurrent:
    def test_goes_back_and_forward(self, small: Path) -> None:
        folder = ModelFolder(small)
        for number in (1, 2, 2):
            with folder.locked():
                folder.make_current(number)
            assert folder.manifest().current == number
        with pytest.raises(ModelError, match=r"there is no version 5. Versions: 1, 2"), folder.locked():
            folder.make_current(5)

    @pytest.mark.parametrize("name", ["weights.safetensors", "model.json", "metrics.json"])
    def test_refuses_a_damaged_version(self, name: str, small: Path) -> None:
        damage(small / "versions" / "0001" / name, "changed")
        folder = ModelFolder(small)
        with pytest.raises(ModelError, match=name), folder.locked():
            folder.make_current(1)
        assert folder.manifest().current == 2

    def test_refuses_a_version_with_damaged_or_unlisted_images(self, small: Path) -> None:
        folder = ModelFolder(small)
        with folder.locked():
            folder.make_current(1)
        damage(small / "images" / "0002.parquet", "truncated")
        with pytest.raises(ModelError, match=r"0002\.parquet: damaged"), folder.locked():
            folder.make_current(2)
        images = json.loads((small / "manifest.json").read_text())["images"]
        del images["2"]
        change_manifest(small, images=images)
        with pytest.raises(ModelError, match=r"no record of images/0002\.parquet"), folder.locked():
            folder.make_current(2)
        assert folder.manifest().current == 1


class TestWriters:
    def test_two_are_kept_apart_and_a_reader_does_not_wait(self, small: Path) -> None:
        with ModelFolder(small).locked():
            with pytest.raises(ModelError, match="another process is writing to it"), ModelFolder(small).locked():
                pass
            assert ModelFolder(small).manifest().current == 2
        with ModelFolder(small).locked():
            pass

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has other locks")
    def test_a_file_system_that_refuses_locks_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr("fcntl.flock", refuse)
        refused = pytest.raises(StorageError, match=r"m: cannot be written \(No locks available\)")
        with refused, ModelFolder(tmp_path / "m").locked():
            pass

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(StorageError, match="file/m: cannot be written"),
            ModelFolder(tmp_path / "file" / "m").locked(),
        ):
            pass

    def test_only_files_that_a_writer_left_are_removed(self, small: Path) -> None:
        for name in ("versions/.0003.part", "versions/0003", "versions/notes"):
            (small / name).mkdir()
        for name in ("images/0003.parquet", "images/.0003.parquet.part", "images/a.jpg"):
            (small / name).write_text("")
        folder = ModelFolder(small)
        with folder.locked():
            folder.remove_unlisted(folder.manifest())
        assert sorted(path.name for path in (small / "versions").iterdir()) == ["0001", "0002", "notes"]
        assert sorted(path.name for path in (small / "images").iterdir()) == ["0001.parquet", "0002.parquet", "a.jpg"]

    def test_a_link_that_looks_like_a_leftover_is_removed_without_what_it_leads_to(
        self, small: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "precious").write_text("")
        (small / "versions" / "0003").symlink_to(tmp_path / "elsewhere")
        folder = ModelFolder(small)
        with folder.locked():
            folder.remove_unlisted(folder.manifest())
        assert not (small / "versions" / "0003").is_symlink()
        assert (tmp_path / "elsewhere" / "precious").exists()


def test_reading_and_going_back_import_no_torch(small: Path) -> None:
    script = f"""
from pathlib import Path
from cotransport.model.folder import ModelFolder
folder = ModelFolder(Path({str(small)!r}))
folder.facts(folder.manifest().version(2))
with folder.locked():
    folder.make_current(1)"""
    assert imported(script, ["torch", "numpy", "pyarrow"]) == []
