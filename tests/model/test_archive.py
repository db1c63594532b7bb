"""A model folder as one file: written and read back, and hostile or damaged archives, of which nothing is left."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cotransport import IncrementalClassifier
from cotransport.errors import ConfigError, ModelError, StorageError
from cotransport.lessons.image_removal import remove_images
from cotransport.lessons.ownership import check
from cotransport.model import archive
from cotransport.model.archive import read_archive, write_archive
from cotransport.model.manifest import seal
from cotransport.model.store import ModelStore
from tests.conftest import blobs
from tests.helpers import Killed
from tests.model.helpers import change_manifest, damage, full_disk, pixels, snapshot, store_with

Members = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model folder with two versions and two image files."""
    return store_with(tmp_path / "small", snapshot(pixels(1, 2)), snapshot(pixels(1), pixels(3))).path


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*") if path.name != ".lock"}


class TestBothWays:
    @pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "M.TGZ"])
    def test_the_folder_comes_back(self, name: str, model: Path, tmp_path: Path) -> None:
        write_archive(model, tmp_path / name)
        manifest = read_archive(tmp_path / name, tmp_path / "deep" / "copy")
        assert manifest.current == 2
        assert files_of(tmp_path / "deep" / "copy") == files_of(model)
        assert check(tmp_path / "deep" / "copy") == []
        both = [IncrementalClassifier.load(folder) for folder in (model, tmp_path / "deep" / "copy")]
        assert (both[0].predict_proba(blobs(4, 2)) == both[1].predict_proba(blobs(4, 2))).all()
        both[1].save(tmp_path / "deep" / "copy")

    def test_shared_tensors_and_rewritten_versions(self, model: Path, tmp_path: Path) -> None:
        places = ModelStore(model).stored_images(ModelStore(model).manifest())
        remove_images(model, [next(iter(places)).hex()])
        write_archive(model, tmp_path / "m.tar")
        read_archive(tmp_path / "m.tar", tmp_path / "copy")
        assert files_of(tmp_path / "copy") == files_of(model)

    @pytest.mark.parametrize("name", ["m.tar", "m.tar.gz"])
    def test_the_same_folder_gives_the_same_bytes(self, name: str, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / name)
        copy = Path(shutil.copytree(small, tmp_path / "copy"))
        for path in copy.rglob("*"):
            os.utime(path, (1, 1))
            path.chmod(0o700)
        (tmp_path / "again").mkdir()
        write_archive(copy, tmp_path / "again" / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()

    def test_other_programs_can_read_it(self, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / "m.tar.gz")
        with tarfile.open(tmp_path / "m.tar.gz") as opened:
            found = {one.name: opened.extractfile(one).read() for one in opened.getmembers()}  # type: ignore[union-attr]
        assert found == files_of(small)
        assert next(iter(found)) == "manifest.json"

    def test_nothing_else_is_in_it(self, small: Path, tmp_path: Path) -> None:
        (small / "images" / "mine.jpg").write_text("precious")
        (small / "versions" / "0009").mkdir()
        (small / "versions" / "0009" / "weights.safetensors").write_text("left over")
        (small / "unfinished").mkdir()
        (small / "unfinished" / "job.json").write_text("{}")
        write_archive(small, tmp_path / "m.tar")
        read_archive(tmp_path / "m.tar", tmp_path / "copy")
        assert len(files_of(tmp_path / "copy")) == 1 + 2 * 3 + 2


class TestWriting:
    @pytest.mark.parametrize("how", ["changed", "truncated", "missing", "link"])
    def test_damage_is_found(self, how: str, small: Path, tmp_path: Path) -> None:
        damage(small / "images" / "0002.parquet", how)
        with pytest.raises(ModelError, match=r"0002\.parquet: (damaged|missing)"):
            write_archive(small, tmp_path / "m.tar")
        assert not list(tmp_path.glob("*m.tar*"))

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("m.zip", "the name of an archive must end in"),
            ("nowhere/m.tar", "in a folder that does not exist"),
            ("small/m.tar", "inside the model folder"),
        ],
    )
    def test_mistakes(self, name: str, message: str, small: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=message):
            write_archive(small, tmp_path / name)

    def test_a_full_disk_leaves_the_earlier_archive(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "m.tar").write_text("earlier")
        full_disk(monkeypatch, 0)
        with pytest.raises(StorageError, match="No space left on device"):
            write_archive(small, tmp_path / "m.tar")
        assert (tmp_path / "m.tar").read_text() == "earlier"
        assert not (tmp_path / ".m.tar.part").exists()


def plain_file(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def special(name: str, kind: bytes, **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type = kind
    for field, value in fields.items():
        setattr(member, field, value)
    return member, b""


def repack(source: Path, target: Path, change: Callable[[Members], Members]) -> Path:
    """Write an archive again, with other members."""
    with tarfile.open(source) as opened:
        members = [(one, opened.extractfile(one).read()) for one in opened.getmembers()]  # type: ignore[union-attr]
    with tarfile.open(target, "w:gz" if target.suffix == ".gz" else "w") as opened:
        for member, content in change(members):
            opened.addfile(member, io.BytesIO(content))
    return target


def set_content(name: str, content: bytes) -> Callable[[Members], Members]:
    return lambda members: [plain_file(name, content) if one.name == name else (one, own) for one, own in members]


HOSTILE: dict[str, tuple[Callable[[Members], Members], str]] = {
    "no members": (lambda members: [], "its first file is not manifest.json"),
    "no manifest": (lambda members: members[1:], "its first file is not manifest.json"),
    "the manifest comes later": (lambda members: [*members[1:], members[0]], "its first file is not manifest.json"),
    "a file is missing": (lambda members: members[:-1], "is missing"),
    "a file comes twice": (lambda members: [*members, members[-1]], "appears twice"),
    "the manifest comes twice": (lambda members: [members[0], *members], "appears twice"),
    "a file more": (lambda members: [*members, plain_file("images/0009.parquet", b"")], "not a file of this model"),
    "a path upwards": (lambda members: [*members, plain_file("../evil", b"x")], "not a file of this model"),
    "a path upwards inside": (
        lambda members: [*members, plain_file("images/../../evil", b"x")],
        "not a file of this model",
    ),
    "an absolute path": (lambda members: [*members, plain_file("/tmp/evil", b"x")], "not a file of this model"),
    "another way to write a path": (
        lambda members: [members[0], plain_file("./" + members[1][0].name, members[1][1]), *members[2:]],
        "not a file of this model",
    ),
    "a symbolic link": (
        lambda members: [*members[:-1], special(members[-1][0].name, tarfile.SYMTYPE, linkname="/etc/passwd")],
        "not a plain file",
    ),
    "a hard link": (
        lambda members: [*members[:-1], special(members[-1][0].name, tarfile.LNKTYPE, linkname="manifest.json")],
        "not a plain file",
    ),
    "a link in place of a folder": (
        lambda members: [members[0], special("images", tarfile.SYMTYPE, linkname="/tmp"), *members[1:]],
        "not a plain file",
    ),
    "a folder": (lambda members: [members[0], special("images", tarfile.DIRTYPE), *members[1:]], "not a plain file"),
    "a device": (
        lambda members: [*members[:-1], special(members[-1][0].name, tarfile.CHRTYPE, devmajor=1, devminor=5)],
        "not a plain file",
    ),
    "a pipe": (lambda members: [*members[:-1], special(members[-1][0].name, tarfile.FIFOTYPE)], "not a plain file"),
    "a long name": (lambda members: [*members, plain_file("x" * 5000, b"")], "not a plain file"),
    "another size": (
        lambda members: [*members[:-1], plain_file(members[-1][0].name, members[-1][1] + b"x")],
        "its size differs from the manifest",
    ),
    "another content": (
        lambda members: [*members[:-1], plain_file(members[-1][0].name, members[-1][1][:-1] + b"\0")],
        "its checksum differs",
    ),
    "another manifest": (set_content("manifest.json", b"{}"), "damaged or changed by hand"),
    "not JSON": (set_content("manifest.json", b"nonsense"), "damaged"),
}


class TestHostile:
    @pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
    @pytest.mark.parametrize("how", HOSTILE)
    def test_it_is_refused_and_nothing_is_left(self, how: str, suffix: str, small: Path, tmp_path: Path) -> None:
        change, message = HOSTILE[how]
        write_archive(small, tmp_path / "good.tar")
        bad = repack(tmp_path / "good.tar", tmp_path / f"bad{suffix}", change)
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(ModelError, match=message) as raised:
            read_archive(bad, tmp_path / "copy")
        assert str(bad) in str(raised.value)
        assert ".copy.part" not in str(raised.value)
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    @pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
    def test_truncated_at_any_place(self, suffix: str, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / f"good{suffix}")
        content = (tmp_path / f"good{suffix}").read_bytes()
        for length in [*range(0, len(content), 997), len(content) - 1]:
            (tmp_path / f"bad{suffix}").write_bytes(content[:length])
            zeros = suffix == ".tar" and not content[length:].strip(b"\0") and len(content) - length < 10240 - 1024
            if zeros:  # padding that no program needs
                continue
            with pytest.raises(ModelError, match=rf"bad{suffix}: "):
                read_archive(tmp_path / f"bad{suffix}", tmp_path / "copy")
            assert not (tmp_path / "copy").exists()

    def test_data_after_the_end(self, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / "m.tar")
        with (tmp_path / "m.tar").open("ab") as file:
            file.write(b"more")
        with pytest.raises(ModelError, match="damaged at its end"):
            read_archive(tmp_path / "m.tar", tmp_path / "copy")

    def test_what_is_no_archive(self, tmp_path: Path) -> None:
        for name in ("m.tar", "m.tar.gz"):
            (tmp_path / name).write_bytes(b"nonsense" * 1000)
            with pytest.raises(ModelError, match=rf"{name}: damaged"):
                read_archive(tmp_path / name, tmp_path / "copy")

    def test_a_bomb_is_not_unpacked(self, small: Path, tmp_path: Path) -> None:
        """A manifest with a valid seal that names a file of a terabyte: refused before anything is written."""
        versions = json.loads((small / "manifest.json").read_text())["versions"]
        versions[0]["files"]["weights.safetensors"]["bytes"] = 10**12
        change_manifest(small, versions=versions)
        manifest = (small / "manifest.json").read_bytes()
        for name, opener in (("m.tar", open), ("m.tar.gz", gzip.open)):
            with opener(tmp_path / name, "wb") as raw, tarfile.open(fileobj=raw, mode="w") as opened:  # type: ignore[operator]
                opened.addfile(plain_file("manifest.json", manifest)[0], io.BytesIO(manifest))
            with pytest.raises(ModelError, match="claims to contain 1,000,000,0"):
                read_archive(tmp_path / name, tmp_path / "copy")

    def test_a_header_that_claims_to_be_enormous_is_not_read(self, tmp_path: Path) -> None:
        """tarfile would read it into memory, to find a long name in it."""
        header = tarfile.TarInfo("././@LongLink")
        header.type, header.size = tarfile.GNUTYPE_LONGNAME, 10**12
        (tmp_path / "m.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
        with pytest.raises(ModelError, match="not a plain file"):
            read_archive(tmp_path / "m.tar", tmp_path / "copy")

    def test_a_manifest_that_claims_to_be_enormous(self, tmp_path: Path) -> None:
        header = tarfile.TarInfo("manifest.json")
        header.size = 10**12
        (tmp_path / "m.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(4096))
        with pytest.raises(ModelError, match="its manifest is too large"):
            read_archive(tmp_path / "m.tar", tmp_path / "copy")

    def test_files_that_no_version_has(self, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / "good.tar")
        values = json.loads((small / "manifest.json").read_text())
        values["versions"][0]["files"]["../../evil"] = values["versions"][0]["files"]["model.json"]
        content = json.dumps(values | {"checksum": seal(values)}).encode()
        bad = repack(tmp_path / "good.tar", tmp_path / "bad.tar", set_content("manifest.json", content))
        with pytest.raises(ModelError, match="version 1 has missing or unknown files"):
            read_archive(bad, tmp_path / "copy")


class TestReading:
    def test_an_existing_folder_stays(self, small: Path, tmp_path: Path) -> None:
        write_archive(small, tmp_path / "m.tar")
        (tmp_path / "copy").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        for name in ("copy", "link", "small"):
            with pytest.raises(ConfigError, match="exists already"):
                read_archive(tmp_path / "m.tar", tmp_path / name)

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no such file"):
            read_archive(tmp_path / "m.tar", tmp_path / "copy")

    @pytest.mark.parametrize("fails_at", range(0, 22, 3))
    def test_a_full_disk_at_any_moment_leaves_nothing(
        self, fails_at: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_archive(small, tmp_path / "m.tar")
        with monkeypatch.context() as patch:
            full_disk(patch, fails_at)
            with pytest.raises(StorageError, match="No space left on device"):
                read_archive(tmp_path / "m.tar", tmp_path / "copy")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.tar", "small"]

    def test_too_little_space_is_found_first(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_archive(small, tmp_path / "m.tar")
        monkeypatch.setattr(archive.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
        with pytest.raises(StorageError, match="not enough space"):
            read_archive(tmp_path / "m.tar", tmp_path / "copy")

    def test_what_a_killed_import_has_left_is_no_hindrance(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def kill(*arguments: object, **options: object) -> None:
            raise Killed

        write_archive(small, tmp_path / "m.tar")
        with monkeypatch.context() as patch:
            patch.setattr(archive, "rename_folder", kill)
            patch.setattr(archive.shutil, "rmtree", lambda *_, **__: None)  # a killed process cannot tidy up
            with pytest.raises(Killed):
                read_archive(tmp_path / "m.tar", tmp_path / "copy")
        assert (tmp_path / ".copy.part").is_dir()
        assert not (tmp_path / "copy").exists()
        read_archive(tmp_path / "m.tar", tmp_path / "copy")
        assert files_of(tmp_path / "copy") == files_of(small)
        assert not (tmp_path / ".copy.part").exists()
