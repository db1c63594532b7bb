"""COIL against literal twins: Algorithm 1 line by line."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport import IncrementalClassifier
from cotransport.data import Batch
from cotransport.errors import ConfigError, TrainingError
from cotransport.methods import Lesson
from cotransport.methods.coil import Coil
from cotransport.methods.retrospection import Retrospection
from cotransport.networks.network import Network
from cotransport.settings.sections import Budget, Device, Loss, Schedule
from cotransport.training.loop import Moment, Trainer
from cotransport.transport import class_centres, transport_classifier, transport_cost, transport_plan
from tests.conftest import blobs, classifier

OLD, NEW = slice(0, 3), slice(3, 5)


@pytest.fixture(scope="module")
def trained() -> IncrementalClassifier:
    """A classifier that knows three classes."""
    return classifier("coil").learn(blobs(3, 8))


@pytest.fixture
def lesson(trained: IncrementalClassifier) -> Lesson:
    new = blobs(2, 8, first=3)
    names = (*trained.state_.classes, *new.classes)
    new = type(new)(new.images, new.labels + 3, names)
    return Lesson(new, trained.state_.memory.labelled(names), old_classes=3, new_classes=2, loss=Loss())


@pytest.fixture
def network(trained: IncrementalClassifier) -> Network:
    """The network of three classes, grown by two with weights of its own, in evaluation mode."""
    network = copy.deepcopy(trained.state_.network)
    torch.manual_seed(5)
    network.head.grow(2)
    return network.eval()


@pytest.fixture
def trainer() -> Trainer:
    return Trainer(task=1, seed=0, device=Device(accelerator="cpu"))


def batch_of(lesson: Lesson) -> Batch:
    data = lesson.everything
    pixels = data.images.pixels.permute(0, 3, 1, 2)  # type: ignore[union-attr]
    return Batch(pixels, data.labels, weight=1.0, total=len(data))


def test_line_1_transports_the_old_classifier(
    trained: IncrementalClassifier, network: Network, lesson: Lesson, trainer: Trainer
) -> None:
    """Twin: centres by a loop, with the functions that test_transport.py checks."""
    before = network.head.weight.detach().clone()
    plan = Coil(reg=0.1).initialise(network, lesson, trainer)
    data = lesson.everything
    features = F.normalize(network(batch_of(lesson).images).features.detach())
    centres = torch.stack([F.normalize(features[data.labels == n].mean(dim=0), dim=0) for n in range(5)])
    expected = transport_plan(transport_cost(centres[OLD], centres[NEW]), 0.1)
    assert plan is not None
    torch.testing.assert_close(plan, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(network.head.weight[OLD], before[OLD])
    torch.testing.assert_close(network.head.weight[NEW], transport_classifier(expected, before[OLD]), atol=1e-4, rtol=0)


def test_the_plan_is_kept_with_the_state(trained: IncrementalClassifier) -> None:
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


def test_without_prospective_init_new_weights_are_those_of_replay(trained: IncrementalClassifier) -> None:
    weights = []
    for method in ("coil", {"name": "coil", "prospective_init": False}, "replay"):
        clf = classifier(method)
        clf.state_ = trained.state_
        weights.append(clf.initialise(blobs(2, 8, first=3)).state_.network.head.weight)
    assert torch.equal(weights[1], weights[2])
    assert not torch.allclose(weights[0][NEW], weights[2][NEW])


SETTINGS: list[dict[str, object]] = [
    {},
    {"reg": 0.05, "pt_weight": 0.5, "rt_weight": 2.0, "pt_epochs": 1, "temperature": 1.0},
    {"combine": "additive", "distil_over": "all", "pt_epochs": 0.5, "centres": "raw"},
    {"kd_weight": 0.3, "rt_weight": 0.0, "pt_weight": 0.0},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_lines_5_to_8_are_equation_9(
    settings: dict[str, object], network: Network, lesson: Lesson, trainer: Trainer
) -> None:
    """Ten epochs of one step each, so that the running centres are those of the batch; the student has moved on."""
    coil = Coil.model_validate({"rt_every": 1, **settings})
    objective = coil.objective(network, lesson, trainer)
    teacher = network.frozen()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.05).add_(0.01)
    batch = batch_of(lesson)
    output = network(batch.images)
    taught = teacher(batch.images).logits
    temperature = coil.temperature

    def soft(student: Tensor, target: Tensor) -> Tensor:
        log_student = (student / temperature).log_softmax(dim=1)
        return -((target / temperature).softmax(dim=1) * log_student[:, : target.shape[1]]).sum(dim=1).mean()

    student = output.logits if coil.distil_over == "all" else output.logits[:, OLD]
    balance = 0.3 if coil.kd_weight else 3 / 5
    kept = 1 - balance if coil.combine == "convex" else 1
    rehearsal = kept * F.cross_entropy(output.logits, batch.labels) + balance * soft(student, taught[:, OLD])
    centres = class_centres(output.features, batch.labels, 5, unit=coil.centres == "unit")
    plan = transport_plan(transport_cost(centres[NEW], centres[OLD]), coil.reg)
    carried = F.normalize(transport_classifier(plan, network.head.weight[NEW]))
    retrospective = soft(network.head.scale * F.normalize(output.features) @ carried.T, taught[:, OLD])

    for epoch in range(10):
        early = epoch < (coil.pt_epochs if isinstance(coil.pt_epochs, int) else 10 * coil.pt_epochs)
        expected = rehearsal + coil.pt_weight * early * soft(output.logits, taught)
        expected = expected + coil.rt_weight * (epoch / 10) ** 2 * retrospective
        got = objective(batch, output, Moment(epoch, 10, 0, 1))
        assert got.item() == pytest.approx(expected.item(), rel=1e-4), epoch


def test_retrospection_moves_the_embedding_and_the_new_weights_alone(
    network: Network, lesson: Lesson, trainer: Trainer
) -> None:
    """The difference that the loss makes to the gradients: none in the old weights, some in all others."""
    gradients = []
    for rt_weight in (0.0, 1.0):
        objective = Coil(pt_weight=0, rt_weight=rt_weight).objective(network, lesson, trainer)
        batch = batch_of(lesson)
        network.zero_grad()
        objective(batch, network(batch.images), Moment(5, 10, 0, 1)).backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in network.named_parameters()})  # type: ignore[union-attr]
    difference = {name: gradients[1][name] - gradients[0][name] for name in gradients[0]}
    assert difference["head.weight"][NEW].abs().max().item() > 1e-4
    assert difference["head.weight"][OLD].abs().max().item() == 0
    assert all(value.abs().max().item() > 0 for name, value in difference.items() if name.startswith("backbone"))


def test_the_plan_is_computed_again_every_so_many_steps(
    network: Network, lesson: Lesson, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = []

    def counted(self: Coil, centres: Tensor, origin: slice, goal: slice) -> Tensor:
        solved.append((origin, goal))
        return transport_plan(transport_cost(centres[origin], centres[goal]), self.reg)

    monkeypatch.setattr(Coil, "plan", counted)
    objective = Coil(rt_every=4).objective(network, lesson, trainer)
    batch = batch_of(lesson)
    for epoch in range(3):
        for step in range(8):
            objective(batch, network(batch.images), Moment(epoch, 3, step, 8))
    assert solved == [(NEW, OLD)] * 4  # none in the first epoch, then at steps 0 and 4 of two epochs


def test_running_centres_forget_what_is_an_epoch_ago(network: Network, lesson: Lesson, trainer: Trainer) -> None:
    """Batches that all look the same keep their centres; after a change, the old look fades by 1 - 1/steps a step."""
    retrospection = Retrospection(Coil(), network, lesson, trainer)
    labels = torch.arange(5)
    first, second = torch.eye(5, network.dimension), torch.eye(5, network.dimension).roll(1, dims=0)
    for _ in range(50):
        retrospection._observe(first, labels, Moment(1, 9, 0, 4))
    torch.testing.assert_close(retrospection._centres(), first)
    for _ in range(4):
        retrospection._observe(second, labels, Moment(1, 9, 0, 4))
    left = (1 - 1 / 4) ** 4
    torch.testing.assert_close(retrospection._centres(), F.normalize(left * first + (1 - left) * second))


def test_exact_centres_come_from_a_pass_over_all_images(network: Network, lesson: Lesson, trainer: Trainer) -> None:
    """A batch of one image is enough for the loss, and the network stays in training mode."""
    objective = Coil(rt_centres="exact").objective(network, lesson, trainer)
    batch = batch_of(lesson)
    one = Batch(batch.images[:1], batch.labels[:1], weight=1.0, total=1)
    network.train()
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network.eval()
    output = network(one.images)
    network.train()
    assert math.isfinite(objective(one, output, Moment(1, 2, 0, 40)).item())
    assert network.training
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())


def test_with_everything_off_coil_is_replay() -> None:
    off = {"name": "coil", "prospective_init": False, "pt_weight": 0, "rt_weight": 0, "kd_weight": 0}
    twins = [classifier(method).learn(blobs(2, 8)).learn(blobs(2, 8, first=2)) for method in (off, "replay")]
    ours, theirs = (clf.state_.network.state_dict() for clf in twins)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_first_task_is_plain_cross_entropy() -> None:
    ours, theirs = (classifier(method).learn(blobs(2, 8)).state_.network.state_dict() for method in ("coil", "replay"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
@pytest.mark.parametrize("rt_centres", ["running", "exact"])
def test_learns_in_other_precisions(precision: str, rt_centres: str) -> None:
    method = {"name": "coil", "rt_centres": rt_centres, "rt_every": 1}
    clf = classifier(method, device=Device(accelerator="cpu", precision=precision))  # type: ignore[arg-type]
    clf.learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert torch.isfinite(clf.scores(blobs(4, 2)).head).all()


def test_a_training_that_diverges_is_told_as_such() -> None:
    """And not as a cost that is not finite, which is only what comes of it."""
    clf = classifier("coil").learn(blobs(2, 8))
    clf.schedule = Schedule(epochs=4, batch_size=4, learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"not finite.*learning_rate"):
        clf.learn(blobs(2, 8, first=2))


@pytest.mark.parametrize("pt_length", ["origin", "fresh"])
def test_the_length_of_transported_weights(pt_length: str, network: Network, lesson: Lesson, trainer: Trainer) -> None:
    old, fresh = (network.head.weight[part].norm(dim=1).mean().item() for part in (OLD, NEW))
    Coil(pt_length=pt_length).initialise(network, lesson, trainer)  # type: ignore[arg-type]
    got = network.head.weight[NEW].norm(dim=1).mean().item()
    assert abs(old - fresh) > 0.01
    assert got == pytest.approx(old if pt_length == "origin" else fresh, rel=1e-4)


def test_retrospection_may_look_at_new_images_only(network: Network, lesson: Lesson, trainer: Trainer) -> None:
    """What old images look like changes the loss of all images, and not that of new ones."""
    batch = batch_of(lesson)
    output = network(batch.images)
    teacher = 10 * torch.randn(len(batch.labels), 3, generator=torch.Generator().manual_seed(0))
    other = torch.where((batch.labels < 3)[:, None], teacher.flip(1), teacher)
    moment = Moment(1, 2, 0, 1)
    got = {}
    for images in ("all", "new"):
        for name, target in (("teacher", teacher), ("other", other)):
            part = Retrospection(Coil(rt_images=images, rt_every=1), network, lesson, trainer)  # type: ignore[arg-type]
            got[images, name] = part(batch, output, target, moment).item()
    assert got["all", "teacher"] != pytest.approx(got["all", "other"], rel=1e-3)
    assert got["new", "teacher"] == pytest.approx(got["new", "other"], rel=1e-6)
    old = batch.labels < 3
    old_only = Batch(batch.images[old], batch.labels[old], weight=1.0, total=int(old.sum()))
    part = Retrospection(Coil(rt_images="new", rt_centres="exact"), network, lesson, trainer)
    assert part(old_only, network(old_only.images), teacher[old], moment).item() == 0


def test_a_convex_weight_is_at_most_one() -> None:
    with pytest.raises(ValueError, match="additive"):
        Coil(kd_weight=1.5)
    assert Coil(kd_weight=1.5, combine="additive").kd_weight == 1.5


def test_needs_an_exemplar_of_every_class() -> None:
    """Said before the first lesson; and where another method has kept none."""
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
    assert (coil.reg, coil.temperature, coil.pt_epochs, coil.pt_weight, coil.rt_weight) == (0.45, 2.0, 5, 1.0, 1.0)
    assert (coil.combine, coil.kd_weight, coil.prospective_init, coil.predict_with) == ("convex", None, True, "head")
    assert (coil.centres, coil.distil_over, coil.rt_centres, coil.rt_images) == ("unit", "old", "running", "all")
    assert coil.pt_length == "origin"
