"""What iCaRL, BiC, WA and COIL share: Eq. 3 against a literal twin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cotransport.methods import known_methods, make_method
from cotransport.methods.coil import Coil
from cotransport.methods.rehearsal import Rehearsal
from cotransport.networks.heads import CorrectedHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Loss
from cotransport.training.objective import Moment
from cotransport.training.task_data import TaskData
from cotransport.transport import class_centres, transport_classifier, transport_cost, transport_plan
from tests.helpers import (
    NEW,
    OLD,
    move_weights,
    quick_trainer,
    second_task,
    soft_cross_entropy,
    three_classes,
    whole_batch,
)

compared = pytest.mark.parametrize("name", ["bic", "icarl", "wa"])


def prepared(name: str) -> tuple[Network, TaskData]:
    """A network that knows three classes, grown by two, and the data of its second task."""
    network, data = second_task(three_classes(name))
    if isinstance(network.head, CorrectedHead):  # as after several tasks
        network.head.alpha[:3], network.head.beta[:3] = 0.7, -0.4
    return network, data


@pytest.mark.parametrize(
    ("settings", "cross_entropy", "distillation"),
    [
        ({}, 2 / 5, 3 / 5),
        ({"kd_weight": 0.3}, 0.7, 0.3),
        ({"combine": "additive"}, 1, 3 / 5),
        ({"combine": "ratio"}, 1, 3 / 2),  # three old classes and two new ones
        ({"combine": "additive", "kd_weight": 1.5}, 1, 1.5),
        ({"distil_over": "all", "temperature": 1.0}, 2 / 5, 3 / 5),
    ],
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_equation_3(
    settings: dict[str, object], cross_entropy: float, distillation: float, smoothing: float
) -> None:
    """Twin: three of five classes are old, so lambda is 3/5 by default."""
    part = Rehearsal.model_validate(settings)
    network, data = prepared("icarl")
    data = TaskData(data.new, data.memory, 3, 2, Loss(label_smoothing=smoothing))
    batch = whole_batch(data)
    taught = network(batch.images).logits.detach()
    move_weights(network)
    output = network(batch.images)
    student = output.logits if part.distil_over == "all" else output.logits[:, OLD]
    expected = cross_entropy * F.cross_entropy(output.logits, batch.labels, label_smoothing=smoothing)
    expected = expected + distillation * soft_cross_entropy(student, taught[:, OLD], part.temperature)
    assert part.loss(data, batch, output, taught).item() == pytest.approx(expected.item(), rel=1e-5)


@compared
@pytest.mark.parametrize("settings", [{}, {"rt_weight": 2.0}, {"rt_weight": 2.0, "rt_images": "new"}])
def test_an_objective_is_equation_3_and_retrospection_if_asked_for(name: str, settings: dict[str, object]) -> None:
    """(1 - 3/5) CE + 3/5 KD, and rt_weight (epoch / epochs)^2 RT with logits of the head's kind."""
    network, data = prepared(name)
    method = make_method({"name": name, "rt_every": 1, **settings})
    objective = method.objective(network, data, quick_trainer())
    batch = whole_batch(data)
    teacher = network(batch.images).logits.detach()[:, OLD]
    move_weights(network)
    output = network(batch.images)
    expected = 0.4 * F.cross_entropy(output.logits, batch.labels)
    expected = expected + 0.6 * soft_cross_entropy(output.logits[:, OLD], teacher)
    if "rt_weight" in settings:
        student = transported_logits(name, network, output.features, batch.labels)
        if "rt_images" in settings:  # the sum over new images, divided by the number of all images
            new = batch.labels >= 3
            retrospective = soft_cross_entropy(student[new], teacher[new]) * new.sum() / len(new)
        else:
            retrospective = soft_cross_entropy(student, teacher)
        expected = expected + 2.0 * (7 / 10) ** 2 * retrospective
    got = objective(batch, output, Moment(7, 10, 0, 1))
    assert got.item() == pytest.approx(expected.item(), rel=1e-4)


def transported_logits(name: str, network: Network, features: Tensor, labels: Tensor) -> Tensor:
    centres = class_centres(features, labels, 5)
    plan = transport_plan(transport_cost(centres[NEW], centres[OLD]), 0.45)
    carried = transport_classifier(plan, network.head.weight[NEW])
    if name == "icarl":
        return network.head.scale * F.normalize(features) @ F.normalize(carried).T
    return 0.5 * features @ carried.T


@pytest.mark.parametrize("name", ["bic", "coil", "coil-tuned", "icarl", "wa"])
@pytest.mark.parametrize(("old", "new"), [(0, 5), (5, 0)])
def test_without_old_or_without_new_classes_the_objective_is_the_cross_entropy(name: str, old: int, new: int) -> None:
    network, data = prepared(name)
    data = TaskData(data.everything, None, old, new, Loss())
    batch = whole_batch(data)
    output = network(batch.images)
    objective = make_method({"name": name, "rt_weight": 1.0}).objective(network, data, quick_trainer())
    got = objective(batch, output, Moment(7, 10, 0, 1))
    assert objective.state is None
    torch.testing.assert_close(got, F.cross_entropy(output.logits, batch.labels))


def test_a_convex_weight_is_at_most_one() -> None:
    with pytest.raises(ValueError, match="additive"):
        Rehearsal(kd_weight=1.5)
    assert Rehearsal(kd_weight=1.5, combine="additive").kd_weight == 1.5


def test_the_weight_of_the_distillation_is_by_default_the_share_of_old_classes() -> None:
    assert Rehearsal().kd_weight is None


@pytest.mark.parametrize("name", ["bic", "coil", "icarl", "wa"])
def test_the_defaults_are_those_of_the_paper(name: str) -> None:
    method = known_methods()[name]()
    assert method.rehearsal == Rehearsal(temperature=2.0, combine="convex", distil_over="old", kd_weight=None)  # type: ignore[attr-defined]
    assert method.predict_with == ("ncm" if name == "icarl" else "head")
    assert method.retrospection.rt_weight == (1.0 if isinstance(method, Coil) else 0.0)  # type: ignore[attr-defined]
