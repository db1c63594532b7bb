"""What all methods have from `Method`, unless they say otherwise."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from cotransport.errors import ConfigError
from cotransport.methods import Method, known_methods, make_method
from cotransport.methods.base import cross_entropy_objective
from cotransport.networks.heads import CosineHead, LinearHead
from cotransport.settings.sections import Budget, HeadSettings, Loss
from cotransport.training.objective import Moment
from cotransport.training.task_data import TaskData
from tests.conftest import blobs, classifier
from tests.helpers import pictures, quick_trainer, second_task, three_classes, trained_on, whole_batch


class Plain(Method):
    """A method that changes nothing."""


@pytest.mark.parametrize("label", ["mine", "COIL, 2nd try", "§"])
def test_a_label_names_a_folder(label: str) -> None:
    assert Plain(label=label).label == label


@pytest.mark.parametrize("label", ["", "a/b", "a\\b", ".hidden", " a", "a\nb", ".."])
def test_a_label_that_cannot_name_a_folder_is_refused(label: str) -> None:
    with pytest.raises(ConfigError, match="label: a label names a folder"):
        make_method({"name": "replay", "label": label})


def test_methods_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Plain().predict_with = "ncm"


@pytest.mark.parametrize(
    ("method", "transports"),
    [
        *((name, name in {"coil", "coil-tuned"}) for name in sorted(known_methods())),
        ({"name": "coil", "prospective_init": False}, False),
        ({"name": "wa", "rt_weight": 1}, False),
        ({"name": "coil", "rt_weight": 0, "pt_weight": 0}, True),
    ],
)
def test_which_methods_transport_before_training(method: str | dict[str, object], transports: bool) -> None:
    assert make_method(method).transports == transports


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        ("replay", False),
        ("finetune", False),
        ("oracle", False),
        ("wa", False),
        ("bic", False),
        ("icarl", True),
        ("coil", True),
        ("coil-tuned", True),
        ({"name": "replay", "predict_with": "ncm"}, True),
        ({"name": "icarl", "predict_with": "head"}, False),
        ({"name": "wa", "rt_weight": 1}, True),
        ({"name": "icarl", "predict_with": "head", "rt_weight": 1}, True),
        ({"name": "coil", "prospective_init": False}, True),
        ({"name": "coil", "rt_weight": 0}, True),
        ({"name": "coil", "prospective_init": False, "rt_weight": 0}, False),
    ],
)
def test_which_methods_need_an_exemplar_of_every_class(method: str | dict[str, object], needs: bool) -> None:
    assert make_method(method).needs_exemplars == needs


def test_a_method_uses_the_allowed_memory_and_starts_from_the_last_network() -> None:
    budget = Budget(total=8)
    assert Plain().budget(budget) is budget
    assert not Plain.from_scratch


def test_the_head_is_a_cosine_head_with_the_settings_scale() -> None:
    head = Plain().make_head(4, HeadSettings(scale=7.0))
    assert isinstance(head, CosineHead)
    assert head.scale.item() == 7
    assert head.weight.shape == (0, 4)


def test_which_methods_have_another_head() -> None:
    heads = {name: known_methods()[name]().make_head(4, HeadSettings()) for name in known_methods()}
    linear = {name: head for name, head in heads.items() if isinstance(head, LinearHead)}
    assert set(linear) == {"analytic", "bic", "wa"}
    assert {name for name, head in linear.items() if head.bias is not None} == {"analytic", "bic"}
    assert all(isinstance(head, CosineHead) for name, head in heads.items() if name not in linear)


def test_a_method_with_another_head_cannot_continue() -> None:
    clf = classifier("replay").learn(blobs(2, 8))
    for method in ("bic", "wa"):
        with pytest.raises(ConfigError, match="needs another head"):
            clf.set_params(method=method).learn(blobs(2, 8, first=2))
    clf.set_params(method="icarl").learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 4


def test_new_weights_stay_random() -> None:
    network, data = second_task(three_classes("replay"))
    before = network.head.weight.detach().clone()
    assert Plain().initialise(network, data, quick_trainer()) is None
    assert torch.equal(network.head.weight, before)


@pytest.mark.parametrize("loss", [Loss(), Loss(label_smoothing=0.2), Loss(balanced_softmax=True)])
def test_the_objective_is_the_cross_entropy_of_all_images(loss: Loss) -> None:
    """Twin: 12 exemplars of three classes, and 16 images of two new classes, in one batch."""
    network, data = second_task(three_classes("replay"))
    data = TaskData(data.new, data.memory, data.old_classes, data.new_classes, loss)
    batch = whole_batch(data)
    output = network(batch.images)
    shares = torch.tensor([4, 4, 4, 8, 8]) / 28
    shift = shares.log() if loss.balanced_softmax else torch.zeros(5)
    expected = F.cross_entropy(output.logits + shift, batch.labels, label_smoothing=loss.label_smoothing)
    for objective in (Plain().objective(network, data, quick_trainer()), cross_entropy_objective(data)):
        assert objective.state is None
        torch.testing.assert_close(objective(batch, output, Moment(1, 2, 0, 1)), expected)


@pytest.mark.parametrize("shared", [False, True])
def test_a_method_may_have_its_own_softmax(shared: bool) -> None:
    loss = Loss(balanced_softmax=shared, label_smoothing=0.1)
    assert Plain().loss_settings(loss) is loss
    assert Plain(balanced_softmax=shared).loss_settings(loss) == loss
    own = {"name": "replay", "balanced_softmax": not shared}
    clfs = (
        classifier(own, loss={"balanced_softmax": shared}),
        classifier("replay", loss={"balanced_softmax": not shared}),
        classifier("replay", loss={"balanced_softmax": shared}),
    )
    weights = [clf.learn(blobs(2, 8)).learn(blobs(2, 4, first=2)).state_.network.head.weight for clf in clfs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_learning_is_one_training_on_new_images_and_exemplars(monkeypatch: pytest.MonkeyPatch) -> None:
    network, data = second_task(three_classes("replay"))
    assert data.memory is not None
    (used,) = trained_on(Plain(), network, data, monkeypatch)
    assert used == sorted(pictures(data.new.images) + pictures(data.memory.images))
