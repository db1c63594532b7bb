"""COIL against literal twins: Algorithm 1 line by line."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from cotransport.errors import ConfigError, TrainingError
from cotransport.learner.settings import LearnerSettings
from cotransport.methods import make_method
from cotransport.methods.coil import Coil, CoilTuned
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.rehearsal import Rehearsal
from cotransport.methods.retrospection import Retrospection
from cotransport.networks.network import Network
from cotransport.settings.sections import Budget, Schedule
from cotransport.training.loop import Trainer
from cotransport.training.objective import Moment
from cotransport.training.task_data import TaskData
from cotransport.transport import class_centres, transport_classifier, transport_cost, transport_plan
from tests.conftest import blobs, classifier
from tests.helpers import (
    NEW,
    OLD,
    move_weights,
    pictures,
    quick_trainer,
    same_weights,
    second_task,
    soft_cross_entropy,
    three_classes,
    trained_on,
    whole_batch,
)


@pytest.fixture
def task() -> tuple[Network, TaskData]:
    return second_task(three_classes("coil"))


@pytest.fixture
def trainer() -> Trainer:
    return quick_trainer(task=1, seed=0)


def test_line_1_transports_the_old_classifier(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """Twin: centres by a loop, with the functions that test_transport.py checks."""
    network, data = task
    before, labels = network.head.weight.detach().clone(), data.everything.labels
    plan = Coil(mapping=ClassMapping(reg=0.1)).initialise(network, data, trainer)
    features = F.normalize(network(whole_batch(data).images).features.detach())
    centres = torch.stack([F.normalize(features[labels == number].mean(dim=0), dim=0) for number in range(5)])
    expected = transport_plan(transport_cost(centres[OLD], centres[NEW]), 0.1)
    assert plan is not None
    torch.testing.assert_close(plan, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(network.head.weight[OLD], before[OLD])
    torch.testing.assert_close(network.head.weight[NEW], transport_classifier(expected, before[OLD]), atol=1e-4, rtol=0)


def test_line_1_may_take_centres_of_raw_features(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    network, data = task
    features = network(whole_batch(data).images).features.detach()
    centres = torch.stack([features[data.everything.labels == number].mean(dim=0) for number in range(5)])
    expected = transport_plan(transport_cost(centres[OLD], centres[NEW]), 0.45)
    plan = Coil(mapping=ClassMapping(centres="raw")).initialise(network, data, trainer)
    assert plan is not None
    torch.testing.assert_close(plan, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("pt_length", ["origin", "fresh"])
def test_the_length_of_transported_weights(pt_length: str, task: tuple[Network, TaskData], trainer: Trainer) -> None:
    network, data = task
    old, fresh = (network.head.weight[part].norm(dim=1).mean().item() for part in (OLD, NEW))
    Coil(pt_length=pt_length).initialise(network, data, trainer)  # type: ignore[arg-type]
    got = network.head.weight[NEW].norm(dim=1).mean().item()
    assert abs(old - fresh) > 0.01
    assert got == pytest.approx(old if pt_length == "origin" else fresh, rel=1e-4)


@pytest.mark.parametrize("pt_length", ["origin", "fresh"])
def test_first_weights_may_be_the_new_classes_own_centres(
    pt_length: str, task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    network, data = task
    old, fresh = (network.head.weight[part].norm(dim=1).mean().item() for part in (OLD, NEW))
    before = network.head.weight.detach().clone()
    features = F.normalize(network(whole_batch(data).images).features.detach())
    centres = torch.stack([features[data.everything.labels == number].mean(dim=0) for number in (3, 4)])
    coil = Coil(pt_source="centres", pt_length=pt_length)  # type: ignore[arg-type]
    assert coil.initialise(network, data, trainer) is None  # no plan
    assert not coil.transports
    assert coil.needs_exemplars
    expected = F.normalize(centres) * (old if pt_length == "origin" else fresh)
    torch.testing.assert_close(network.head.weight[NEW], expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(network.head.weight[OLD], before[OLD])


@pytest.mark.parametrize(("old", "new"), [(0, 5), (5, 0)])
def test_without_old_or_without_new_classes_nothing_is_transported(
    old: int, new: int, task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    network, data = task
    before = network.head.weight.detach().clone()
    assert Coil().initialise(network, TaskData(data.everything, None, old, new, data.loss), trainer) is None
    assert torch.equal(network.head.weight, before)


def test_the_plan_is_kept_with_the_state() -> None:
    trained = classifier("coil").learn(blobs(3, 8))
    grown = trained.initialise(blobs(2, 8, first=3))
    assert trained.state_.plan is None
    assert grown.state_.plan is not None
    assert grown.state_.plan.shape == (3, 2)
    assert grown.state_.plan.sum().item() == pytest.approx(1, abs=1e-5)
    assert trained.built_from() == {}
    built = grown.built_from()
    assert list(built) == ["class 3", "class 4"]
    for new, shares in enumerate(built.values()):
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        for old, share in shares.items():
            assert share == pytest.approx(2 * grown.state_.plan[int(str(old)[-1]), new].item(), abs=1e-6)


def test_without_prospective_init_new_weights_are_those_of_replay() -> None:
    weights = []
    for method in ("coil", {"name": "coil", "prospective_init": False}, "replay"):
        clf = classifier(method)
        clf.state_, clf.settings_ = three_classes("coil"), LearnerSettings.validate(clf.get_params(deep=False))
        weights.append(clf.initialise(blobs(2, 8, first=3)).state_.network.head.weight)
    assert torch.equal(weights[1], weights[2])
    assert not torch.allclose(weights[0][NEW], weights[2][NEW])


def test_lines_2_to_10_are_one_training_on_new_images_and_exemplars(
    task: tuple[Network, TaskData], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, data = task
    assert data.memory is not None
    (used,) = trained_on(Coil(), network, data, monkeypatch)
    assert used == sorted(pictures(data.new.images) + pictures(data.memory.images))


SETTINGS: list[dict[str, object]] = [
    {},
    {"reg": 0.05, "pt_weight": 0.5, "rt_weight": 2.0, "pt_epochs": 1, "temperature": 1.0},
    {"combine": "additive", "distil_over": "all", "pt_epochs": 0.5, "centres": "raw"},
    {"kd_weight": 0.3, "rt_weight": 0.0, "pt_weight": 0.0},
    {"rt_images": "new"},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_lines_5_to_8_are_equation_9(
    settings: dict[str, object], task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    """Ten epochs of one step each, so that the running centres are those of the batch. The student has changed."""
    network, data = task
    coil = Coil.model_validate({"rt_every": 1, **settings})
    mapping, part, retrospection = coil.mapping, coil.rehearsal, coil.retrospection
    objective = coil.objective(network, data, trainer)
    batch, teacher = whole_batch(data), network.frozen()
    move_weights(network)
    output, taught = network(batch.images), teacher(batch.images).logits

    student = output.logits if part.distil_over == "all" else output.logits[:, OLD]
    balance = 0.3 if part.kd_weight else 3 / 5
    kept = 1 - balance if part.combine == "convex" else 1
    rehearsal = kept * F.cross_entropy(output.logits, batch.labels)
    rehearsal = rehearsal + balance * soft_cross_entropy(student, taught[:, OLD], part.temperature)
    prospective = soft_cross_entropy(output.logits, taught, part.temperature)
    centres = class_centres(output.features, batch.labels, 5, unit=mapping.centres == "unit")
    plan = transport_plan(transport_cost(centres[NEW], centres[OLD]), mapping.reg)
    carried = F.normalize(transport_classifier(plan, network.head.weight[NEW]))
    old_again = network.head.scale * F.normalize(output.features) @ carried.T
    looked_at = batch.labels >= (3 if retrospection.rt_images == "new" else 0)
    retrospective = soft_cross_entropy(old_again[looked_at], taught[:, OLD][looked_at], part.temperature)
    retrospective = retrospective * looked_at.sum() / len(looked_at)

    for epoch in range(10):
        early = epoch < (coil.pt_epochs if isinstance(coil.pt_epochs, int) else 10 * coil.pt_epochs)
        gamma = retrospection.rt_weight * (epoch / 10) ** 2
        expected = rehearsal + coil.pt_weight * early * prospective + gamma * retrospective
        got = objective(batch, output, Moment(epoch, 10, 0, 1))
        assert got.item() == pytest.approx(expected.item(), rel=1e-4), epoch


def test_the_teacher_is_the_network_after_line_1(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """The network that starts is its own teacher: then the prospective loss is the entropy of its softmax."""
    network, data = task
    batch, off = whole_batch(data), {"kd_weight": 0, "rt_weight": 0, "temperature": 1.0}
    objectives = [
        Coil.model_validate({**off, "pt_weight": weight}).objective(network, data, trainer) for weight in (1.0, 0.0)
    ]
    output = network(batch.images)
    with_it, without = (objective(batch, output, Moment(0, 10, 0, 1)).item() for objective in objectives)
    probabilities = output.logits.softmax(dim=1)
    entropy = -(probabilities * probabilities.log()).sum(dim=1).mean()
    assert with_it - without == pytest.approx(entropy.item(), rel=1e-4)


def test_with_everything_off_coil_is_replay() -> None:
    off = {"name": "coil", "prospective_init": False, "pt_weight": 0, "rt_weight": 0, "kd_weight": 0}
    twins = [classifier(method).learn(blobs(2, 8)).learn(blobs(2, 8, first=2)) for method in (off, "replay")]
    assert same_weights(*(clf.state_.network for clf in twins))


def test_the_first_task_is_plain_cross_entropy() -> None:
    assert same_weights(*(classifier(method).learn(blobs(2, 8)).state_.network for method in ("coil", "replay")))


def test_a_training_that_diverges_is_reported_as_such() -> None:
    """The error is not about a cost that is not finite, which is only a consequence."""
    clf = classifier("coil").learn(blobs(2, 8))
    clf.schedule = Schedule(epochs=4, batch_size=4, learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"not finite.*learning_rate"):
        clf.learn(blobs(2, 8, first=2))


def test_needs_an_exemplar_of_every_class() -> None:
    """The error comes before the first task; or later, if another method has kept none."""
    with pytest.raises(ConfigError, match=r"memory: COIL .* exemplar of every class.*Raise"):
        classifier("coil", memory=Budget(per_class=0)).learn(blobs(2, 8))
    clf = classifier("finetune").learn(blobs(2, 8)).set_params(method="coil")
    with pytest.raises(ConfigError, match=r"memory: COIL .* none of 'class 0', 'class 1'"):
        clf.learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 2
    without = {"name": "coil", "prospective_init": False, "rt_weight": 0}
    clf = classifier(without, memory=Budget(per_class=0)).learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 4


@pytest.mark.parametrize("value, valid", [(5, True), (0, True), (0.03, True), (1.0, True), (1.5, False), (-1, False)])
def test_prospective_epochs_are_a_number_or_a_share(value: float, valid: bool) -> None:
    if valid:
        assert type(Coil.model_validate({"pt_epochs": value}).pt_epochs) is type(value)
    else:
        with pytest.raises(ValueError, match="pt_epochs"):
            Coil.model_validate({"pt_epochs": value})


def test_the_defaults_are_the_papers() -> None:
    coil = Coil()
    assert coil.mapping == ClassMapping(reg=0.45, centres="unit")
    assert coil.rehearsal == Rehearsal(temperature=2.0, combine="convex", kd_weight=None, distil_over="old")
    assert coil.retrospection == Retrospection(rt_weight=1.0, rt_every=10, rt_images="all", rt_centres="running")
    assert (coil.prospective_init, coil.pt_length, coil.pt_weight, coil.pt_epochs) == (True, "origin", 1.0, 5)
    assert coil.predict_with == "head"


def test_the_tuned_settings_are_kept_when_others_are_given() -> None:
    tuned = make_method({"name": "coil-tuned", "rt_every": 4, "temperature": 3.0})
    assert isinstance(tuned, CoilTuned)
    assert tuned.retrospection == Retrospection(rt_weight=0.3, rt_every=4)
    assert tuned.rehearsal == Rehearsal(combine="additive", temperature=3.0)
    assert (tuned.pt_length, tuned.pt_epochs) == ("fresh", 0.03)
