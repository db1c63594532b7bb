"""Arrays, files and labels in memory: what is accepted, what is refused, and with which message."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from cotransport.data import PixelImages, as_images, as_labelled
from cotransport.errors import DataError
from tests.data.helpers import by_class, values_of, write


class TestArrays:
    @pytest.mark.parametrize("channels", [None, 1, 3])
    def test_grey_and_colours(self, channels: int | None) -> None:
        shape = (5, 6, 6) if channels is None else (5, 6, 6, channels)
        array = np.random.RandomState(0).randint(0, 256, shape).astype(np.uint8)
        images = as_images(array)
        assert isinstance(images, PixelImages)
        expected = array.reshape(5, 6, 6, -1) * np.ones(3, dtype=np.uint8)
        assert (images.pixels.numpy() == expected).all()

    def test_transparency_becomes_white_as_in_files(self) -> None:
        array = np.random.RandomState(0).randint(0, 256, (3, 20, 20, 4)).astype(np.uint8)
        images = as_images(array)
        for i in range(3):
            on_white = Image.new("RGBA", (20, 20), "white")
            expected = np.asarray(Image.alpha_composite(on_white, Image.fromarray(array[i])).convert("RGB"))
            assert np.abs(images.item(i).astype(int) - expected.astype(int)).max() <= 1  # type: ignore[union-attr]

    def test_16_bits_are_scaled(self) -> None:
        array = np.array([0, 255, 0x8000, 65535], dtype=np.uint16).reshape(4, 1, 1)
        assert values_of(as_images(array)) == [0, 0, 128, 255]

    def test_square_colours_are_not_copied(self) -> None:
        array = np.zeros((2, 6, 6, 3), dtype=np.uint8)
        images = as_images(array)
        assert isinstance(images, PixelImages)
        assert np.shares_memory(images.pixels.numpy(), array)

    def test_read_only_arrays_and_views(self) -> None:
        array = np.arange(2 * 6 * 6 * 3, dtype=np.uint8).reshape(2, 6, 6, 3)
        array.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (as_images(array).pixels.numpy() == array).all()  # type: ignore[union-attr]
            backwards = array.copy()[:, ::-1, :, ::-1]
            assert (as_images(backwards).pixels.numpy() == backwards).all()  # type: ignore[union-attr]

    def test_the_central_square_of_other_shapes_is_used(self) -> None:
        array = np.zeros((2, 4, 8, 3), dtype=np.uint8)
        array[:, :, 2:6] = 200
        images = as_images(array)
        assert images.size == 4
        assert values_of(images) == [200, 200]

    def test_a_given_size(self) -> None:
        assert as_images(np.zeros((2, 8, 8), dtype=np.uint8), 5).size == 5

    def test_tensors(self) -> None:
        tensor = torch.randint(0, 256, (4, 6, 6, 3), dtype=torch.uint8)
        assert torch.equal(as_images(tensor).pixels, tensor)  # type: ignore[union-attr]
        assert torch.equal(as_images(list(tensor)).pixels, tensor)  # type: ignore[union-attr]
        data = as_labelled(tensor, torch.tensor([3, 1, 3, 1]))
        assert (data.classes, data.labels.tolist()) == ((1, 3), [1, 0, 1, 0])

    def test_files_bytes_arrays_and_pillow_images_in_one_list(self, tmp_path: Path) -> None:
        path = write(tmp_path / "1.png", 1)
        images: list[object] = [
            path,
            str(write(tmp_path / "2.png", 2)),
            write(tmp_path / "3.png", 3).read_bytes(),
            np.full((8, 8, 3), 4, dtype=np.uint8),
            np.full((8, 8), 5, dtype=np.uint8),
            Image.new("L", (8, 8), 6),
            Image.new("RGBA", (8, 8), (0, 0, 0, 0)),
        ]
        assert values_of(as_images(images)) == [1, 2, 3, 4, 5, 6, 255]
        assert values_of(as_images(tuple(images[:2]))) == [1, 2]

    def test_files_in_numpy_arrays(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        assert values_of(as_images(np.array(paths))) == [1, 2]
        assert values_of(as_images(np.array(paths, dtype=object))) == [1, 2]

    def test_columns_of_a_table(self, tmp_path: Path) -> None:
        paths = [str(write(tmp_path / f"{value}.png", value)) for value in (1, 2)]
        columns = pd.DataFrame({"file": paths, "kind": ["b", "a"], "number": [7, 8]}, index=[5, 6])
        assert by_class(as_labelled(columns["file"], columns["kind"])) == {"a": [2], "b": [1]}
        assert by_class(as_labelled(columns["file"], columns["number"])) == {7: [1], 8: [2]}

    def test_a_single_file_or_image(self, tmp_path: Path) -> None:
        path = write(tmp_path / "1.png", 1)
        for one in (path, str(path), path.read_bytes(), Image.new("L", (8, 8), 1)):
            assert values_of(as_images(one)) == [1]

    def test_arrays_of_different_sizes(self) -> None:
        images = as_images([np.full((side, side, 3), side, dtype=np.uint8) for side in (4, 6, 20)])
        assert (images.size, values_of(images)) == (6, [4, 6, 20])

    def test_large_arrays_stay_in_memory(self) -> None:
        assert isinstance(as_images(np.zeros((1, 100, 100, 3), dtype=np.uint8)), PixelImages)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (np.zeros((2, 4, 4, 3)), "float64: give uint8 from 0 to 255 .*multiply by 255"),
            (torch.zeros(2, 4, 4, 3), "float32: give uint8"),
            (np.zeros((2, 4, 4), dtype=np.int64), "int64: give uint8"),
            (np.zeros((2, 4, 4), dtype=bool), "bool: give uint8"),
            (np.zeros((2, 3, 32, 32), dtype=np.uint8), r"32 channels: give 1 \(grey\), 3 \(RGB\) or 4 .*, last"),
            (np.zeros((32, 32, 3), dtype=np.uint8), r"looks like a single image\. Give a list"),
            (np.zeros((4, 4), dtype=np.uint8), r"shape \(4, 4\): give \(n, height, width, 3\)"),
            (np.zeros((0, 4, 4, 3), dtype=np.uint8), "no images"),
            (np.array("a.png"), r"shape \(\)"),
            ([], "no images. Give at least one"),
            (np.array([], dtype=object), "no images. Give at least one"),
            ([np.zeros((4, 4))], "image 0 of type float64: give uint8"),
            ([np.zeros((4, 0, 3), dtype=np.uint8)], "image 0 has the shape"),
            ([np.zeros((1, 4, 4, 3), dtype=np.uint8)], "image 0 has the shape"),
            ([np.zeros((4, 4, 3), dtype=np.uint8), 5], "image 1 is of type int: give a file's path"),
            ([None], "image 0 is of type NoneType"),
            ([b"not an image"], "image 0: not an image of a known format"),
            (["nowhere.png"], r"nowhere\.png: no such file"),
            ([Image.new("F", (4, 4))], "image 0: floating-point image"),
            (iter([]), "list_iterator is neither an array nor a list"),
            (5, "int is neither an array nor a list"),
        ],
        ids=lambda value: value[:20] if isinstance(value, str) else type(value).__name__,
    )
    def test_refused_with_a_remedy(self, images: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            as_images(images)


class TestLabels:
    IMAGES = np.zeros((4, 2, 2), dtype=np.uint8)

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            ([7, 3, 7, 3], (3, 7)),
            (np.array([7, 3, 7, 3], dtype=np.uint8), (3, 7)),
            (torch.tensor([7, 3, 7, 3]), (3, 7)),
            (("b", "a", "b", "a"), ("a", "b")),
            (np.array(["b", "a", "b", "a"]), ("a", "b")),
            (np.array(["b", "a", "b", "a"], dtype=object), ("a", "b")),
            ([np.str_("b"), np.str_("a"), "b", "a"], ("a", "b")),
            ([np.int64(7), 3, 7, 3], (3, 7)),
            ([True, False, True, False], (0, 1)),
            (["10", "9", "10", "9"], ("10", "9")),
        ],
        ids=repr,
    )
    def test_classes_are_the_distinct_labels(self, labels: object, classes: tuple[str | int, ...]) -> None:
        data = as_labelled(self.IMAGES, labels)
        assert data.classes == classes
        assert all(type(name) in {str, int} for name in data.classes)
        named = [data.classes[number] for number in data.labels.tolist()]
        assert named == list(labels)  # type: ignore[call-overload]
        assert data.labels.dtype == torch.int64

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["a", "b"], r"4 images but labels of shape \(2,\)\. Give one label for each image"),
            ([["a"], ["b"], ["c"], ["d"]], r"4 images but labels of shape \(4, 1\)"),
            (np.zeros((4, 1), dtype=int), r"4 images but labels of shape \(4, 1\)"),
            ([1, "a", 2, "b"], "some labels are strings and some are whole numbers"),
            ([1.0, 2.0, 1.0, 2.0], r"1\.0 as a label: use names \(strings\) or whole numbers"),
            (np.array([1.5, 2, 1, 2]), "labels of type float64: use names"),
            (["a", None, "a", "b"], "None as a label"),
            (np.array([b"a"] * 4), r"labels of type \|S1"),
            ("abcd", r"labels of shape \(\)"),
            (5, "int is neither an array nor a list"),
        ],
        ids=repr,
    )
    def test_refused_with_a_remedy(self, labels: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            as_labelled(self.IMAGES, labels)
