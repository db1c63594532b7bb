"""The stream: the classes of a data set, split into a sequence of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from cotransport.data import DataSet, Label, LabelledImages
from cotransport.data.streaming import fetched
from cotransport.errors import ConfigError
from cotransport.settings.sections import StreamSettings
from cotransport.settings.validation import nearest

Split = tuple[tuple[int, ...], ...]
"""For each task, the numbers of its classes in the source, in order of arrival."""
SAMPLE_SEED = 1993
"""Seed of the random order from which samples of test images are taken."""
NAMED = 12
"""Classes, at most, that an error lists."""


def class_order(classes: int, seed: int | None) -> list[int]:
    """The order in which classes arrive: NumPy's legacy permutation for the seed, or the source's order.

    >>> class_order(100, 1993)[:5]
    [68, 56, 78, 8, 23]
    """
    if seed is None:
        return list(range(classes))
    return [int(number) for number in np.random.RandomState(seed).permutation(classes)]


def split_classes(names: Sequence[Label], settings: StreamSettings) -> Split:
    """The classes of each task."""
    if settings.classes is not None:
        return _split_by_name(names, settings.classes)
    order = class_order(len(names), settings.order_seed)
    if settings.subset is not None:
        _check_at_most("stream.subset", settings.subset, len(names))
        order = order[: settings.subset]
    sizes = _sizes(len(order), settings)
    ends = list(accumulate(sizes))
    return tuple(tuple(order[end - size : end]) for size, end in zip(sizes, ends, strict=True))


def _sizes(classes: int, settings: StreamSettings) -> list[int]:
    """The number of classes in each task."""
    if settings.tasks is not None:
        _check_at_most("stream.tasks", settings.tasks, classes)
        small, larger = divmod(classes, settings.tasks)
        return [small + (task < larger) for task in range(settings.tasks)]
    assert settings.step is not None
    base = settings.base if settings.base is not None else settings.step
    _check_at_most("stream.base" if settings.base is not None else "stream.step", base, classes)
    full, rest = divmod(classes - base, settings.step)
    return [base, *[settings.step] * full, *([rest] if rest else [])]


def _check_at_most(field: str, value: int, classes: int) -> None:
    if value > classes:
        raise ConfigError(f"{field}: {value} is more than the {classes} classes there are. Choose fewer")


def _split_by_name(names: Sequence[Label], tasks: Sequence[Sequence[Label]]) -> Split:
    number = {str(name): position for position, name in enumerate(names)}
    seen: set[str] = set()
    for place, task in enumerate(tasks):
        if not task:
            raise ConfigError(f"stream.classes[{place}]: a task without classes. Name at least one")
        for name in map(str, task):
            if name not in number:
                some = ", ".join(list(number)[:NAMED]) + (", ..." if len(number) > NAMED else "")
                hint = f"{nearest(name, number)} There are: {some}"
                raise ConfigError(f"stream.classes[{place}]: no class {name!r} in the data{hint}")
            if name in seen:
                raise ConfigError(f"stream.classes[{place}]: the class {name!r} is listed twice. List every class once")
            seen.add(name)
    return tuple(tuple(number[str(name)] for name in task) for task in tasks)


@dataclass(frozen=True)
class Task:
    """A task's classes with their images. Labels are in order of arrival; in `train`, they count from 0."""

    number: int
    classes: tuple[Label, ...]
    train: LabelledImages
    """Images of this task's classes only."""
    seen_test: LabelledImages
    """Test images of all classes seen so far, including this task's."""


@dataclass(frozen=True)
class TaskStream:
    """The tasks of one data set, an immutable sequence."""

    data: DataSet
    split: Split
    later_images: int | None = None
    """Training images of each class in all tasks after the first; None for all."""
    test_images: int | None = None
    """Largest number of test images of the classes seen; None for all."""

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> Task:
        """The task with this number, counted from 0; negative numbers count from the end."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"task {number} of {len(self)}")
        number %= len(self)
        own = self.split[number]
        seen = [label for task in self.split[: number + 1] for label in task]
        train = self.data.train.select_classes(own)
        if number and self.later_images is not None:
            train = train.first_of_each_class(self.later_images)
        test = self._test_sample(seen).select_classes(seen)
        return Task(number, train.classes, fetched(train), fetched(test))

    def _test_sample(self, seen: Sequence[int]) -> LabelledImages:
        """The test images, or a sample of those of the classes seen. Later samples add no images of these classes.

        The test images have a random order that is always the same, and the first ones are taken.
        """
        test = self.data.test
        if self.test_images is None:
            return test
        order = torch.from_numpy(np.random.RandomState(SAMPLE_SEED).permutation(len(test)))
        is_seen = torch.isin(test.labels[order], torch.tensor(seen, dtype=torch.int64))
        return test.take(order[is_seen][: self.test_images].sort().values)

    def __iter__(self) -> Iterator[Task]:
        return (self[number] for number in range(len(self)))

    @property
    def classes(self) -> tuple[Label, ...]:
        """All classes in order of arrival."""
        return tuple(self.data.train.classes[label] for task in self.split for label in task)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of classes in each task."""
        return tuple(len(task) for task in self.split)
