"""The classifier that keeps learning, with scikit-learn's interface."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from torch import Tensor, nn

from cotransport.data import Label, LabelledImages, as_labelled
from cotransport.errors import ConfigError, CotransportWarning
from cotransport.learner.learning import initialised, learned
from cotransport.learner.prediction import Predictor, Scores
from cotransport.learner.settings import LearnerSettings, as_settings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.methods import Method
from cotransport.model.store import ModelStore
from cotransport.settings.sections import (
    Augmentation,
    Backbone,
    Budget,
    Device,
    HeadSettings,
    Loss,
    Optimiser,
    PredictionSettings,
    Schedule,
)
from cotransport.training.processes import processes_for


class IncrementalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """An image classifier that learns new classes without the old classes' data.

    Settings are given as the classes of `cotransport.settings.sections` or as dictionaries with the same keys.

    Parameters
    ----------
    method : name, or dictionary with a name and its settings, or `Method`
        How to learn: see `cotransport.methods`.
    backbone : name, `Backbone`, or torch module
        Maps images (n, 3, h, w) to features (n, d). A module is copied, never changed.
    memory : `Budget`
        How many exemplars of old classes are kept.
    schedule, optimiser, loss, augmentation, head, prediction, device
        Sections of the same name in a recipe.
    image_size : int, optional
        Side of the square that the network sees; by default that of the first images, 224 at most.
    freeze_backbone : bool
        Leave the backbone unchanged and train the head only, on features that are computed once for each image, without
        augmentation. This takes seconds. Use it with pretrained weights, or after a first task.
    normalisation : "images", "imagenet", or means and deviations
        Each colour is brought to mean 0 and standard deviation 1, by the statistics of the first images; by those of
        ImageNet, which most published weights expect; or by three means and three deviations from 0 to 255. A backbone
        with pretrained weights by name brings its own.
    seed : int
        Seed of everything random.

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
        prediction: Mapping[str, Any] | PredictionSettings = PredictionSettings(),
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
        self.prediction = prediction
        self.device = device
        self.image_size = image_size
        self.freeze_backbone = freeze_backbone
        self.normalisation = normalisation
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        """What scikit-learn may expect: images, not tables."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def learn(
        self, images: object, labels: object = None, *, known_classes: Literal["refuse", "extend"] = "refuse"
    ) -> IncrementalClassifier:
        """Learn the classes of a new task.

        images : a folder with a subfolder per class or a Hugging Face data set (path or id), without labels; or uint8
            (n, h, w, 3), or a list of files, with a label for each.
        known_classes : `refuse` images of classes that are known already, or `extend` these classes with them.
        """
        if known_classes not in {"refuse", "extend"}:
            raise ConfigError(f"known_classes: give 'refuse' or 'extend', not {known_classes!r}")
        settings = self.settings()
        data = self._images(settings, images, labels)
        self.state_ = learned(self._state_before(), data, settings, extend=known_classes == "extend")
        return self

    def partial_fit(self, X: object, y: object = None, classes: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn from more images, as scikit-learn does: unknown classes are added, known ones get more data.

        `classes` is accepted for compatibility and ignored: a class is added when its first images arrive.
        """
        return self.learn(X, y, known_classes="extend")

    def fit(self, X: object, y: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn these classes as the first task. Everything learned before is discarded."""
        self.state_ = clone(self).learn(X, y).state_
        return self

    def initialise(self, images: object, labels: object = None) -> IncrementalClassifier:
        """The first half of `learn`: a copy of this classifier that knows the new classes, not yet trained on them."""
        twin, settings = copy.copy(self), self.settings()
        twin.state_ = initialised(self._state_before(), self._images(settings, images, labels), settings)
        return twin

    def save(self, folder: str | os.PathLike[str]) -> int:
        """Write this classifier into a model folder, as its newest and current version; returns the version's number.

        Earlier versions stay, and so do the images that `cotransport learn` has held out. The folder contains weights,
        images and JSON, no code and no pickle. Of several processes, only the first one writes.
        """
        settings = self.settings()
        store, snapshot = ModelStore(Path(folder)), snapshot_of(self._state(), settings)

        def write() -> int:
            with store.locked():
                if not store.exists:
                    return store.write(snapshot)
                before = store.read()
                is_later = before.classes == snapshot.classes[: len(before.classes)]
                held_out = before.held_out if is_later else snapshot.held_out
                return store.write(replace(snapshot, held_out=held_out), parent=store.manifest().current)

        return processes_for(settings.device).decide_once(write)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        version: int | None = None,
        *,
        backbone: nn.Module | None = None,
        device: Mapping[str, Any] | Device = Device(),
    ) -> IncrementalClassifier:
        """The classifier in a model folder: the current version, or another one. Nothing in the folder is executed.

        backbone : the module that the classifier was made with, if it was not made with a name. A copy of it gets the
            stored weights.
        """
        snapshot = ModelStore(Path(folder)).read(version)
        state, settings = restored(snapshot, backbone=backbone, device=as_settings(Device, device, "device"))
        classifier = cls(**{name: getattr(settings, name) for name in cls._get_param_names()})
        classifier.state_ = state
        return classifier

    def settings(self) -> LearnerSettings:
        """All settings, validated."""
        return LearnerSettings.validate({name: getattr(self, name) for name in self._get_param_names()})

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The classes in order of arrival, the order of `predict_proba`'s columns."""
        return np.array(self._state().classes)

    def scores(self, images: object) -> Scores:
        """The scores of the trained head and of the nearest class mean, in one pass."""
        return self.predictor().scores(images)

    def features(self, images: object) -> Tensor:
        """Features (n, d) of images."""
        return self.predictor().features(images)

    def built_from(self) -> dict[Label, dict[Label, float]]:
        """For each class of the last task, the old classes' shares in its first weights, largest first.

        Empty if the method did not transport any weights.
        """
        return self._state().built_from()

    def predict_proba(self, X: object) -> npt.NDArray[np.float64]:  # noqa: N803
        """Probability of each class (n, classes), by the method's own prediction."""
        return np.asarray(self.predictor().probabilities(X).numpy())

    def predict(self, X: object) -> npt.NDArray[Any]:  # noqa: N803
        """The most likely class of each image, by the method's own prediction."""
        return np.asarray(self.classes_[self.predictor().decision(X).argmax(dim=1).numpy()])

    def score(self, X: object, y: object = None, sample_weight: object = None) -> float:  # noqa: N803
        """Share of the images whose class is predicted correctly. Of a folder with train/ and test/, test/ is used."""
        fit = self.settings().prediction.fit
        data = as_labelled(X, y, self._state().image_size, fit=fit, split="test")
        unknown = [name for name in data.classes if name not in self._state().classes]
        if unknown:
            more = f", nor {len(unknown) - 1} more" if len(unknown) > 1 else ""
            message = f"the class {unknown[0]!r} was never learned{more}. Images of unknown classes count as wrong"
            warnings.warn(message, CotransportWarning, stacklevel=2)
        truth = np.array(data.classes)[data.labels.numpy()]
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(self.predict(data) == truth, weights=weights))

    def predictor(self) -> Predictor:
        """The current state, ready to predict. Class means are kept until the state or the settings change."""
        state, settings = self._state(), self.settings()
        kept = _PREDICTORS.get(self)
        if kept is None or kept.state is not state or kept.settings != settings:
            kept = _PREDICTORS[self] = Predictor(state, settings)
        return kept

    def _images(self, settings: LearnerSettings, images: object, labels: object) -> LabelledImages:
        """A task's images in the size that the network sees; in the first task the chosen size, or their own."""
        before = self._state_before()
        size = settings.image_size if before is None else before.image_size
        return as_labelled(images, labels, size, fit=settings.prediction.fit)

    def _state_before(self) -> State | None:
        return getattr(self, "state_", None)

    def _state(self) -> State:
        if not hasattr(self, "state_"):
            raise NotFittedError("this classifier has not learned anything yet: call learn first")
        return self.state_


_PREDICTORS: WeakKeyDictionary[IncrementalClassifier, Predictor] = WeakKeyDictionary()
"""The predictor of each classifier. Not an attribute: scikit-learn expects that prediction changes no attribute."""
