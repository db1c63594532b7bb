"""BiC: which images are held out, what the correction finds, and that it changes nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from cotransport.data import LabelledImages
from cotransport.errors import CotransportWarning
from cotransport.methods.bic import BiC, bias_correction
from cotransport.networks.heads import CorrectedHead
from cotransport.networks.network import Network
from cotransport.settings.sections import Budget, Loss
from cotransport.training.loop import Trainer
from cotransport.training.objective import Objective
from cotransport.training.task_data import TaskData
from tests.conftest import blobs, classifier
from tests.helpers import pictures, pixels, quick_trainer

NEW = slice(3, 5)


def seeded_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def biased_logits(per_class: int, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """Labels drawn from logits of 5 classes, and these logits with a bias in those of the last two.

    If q are the true logits, the head gives o = (q - beta) / alpha for the new classes.
    """
    torch.manual_seed(0)
    count = 5 * per_class
    true = 2 * torch.randn(20 * count, 5, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(dim=1), 1).flatten()
    rows = torch.cat([torch.nonzero(labels == number).flatten()[:per_class] for number in range(5)])
    true, labels = true[rows], labels[rows]
    biased = true.clone()
    biased[:, NEW] = (true[:, NEW] - beta) / alpha
    return biased, labels


@pytest.mark.parametrize("alpha, beta", [(0.5, -1.5), (1.0, -3.0), (2.0, 0.5), (1.0, 0.0)])
def test_a_known_bias_is_removed(alpha: float, beta: float) -> None:
    """Labels are drawn from the true logits, so these fit best, except for the noise of 10,000 draws."""
    got = bias_correction(*biased_logits(2000, alpha, beta), NEW)
    assert got == (pytest.approx(alpha, abs=0.06 * alpha), pytest.approx(beta, abs=0.1))


def test_the_correction_is_the_minimum() -> None:
    """Twin: the objective written out for SciPy's derivative-free simplex method. The classes have unequal sizes."""
    logits, labels = biased_logits(6, 0.5, -2.0)
    logits, labels = logits[:-4], labels[:-4]  # the last class has two images left
    o, y = logits.numpy(), labels.numpy()
    sizes = [6, 6, 6, 6, 2]

    def objective(unknowns: tuple[float, float]) -> float:
        alpha, beta = unknowns
        q = o.copy()
        q[:, 3:] = alpha * q[:, 3:] + beta
        total = 0.0
        for row, label in zip(q, y, strict=True):
            loss = -row[label] + float(torch.tensor(row).logsumexp(0))
            total += loss / sizes[label] * 26 / 5
        return total + 0.7 / 2 * ((alpha - 1) ** 2 + beta**2)

    found = minimize(objective, (1.0, 0.0), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
    assert bias_correction(logits, labels, NEW, prior=0.7) == pytest.approx(tuple(found.x), abs=1e-5)


@pytest.mark.parametrize("missing", [[1, 2], [4], [0, 2, 3]])
def test_classes_without_validation_images_add_no_bias(missing: list[int]) -> None:
    """True logits need no correction, whichever classes have images."""
    logits, labels = biased_logits(2000, 1.0, 0.0)
    there = ~torch.isin(labels, torch.tensor(missing))
    got = bias_correction(logits[there], labels[there], NEW)
    assert got == (pytest.approx(1.0, abs=0.25), pytest.approx(0.0, abs=0.25))


def test_perfectly_separated_images_give_a_finite_correction() -> None:
    """Without a prior, larger numbers would always fit better."""
    logits, labels = 100 * torch.eye(5), torch.arange(5)
    alpha, beta = bias_correction(logits, labels, NEW)
    assert (alpha, beta) == (pytest.approx(1.0, abs=1e-6), pytest.approx(0.0, abs=1e-6))
    alpha, beta = bias_correction(torch.eye(5), labels, NEW)
    assert 1 < alpha < 3


def test_a_strong_prior_prevents_a_correction() -> None:
    alpha, beta = bias_correction(*biased_logits(10, 0.5, -2.0), NEW, prior=1e6)
    assert (alpha, beta) == (pytest.approx(1, abs=1e-3), pytest.approx(0, abs=1e-3))


def test_the_corrected_head_by_hand() -> None:
    head = CorrectedHead(2)
    head.grow(2)
    head.grow(1)
    head.weight, head.bias = (
        nn.Parameter(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])),
        nn.Parameter(torch.tensor([0.0, 0.5, 1.0])),
    )
    head.alpha[2], head.beta[2] = 0.5, -2.0
    # dot products 3, 4, 7; with bias 3, 4.5, 8; corrected 3, 4.5, 0.5 * 8 - 2
    assert head(torch.tensor([[3.0, 4.0]])).tolist() == [[3.0, 4.5, 2.0]]
    head.grow(1)
    assert head.alpha.tolist() == [1.0, 1.0, 0.5, 1.0]
    assert head.beta.tolist() == [0.0, 0.0, -2.0, 0.0]


def task_data(exemplars: list[int], new: list[int]) -> TaskData:
    """Old classes with these numbers of exemplars, and new classes with these numbers of images."""
    names = tuple(f"class {number}" for number in range(len(exemplars) + len(new)))

    def labelled(first: int, counts: list[int]) -> LabelledImages:
        images = blobs(len(counts), max(counts), first=first)
        rows = torch.cat([number * max(counts) + torch.arange(count) for number, count in enumerate(counts)])
        labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts)) + first
        return LabelledImages(images.images.take(rows), labels, names)

    memory = labelled(0, exemplars) if sum(exemplars) else None
    return TaskData(labelled(len(exemplars), new), memory, len(exemplars), len(new), Loss())


@pytest.mark.parametrize(
    "exemplars, new, held_out",
    [
        ([20, 20], [50, 50], [2, 2, 2, 2]),  # the second and the twelfth of twenty
        ([3, 3], [50, 50], [1, 1, 1, 1]),  # CUB in the paper: one of three exemplars
        ([2, 1], [50, 50], [1, 0, 1, 1]),  # a single exemplar is trained on
        ([20, 1], [50, 1], [2, 0, 2, 0]),  # and so is a single new image
        ([20, 20], [2, 2], [2, 2, 1, 1]),  # at least one image of a class is trained on
        ([60, 60], [7, 25], [6, 6, 1, 2]),  # and nine of ten images if there are few
    ],
)
def test_the_split_is_balanced_and_complete(exemplars: list[int], new: list[int], held_out: list[int]) -> None:
    data = task_data(exemplars, new)
    training, validation = BiC().split(data, seeded_generator())
    assert validation is not None
    assert validation.counts().tolist() == held_out
    assert (training.everything.counts() + validation.counts()).tolist() == exemplars + new
    both = pictures(training.everything.images) + pictures(validation.images)
    assert sorted(both) == pictures(data.everything.images)
    assert training.everything.labels.shape == (len(training.everything.images),)


@pytest.mark.parametrize("exemplars, new", [([1, 1], [50, 50]), ([20, 20], [1, 1]), ([0, 0], [50, 50])])
def test_all_images_are_trained_on_if_none_can_be_spared(exemplars: list[int], new: list[int]) -> None:
    data = task_data(exemplars, new)
    assert BiC().split(data, seeded_generator()) == (data, None)


@pytest.mark.parametrize("count, places", [(12, {1, 5, 9}), (7, {1, 5}), (2, {1})])
def test_a_validation_exemplar_stays_one_when_the_memory_shrinks(count: int, places: set[int]) -> None:
    """It is chosen by its place in the herding order, and a smaller memory keeps the first places."""
    data = task_data([count], [30])
    _, validation = BiC(validate_every=4).split(data, seeded_generator())
    assert validation is not None
    assert validation.counts().tolist() == [len(places)] * 2
    assert data.memory is not None
    exemplars = pixels(data.memory.images)
    old = validation.take(torch.nonzero(validation.labels == 0).flatten())
    assert pictures(old.images) == sorted(exemplars[place].numpy().tobytes() for place in places)


def test_more_images_of_known_classes_are_all_trained_on() -> None:
    """Some images of the new classes beside them are held out."""
    data = task_data([20, 20], [40])
    labels = data.new.labels.clone()
    labels[:10] = 0  # new images of a known class
    data = replace(data, new=LabelledImages(data.new.images, labels, data.new.classes))
    training, validation = BiC().split(data, seeded_generator())
    assert validation is not None
    assert validation.counts().tolist() == [2, 2, 2]
    assert (training.new.labels == 0).sum() == 10


def test_images_are_either_trained_on_or_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training and the second stage get all images together, and none of them twice."""
    trained: list[list[bytes]] = []
    validated: list[list[bytes]] = []
    fit, correct = Trainer.fit, BiC.correct

    def watched_fit(
        self: Trainer, network: Network, data: LabelledImages, objective: Callable[[Network], Objective]
    ) -> None:
        trained.append(pictures(data.images))
        fit(self, network, data, objective)

    def watched_correct(
        self: BiC, network: Network, data: TaskData, validation: LabelledImages, trainer: Trainer
    ) -> None:
        validated.append(pictures(validation.images))
        correct(self, network, data, validation, trainer)

    monkeypatch.setattr(Trainer, "fit", watched_fit)
    monkeypatch.setattr(BiC, "correct", watched_correct)
    clf = classifier("bic").learn(blobs(2, 8))
    exemplars = clf.state_.memory.labelled(clf.state_.classes)
    second = blobs(2, 8, first=2)
    clf.learn(second)
    assert exemplars is not None
    assert trained[0] == pictures(blobs(2, 8).images)
    assert len(validated) == 1
    assert sorted(trained[1] + validated[0]) == sorted(pictures(exemplars.images) + pictures(second.images))
    assert len(validated[0]) == 4  # one of four exemplars of a class, and as many of each new class
    assert not set(trained[1]) & set(validated[0])


def test_held_out_images_are_drawn_by_the_seed() -> None:
    data = task_data([20, 20], [40, 40])
    drawn = [BiC().split(data, torch.Generator().manual_seed(seed))[1] for seed in (0, 0, 1)]
    same, again, other = (pictures(held_out.images) for held_out in drawn if held_out is not None)
    assert same == again != other


def test_the_prior_is_a_setting() -> None:
    weak, strong = (
        classifier({"name": "bic", "correction_prior": prior}).learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
        for prior in (1.0, 1e9)
    )
    assert corrections(strong.state_.network)[2] == pytest.approx((1.0, 0.0), abs=1e-6)
    assert corrections(weak.state_.network)[2] != pytest.approx((1.0, 0.0), abs=1e-3)


def test_the_second_stage_changes_the_newest_correction_only() -> None:
    """The logits of other tasks, the embedding and the statistics of its norms do not change."""
    clf = classifier("bic").learn(blobs(2, 8)).learn(blobs(1, 8, first=2))
    network = copy.deepcopy(clf.state_.network)
    network.head.grow(2)
    before = copy.deepcopy(network)
    data = task_data([4, 4, 4], [8, 8])
    _, validation = BiC().split(data, seeded_generator())
    assert validation is not None
    network.train()
    BiC().correct(network, data, validation, quick_trainer(task=2))
    network.eval()
    changed = {
        name for name, value in network.state_dict().items() if not torch.equal(value, before.state_dict()[name])
    }
    assert changed == {"head.alpha", "head.beta"}
    images = pixels(blobs(5, 4, seed=3).images).permute(0, 3, 1, 2)
    ours, theirs = network(images).logits, before.eval()(images).logits
    assert torch.equal(ours[:, :3], theirs[:, :3])
    assert not torch.allclose(ours[:, 3:], theirs[:, 3:])


def test_each_task_keeps_its_correction() -> None:
    clf = classifier("bic").learn(blobs(2, 8)).learn(blobs(2, 8, first=2))
    first = corrections(clf.state_.network)
    clf.learn(blobs(3, 8, first=4))
    second = corrections(clf.state_.network)
    assert first[:2] == [(1.0, 0.0)] * 2
    assert first[2] == first[3] != (1.0, 0.0)
    assert second[:4] == first
    assert second[4] == second[5] == second[6] not in ((1.0, 0.0), first[2])


def corrections(network: Network) -> list[tuple[float, float]]:
    assert isinstance(network.head, CorrectedHead)
    return list(zip(network.head.alpha.tolist(), network.head.beta.tolist(), strict=True))


def test_a_memory_too_small_for_validation_gives_a_warning() -> None:
    clf = classifier("bic", memory=Budget(per_class=1)).learn(blobs(2, 8))
    with pytest.warns(CotransportWarning, match=r"bic: .* not corrected.*memory"):
        clf.learn(blobs(2, 8, first=2))
    assert corrections(clf.state_.network) == [(1.0, 0.0)] * 4
