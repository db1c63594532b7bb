"""Streams of tasks: the order of classes, their split into tasks, and the images of each task."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cotransport.data import DataSet, LabelledImages
from cotransport.errors import ConfigError
from cotransport.experiments.stream import TaskStream, class_order, split_classes
from cotransport.settings.sections import StreamSettings
from tests.conftest import blobs
from tests.helpers import pixels

LETTERS = tuple("abcdefghij")


def sizes(classes: int, **settings: object) -> list[int]:
    return [
        len(task) for task in split_classes(tuple(map(str, range(classes))), StreamSettings.model_validate(settings))
    ]


def test_seed_1993_gives_the_class_order_of_the_paper() -> None:
    assert class_order(100, 1993)[:5] == [68, 56, 78, 8, 23]
    assert sorted(class_order(100, 1993)) == list(range(100))


def test_another_seed_gives_another_order_and_none_keeps_it() -> None:
    assert class_order(10, 7) == np.random.RandomState(7).permutation(10).tolist()
    assert class_order(4, None) == [0, 1, 2, 3]


def test_tasks_of_equal_size() -> None:
    assert sizes(100, tasks=10) == [10] * 10


def test_larger_tasks_come_first_if_classes_do_not_divide_evenly() -> None:
    assert sizes(10, tasks=4) == [3, 3, 2, 2]


def test_a_large_first_task_and_equal_steps() -> None:
    assert sizes(100, base=50, step=10) == [50, 10, 10, 10, 10, 10]


def test_the_last_task_gets_the_rest() -> None:
    assert sizes(10, step=4) == [4, 4, 2]
    assert sizes(10, base=5, step=2) == [5, 2, 2, 1]


def test_a_first_task_with_all_classes_is_the_only_one() -> None:
    assert sizes(10, base=10, step=2) == [10]


def test_a_subset_has_the_first_classes_after_the_shuffle() -> None:
    split = split_classes(LETTERS, StreamSettings(tasks=2, subset=4))
    assert [number for task in split for number in task] == class_order(10, 1993)[:4]


def test_tasks_can_be_listed_by_name() -> None:
    assert split_classes(LETTERS, StreamSettings(classes=(("c", "a"), ("b",)))) == ((2, 0), (1,))


def test_numbers_can_be_names() -> None:
    assert split_classes(("0", "1", "2"), StreamSettings(classes=((2,), (0,)))) == ((2,), (0,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": 11}, r"stream\.tasks: 11 is more than the 10 classes"),
        ({"step": 11}, r"stream\.step: 11 is more than"),
        ({"base": 11, "step": 1}, r"stream\.base: 11 is more than"),
        ({"tasks": 1, "subset": 11}, r"stream\.subset: 11 is more than"),
        ({"classes": [["a"], ["a"]]}, "'a' is listed twice"),
        ({"classes": [["a"], []]}, "without classes"),
        ({"classes": [["a", "z"]]}, "no class 'z'"),
    ],
)
def test_impossible_splits_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_classes(LETTERS, StreamSettings.model_validate(settings))


@pytest.fixture
def stream() -> TaskStream:
    data = DataSet(blobs(5, 4), blobs(5, 2, seed=1))
    return TaskStream(data, ((3, 1), (0,), (4, 2)))


def test_a_task_has_the_training_images_of_its_own_classes(stream: TaskStream) -> None:
    task = stream[0]
    assert task.classes == ("class 3", "class 1")
    assert len(task.train) == 8
    # the fourth class of the source comes first here
    places = task.train.labels == 0
    source = stream.data.train.images.pixels[stream.data.train.labels == 3]  # type: ignore[union-attr]
    assert (task.train.images.pixels[places] == source).all()  # type: ignore[union-attr]


def test_a_task_has_the_test_images_of_all_classes_seen(stream: TaskStream) -> None:
    assert stream[1].seen_test.classes == ("class 3", "class 1", "class 0")
    assert stream[1].seen_test.counts().tolist() == [2, 2, 2]


def test_later_tasks_may_have_few_images(stream: TaskStream) -> None:
    few = replace(stream, later_images=3)
    assert [task.train.counts().tolist() for task in few] == [[4, 4], [3], [3, 3]]
    assert [len(task.seen_test) for task in few] == [4, 6, 10]  # test images are not reduced
    whole = pixels(stream[2].train.images)  # the images of both classes, in the source's order
    assert torch.equal(pixels(few[2].train.images), whole[[0, 1, 2, 4, 5, 6]])
    assert [len(task.train) for task in replace(stream, later_images=9)] == [8, 4, 8]


def test_a_sample_of_the_test_images_shrinks_for_old_classes_and_never_changes(stream: TaskStream) -> None:
    sampled = replace(stream, test_images=5)
    assert [len(task.seen_test) for task in sampled] == [4, 5, 5]
    assert sampled[2].seen_test.classes == stream[2].seen_test.classes
    drawn = [set(_images_of(task.seen_test)) for task in sampled]
    assert drawn == [set(_images_of(task.seen_test)) for task in sampled]
    every = [set(_images_of(task.seen_test)) for task in stream]
    assert drawn[0] == every[0]
    for number in (1, 2):
        assert drawn[number] < every[number]
        assert drawn[number] & every[number - 1] <= drawn[number - 1], "an old class gets no new test image"


def _images_of(test: LabelledImages) -> list[bytes]:
    return [image.numpy().tobytes() for image in pixels(test.images)]


def test_a_stream_can_be_iterated_again(stream: TaskStream) -> None:
    once, twice = ([task.classes for task in stream] for _ in range(2))
    assert once == twice == [("class 3", "class 1"), ("class 0",), ("class 4", "class 2")]


def test_tasks_are_counted_from_either_end(stream: TaskStream) -> None:
    assert len(stream) == 3
    assert stream[-1].number == 2
    assert stream.classes == ("class 3", "class 1", "class 0", "class 4", "class 2")
    assert stream.sizes == (2, 1, 2)
    with pytest.raises(IndexError):
        stream[3]


def test_a_stream_cannot_be_changed(stream: TaskStream) -> None:
    with pytest.raises(AttributeError):
        stream.split = ()  # type: ignore[misc]
    with pytest.raises(AttributeError):
        stream[0].number = 3  # type: ignore[misc]
