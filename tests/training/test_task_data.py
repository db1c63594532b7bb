from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Batch, LabelledImages, Mixed
from cotransport.settings.sections import Loss
from cotransport.training.task_data import TaskData
from tests.conftest import blobs
from tests.helpers import pixels

NAMES = ("class 0", "class 1", "class 2")


def batch_of(labels: Tensor, mixed: Mixed | None = None) -> Batch:
    """A batch without images."""
    return Batch(torch.empty(len(labels), 0), labels, weight=1.0, total=len(labels), mixed=mixed)


def task_data(loss: Loss = Loss()) -> TaskData:
    """Two old classes with two exemplars each, and one new class with four images."""
    new, memory = blobs(1, 4, first=2), blobs(2, 2)
    return TaskData(
        LabelledImages(new.images, new.labels + 2, NAMES),
        LabelledImages(memory.images, memory.labels, NAMES),
        old_classes=2,
        new_classes=1,
        loss=loss,
    )


def test_slices_of_old_and_new_classes() -> None:
    data = task_data()
    assert data.classes == 3
    assert [*range(3)[data.old_slice]] == [0, 1]
    assert [*range(3)[data.new_slice]] == [2]


@pytest.mark.parametrize(("old", "new", "both"), [(2, 1, True), (0, 3, False), (3, 0, False)])
def test_a_first_task_and_a_task_without_new_classes_do_not_have_both(old: int, new: int, both: bool) -> None:
    data = task_data()
    assert TaskData(data.new, data.memory, old, new, Loss()).has_old_and_new == both


def test_everything_is_new_images_and_exemplars() -> None:
    data = task_data()
    assert data.memory is not None
    assert data.everything.labels.tolist() == [2, 2, 2, 2, 0, 0, 1, 1]
    assert torch.equal(pixels(data.everything.images), torch.cat([pixels(data.new.images), pixels(data.memory.images)]))
    assert TaskData(data.new, None, 0, 3, Loss()).everything is data.new


def test_cross_entropy_has_the_settings_smoothing() -> None:
    """Twin: the target is 0.9 for the label, and 0.1 is spread over all three classes."""
    logits, labels = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 1.0]]), torch.tensor([2, 0])
    target = 0.9 * F.one_hot(labels, 3) + 0.1 / 3
    expected = -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()
    got = task_data(Loss(label_smoothing=0.1)).cross_entropy(logits, batch_of(labels))
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(task_data().cross_entropy(logits, batch_of(labels)), F.cross_entropy(logits, labels))


def test_balanced_softmax_counts_new_images_and_exemplars() -> None:
    """Shares 2/8, 2/8 and 4/8 of the training images."""
    logits, labels = torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([0])
    shifted = logits + torch.tensor([math.log(0.25), math.log(0.25), math.log(0.5)])
    got = task_data(Loss(balanced_softmax=True)).cross_entropy(logits, batch_of(labels))
    torch.testing.assert_close(got, F.cross_entropy(shifted, labels))


def test_mixed_images_have_a_share_of_each_label() -> None:
    """Twin: the cross-entropies with the first and with the second labels, weighted. The third image is not mixed."""
    logits = torch.tensor([[1.0, 2.0, 4.0], [0.0, 3.0, 1.0], [2.0, 0.0, 0.0]])
    first, second, share = torch.tensor([2, 0, 0]), torch.tensor([1, 0, 2]), torch.tensor([0.25, 0.4, 0.0])
    each = [F.cross_entropy(logits, labels, reduction="none") for labels in (first, second)]
    expected = ((1 - share) * each[0] + share * each[1]).mean()
    got = task_data().cross_entropy(logits, batch_of(first, Mixed(second, share)))
    torch.testing.assert_close(got, expected)
