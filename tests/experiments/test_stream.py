import numpy as np
import pytest

from cotransport.data import DataSet
from cotransport.errors import ConfigError
from cotransport.experiments.stream import TaskStream, class_order, split_classes
from cotransport.settings.sections import StreamSettings
from tests.conftest import blobs

LETTERS = tuple("abcdefghij")


def sizes(classes: int, **settings: object) -> list[int]:
    return [
        len(task) for task in split_classes(tuple(map(str, range(classes))), StreamSettings.model_validate(settings))
    ]


def test_the_papers_class_order() -> None:
    assert class_order(100, 1993)[:5] == [68, 56, 78, 8, 23]
    assert sorted(class_order(100, 1993)) == list(range(100))


def test_other_seeds_and_none() -> None:
    assert class_order(10, 7) == np.random.RandomState(7).permutation(10).tolist()
    assert class_order(4, None) == [0, 1, 2, 3]


def test_equal_split() -> None:
    assert sizes(100, tasks=10) == [10] * 10


def test_split_that_does_not_divide_evenly() -> None:
    assert sizes(10, tasks=4) == [3, 3, 2, 2]


def test_large_base_task_and_equal_steps() -> None:
    assert sizes(100, base=50, step=10) == [50, 10, 10, 10, 10, 10]


def test_uneven_last_task() -> None:
    assert sizes(10, step=4) == [4, 4, 2]
    assert sizes(10, base=5, step=2) == [5, 2, 2, 1]


def test_base_takes_everything() -> None:
    assert sizes(10, base=10, step=2) == [10]


def test_sub_sampled_classes_are_the_first_after_the_shuffle() -> None:
    split = split_classes(LETTERS, StreamSettings(tasks=2, subset=4))
    assert [number for task in split for number in task] == class_order(10, 1993)[:4]


def test_explicit_lists_of_classes() -> None:
    assert split_classes(LETTERS, StreamSettings(classes=(("c", "a"), ("b",)))) == ((2, 0), (1,))


def test_explicit_lists_of_numbers_as_names() -> None:
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
def test_splits_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_classes(LETTERS, StreamSettings.model_validate(settings))


@pytest.fixture
def stream() -> TaskStream:
    data = DataSet(blobs(5, 4), blobs(5, 2, seed=1))
    return TaskStream(data, ((3, 1), (0,), (4, 2)))


def test_tasks_hold_their_own_training_images(stream: TaskStream) -> None:
    task = stream[0]
    assert task.classes == ("class 3", "class 1")
    assert len(task.train) == 8
    # the fourth class of the source comes first here
    places = task.train.labels == 0
    source = stream.data.train.images.pixels[stream.data.train.labels == 3]  # type: ignore[union-attr]
    assert (task.train.images.pixels[places] == source).all()  # type: ignore[union-attr]


def test_test_images_are_of_all_classes_seen(stream: TaskStream) -> None:
    assert stream[1].seen_test.classes == ("class 3", "class 1", "class 0")
    assert stream[1].seen_test.counts().tolist() == [2, 2, 2]


def test_iterating_twice_gives_the_same(stream: TaskStream) -> None:
    once, twice = ([task.classes for task in stream] for _ in range(2))
    assert once == twice == [("class 3", "class 1"), ("class 0",), ("class 4", "class 2")]


def test_indexing(stream: TaskStream) -> None:
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
