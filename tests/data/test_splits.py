from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cotransport.data import LabelledImages, PixelImages
from cotransport.data.splits import hold_out
from tests.data.helpers import by_class, load, pixel_images, values_of, write


def test_a_share_of_each_class_is_held_out(tmp_path: Path) -> None:
    for name, count in {"cat": 10, "dog": 5, "eel": 2, "fox": 3}.items():
        for i in range(count):
            write(tmp_path / name / f"{i}.png", i)
    train, test = load(tmp_path)
    # a fifth, rounded, and at least one
    assert test.counts().tolist() == [2, 1, 1, 1]
    assert train.counts().tolist() == [8, 4, 1, 2]
    for name, count in {"cat": 10, "dog": 5, "eel": 2, "fox": 3}.items():
        assert sorted(by_class(train)[name] + by_class(test)[name]) == list(range(count))
    again = load(tmp_path)
    assert by_class(again.test) == by_class(test)
    assert load(tmp_path, held_out=0.5).test.counts().tolist() == [5, 2, 1, 2]
    assert load(tmp_path, held_out=0.99).train.counts().tolist() == [1, 1, 1, 1]


def test_a_single_image_of_a_class_is_used_for_training(tmp_path: Path) -> None:
    write(tmp_path / "cat" / "1.png")
    write(tmp_path / "dog" / "1.png")
    write(tmp_path / "dog" / "2.png")
    with pytest.warns(UserWarning, match="class 'cat' has one image: it is used for training"):
        train, test = load(tmp_path)
    assert train.counts().tolist() == [1, 1]
    assert test.counts().tolist() == [0, 1]


@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    share=st.floats(0.01, 0.99),
)
@settings(max_examples=50, deadline=None)
def test_any_share_of_any_number_of_images(counts: list[int], share: float) -> None:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    pixels = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 1, 3)
    data = LabelledImages(PixelImages(pixels), labels, tuple(range(len(counts))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes with one image
        train, test = hold_out(data, share)
    assert sorted(values_of(train.images) + values_of(test.images)) == list(range(len(labels)))
    for part in (train, test):  # every image keeps its label
        assert [labels[value] for value in values_of(part.images)] == part.labels.tolist()
    for count, kept, held in zip(counts, train.counts().tolist(), test.counts().tolist(), strict=True):
        if count >= 2:
            assert kept >= 1
            assert held >= 1
            assert abs(held - share * count) <= 1
        else:
            assert (kept, held) == (count, 0)


def test_at_most_some_images_of_a_class_are_held_out() -> None:
    data = LabelledImages(pixel_images(range(30)), torch.arange(30) // 20, ("a", "b"))
    assert hold_out(data, 0.5, at_most=7).test.counts().tolist() == [7, 5]
