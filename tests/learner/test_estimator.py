import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

from cotransport import IncrementalClassifier
from cotransport.data import EncodedImages, LabelledImages, PixelImages
from cotransport.errors import ConfigError, CotransportWarning, DataError, TrainingError
from cotransport.networks.fast_net import FastNet
from cotransport.settings.sections import Augmentation, Budget, Schedule
from cotransport.training.loop import TrainingProgress
from tests.conftest import blobs

QUICK = Schedule(epochs=6, batch_size=16, learning_rate=0.1)
STILL = Augmentation(crop_padding=0, flip=False)
Tasks = tuple[LabelledImages, LabelledImages]


def classifier(method: object = "replay", **settings: object) -> IncrementalClassifier:
    defaults: dict[str, object] = {"schedule": QUICK, "augmentation": STILL, "device": {"accelerator": "cpu"}}
    return IncrementalClassifier(method, "resnet8", **(defaults | settings))  # type: ignore[arg-type]


def test_it_learns_predicts_and_scores(two_tasks: Tasks) -> None:
    clf = classifier()
    assert clf.learn(two_tasks[0]) is clf
    clf.learn(two_tasks[1])
    assert clf.classes_.tolist() == ["class 0", "class 1", "class 2", "class 3"]
    test = blobs(4, 10, seed=9)
    probabilities = clf.predict_proba(test)
    assert probabilities.shape == (40, 4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    predicted = clf.predict(test)
    assert (predicted == clf.classes_[probabilities.argmax(axis=1)]).all()
    truth = np.array(test.classes)[test.labels.numpy()]
    assert clf.score(test) == (predicted == truth).mean() > 0.8


def test_arrays_with_labels() -> None:
    data = blobs(3, 12)
    pixels = data.images.pixels.numpy()  # type: ignore[union-attr]
    clf = classifier().learn(pixels, _names(data))
    assert clf.classes_.tolist() == ["ant", "bee", "cat"]
    assert set(clf.predict(pixels)) <= {"ant", "bee", "cat"}
    assert clf.score(pixels, _names(data)) > 0.8


def _names(data: LabelledImages) -> list[str]:
    return [("ant", "cat", "bee")[label] for label in data.labels.tolist()]


def test_whole_numbers_as_labels() -> None:
    data = blobs(2, 12)
    pixels = data.images.pixels.numpy()  # type: ignore[union-attr]
    clf = classifier().learn(pixels, data.labels.numpy() + 5)
    assert clf.classes_.tolist() == [5, 6]
    assert clf.predict(pixels[:1]).dtype.kind == "i"


def test_folders_and_files(tmp_path: Path) -> None:
    data = blobs(2, 6)
    for i, label in enumerate(data.labels.tolist()):
        folder = tmp_path / "week1" / ("cat", "dog")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images.item(i)).save(folder / f"{i}.png")
    clf = classifier().learn(str(tmp_path / "week1"))
    assert clf.classes_.tolist() == ["cat", "dog"]
    files = sorted((tmp_path / "week1").rglob("*.png"))
    assert len(clf.predict(files)) == 12
    assert clf.predict(str(files[0])).tolist() == clf.predict([files[0]]).tolist()


def test_exemplars_survive_their_files(tmp_path: Path) -> None:
    rng = np.random.RandomState(0)
    files = []
    for i in range(8):
        path = tmp_path / f"{i}.png"
        Image.fromarray(rng.randint(0, 255, (80 + i, 90, 3)).astype(np.uint8)).save(path)
        files.append(path)
    clf = classifier(image_size=72, memory=Budget(per_class=2), schedule=Schedule(epochs=1, batch_size=8))
    clf.learn(files[:4], ["a", "a", "b", "b"])
    assert isinstance(clf.state_.memory.exemplars[0], EncodedImages)
    for path in files[:4]:
        path.unlink()
    clf.learn(files[4:], ["c", "c", "d", "d"])
    assert len(clf.state_.memory) == 8


def test_a_known_class_is_refused_and_nothing_changes(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    before = clf.state_
    with pytest.raises(DataError, match=r"'class 0' is known already.*known_classes='extend'"):
        clf.learn(two_tasks[0])
    assert clf.state_ is before


def test_partial_fit_adds_classes_and_data(two_tasks: Tasks) -> None:
    clf = classifier(memory=Budget(per_class=5))
    clf.partial_fit(two_tasks[0])
    mixed = blobs(3, 8, seed=4)  # classes 0 and 1 again, and 2
    clf.partial_fit(mixed)
    assert clf.classes_.tolist() == ["class 0", "class 1", "class 2"]
    assert clf.state_.task_sizes == (2, 1)
    assert [len(images) for images in clf.state_.memory.exemplars] == [5, 5, 5]
    clf.partial_fit(blobs(3, 8, seed=5))
    assert clf.state_.task_sizes == (2, 1, 0)
    assert clf.score(blobs(3, 10, seed=6)) > 0.8


def test_fit_starts_anew(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    clf.fit(two_tasks[1])
    assert clf.classes_.tolist() == ["class 2", "class 3"]


def test_initialise_is_the_first_half_of_learn(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    before = clf.state_
    begun = clf.initialise(two_tasks[1])
    assert clf.state_ is before
    assert begun.classes_.tolist() == ["class 0", "class 1", "class 2", "class 3"]
    old = before.network.state_dict()
    for name, value in begun.state_.network.state_dict().items():
        assert torch.equal(value[:2] if name == "head.weight" else value, old[name])


def test_memory_is_shared_equally(two_tasks: Tasks) -> None:
    clf = classifier(memory=Budget(total=9)).learn(two_tasks[0])
    assert [len(images) for images in clf.state_.memory.exemplars] == [4, 4]
    first = clf.state_.memory
    clf.learn(two_tasks[1])
    assert [len(images) for images in clf.state_.memory.exemplars] == [2, 2, 2, 2]
    for class_before, class_after in zip(first.exemplars, clf.state_.memory.exemplars, strict=False):
        assert torch.equal(class_before.pixels[:2], class_after.pixels)  # type: ignore[union-attr]


def test_a_budget_that_leaves_no_exemplars_is_told(two_tasks: Tasks) -> None:
    with pytest.warns(CotransportWarning, match="no exemplar for each of 2 classes"):
        classifier(memory=Budget(total=1)).learn(two_tasks[0])


def test_a_failed_task_leaves_the_model_as_it_was(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    before, probabilities = clf.state_, clf.predict_proba(two_tasks[0])
    weights = copy.deepcopy(before.network.state_dict())
    clf.set_params(schedule=Schedule(epochs=2, batch_size=16, learning_rate=1e30, shape="constant"))
    with pytest.raises(TrainingError, match="not finite"):
        clf.learn(two_tasks[1])
    assert clf.state_ is before
    assert all(torch.equal(value, weights[name]) for name, value in before.network.state_dict().items())
    np.testing.assert_array_equal(clf.predict_proba(two_tasks[0]), probabilities)


def test_nearest_class_mean(two_tasks: Tasks) -> None:
    clf = classifier({"name": "replay", "predict_with": "ncm"}).learn(two_tasks[0]).learn(two_tasks[1])
    test = blobs(4, 5, seed=8)
    scores = clf.scores(test)
    assert scores.ncm is not None
    assert (clf.predict(test) == clf.classes_[scores.ncm.argmax(dim=1).numpy()]).all()
    # by hand: mean of unit features of each class's exemplars, nearest by distance
    network = clf.state_.network
    with torch.no_grad():
        features = nn.functional.normalize(network(test.images.pixels.permute(0, 3, 1, 2)).features)  # type: ignore[union-attr]
        means = []
        for images in clf.state_.memory.exemplars:
            units = nn.functional.normalize(network(images.pixels.permute(0, 3, 1, 2)).features)  # type: ignore[union-attr]
            means.append(nn.functional.normalize(units.mean(dim=0), dim=0))
    nearest = torch.cdist(features, torch.stack(means)).argmin(dim=1)
    assert (clf.predict(test) == clf.classes_[nearest.numpy()]).all()


def test_nearest_class_mean_without_exemplars(two_tasks: Tasks) -> None:
    """Said before the training, and again where a classifier without exemplars is asked to predict so."""
    ncm = {"name": "finetune", "predict_with": "ncm"}
    with pytest.raises(ConfigError, match="needs an exemplar of every class"):
        classifier(ncm).learn(two_tasks[0])
    clf = classifier("finetune").learn(two_tasks[0]).set_params(method=ncm)
    with pytest.raises(ConfigError, match="needs an exemplar of every class"):
        clf.predict(two_tasks[0])


def test_nothing_learned_yet() -> None:
    clf = classifier()
    for asked in (lambda: clf.predict(blobs(1, 1)), lambda: clf.classes_):
        with pytest.raises(NotFittedError, match="call learn first"):
            asked()


def test_scikit_learns_manners(two_tasks: Tasks) -> None:
    clf = classifier(memory={"per_class": 3}, seed=5).learn(two_tasks[0])
    twin = clone(clf)
    assert twin.get_params()["memory"] == {"per_class": 3}
    assert not hasattr(twin, "state_")
    assert "per_class" in repr(clf)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": {"epoch": 3}}, r"schedule: epoch: unknown key; did you mean 'epochs'"),
        ({"memory": 2000}, r"memory: give Budget\(\.\.\.\) or a dictionary"),
        ({"method": "repaly"}, r"'repaly' is not a method"),
        ({"method": 3}, r"3 is not a method's name"),
        ({"image_size": -4}, r"image_size: give a whole number from 1 to .*, not -4"),
        ({"seed": -1}, r"seed: give a whole number from 0"),
        ({"backbone": nn.Sequential(nn.Flatten(), nn.Linear(7, 3))}, r"backbone: does not take images of 8 x 8 pixels"),
    ],
)
def test_wrong_settings(two_tasks: Tasks, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        classifier().set_params(**settings).learn(two_tasks[0])


def test_mixed_kinds_of_labels(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    pixels = two_tasks[1].images.pixels  # type: ignore[union-attr]
    with pytest.raises(DataError, match="some by whole numbers"):
        clf.learn(pixels, [7] * len(pixels))


def test_an_empty_class(two_tasks: Tasks) -> None:
    data = two_tasks[0]
    named = LabelledImages(data.images, data.labels, (*data.classes, "ghost"))
    with pytest.raises(DataError, match="'ghost' has no images"):
        classifier().learn(named)


def test_a_users_own_module(two_tasks: Tasks) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 12))
    weights = module[1].weight.detach().clone()
    clf = IncrementalClassifier("replay", module, schedule=QUICK, augmentation=STILL, device={"accelerator": "cpu"})
    clf.learn(two_tasks[0]).learn(two_tasks[1])
    assert clf.state_.network.dimension == 12
    assert torch.equal(module[1].weight, weights)  # a copy is trained
    assert clf.score(blobs(4, 10, seed=3)) > 0.8


def test_images_of_another_size_are_fitted(two_tasks: Tasks) -> None:
    clf = classifier().learn(two_tasks[0])
    larger = two_tasks[0].images.pixels.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)  # type: ignore[union-attr]
    agree = clf.predict(larger.numpy()) == clf.predict(two_tasks[0])
    assert agree.mean() > 0.9


def test_everything_learned_is_in_the_state(two_tasks: Tasks) -> None:
    """A classifier made from settings and state alone predicts and goes on learning like the original."""
    clf = classifier().learn(two_tasks[0])
    twin = clone(clf)
    twin.state_ = copy.deepcopy(clf.state_)
    test = blobs(4, 6, seed=7)
    np.testing.assert_array_equal(twin.predict_proba(test), clf.predict_proba(test))
    clf.learn(two_tasks[1])
    twin.learn(two_tasks[1])
    np.testing.assert_array_equal(twin.predict_proba(test), clf.predict_proba(test))


def test_large_files_for_a_small_network_are_decoded_once(tmp_path: Path) -> None:
    files = []
    for i in range(4):
        files.append(tmp_path / f"{i}.png")
        Image.new("RGB", (100, 100), (60 * i, 0, 0)).save(files[-1])
    clf = classifier(image_size=16, schedule=Schedule(epochs=1, batch_size=4))
    clf.learn(files[:2], ["a", "b"]).learn(files[2:], ["c", "d"])
    assert clf.state_.image_size == 16
    assert all(isinstance(images, PixelImages) and images.size == 16 for images in clf.state_.memory.exemplars)


def test_the_fast_nets_stem_is_set_by_the_first_task_and_stays() -> None:
    first, second = blobs(2, 12), blobs(2, 12, first=2, seed=1)
    quick = {"schedule": {"epochs": 1, "batch_size": 24}, "device": {"accelerator": "cpu"}}
    clf = IncrementalClassifier("replay", {"name": "fast", "width": 8}, **quick).learn(first)
    stem = clf.state_.network.state_dict()["backbone.stem"].clone()
    other = IncrementalClassifier("replay", {"name": "fast", "width": 8}, **quick).learn(second)
    assert not torch.equal(other.state_.network.state_dict()["backbone.stem"], stem)
    clf.learn(second)
    assert torch.equal(clf.state_.network.state_dict()["backbone.stem"], stem)


def test_a_fresh_network_keeps_what_was_taken_from_the_first_tasks_images() -> None:
    quick = {"schedule": {"epochs": 1, "batch_size": 24}, "device": {"accelerator": "cpu"}}
    clf = IncrementalClassifier("oracle", {"name": "fast", "width": 8}, **quick).learn(blobs(2, 12))
    first = clf.state_.network.state_dict()
    clf.learn(blobs(2, 12, first=2, seed=1)).learn(blobs(2, 12, first=4, seed=2))
    for name in ("mean", "deviation", "backbone.stem"):
        assert torch.equal(clf.state_.network.state_dict()[name], first[name])


def test_a_users_own_module_is_not_touched() -> None:
    module = FastNet(8, 8)
    quick = {"schedule": {"epochs": 1, "batch_size": 24}, "device": {"accelerator": "cpu"}}
    clf = IncrementalClassifier("replay", module, **quick).learn(blobs(2, 12))
    assert torch.equal(clf.state_.network.state_dict()["backbone.stem"], module.stem)


@pytest.mark.parametrize(("method", "rates"), [("replay", [0.2, 0.1, 0.1]), ("oracle", [0.2, 0.2, 0.2])])
def test_a_network_that_learns_on_may_have_a_rate_of_its_own(method: str, rates: list[float]) -> None:
    schedule = Schedule(epochs=1, batch_size=40, shape="constant", learning_rate=0.2, later_learning_rate=0.1)
    clf, found = IncrementalClassifier(method, "resnet8", schedule=schedule, device={"accelerator": "cpu"}), []
    for task in range(3):
        told: list[TrainingProgress] = []
        clf.learn(blobs(1, 12, first=task), listener=told.append)
        found.append(told[-1].learning_rate)
    assert found == rates


def test_a_teacher_has_the_networks_memory_format() -> None:
    quick = {"schedule": {"epochs": 1, "batch_size": 24}, "device": {"accelerator": "cpu"}}
    network = IncrementalClassifier("replay", {"name": "fast", "width": 8}, **quick).learn(blobs(2, 12)).state_.network
    for name, module in network.frozen().backbone.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last), name


@pytest.mark.parametrize("epochs", [0, 1.5, "3"])
def test_epochs_to_follow_must_be_whole(epochs: object) -> None:
    with pytest.raises(ConfigError, match=r"epochs"):
        IncrementalClassifier("replay", "resnet8").learn(blobs(2, 4), epochs=epochs)  # type: ignore[arg-type]
