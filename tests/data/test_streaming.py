"""Streams: which images are read, when, and what is refused."""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pytest
import torch
from pyarrow.parquet import ParquetFile

from cotransport.data import EncodedImages, open_source
from cotransport.data.fingerprint import fingerprint
from cotransport.data.streaming import StreamedRows, StreamedTable, TemporaryImages, fetched, stream_of
from cotransport.data.tables import ImageColumn
from cotransport.errors import DataError, StorageError
from cotransport.settings.sections import Data
from tests.data.helpers import by_class, load, values_of, write
from tests.data.test_hugging_face import parquet, table

pytestmark = pytest.mark.usefixtures("hf_cache")
TRAIN = table(range(1, 13), [0, 2, 1, 0, -1, 1, 2, 2, 1, 0, 0, 1])


@pytest.fixture
def hf_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the library cache its tables in a temporary folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")
    return tmp_path / "hf-cache"


def sharded(folder: Path, rows: datasets.Dataset = TRAIN, shards: int = 3, group: int = 2) -> Path:
    """A training split in several files, each with several row groups."""
    (folder / "data").mkdir(parents=True)
    for number in range(shards):
        shard = rows.shard(shards, number, contiguous=True)
        shard.to_parquet(folder / "data" / f"train-{number:05d}-of-{shards:05d}.parquet", batch_size=group)
    return folder


@pytest.mark.filterwarnings("ignore:.*have no label:UserWarning")
class TestStreaming:
    @pytest.mark.parametrize("side", [8, 80])
    def test_images_are_the_same_as_without_streaming(self, side: int, tmp_path: Path, hf_cache: Path) -> None:
        train = table(range(1, 13), [0, 2, 1, 0, -1, 1, 2, 2, 1, 0, 0, 1], side=side)
        folder = sharded(tmp_path / "pets", train)
        table([20, 21, 22], [2, 0, 2], side=side).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
        streamed, mapped = load(folder, streaming=True), load(folder)
        for one, other in zip(streamed, mapped, strict=True):
            assert (one.classes, one.labels.tolist()) == (other.classes, other.labels.tolist())
            for wanted in ([0, 1, 2], [2], [1, 0]):
                found, expected = fetched(one.select_classes(wanted)), other.select_classes(wanted)
                assert type(found.images) is type(expected.images)
                assert found.images.size == expected.images.size == side
                assert by_class(found) == by_class(expected)

    def test_nothing_is_copied_to_the_cache(self, tmp_path: Path, hf_cache: Path) -> None:
        fetched(load(sharded(tmp_path / "pets"), streaming=True).train)
        assert [path for path in hf_cache.rglob("*") if path.suffix not in ("", ".lock")] == []

    def test_names_as_labels(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "words", train=table([1, 2, 3, 4], ["b", "a", "b", "c"], None))
        source = open_source(Data(source=str(folder), streaming=True))
        assert source.classes == ("a", "b", "c")
        assert by_class(fetched(source.splits().train.select_classes([1]))) == {"b": [1, 3]}

    def test_images_as_bytes_or_files_in_plain_columns(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        rows = {"label": ["a", "b"], "file": paths, "raw": [Path(path).read_bytes() for path in paths]}
        folder = parquet(tmp_path / "pets", train=datasets.Dataset.from_dict(rows))
        for column in ("file", "raw"):
            options = {"streaming": True, "image_column": column, "follow_links": True, "image_size": 8}
            source = open_source(Data(source=str(folder), **options))  # type: ignore[arg-type]
            assert values_of(fetched(source.splits().train).images) == [1, 2]
        with pytest.raises(DataError, match=r"1\.png: leads out of .*pets"):
            source = open_source(Data(source=str(folder), streaming=True, image_column="file", image_size=8))
            fetched(source.splits().train)

    def test_labels_are_read_without_images(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[list[int], list[str]]] = []
        read, iterate = ParquetFile.read, ParquetFile.iter_batches

        def read_and_record(self: ParquetFile, columns: list[str]) -> Any:
            asked.append(([], columns))
            return read(self, columns)

        def iterate_and_record(self: ParquetFile, size: int, groups: list[int], columns: list[str]) -> Any:
            asked.append((groups, columns))
            return iterate(self, size, groups, columns)

        monkeypatch.setattr(ParquetFile, "read", read_and_record)
        monkeypatch.setattr(ParquetFile, "iter_batches", iterate_and_record)
        rows = table(range(1, 13), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
        data = load(sharded(tmp_path / "pets", rows), streaming=True, image_size=8)
        assert data.train.counts().tolist() == [3, 3, 3]
        assert asked == [([], ["label"])] * 3
        asked.clear()
        assert len(fetched(data.train.select_classes([1]))) == 3
        assert asked == [([0], ["img", "label"]), ([1], ["img", "label"])]  # of the second file alone

    def test_a_file_without_rows(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path / "pets")
        TRAIN.select([]).to_parquet(folder / "data" / "train-00000-of-00000.parquet")
        data = open_source(Data(source=str(folder), streaming=True)).splits().train
        assert by_class(fetched(data.select_classes([2]))) == {"eel": [2, 7, 8]}

    def test_files_elsewhere(self, tmp_path: Path) -> None:
        """A file system in memory stands for the hub."""
        source = parquet(tmp_path / "pets", train=TRAIN) / "data" / "train-00000-of-00001.parquet"
        fsspec.filesystem("memory").pipe("/streamed/train.parquet", source.read_bytes())
        stream = StreamedTable(["memory://streamed/train.parquet"], None, nullcontext)
        assert list(stream.features) == ["img", "label"]
        assert stream.values("label").to_pylist()[:4] == [0, 2, 1, 0]
        rows = stream.images(ImageColumn("img", "pets train", None), "label", list(range(12)))
        assert isinstance(rows, StreamedRows)
        images = EncodedImages.of(TemporaryImages(rows.read(torch.tensor([0, 5, 11]))), 8)
        assert values_of(images) == [1, 6, 12]

    def test_class_names_in_place_of_numbers(self, tmp_path: Path) -> None:
        """A card may declare names for a column of strings."""
        folder = parquet(tmp_path / "pets", train=table([1, 2, 3], ["dog", "cat", "dog"], None))
        names = "      names:\n            '0': cat\n            '1': dog\n"
        card = "---\ndataset_info:\n  features:\n  - name: img\n    dtype: image\n  - name: label\n    dtype:\n"
        (folder / "README.md").write_text(f"{card}      class_label:\n  {names}---\n")
        source = open_source(Data(source=str(folder), streaming=True))
        assert by_class(fetched(source.splits().train)) == {"cat": [2], "dog": [1, 3]}

    def test_images_of_other_classes_cannot_be_reached(self, tmp_path: Path) -> None:
        """What `fetched` returns holds its own images only, and does not lead to the stream."""
        folder = sharded(tmp_path / "pets", table(range(1, 7), [0, 1, 2, 0, 1, 2], side=80), shards=1)
        task = fetched(load(folder, streaming=True).train.select_classes([0]))
        assert isinstance(task.images, EncodedImages)
        assert stream_of(task.images) is None
        assert [len(origin) for origin in task.images.origins] == [len(task)]

    def test_images_must_be_fetched_first(self, tmp_path: Path) -> None:
        with pytest.raises(NotImplementedError, match=r"must be fetched first"):
            load(sharded(tmp_path / "pets"), streaming=True).train.images.item(0)

    def test_first_images_give_the_size(self, tmp_path: Path) -> None:
        large = table([1, 2, 3], [0, 1, 2], side=100)
        folder = parquet(tmp_path / "pets", train=large, test=table([4], [0], side=50))
        train, test = load(folder, streaming=True)
        assert train.images.size == test.images.size == fetched(test).images.size == 100
        assert fetched(load(folder, streaming=True, image_size=16).train).images.size == 16

    def test_fingerprint(self, tmp_path: Path) -> None:
        """It depends on the labels and the first images, and does not read the rest."""
        prints = []
        for number, rows in enumerate((TRAIN, TRAIN, table(range(2, 14), [0, 1] * 6), table(range(1, 13), [0, 1] * 6))):
            prints.append(fingerprint(load(sharded(tmp_path / str(number), rows), streaming=True)))
        assert prints[0] == prints[1]
        assert len(set(prints)) == 3


class TestRefused:
    def test_other_sources(self, tmp_path: Path) -> None:
        write(tmp_path / "photos" / "cat" / "1.png")
        for source in ("digits", str(tmp_path / "photos")):
            with pytest.raises(
                DataError, match=r"only Hugging Face data sets in parquet files are streamed. Set data.st"
            ):
                open_source(Data(source=source, streaming=True))

    def test_saved_to_disk(self, tmp_path: Path) -> None:
        TRAIN.save_to_disk(tmp_path / "saved")
        with pytest.raises(DataError, match=r"read in place without a copy. Set data.streaming to false"):
            load(tmp_path / "saved", streaming=True)

    def test_other_formats_on_the_hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stands for data sets on the hub: in a folder, they would not be taken for a Hugging Face data set."""
        folder = parquet(tmp_path / "pets", train=TRAIN)
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "train.csv").write_text("file,label\na.png,cat\n")
        load_builder = datasets.load_dataset_builder
        monkeypatch.setattr(datasets, "load_dataset_builder", lambda _: load_builder(str(tmp_path / "tables")))
        with pytest.raises(DataError, match=r"made of csv files, which store .* Only parquet files are streamed"):
            load(folder, streaming=True)

    def test_a_card_that_refers_to_files_elsewhere(self, tmp_path: Path) -> None:
        folder = parquet(tmp_path / "pets", train=TRAIN)
        card = "---\nconfigs:\n- config_name: default\n  data_files: https://example.invalid/train.parquet\n---\n"
        (folder / "README.md").write_text(card)
        with pytest.raises(DataError, match=r"README\.md: refers to 'https"):
            load(folder, streaming=True)

    @pytest.mark.filterwarnings("ignore:.*have no label:UserWarning")
    def test_a_stream_that_changes(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path / "pets")
        data = load(folder, streaming=True)
        for rows in (table(range(1, 13), [1, 2, 1, 0, -1, 1, 2, 2, 1, 0, 0, 0]), TRAIN.select(range(9))):
            shutil.rmtree(folder)
            sharded(folder, rows)
            with pytest.raises(DataError, match=r"pets train: the labels have changed since .* --overwrite"):
                fetched(data.train.select_classes([0, 1]))

    @pytest.mark.filterwarnings("ignore:.*have no label:UserWarning")
    def test_files_that_disappear(self, tmp_path: Path) -> None:
        folder = sharded(tmp_path / "pets")
        data = load(folder, streaming=True)
        shutil.rmtree(folder)
        with pytest.raises(DataError, match=r"pets: .* Check the path"):
            fetched(data.train)

    def test_damaged_images_are_named_by_their_row(self, tmp_path: Path) -> None:
        images = [{"bytes": b"nonsense", "path": None}, None]
        features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
        rows = datasets.Dataset.from_dict({"img": images, "label": [0, 1]}, features=features)
        folder = parquet(tmp_path / "pets", train=table([1, 2], [0, 1], ("a", "b")), test=rows)
        test = load(folder, streaming=True).test
        for number, message in ((0, "not an image of a known format"), (1, "no image in the column 'img'")):
            with pytest.raises(DataError, match=re.escape(f"pets test, row {number}: {message}")):
                fetched(test.select_classes([number]))

    @pytest.mark.filterwarnings("ignore:.*have no label:UserWarning")
    def test_a_full_temporary_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = load(sharded(tmp_path / "pets"), streaming=True)

        def full() -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(tempfile, "TemporaryFile", full)
        with pytest.raises(StorageError, match=r"cannot hold the images of a task .No space left.* set the .* TMPDIR"):
            fetched(data.train)
