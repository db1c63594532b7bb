"""Retrospective transport: line 6 of Algorithm 1 against literal twins, and as a part of every method that holds it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Batch
from cotransport.errors import ConfigError
from cotransport.losses import retrospective_loss
from cotransport.methods.coil import Coil
from cotransport.methods.mapping import ClassMapping
from cotransport.methods.retrospection import Retrospection, TransportBack
from cotransport.networks.network import Network, Output
from cotransport.settings.sections import Budget, Device
from cotransport.training.loop import Trainer
from cotransport.training.objective import Moment
from cotransport.training.task_data import TaskData
from cotransport.transport import class_centres, transport_classifier, transport_cost, transport_plan
from tests.conftest import blobs, classifier
from tests.helpers import NEW, OLD, move_weights, quick_trainer, second_task, three_classes, whole_batch

compared = pytest.mark.parametrize("name", ["bic", "icarl", "wa"])
HALFWAY = Moment(1, 2, 0, 1)


@pytest.fixture
def task() -> tuple[Network, TaskData]:
    return second_task(three_classes("coil"))


@pytest.fixture
def trainer() -> Trainer:
    return quick_trainer(task=1)


def transport_back(task: tuple[Network, TaskData], trainer: Trainer, **settings: object) -> TransportBack:
    return TransportBack(Retrospection.model_validate({"rt_weight": 1.0, **settings}), ClassMapping(), *task, trainer)


def only(batch: Batch, chosen: Tensor) -> Batch:
    return Batch(batch.images[chosen], batch.labels[chosen], weight=1.0, total=int(chosen.sum()))


@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_gamma_grows_with_the_square_of_the_epoch(
    weight: float, task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    back, batch = transport_back(task, trainer, rt_weight=weight), whole_batch(task[1])
    got = [back.gamma(batch, Moment(epoch, 10, 3, 4)) for epoch in range(10)]
    assert got == pytest.approx([weight * (epoch / 10) ** 2 for epoch in range(10)])


def test_gamma_may_have_the_new_classes_share(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """Two of five classes are new."""
    back = transport_back(task, trainer, rt_share="new")
    assert back.gamma(whole_batch(task[1]), HALFWAY) == pytest.approx(1 / 4 * 2 / 5)


def test_the_loss_may_be_limited_to_new_images(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """Of 12 exemplars and 16 new images. A batch without new images has no loss."""
    batch = whole_batch(task[1])
    everything, new = (transport_back(task, trainer, rt_images=images) for images in ("all", "new"))
    assert batch.labels[everything.rows(batch)].tolist() == batch.labels.tolist()
    assert batch.labels[new.rows(batch)].tolist() == [3] * 8 + [4] * 8
    assert everything.gamma(batch, HALFWAY) == pytest.approx(1 / 4)
    assert new.gamma(batch, HALFWAY) == pytest.approx(1 / 4 * 16 / 28)
    assert new.gamma(only(batch, batch.labels < 3), HALFWAY) == 0


@pytest.mark.parametrize("centres", ["unit", "raw"])
def test_the_old_classifier_is_transported_from_the_new_one(
    centres: str, task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    """Twin: centres of the batch, the plan from new to old classes, and the transported weights in a cosine head."""
    network, batch = task[0], whole_batch(task[1])
    mapping = ClassMapping(reg=0.1, centres=centres)  # type: ignore[arg-type]
    back = TransportBack(Retrospection(rt_weight=1.0), mapping, *task, trainer)
    move_weights(network)
    output = network(batch.images)
    back.observe(batch, output, HALFWAY)
    found = class_centres(output.features, batch.labels, 5, unit=centres == "unit")
    plan = transport_plan(transport_cost(found[NEW], found[OLD]), 0.1)
    weights = transport_classifier(plan, network.head.weight[NEW])
    torch.testing.assert_close(back.classifier(HALFWAY), weights, rtol=1e-4, atol=1e-5)
    expected = network.head.scale * F.normalize(output.features) @ F.normalize(weights).T
    torch.testing.assert_close(back.logits(output, HALFWAY), expected, rtol=1e-4, atol=1e-4)
    unscaled = TransportBack(Retrospection(rt_weight=1.0, rt_scale="one"), mapping, *task, trainer)
    unscaled.observe(batch, output, HALFWAY)
    cosines = unscaled.logits(output, HALFWAY)
    torch.testing.assert_close(cosines, expected / network.head.scale, rtol=1e-4, atol=1e-5)
    assert torch.autograd.grad(cosines.sum(), network.head.scale, allow_unused=True) == (None,)


def test_the_loss_moves_the_embedding_and_the_new_weights_only(
    task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    """The difference that the loss makes to the gradients: none in the old weights, some in all others."""
    network, batch = task[0], whole_batch(task[1])
    gradients = []
    for rt_weight in (0.0, 1.0):
        objective = Coil(pt_weight=0, retrospection=Retrospection(rt_weight=rt_weight)).objective(*task, trainer)
        network.zero_grad()
        objective(batch, network(batch.images), Moment(5, 10, 0, 1)).backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in network.named_parameters()})  # type: ignore[union-attr]
    difference = {name: gradients[1][name] - gradients[0][name] for name in gradients[0]}
    assert difference["head.weight"][NEW].abs().max().item() > 1e-4
    assert difference["head.weight"][OLD].abs().max().item() == 0
    assert all(value.abs().max().item() > 0 for name, value in difference.items() if name.startswith("backbone"))


def test_the_loss_of_new_images_does_not_depend_on_old_images(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """The teacher's opinion about old images changes the loss of all images, and not the loss of new ones."""
    network, batch = task[0], whole_batch(task[1])
    output = network(batch.images)
    teacher = 10 * torch.randn(len(batch.labels), 3, generator=torch.Generator().manual_seed(0))
    other = torch.where((batch.labels < 3)[:, None], teacher.flip(1), teacher)
    got = {}
    for images in ("all", "new"):
        for name, taught in (("teacher", teacher), ("other", other)):
            back = transport_back(task, trainer, rt_images=images)
            back.observe(batch, output, HALFWAY)
            rows, student = back.rows(batch), back.logits(output, HALFWAY)
            got[images, name] = retrospective_loss(student[rows], taught[rows]).item()
    assert got["all", "teacher"] != pytest.approx(got["all", "other"], rel=1e-3)
    assert got["new", "teacher"] == pytest.approx(got["new", "other"], rel=1e-6)


def test_a_batch_without_new_images_adds_nothing(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    batch = whole_batch(task[1])
    old = only(batch, batch.labels < 3)
    output = task[0](old.images)
    with_it, without = (
        Coil.model_validate({"rt_weight": weight, "rt_images": "new", "rt_centres": "exact"}).objective(*task, trainer)
        for weight in (1.0, 0.0)
    )
    assert with_it(old, output, HALFWAY).item() == without(old, output, HALFWAY).item()


def test_the_plan_is_computed_every_few_steps(
    task: tuple[Network, TaskData], trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = []
    plan = ClassMapping.plan

    def counted(self: ClassMapping, centres: Tensor, origin: slice, goal: slice) -> Tensor:
        solved.append((origin, goal))
        return plan(self, centres, origin, goal)

    monkeypatch.setattr(ClassMapping, "plan", counted)
    network, batch = task[0], whole_batch(task[1])
    objective = Coil.model_validate({"rt_every": 4}).objective(*task, trainer)
    for epoch in range(3):
        for step in range(8):
            objective(batch, network(batch.images), Moment(epoch, 3, step, 8))
    assert solved == [(NEW, OLD)] * 4  # none in the first epoch, then at steps 0 and 4 of two epochs


def test_exact_centres_come_from_a_pass_over_all_images(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """A batch of one image is enough for the loss. The network stays in training mode, and its norms unchanged."""
    network, batch = task[0], whole_batch(task[1])
    expected = class_centres(network(batch.images).features.detach(), batch.labels, 5)
    plan = transport_plan(transport_cost(expected[NEW], expected[OLD]), 0.45)
    back = transport_back(task, trainer, rt_centres="exact")
    torch.testing.assert_close(
        back.classifier(HALFWAY), transport_classifier(plan, network.head.weight[NEW]), rtol=1e-4, atol=1e-5
    )
    objective = Coil.model_validate({"rt_centres": "exact"}).objective(*task, trainer)
    one = Batch(batch.images[:1], batch.labels[:1], weight=1.0, total=1)
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    output = network.eval()(one.images)
    network.train()
    assert math.isfinite(objective(one, output, Moment(1, 2, 0, 40)).item())
    assert network.training
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())


def test_features_that_are_not_finite_give_a_loss_that_is_not_finite(
    task: tuple[Network, TaskData], trainer: Trainer
) -> None:
    """So that the training reports it, instead of the solver of the plan."""
    back, batch = transport_back(task, trainer), whole_batch(task[1])
    output = task[0](batch.images)
    broken = Output(output.features * math.nan, output.logits)
    back.observe(batch, broken, HALFWAY)
    assert back.classifier(HALFWAY).isnan().all()
    assert back.classifier(HALFWAY).shape == (3, task[0].dimension)


def test_an_image_of_weight_zero_is_not_observed(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """A process without an image of its own in a batch gets one of weight 0."""
    back, batch = transport_back(task, trainer), whole_batch(task[1])
    output, moment = task[0](batch.images), Moment(1, 2, 0, 4)
    back.observe(batch, output, moment)
    before = {name: tensor.clone() for name, tensor in back.state_dict().items()}
    back.observe(batch._replace(weight=0.0), output, moment)
    assert all(torch.equal(before[name], tensor) for name, tensor in back.state_dict().items())


def test_it_resumes_from_its_state(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    """With the plan in use: the next refresh is some steps away."""
    network, batch = task[0], whole_batch(task[1])
    back, resumed = (transport_back(task, trainer, rt_every=10) for _ in range(2))
    back.observe(batch, network(batch.images), Moment(1, 3, 0, 8))
    back.classifier(Moment(1, 3, 2, 8))
    resumed.load_state_dict({name: tensor.clone() for name, tensor in back.state_dict().items()})
    move_weights(network)
    for twin in (back, resumed):
        twin.observe(batch, network(batch.images), Moment(1, 3, 3, 8))
    for step in (3, 4):  # step 12 of the training needs no new plan, step 20 does
        assert torch.equal(back.classifier(Moment(1, 3, step, 8)), resumed.classifier(Moment(1, 3, step, 8)))
    assert torch.equal(back.classifier(Moment(2, 3, 4, 8)), resumed.classifier(Moment(2, 3, 4, 8)))


def test_without_a_weight_there_is_no_state(task: tuple[Network, TaskData], trainer: Trainer) -> None:
    back, batch = transport_back(task, trainer, rt_weight=0.0), whole_batch(task[1])
    back.observe(batch, task[0](batch.images), HALFWAY)
    assert back.state_dict() == {}


@compared
def test_retrospection_changes_what_any_of_them_learns(name: str) -> None:
    """It leaves the first task alone."""
    tasks = blobs(2, 8), blobs(2, 8, first=2)
    alone, together = (classifier({"name": name, "rt_weight": weight}).learn(tasks[0]) for weight in (0.0, 1.0))
    assert torch.equal(alone.state_.network.head.weight, together.state_.network.head.weight)
    alone.learn(tasks[1]), together.learn(tasks[1])
    assert not torch.equal(alone.state_.network.head.weight, together.state_.network.head.weight)
    assert torch.isfinite(together.scores(blobs(4, 2)).head).all()


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
@pytest.mark.parametrize(
    "method",
    [
        {"name": "bic"},
        {"name": "icarl"},
        {"name": "wa"},
        {"name": "coil", "rt_centres": "running", "rt_every": 1},
        {"name": "coil", "rt_centres": "exact", "rt_every": 1},
    ],
    ids=["bic", "icarl", "wa", "coil-running", "coil-exact"],
)
def test_learns_in_other_precisions(method: dict[str, object], precision: str) -> None:
    device = Device(accelerator="cpu", precision=precision)  # type: ignore[arg-type]
    clf = classifier({**method, "rt_weight": 1.0}, device=device).learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert torch.isfinite(clf.scores(blobs(4, 2)).head).all()
    assert clf.state_.network.head.weight.dtype == (torch.float64 if precision == "64-true" else torch.float32)


@compared
def test_retrospection_needs_an_exemplar_of_every_class(name: str) -> None:
    method = {"name": name, "rt_weight": 1.0, "predict_with": "head"}
    with pytest.raises(ConfigError, match=r"memory.*exemplar"):
        classifier(method, memory=Budget(per_class=0)).learn(blobs(2, 8))
    clf = classifier(method).learn(blobs(2, 8)).set_params(memory=Budget(per_class=0))
    with pytest.raises(ConfigError, match=r"memory.*exemplar"):
        clf.learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 2
