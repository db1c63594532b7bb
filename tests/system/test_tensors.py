from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cotransport.errors import StorageError
from cotransport.system.files import atomic_write, write_json
from cotransport.system.tensors import read_tensors, write_tensors


def test_tensors_are_read_as_they_were_written(tmp_path: Path) -> None:
    square = torch.arange(6.0).view(2, 3)
    written = {"a": square.T, "b": square[1], "c": torch.tensor([True]), "d": torch.zeros(0, 3, dtype=torch.int64)}
    write_tensors(tmp_path / "a.safetensors", written, {"epochs": "3"})
    tensors, metadata = read_tensors(tmp_path / "a.safetensors")
    assert metadata == {"epochs": "3"}
    assert tensors.keys() == written.keys()
    for name, tensor in written.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_tensors_do_not_need_their_file_after_reading(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"a": torch.ones(1000)})
    tensors, metadata = read_tensors(path)
    path.write_bytes(b"")
    path.unlink()
    assert tensors["a"].sum() == 1000
    assert metadata == {}


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_damaged_or_missing_file_is_a_value_error(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(ValueError):
        read_tensors(tmp_path / "a.safetensors")


def test_tensors_on_a_full_disk(tmp_path: Path) -> None:
    """The library writes the file itself, and raises its own error when the system refuses."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with (
            pytest.raises(StorageError, match=r"a\.safetensors.*cannot be written"),
            atomic_write(tmp_path / "a.safetensors") as temporary,
        ):
            write_tensors(temporary, {"a": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_a_tensor_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with atomic_write(tmp_path / "a.safetensors") as temporary:
        write_tensors(temporary, {"a": torch.zeros(2)})
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
