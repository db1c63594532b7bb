"""A model folder as one file: a tar archive, which is written from a folder and checked before it becomes one.

The same folder always gives the same bytes. The manifest comes first, then every file that it names; nothing else is
part of an archive. Nothing in an archive is trusted: names, kinds and sizes of its members are compared with the
manifest before anything is written, and checksums before the folder gets its name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from cotransport.errors import ConfigError, ModelError
from cotransport.model.folder import MANIFEST, METRICS, MODEL, WEIGHTS, ModelFolder
from cotransport.model.manifest import FileRecord, Manifest
from cotransport.system.files import (
    LARGEST_JSON,
    PART,
    AnyPath,
    atomic_write,
    rename_folder,
    storage_error,
    storage_errors,
)

PLAIN, COMPRESSED = (".tar",), (".tar.gz", ".tgz")
"""Suffixes of archives."""
MOST_EXPANSION = 200
"""How many times its own size a compressed archive may contain. Weights and photographs hardly compress."""
ALWAYS_ALLOWED = 64 << 20
"""Bytes that a compressed archive may contain whatever its own size is."""
_FORMAT = tarfile.GNU_FORMAT  # has no limit of sizes, and needs no extra headers for our names
_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE
_CHUNK = 1 << 20


def write_archive(model: AnyPath, file: AnyPath) -> None:
    """Write a model folder as one file. Every file's checksum is verified on the way.

    file : ends in .tar, or in .tar.gz or .tgz to be compressed. A lesson that is not finished is not part of it.
    """
    model, file, folder = Path(model), Path(file), ModelFolder(model)
    compressed = _is_compressed(file)
    manifest, content = _manifest(folder)
    if file.is_dir() or not file.parent.is_dir():
        raise ConfigError(f"{file}: a folder, or in a folder that does not exist. Give a file in an existing folder")
    if file.resolve().is_relative_to(model.resolve()):
        raise ConfigError(f"{file}: inside the model folder. Give a file elsewhere")
    with atomic_write(file) as beside, ExitStack() as opened:
        stream: BinaryIO = opened.enter_context(beside.open("wb"))
        if compressed:
            stream = cast(BinaryIO, opened.enter_context(gzip.GzipFile("", "wb", fileobj=stream, mtime=0)))
        archive = opened.enter_context(tarfile.open(fileobj=stream, mode="w", format=_FORMAT))
        archive.addfile(_header(MANIFEST, len(content)), io.BytesIO(content))
        for name, record in _members(manifest).items():
            folder.check(model / name, record)
            with (model / name).open("rb") as own:
                archive.addfile(_header(name, record.bytes), own)


def read_archive(file: AnyPath, model: AnyPath) -> Manifest:
    """Make a new model folder from an archive; returns its manifest. A refused archive leaves nothing behind."""
    file, model = Path(file), Path(model)
    compressed = _is_compressed(file)
    if model.exists() or model.is_symlink():
        raise ConfigError(f"{model}: exists already. Give the name of a new folder")
    if not file.is_file():
        raise ConfigError(f"{file}: no such file. Give a file that was written by `cotransport export --archive`")
    temporary = model.with_name(f".{model.name}{PART}")
    try:
        with storage_errors(model):
            shutil.rmtree(temporary, ignore_errors=True)  # of an import that was killed
            temporary.mkdir(parents=True)
        with file.open("rb") as opened:
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=opened)) if compressed else opened
            manifest = _extract(_Archive(file, stream), temporary, compressed=compressed)
        rename_folder(temporary, model)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return manifest


def _is_compressed(file: Path) -> bool:
    name = file.name.lower()
    if not name.endswith(PLAIN + COMPRESSED):
        raise ConfigError(f"{file}: the name of an archive must end in .tar, .tar.gz or .tgz")
    return name.endswith(COMPRESSED)


def _members(manifest: Manifest) -> dict[str, FileRecord]:
    """The files that a manifest names, by their paths in the model folder."""
    layout, members = ModelFolder(Path()), dict[str, FileRecord]()
    for version in manifest.versions:
        if set(version.files) != {WEIGHTS, MODEL, METRICS}:
            raise ModelError(
                f"{MANIFEST}: version {version.number} has missing or unknown files. Restore it from a backup"
            )
        folder = layout.version_folder(version.place)
        members |= {(folder / name).as_posix(): record for name, record in sorted(version.files.items())}
    for records, path in ((manifest.images, layout.image_file), (manifest.tensors, layout.tensor_file)):
        members |= {path(int(name)).as_posix(): record for name, record in records.items()}
    return members


def _manifest(folder: ModelFolder) -> tuple[Manifest, bytes]:
    """The manifest, and the bytes of its file."""
    manifest, content = folder.manifest(), (folder.path / MANIFEST).read_bytes()
    if folder.manifest() != manifest:
        raise ModelError(f"{folder.path}: another process is writing to it. Wait until it is done")
    return manifest, content


def _header(name: str, size: int) -> tarfile.TarInfo:
    """A member without owner, times and permissions of its own."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member


class _Member(NamedTuple):
    """A plain file in an archive."""

    name: str
    size: int


class _Archive:
    """An archive that is read from its beginning to its end.

    The module tarfile would read headers of any size, and follow them. Here, only blocks of a fixed size are parsed.
    """

    def __init__(self, file: Path, stream: BinaryIO) -> None:
        self.file, self._stream = file, stream

    def next_member(self) -> _Member | None:
        """The next member; None at the end. Anything but a plain file is an error."""
        block = self._read(_BLOCK)
        if block == bytes(_BLOCK):
            return None
        try:
            member = tarfile.TarInfo.frombuf(block, "ascii", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise self.error(f"damaged, or not a tar archive ({error})") from None
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.size < 0:
            raise self.error(f"{member.name!r} is not a plain file")
        return _Member(member.name, member.size)

    def copy(self, member: _Member, folder: Path) -> str:
        """Write a member's content to a file; returns its checksum."""
        digest, left = hashlib.sha256(), member.size
        with atomic_write(folder / member.name) as beside, beside.open("wb") as target:
            while left:
                chunk = self._read(min(left, _CHUNK))
                if not chunk:
                    raise self.error("ends too early")
                digest.update(chunk)
                target.write(chunk)
                left -= len(chunk)
        self._read(-member.size % _BLOCK)  # members are padded to whole blocks
        return digest.hexdigest()

    def check_end(self) -> None:
        """Raise an error unless zeros are all that follows."""
        rest = self._read(_RECORD + 1)
        if not rest or len(rest) > _RECORD or rest.strip(b"\0"):
            raise self.error("damaged at its end")

    def error(self, what: str) -> ModelError:
        """The error for an archive that cannot be used."""
        return ModelError(f"{self.file}: {what}. Write it again with `cotransport export --archive`")

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (OSError, EOFError, zlib.error) as error:  # also those of decompression
            raise self.error(f"damaged ({error})") from None


def _extract(archive: _Archive, folder: Path, *, compressed: bool) -> Manifest:
    """Write the members of an archive to a folder, each checked."""
    first = archive.next_member()
    if first is None or first.name != MANIFEST:
        raise archive.error(f"not an archive of a model: its first file is not {MANIFEST}")
    if first.size > LARGEST_JSON:
        raise archive.error("its manifest is too large")
    archive.copy(first, folder)
    try:
        manifest = ModelFolder(folder).manifest()
        expected = _members(manifest)
    except ModelError as error:
        raise ModelError(str(error).replace(str(folder), str(archive.file))) from None
    _check_size(archive, sum(record.bytes for record in expected.values()), folder, compressed=compressed)
    with storage_errors(folder):
        for name in expected:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    while (member := archive.next_member()) is not None:
        record = expected.pop(member.name, None)
        if record is None:
            raise archive.error(f"{member.name!r} is not a file of this model, or appears twice")
        if member.size != record.bytes:
            raise archive.error(f"{member.name}: its size differs from the manifest")
        if archive.copy(member, folder) != record.sha256:
            raise archive.error(f"{member.name}: damaged or changed (its checksum differs)")
    if expected:
        raise archive.error(f"{next(iter(expected))} is missing")
    archive.check_end()
    return manifest


def _check_size(archive: _Archive, size: int, folder: Path, *, compressed: bool) -> None:
    """Raise an error if an archive claims to contain more than it can, or more than the disk has room for."""
    own = archive.file.stat().st_size
    if size > (max(ALWAYS_ALLOWED, MOST_EXPANSION * own) if compressed else own):
        raise archive.error(f"claims to contain {size:,} bytes, which is too much for its size")
    if size > shutil.disk_usage(folder).free:
        raise storage_error(folder, "not enough space")
