"""The classifier that keeps learning: the only learner there is. Experiments loop over the same object.

Everything that learning changes is one immutable `State`. A task is learned on a copy of the network, and the new state
replaces the old one at the very end, so nothing is lost if anything fails on the way.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from torch import Tensor, nn
from torch.nn import functional as F

from cotransport.data import (
    Images,
    Label,
    LabelledImages,
    Vectors,
    as_images,
    as_labelled,
    channel_statistics,
    concatenate,
    resize,
    sample,
)
from cotransport.data.memory import Memory, herding
from cotransport.errors import ConfigError, CotransportWarning, DataError, ModelError
from cotransport.methods import Lesson, Method, make_method
from cotransport.model.store import LONGEST_NAME, ModelStore, Snapshot
from cotransport.networks import backbones
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import HeadAlone, Network, Output
from cotransport.settings import sections as config
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Device,
    HeadSettings,
    Loss,
    Optimiser,
    Schedule,
)
from cotransport.settings.validation import Settings, quoted, validated
from cotransport.system.randomness import seeded
from cotransport.training.checkpoints import Checkpoints
from cotransport.training.loop import Listener, Trainer, decide_once, fabric_for
from cotransport.transport import class_centres, sources

SettingsType = TypeVar("SettingsType", bound=Settings)
IMAGES_FOR_STEM = 256
"""Images of the first task by which the fast net's stem is set, at most."""
IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
"""Mean and deviation of each colour in ImageNet."""
PRECISIONS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
"""Of weights that networks are trained with."""
_NEW_NETWORK, _NEW_CLASSES = 0, 1  # places of a run's random draws
SECTIONS: dict[str, type[Settings]] = {
    "memory": Budget,
    "schedule": Schedule,
    "optimiser": Optimiser,
    "loss": Loss,
    "augmentation": Augmentation,
    "head": HeadSettings,
}
"""Settings that a model keeps. Where it runs is not among them: it may be loaded on another machine."""


@dataclass(frozen=True)
class State:
    """Everything that learning changes."""

    classes: tuple[Label, ...]
    """Names in order of arrival."""
    task_sizes: tuple[int, ...]
    """The number of classes that were new in each lesson."""
    image_size: int
    network: Network
    memory: Memory
    plan: Tensor | None = None
    """By which the last lesson's new classes got their weights (old classes, new classes), None if they were random."""


class Scores(NamedTuple):
    """Two opinions on n images: higher is likelier."""

    head: Tensor
    """Logits (n, classes) of the trained head."""
    ncm: Tensor | None
    """Scaled cosine (n, classes) to the class means, None where some class has no exemplar."""


class IncrementalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """An image classifier that learns new classes without the old classes' data.

    Settings are given as the classes of `cotransport.config` or as dictionaries with the same keys.

    Parameters
    ----------
    method : name, or dictionary with a name and its settings, or `Method`
        How to learn: see `cotransport.methods`.
    backbone : name, `Backbone`, or torch module
        What maps images (n, 3, h, w) to features (n, d). A module is copied, never changed.
    memory : `Budget`
        How many exemplars of old classes are kept.
    schedule, optimiser, loss, augmentation, head, device
        Sections of the same name in a recipe.
    image_size : int, optional
        Side of the square that the network sees; by default that of the first images, 224 at most.
    freeze_backbone : bool
        Leave the embedding as it is and train the head alone, on features that are computed once for each image,
        without augmentation: a matter of seconds. For a module with pretrained weights, or after a first lesson.
    normalisation : "images", "imagenet", or means and deviations
        By which colours are brought to mean 0 and deviation 1: those of the first images, those that most published
        weights were trained with, or three means and three deviations from 0 to 255.
    seed : int
        Everything random comes from it.

    Examples
    --------
    >>> import numpy as np
    >>> dark, light = np.zeros((8, 8, 8, 3), np.uint8), np.full((8, 8, 8, 3), 255, np.uint8)
    >>> clf = IncrementalClassifier("replay", "resnet8", schedule={"epochs": 2, "batch_size": 8})
    >>> clf.learn(np.concatenate([dark, light]), ["night"] * 8 + ["day"] * 8).classes_.tolist()
    ['day', 'night']
    >>> clf.learn(dark + np.uint8(128), ["dusk"] * 8).classes_.tolist()
    ['day', 'night', 'dusk']
    """

    state_: State

    def __init__(
        self,
        method: str | Mapping[str, Any] | Method = "replay",
        backbone: str | Mapping[str, Any] | Backbone | nn.Module = "resnet32",
        *,
        memory: Mapping[str, Any] | Budget = Budget(total=2000),
        schedule: Mapping[str, Any] | Schedule = Schedule(),
        optimiser: Mapping[str, Any] | Optimiser = Optimiser(),
        loss: Mapping[str, Any] | Loss = Loss(),
        augmentation: Mapping[str, Any] | Augmentation = Augmentation(),
        head: Mapping[str, Any] | HeadSettings = HeadSettings(),
        device: Mapping[str, Any] | Device = Device(),
        image_size: int | None = None,
        freeze_backbone: bool = False,
        normalisation: str | Sequence[Sequence[float]] = "images",
        seed: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.memory = memory
        self.schedule = schedule
        self.optimiser = optimiser
        self.loss = loss
        self.augmentation = augmentation
        self.head = head
        self.device = device
        self.image_size = image_size
        self.freeze_backbone = freeze_backbone
        self.normalisation = normalisation
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: images are not tables."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def learn(
        self,
        images: object,
        labels: object = None,
        *,
        known_classes: Literal["refuse", "extend"] = "refuse",
        listener: Listener | None = None,
        epochs: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> IncrementalClassifier:
        """Learn the classes of a new task.

        images : a folder with a subfolder per class or a Hugging Face data set (path or id), without labels; or uint8
            (n, h, w, 3), or a list of files, with a label for each.
        known_classes : images of a class that is known already are refused, or give it more to learn from.
        listener : is told how the training goes.
        epochs : train so many, whatever the schedule says, to repeat a training that a time budget has limited.
        checkpoints : where the training's state is kept; the same lesson goes on from there, whatever ended it.
        """
        if epochs is not None:
            _check_whole("epochs", epochs, at_least=1)
        if known_classes not in {"refuse", "extend"}:
            raise ConfigError(f"known_classes: give 'refuse' or 'extend', not {known_classes!r}")
        extend = known_classes == "extend"
        self._learn(self._sized(images, labels), listener, epochs=epochs, known_classes=extend, checkpoints=checkpoints)
        return self

    def partial_fit(self, X: object, y: object = None, classes: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn from more images, in scikit-learn's manner: unknown classes are added, known ones get more data.

        `classes` is accepted for compatibility and not needed: classes are added when their first images come.
        """
        self._learn(self._sized(X, y), None, known_classes=True)
        return self

    def fit(self, X: object, y: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn these classes as the first task, and forget everything before them."""
        self.state_ = clone(self).learn(X, y).state_
        return self

    def initialise(self, images: object, labels: object = None) -> IncrementalClassifier:
        """The first half of `learn`: a copy of this classifier that knows the new classes, not yet trained on them."""
        twin = copy.copy(self)
        twin._learn(self._sized(images, labels), None, train=False)
        return twin

    def save(self, folder: str | os.PathLike[str]) -> int:
        """Write this classifier into a model folder, as its newest and current version; returns the version's number.

        Earlier versions stay, and so do the images that lessons of the command have held out. No code and no pickle is
        written: weights, images and JSON. Of several processes, the first one writes.
        """
        store, snapshot = ModelStore(Path(folder)), self.snapshot()

        def write() -> int:
            with store.locked():
                if not store.exists:
                    return store.write(snapshot)
                before = store.read()
                known = before.classes == snapshot.classes[: len(before.classes)]
                held_out = before.held_out if known else snapshot.held_out
                return store.write(replace(snapshot, held_out=held_out), parent=store.manifest().current)

        return decide_once(fabric_for(self._section(Device, "device")), write)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        version: int | None = None,
        *,
        backbone: nn.Module | None = None,
        device: Mapping[str, Any] | Device = Device(),
    ) -> IncrementalClassifier:
        """The classifier in a model folder: its current version, or another. Nothing in the folder is executed.

        backbone : the module that the classifier was made with, where it was not made with a name; it gets the weights
            of the folder.
        """
        return cls.from_snapshot(ModelStore(Path(folder)).read(version), backbone=backbone, device=device)

    def snapshot(self) -> Snapshot:
        """All that makes this classifier, for `model_store`."""
        state = self._state()
        tensors = {f"network.{name}": tensor for name, tensor in state.network.state_dict().items()}
        if state.plan is not None:
            tensors["plan"] = state.plan
        return Snapshot(self.settings(), state.classes, state.task_sizes, state.image_size, tensors, state.memory)

    def settings(self) -> dict[str, Any]:
        """All settings but where it runs, checked, as plain values; a module as backbone is None."""
        _check_whole("seed", self.seed, at_least=0)
        if self.image_size is not None:
            _check_whole("image_size", self.image_size, 1, config.LARGEST_IMAGE)
        settings: dict[str, Any] = {
            name: self._section(kind, name).model_dump(mode="json") for name, kind in SECTIONS.items()
        }
        settings["method"] = make_method(self.method).dumped()
        settings["backbone"] = None if isinstance(self.backbone, nn.Module) else self._named_backbone().model_dump()
        settings["image_size"], settings["seed"] = self.image_size, int(self.seed)
        settings["freeze_backbone"] = bool(self.freeze_backbone)
        given = _statistics(self.normalisation)
        settings["normalisation"] = (
            self.normalisation if isinstance(self.normalisation, str) or given is None else [v.tolist() for v in given]
        )
        return settings

    @classmethod
    def from_snapshot(
        cls, snapshot: Snapshot, *, backbone: nn.Module | None = None, device: Mapping[str, Any] | Device = Device()
    ) -> IncrementalClassifier:
        """The classifier that a snapshot was taken of."""
        settings = dict(snapshot.settings)
        named = settings.pop("backbone", None)
        try:
            if backbone is not None and (named is not None or not isinstance(backbone, nn.Module)):
                raise ConfigError(
                    "backbone: give the torch module that the model was made with; nothing, if it was made with a name"
                )
            if named is not None:
                chosen: Backbone | nn.Module = _as_settings(Backbone, named, "backbone")
            elif backbone is not None:
                chosen = backbone
            else:
                raise ModelError(
                    "this model was made with a torch module of its user's own, so it is used from Python. Give a "
                    "module of the same kind: load(..., backbone=module)"
                )
            classifier = cls(
                make_method(settings.pop("method", None)),
                chosen,
                image_size=settings.pop("image_size", None),
                seed=settings.pop("seed", 0),
                freeze_backbone=settings.pop("freeze_backbone", False),
                normalisation=settings.pop("normalisation", "images"),
                device=device,
                **{name: _as_settings(kind, settings.pop(name, {}), name) for name, kind in SECTIONS.items()},
            )
            classifier.settings()  # an error where one cannot be used
            network = classifier._remade_network(snapshot)
        except ConfigError as error:
            if backbone is not None:
                raise  # of the user's own argument, most likely
            raise ModelError(
                f"the model's settings cannot be used, perhaps it is of a later release: {error}"
            ) from None
        if settings:
            raise ModelError(f"the model has a setting {next(iter(settings))!r}, which is of a later release. Upgrade")
        classifier.state_ = State(
            snapshot.classes,
            snapshot.task_sizes,
            snapshot.image_size,
            network.eval(),
            snapshot.memory,
            snapshot.tensors.get("plan"),
        )
        return classifier

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes in order of arrival, the order of `predict_proba`'s columns."""
        return np.array(self._state().classes)

    def scores(self, images: object) -> Scores:
        """What the trained head and the nearest class mean say of images, in one pass."""
        output = self._outputs(images)
        means, scale = self.nearest_mean()
        ncm = None if means is None else scale * F.linear(F.normalize(output.features), means)
        return Scores(output.logits, ncm)

    def nearest_mean(self) -> tuple[Tensor | None, float]:
        """The class means (classes, d) of unit length, None where some class has no exemplar; and their scale."""
        head = self._state().network.head
        scale = head.scale.item() if isinstance(head, CosineHead) else self._section(HeadSettings, "head").scale
        return self._class_means(), scale

    @property
    def predicts_with_means(self) -> bool:
        """Whether the nearest class mean counts, and not the head."""
        return make_method(self.method).predict_with == "ncm"

    def features(self, images: object) -> Tensor:
        """What the embedding makes of images (n, d)."""
        return self._outputs(images).features

    def built_from(self) -> dict[Label, dict[Label, float]]:
        """For each class that the last lesson added, the old classes' shares in its first weights, largest first.

        Empty if the method did not transport any.
        """
        state = self._state()
        if state.plan is None:
            return {}
        old, new = state.classes[: len(state.plan)], state.classes[len(state.plan) :]
        shares = sources(state.plan).T.tolist()
        return {
            name: dict(sorted(zip(old, own, strict=True), key=lambda source: -source[1]))
            for name, own in zip(new, shares, strict=True)
        }

    def predict_proba(self, X: object) -> npt.NDArray[np.float64]:  # noqa: N803
        """Probability of each class (n, classes), by the method's own prediction."""
        return np.asarray(self.probabilities(X).numpy())

    def probabilities(self, images: object) -> Tensor:
        """As `predict_proba`, in float64."""
        return F.softmax(self.decision(images).double(), dim=1)

    def predict(self, X: object) -> npt.NDArray[Any]:  # noqa: N803
        """The likeliest class of each image, by the method's own prediction."""
        return np.asarray(self.classes_[self.decision(X).argmax(dim=1).numpy()])

    def score(self, X: object, y: object = None, sample_weight: object = None) -> float:  # noqa: N803
        """Share of the images whose class is predicted correctly; of a folder with train/ and test/, in test/."""
        data = as_labelled(X, y, self._state().image_size, split="test")
        never = [name for name in data.classes if name not in self._state().classes]
        if never:
            message = f"the class {never[0]!r} was never learned" + (f", nor {len(never) - 1} more" * (len(never) > 1))
            warnings.warn(f"{message}: their images count as wrong", CotransportWarning, stacklevel=2)
        truth = np.array(data.classes)[data.labels.numpy()]
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(self.predict(data) == truth, weights=weights))

    def decision(self, images: object) -> Tensor:
        """The scores (n, classes) that count for this classifier's method; higher is likelier."""
        return self.own_scores(self.scores(images)) if self.predicts_with_means else self._outputs(images).logits

    def own_scores(self, scores: Scores) -> Tensor:
        """Of both opinions the one that counts for this classifier's method."""
        if self.predicts_with_means:
            if scores.ncm is None:
                raise ConfigError(
                    "predict_with: the nearest class mean needs an exemplar of every class, and some have none. "
                    "Set predict_with to head, or give images of them by partial_fit"
                )
            return scores.ncm
        return scores.head

    def _learn(
        self,
        data: LabelledImages,
        listener: Listener | None,
        *,
        epochs: int | None = None,
        known_classes: bool = False,
        train: bool = True,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        before: State | None = getattr(self, "state_", None)
        method = make_method(self.method)
        _check_whole("seed", self.seed, at_least=0)
        known, sizes, memory = (before.classes, before.task_sizes, before.memory) if before else ((), (), Memory())
        data = _renumbered(data, known, known_classes)
        new, task = len(data.classes) - len(known), len(sizes)
        fresh = before is None or method.from_scratch
        if method.needs_exemplars:
            _check_exemplars(method, self._section(Budget, "memory"), memory, data)
        trainer = replace(self._trainer(task, fresh=fresh), listener=listener, epochs=epochs, checkpoints=checkpoints)
        lesson = Lesson(data, memory.labelled(data.classes), len(known), new, self._section(Loss, "loss"))

        if before is None or fresh:
            network = self._new_network(method, lesson, before, trainer)
            grown = len(data.classes)
        else:
            network, grown = copy.deepcopy(before.network), new
            if type(network.head) is not type(method.make_head(network.dimension, self._section(HeadSettings, "head"))):
                raise ConfigError(
                    f"method: {method.title} with these settings needs another head than this classifier has learned "
                    "with. Go on with the method it began with, or begin a new classifier"
                )
        with seeded(self.seed, _NEW_CLASSES, task):
            network.head.grow(grown)
        if trainer.shard.processes > 1:
            network.load_state_dict(trainer.fabric.broadcast(network.state_dict()))
        trainer.place(network)
        taught, shown = (_on_features(network, lesson, trainer)) if self.freeze_backbone else (network, lesson)
        plan = method.initialise(taught, shown, trainer)
        if train:
            method.learn(taught, shown, trainer)

        memory = self._updated_memory(method, memory, data, network, trainer)
        self.state_ = State(data.classes, (*sizes, new), data.images.size, network.eval(), memory, plan)

    def _sized(self, images: object, labels: object) -> LabelledImages:
        """A lesson's images as the network sees them: in the first lesson of the size asked for, or their own."""
        size = self.state_.image_size if hasattr(self, "state_") else self.image_size
        if size is not None:
            _check_whole("image_size", size, 1, config.LARGEST_IMAGE)
        return as_labelled(images, labels, size)

    def _new_network(self, method: Method, lesson: Lesson, before: State | None, trainer: Trainer) -> Network:
        """An untrained network without classes. What it takes from images comes from the first task's alone."""
        size = lesson.new.images.size
        if self.freeze_backbone and not isinstance(self.backbone, nn.Module):
            raise ConfigError(
                "freeze_backbone: a backbone given by name begins with random weights, which are not worth keeping. "
                "Give a torch module with pretrained weights, or freeze it after the first lesson"
            )
        with seeded(self.seed, _NEW_NETWORK, trainer.task):
            if isinstance(self.backbone, nn.Module):
                backbone = copy.deepcopy(self.backbone)
            else:
                backbone = backbones.build(self._named_backbone(), size)
            head = method.make_head(backbones.feature_dimension(backbone, size), self._section(HeadSettings, "head"))
        images, workers = lesson.new.images, trainer.device.workers
        if before is None:
            given = _statistics(self.normalisation)
            network = Network(backbone, head, *(given or channel_statistics(images, workers)))
        else:
            network = Network(backbone, head, before.network.mean.cpu(), before.network.deviation.cpu())
        fast = None if isinstance(self.backbone, nn.Module) else backbones.find_fast_net(backbone)
        if fast is not None:
            earlier = None if before is None else backbones.find_fast_net(before.network.backbone)
            if earlier is not None:
                fast.stem.copy_(earlier.stem)
            else:
                fast.fit_stem(network.normalised(sample(images, IMAGES_FOR_STEM, workers)))
        return network

    def _remade_network(self, snapshot: Snapshot) -> Network:
        """A network with a snapshot's weights. They are compared with its shapes before any memory is taken for it."""
        own = isinstance(self.backbone, nn.Module)
        try:
            with nullcontext() if own else torch.device("meta"):  # meta: shapes without numbers
                if isinstance(self.backbone, nn.Module):
                    backbone = copy.deepcopy(self.backbone)
                else:
                    backbone = backbones.build(self._named_backbone(), snapshot.image_size)
                dimension = backbones.feature_dimension(backbone, snapshot.image_size)
                head = make_method(self.method).make_head(dimension, self._section(HeadSettings, "head"))
                head.grow(len(snapshot.classes))
                network = Network(backbone, head, torch.zeros(3), torch.ones(3))
        except (RuntimeError, MemoryError, OverflowError) as error:  # numbers that no network could have
            raise ModelError(f"the model's network cannot be made ({error}). Restore it from a backup") from None
        stored = {
            name.removeprefix("network."): tensor
            for name, tensor in snapshot.tensors.items()
            if name.startswith("network.")
        }
        wanted = network.state_dict()
        precisions = {tensor.dtype for tensor in stored.values() if tensor.is_floating_point()}
        if not precisions <= PRECISIONS or (
            len(precisions) > 1 and not own
        ):  # in a user's own module buffers may differ
            raise ModelError("the weights are of several or unknown precisions. Restore the model from a backup")
        if any(bool(torch.isnan(tensor).any()) for tensor in stored.values()):
            raise ModelError("some weights are not numbers. Restore the model from a backup")
        for name in (*wanted, *stored):
            pair = [_kind(part[name]) if name in part else None for part in (wanted, stored)]
            if pair[0] != pair[1]:
                raise ModelError(
                    f"the weights do not fit the network, first at {name!r}. "
                    + ("Give a module of the kind that it was made with" if own else "Restore the model from a backup")
                )
        if len(precisions) == 1:
            network.to(precisions.pop())
        network.load_state_dict(stored, assign=not own)
        return network

    def _named_backbone(self) -> Backbone:
        assert not isinstance(self.backbone, nn.Module)
        named = {"name": self.backbone} if isinstance(self.backbone, str) else self.backbone
        return _as_settings(Backbone, named, "backbone")

    def _updated_memory(
        self, method: Method, memory: Memory, data: LabelledImages, network: Network, trainer: Trainer
    ) -> Memory:
        """The memory after a task: the new images' exemplars added, all classes cut to their quota."""
        budget = method.budget(self._section(Budget, "memory"))
        quota = None if budget is None else budget.quota(len(data.classes))
        if quota == 0 and budget is not None and budget.total:
            message = (
                f"memory.total: {budget.total} leaves no exemplar for each of {len(data.classes)} classes. Raise it"
            )
            warnings.warn(message, CotransportWarning, stacklevel=4)
        candidates: dict[int, Images] = {}
        for number in torch.nonzero(data.counts()).flatten().tolist():
            candidates[number] = data.images.take(torch.nonzero(data.labels == number).flatten())
            if number < len(memory.exemplars):  # a known class: its old exemplars compete with the new images
                candidates[number] = concatenate([memory.exemplars[number], candidates[number]])
        if not quota:
            return memory.updated(candidates, quota)
        features = trainer.features(network, concatenate(list(candidates.values())))
        parts = torch.split(features, [len(images) for images in candidates.values()])
        chosen = {
            number: images.take(herding(part, quota)).detached()
            for (number, images), part in zip(candidates.items(), parts, strict=True)
        }
        return memory.updated(chosen, quota)

    def _outputs(self, images: object) -> Output:
        state = self._state()
        if isinstance(images, LabelledImages):
            images = images.images
        stored = images if isinstance(images, Images) else as_images(images, state.image_size)
        return self._trainer().outputs(state.network, resize(stored, state.image_size))

    def _class_means(self) -> Tensor | None:
        """Class means (classes, d) by the current network; derived, and kept until the state changes."""
        state = self._state()
        cached: tuple[State, Tensor | None] | None = self.__dict__.get("_means")
        if cached is None or cached[0] is not state:
            exemplars = state.memory.labelled(state.classes)
            means = None
            if exemplars is not None and bool((exemplars.counts() > 0).all()):
                features = self._trainer().features(state.network, exemplars.images)
                means = class_centres(features, exemplars.labels, len(state.classes))
            self._means = (state, means)
            return means
        return cached[1]

    def _trainer(self, task: int = 0, *, fresh: bool = True) -> Trainer:
        schedule = self._section(Schedule, "schedule")
        if not fresh and schedule.later_learning_rate is not None:
            schedule = schedule.model_copy(update={"learning_rate": schedule.later_learning_rate})
        return Trainer(
            task=task,
            seed=self.seed,
            schedule=schedule,
            optimiser=self._section(Optimiser, "optimiser"),
            augmentation=self._section(Augmentation, "augmentation"),
            device=self._section(Device, "device"),
        )

    def _section(self, kind: type[SettingsType], name: str) -> SettingsType:
        value: Mapping[str, Any] | SettingsType = getattr(self, name)
        return _as_settings(kind, value, name)

    def _state(self) -> State:
        if not hasattr(self, "state_"):
            raise NotFittedError("this classifier has not learned anything yet: call learn first")
        return self.state_


def _as_settings(kind: type[SettingsType], value: Mapping[str, Any] | SettingsType, name: str) -> SettingsType:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: give {kind.__name__}(...) or a dictionary with its keys, not {value!r}")
    made: SettingsType = validated(kind, value, name)
    return made


def _kind(tensor: Tensor) -> tuple[torch.Size, bool | torch.dtype]:
    """What a network's tensor and a stored one have in common; a network may have been trained in any precision."""
    return tensor.shape, tensor.is_floating_point() or tensor.dtype


def _statistics(normalisation: object) -> tuple[Tensor, Tensor] | None:
    """Mean and deviation of each colour, None if they are those of the images."""
    if isinstance(normalisation, str):
        if normalisation == "images":
            return None
        normalisation = IMAGENET if normalisation == "imagenet" else None
    try:
        mean, deviation = torch.tensor(normalisation, dtype=torch.float32).unbind()
    except (TypeError, ValueError, RuntimeError):
        mean = deviation = torch.empty(0)
    if mean.shape != (3,) or not bool(torch.isfinite(mean).all()) or not bool((deviation > 0).all()):
        raise ConfigError(
            "normalisation: give 'images', 'imagenet', or three means and three deviations above 0, such as "
            "((124, 116, 104), (58, 57, 57))"
        )
    return mean, deviation


def _on_features(network: Network, lesson: Lesson, trainer: Trainer) -> tuple[Network, Lesson]:
    """A network's head alone, and a lesson of what its embedding makes of the images."""

    def embedded(data: LabelledImages) -> LabelledImages:
        return replace(data, images=Vectors(trainer.features(network, data.images)))

    memory = None if lesson.memory is None else embedded(lesson.memory)
    return HeadAlone(network.head), replace(lesson, new=embedded(lesson.new), memory=memory)


def _check_exemplars(method: Method, allowed: Budget, memory: Memory, data: LabelledImages) -> None:
    """Before a lesson: does every class have images, and will every class have an exemplar after it?"""
    wanted = f"{method.title} with these settings needs an exemplar of every class"
    budget = method.budget(allowed)
    if budget is not None and not budget.quota(len(data.classes)):
        raise ConfigError(f"memory: {wanted}. Raise memory.total or memory.per_class (--memory)")
    counts = data.counts()
    without = [number for number, kept in enumerate(memory.exemplars) if not len(kept) and not counts[number]]
    if without:
        names = ", ".join(repr(data.classes[number]) for number in without)
        raise ConfigError(
            f"memory: {wanted}, and there is none of {names}. Give images of them too, by partial_fit or "
            "--known-classes extend"
        )


def _check_whole(name: str, value: object, at_least: int, at_most: int = 2**31 - 1) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not at_least <= value <= at_most:
        raise ConfigError(f"{name}: give a whole number from {at_least} to {at_most:,}, not {quoted(value)}")


def _renumbered(data: LabelledImages, known: tuple[Label, ...], known_classes: bool) -> LabelledImages:
    """The images with labels in order of arrival, and all classes seen."""
    for name, count in zip(data.classes, data.counts().tolist(), strict=True):
        if count == 0:
            raise DataError(f"the class {name!r} has no images. Give at least one, or leave the class out")
        if isinstance(name, str) and len(name) > LONGEST_NAME:
            raise DataError(f"the class {name[:40]!r}... has a name of {len(name):,} letters. Shorten it")
        if name in known and not known_classes:
            raise DataError(
                f"the class {name!r} is known already. Leave it out, or let it learn more: known_classes='extend'"
            )
    if len({type(name) for name in (*known, *data.classes)}) > 1:
        raise DataError("some classes are named by strings and some by whole numbers. Use one kind for all")
    if not len(data):
        raise DataError("no images. Give at least one")
    classes = (*known, *(name for name in data.classes if name not in known))
    number = {name: position for position, name in enumerate(classes)}
    numbers = torch.tensor([number[name] for name in data.classes])
    return LabelledImages(data.images, numbers[data.labels], classes)
