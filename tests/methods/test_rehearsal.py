"""What iCaRL, BiC, WA and COIL share: Eq. 3 against a literal twin, and retrospective transport for all of them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Batch
from cotransport.errors import ConfigError
from cotransport.methods import Lesson, known_methods
from cotransport.methods.rehearsal import Distilling
from cotransport.networks.heads import CorrectedHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Budget, Device, HeadSettings, Loss
from cotransport.training.loop import Moment, Trainer
from cotransport.transport import class_centres, transport_classifier, transport_cost, transport_plan
from tests.conftest import blobs, classifier

OLD, NEW = slice(0, 3), slice(3, 5)
COMPARED = ["bic", "icarl", "wa"]
compared = pytest.mark.parametrize("name", COMPARED)


def taught(name: str) -> tuple[Network, Lesson]:
    """A network that knows three classes, grown by two; and the lesson that comes now."""
    clf = classifier(name, head={"linear_scale": 0.5}).learn(blobs(3, 8))
    new = blobs(2, 8, first=3)
    names = (*clf.state_.classes, *new.classes)
    new = type(new)(new.images, new.labels + 3, names)
    network = copy.deepcopy(clf.state_.network)
    torch.manual_seed(5)
    network.head.grow(2)
    if isinstance(network.head, CorrectedHead):  # as after several tasks
        network.head.alpha[:3], network.head.beta[:3] = 0.7, -0.4
    return network.eval(), Lesson(new, clf.state_.memory.labelled(names), 3, 2, Loss())


def softly(student: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy of both softmaxes at a temperature of 2, written out."""
    return -((teacher / 2).softmax(dim=1) * (student / 2).log_softmax(dim=1)).sum(dim=1).mean()


@compared
@pytest.mark.parametrize("rt_weight", [0.0, 2.0])
def test_the_loss_is_equation_3_and_retrospection_if_asked_for(name: str, rt_weight: float) -> None:
    """(1 - 3/5) CE + 3/5 KD, and rt_weight (epoch / epochs)^2 RT with the head's own kind of logits."""
    network, lesson = taught(name)
    method = known_methods()[name].model_validate({"rt_weight": rt_weight, "rt_every": 1})
    objective = method.objective(network, lesson, Trainer(task=1, seed=0, device=Device(accelerator="cpu")))
    data = lesson.everything
    batch = Batch(data.images.pixels.permute(0, 3, 1, 2), data.labels, weight=1.0, total=len(data))  # type: ignore[union-attr]
    teacher = network(batch.images).logits.detach()[:, OLD]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.05).add_(0.01)
    output = network(batch.images)
    expected = 0.4 * F.cross_entropy(output.logits, batch.labels) + 0.6 * softly(output.logits[:, OLD], teacher)
    if rt_weight:
        centres = class_centres(output.features, batch.labels, 5)
        plan = transport_plan(transport_cost(centres[NEW], centres[OLD]), 0.45)
        carried = transport_classifier(plan, network.head.weight[NEW])
        if name == "icarl":
            logits = network.head.scale * F.normalize(output.features) @ F.normalize(carried).T
        else:
            logits = 0.5 * output.features @ carried.T
        expected = expected + rt_weight * (7 / 10) ** 2 * softly(logits, teacher)
    got = objective(batch, output, Moment(7, 10, 0, 1))
    assert got.item() == pytest.approx(expected.item(), rel=1e-4)


@compared
def test_retrospection_is_a_part_of_any_of_them(name: str) -> None:
    """It changes what is learned, and leaves the first task alone."""
    tasks = blobs(2, 8), blobs(2, 8, first=2)
    alone, together = (classifier({"name": name, "rt_weight": weight}).learn(tasks[0]) for weight in (0.0, 1.0))
    assert torch.equal(alone.state_.network.head.weight, together.state_.network.head.weight)
    alone.learn(tasks[1]), together.learn(tasks[1])
    assert not torch.equal(alone.state_.network.head.weight, together.state_.network.head.weight)
    assert torch.isfinite(together.scores(blobs(4, 2)).head).all()


@compared
@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_learns_in_other_precisions(name: str, precision: str) -> None:
    device = Device(accelerator="cpu", precision=precision)  # type: ignore[arg-type]
    clf = classifier({"name": name, "rt_weight": 1.0}, device=device).learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    assert torch.isfinite(clf.scores(blobs(4, 2)).head).all()
    assert clf.state_.network.head.weight.dtype == (torch.float64 if precision == "64-true" else torch.float32)


@compared
def test_a_head_is_made_again_from_settings_and_numbers(name: str) -> None:
    """What a saved model needs: the head of the method, grown at once, with the numbers put back."""
    clf = classifier(name, head={"linear_scale": 0.5}).learn(blobs(2, 8)).learn(blobs(1, 8, first=2))
    head = clf.state_.network.head
    again = known_methods()[name]().make_head(clf.state_.network.dimension, HeadSettings())
    again.grow(3)
    again.load_state_dict(head.state_dict())
    features = clf.features(blobs(3, 4))
    assert torch.equal(again.eval()(features), head(features))


def test_a_method_with_another_head_cannot_go_on() -> None:
    clf = classifier("replay").learn(blobs(2, 8))
    for method in ("bic", "wa"):
        with pytest.raises(ConfigError, match="needs another head"):
            clf.set_params(method=method).learn(blobs(2, 8, first=2))
    clf.set_params(method="icarl").learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 4


@compared
def test_retrospection_needs_an_exemplar_of_every_class(name: str) -> None:
    method = {"name": name, "rt_weight": 1.0, "predict_with": "head"}
    with pytest.raises(ConfigError, match=r"memory.*exemplar"):
        classifier(method, memory=Budget(per_class=0)).learn(blobs(2, 8))
    clf = classifier(method).learn(blobs(2, 8)).set_params(memory=Budget(per_class=0))
    with pytest.raises(ConfigError, match=r"memory.*exemplar"):
        clf.learn(blobs(2, 8, first=2))
    assert len(clf.classes_) == 2


@compared
def test_the_defaults_are_those_of_the_paper(name: str) -> None:
    method = known_methods()[name]()
    assert isinstance(method, Distilling)
    assert (method.temperature, method.combine, method.distil_over, method.kd_weight) == (2.0, "convex", "old", None)
    assert method.rt_weight == 0
    assert method.predict_with == ("ncm" if name == "icarl" else "head")
