"""ImageNet as its archives are unpacked: names, both kinds of `val/`, and errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from cotransport.data import open_source
from cotransport.errors import DataError
from cotransport.settings.sections import Data
from tests.data.helpers import by_class, load, values_of, write

TENCH, CRANE, CRANE_TOO = "n01440764", "n02012849", "n03126707"
WORDS = {TENCH: "tench, Tinca tinca", CRANE: "crane", CRANE_TOO: "crane"}
NAMES = ("tench", f"crane ({CRANE})", f"crane ({CRANE_TOO})")


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """The training images of three classes."""
    _write_training(tmp_path)
    return tmp_path


def _write_training(folder: Path) -> None:
    for number, synset in enumerate(WORDS):
        write(folder / "train" / synset / f"{synset}_1.JPEG", 10 * number)


def _write_flat_validation(folder: Path) -> None:
    """Images 1 to 4: a crane, a tench, the other crane, and one of a class without training images."""
    for number in range(1, 5):
        write(folder / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", 100 + 10 * number)


def _write_kit(folder: Path) -> None:
    """The lists of the development kit. Class numbers are in another order than the synsets."""
    kit = folder / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    rows = [(1, CRANE, "crane"), (2, TENCH, "tench, Tinca tinca"), (3, "n99999999", "unicorn"), (4, CRANE_TOO, "crane")]
    kinds = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    savemat(kit / "meta.mat", {"synsets": np.array(rows, dtype=kinds)})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n4\n3\n")


def _write_kaggle_lists(folder: Path) -> None:
    lines = "".join(f"{synset} {words}\n" for synset, words in WORDS.items())
    (folder / "LOC_synset_mapping.txt").write_text(lines)
    truth = [CRANE, TENCH, CRANE_TOO, "n99999999"]
    solution = "".join(f"ILSVRC2012_val_{n:08d},{synset} 1 2 3 4 \n" for n, synset in enumerate(truth, start=1))
    (folder / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + solution)


EXPECTED_TEST = {"tench": [120], f"crane ({CRANE})": [110], f"crane ({CRANE_TOO})": [130]}


class TestImageNet:
    def test_folders_of_validation_images(self, train: Path) -> None:
        for number, synset in enumerate(WORDS):
            write(train / "val" / synset / "1.JPEG", 100 + number)
        found = load(train)
        assert found.train.classes == tuple(WORDS)  # there is no list of names
        assert values_of(found.test.images) == [100, 101, 102]

    def test_the_development_kit(self, train: Path) -> None:
        _write_flat_validation(train)
        _write_kit(train)
        found = load(train)
        assert found.train.classes == NAMES
        assert by_class(found.train) == dict(zip(NAMES, [[0], [10], [20]], strict=True))
        assert by_class(found.test) == EXPECTED_TEST

    def test_the_archive_of_kaggle(self, tmp_path: Path) -> None:
        images = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
        _write_training(images)
        _write_flat_validation(images)
        write(images / "test" / "ILSVRC2012_test_00000001.JPEG", 200)  # without labels
        _write_kaggle_lists(tmp_path)
        found = load(tmp_path)
        assert found.train.classes == NAMES
        assert by_class(found.test) == EXPECTED_TEST

    def test_a_labelled_test_folder_serves_where_there_is_no_val(self, train: Path) -> None:
        for number, synset in enumerate(WORDS):
            write(train / "test" / synset / "1.JPEG", 50 + number)
        assert values_of(load(train).test.images) == [50, 51, 52]

    def test_lists_of_other_classes(self, train: Path) -> None:
        _write_flat_validation(train)
        (train / "LOC_val_solution.csv").write_text(
            "ImageId,PredictionString\nILSVRC2012_val_00000001,n99999999 1 2 3 4\n"
        )
        with pytest.raises(DataError, match="the lists name no image of these classes"):
            load(train)

    def test_without_validation_images_some_are_held_out(self, train: Path) -> None:
        assert open_source(Data(source=str(train))).splits().test is None

    def test_flat_validation_images_without_labels(self, train: Path) -> None:
        _write_flat_validation(train)
        with pytest.raises(DataError, match=r"not in folders.*LOC_val_solution\.csv there, or .* and meta\.mat"):
            load(train)

    def test_a_missing_validation_image(self, train: Path) -> None:
        _write_flat_validation(train)
        _write_kaggle_lists(train)
        (train / "val" / "ILSVRC2012_val_00000002.JPEG").unlink()
        with pytest.raises(DataError, match="val: the image ILSVRC2012_val_00000002 is missing"):
            load(train)

    @pytest.mark.parametrize("unpacked", [[], [TENCH]])
    def test_archives_of_synsets_that_are_not_unpacked(self, tmp_path: Path, unpacked: list[str]) -> None:
        for synset in unpacked:
            write(tmp_path / "train" / synset / f"{synset}_1.JPEG", 10)
        (tmp_path / "train").mkdir(exist_ok=True)
        for synset in (TENCH, CRANE):
            (tmp_path / "train" / f"{synset}.tar").touch()
        first = CRANE if unpacked else TENCH
        with pytest.raises(DataError, match=rf"{first}\.tar: a synset that is not unpacked.*train/{first}/"):
            load(tmp_path)

    def test_archives_beside_their_folders_are_ignored(self, train: Path) -> None:
        (train / "train" / f"{TENCH}.tar").touch()
        assert len(open_source(Data(source=str(train))).classes) == len(WORDS)

    def test_an_unknown_class_number(self, train: Path) -> None:
        _write_flat_validation(train)
        _write_kit(train)
        truth = train / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
        truth.write_text("1\nno number\n")
        with pytest.raises(DataError, match=r"ground_truth\.txt, line 2: 'no number' is not a class"):
            load(train)

    def test_a_damaged_list_of_names(self, train: Path) -> None:
        _write_flat_validation(train)
        (train / "meta.mat").write_bytes(b"not a Matlab file")
        with pytest.raises(DataError, match=r"meta\.mat: cannot be read"):
            load(train)

    def test_other_folders_are_not_imagenet(self, train: Path) -> None:
        write(train / "train" / "cat" / "1.png")
        assert "cat" in open_source(Data(source=str(train))).classes
