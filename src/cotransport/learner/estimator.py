"""The classifier that keeps learning, with scikit-learn's interface."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from torch import Tensor, nn

from cotransport.data import Label, as_labelled, as_splits
from cotransport.data.duplicates import without_copies
from cotransport.errors import ConfigError, CotransportWarning, DataError
from cotransport.learner.arguments import (
    AUTO,
    NESTED,
    chosen_device,
    chosen_settings,
    is_auto,
    keys_of,
    plain_choices,
    stored_arguments,
)
from cotransport.learner.description import known_html, known_text, new_html
from cotransport.learner.learning import initialised, learned
from cotransport.learner.lesson_settings import check_fixed, lesson_fit, lesson_settings
from cotransport.learner.prediction import Predictor, Scores
from cotransport.learner.preparation import Preparation, prepare, with_held_out
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.snapshots import restored, snapshot_of
from cotransport.learner.state import State
from cotransport.learner.wording import lesson_notes
from cotransport.methods import Method
from cotransport.model.store import ModelStore
from cotransport.networks.calibration import fit_temperature
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
from cotransport.settings.validation import Settings, quoted
from cotransport.training.display import shown
from cotransport.training.listener import Listener, NullListener
from cotransport.training.loop import TrainingControl
from cotransport.training.processes import processes_for

Auto: TypeAlias = Literal["auto"]


class IncrementalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is not typed
    """An image classifier that learns new classes without the old classes' data.

    What is left at `"auto"` is chosen from the images, as `cotransport learn` does: at the first lesson the network and
    the method, perhaps after a trial of a pretrained network, and at every lesson the schedule. `settings_` has the
    choice. A section is given as a dictionary, which overrides the keys that it has; or as an object of its class in
    `cotransport.settings.sections`, which overrides all.

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
        Side of the square that the network sees; by default, it is chosen from the first images, 224 at most.
    freeze_backbone : bool, optional
        Leave the backbone unchanged and train the head only, on features that are computed once for each image, without
        augmentation. This takes seconds. Use it with pretrained weights, or after a first task. By default, it is
        chosen from the first images. If you give it and no backbone, a pretrained one is chosen, as by `learn --freeze`
        and `learn --finetune`.
    normalisation : "images", "imagenet", or means and deviations
        Each colour is brought to mean 0 and standard deviation 1, by the statistics of the first images; by those of
        ImageNet, which most published weights expect; or by three means and three deviations from 0 to 255. A backbone
        with pretrained weights by name brings its own.
    seed : int
        Seed of everything random.
    held_out : float
        Share of each new class, at most 50 images, that is held out: never trained on, kept with the classifier, and
        used to calibrate the probabilities and by `score()`. Copies of images are then left out. The command holds out
        0.1.
    verbose : "auto" or bool
        Show what was chosen, and the progress. `"auto"` does so on a terminal and in a notebook.

    Attributes
    ----------
    settings_ : `LearnerSettings`
        All settings of the last lesson.
    state_ : `State`
        Everything that learning changes.

    Examples
    --------
    >>> import numpy as np
    >>> dark, light = np.zeros((8, 8, 8, 3), np.uint8), np.full((8, 8, 8, 3), 255, np.uint8)
    >>> clf = IncrementalClassifier(schedule={"epochs": 2})
    >>> clf.learn(np.concatenate([dark, light]), ["night"] * 8 + ["day"] * 8).classes_.tolist()
    ['day', 'night']
    >>> clf.learn(dark + np.uint8(128), ["dusk"] * 8).classes_.tolist()
    ['day', 'night', 'dusk']
    >>> clf.settings_.method.name, clf.settings_.schedule.batch_size
    ('coil-tuned', 16)
    """

    state_: State
    settings_: LearnerSettings

    def __init__(
        self,
        method: str | Mapping[str, Any] | Method = AUTO,
        backbone: str | Mapping[str, Any] | Backbone | nn.Module = AUTO,
        *,
        memory: Auto | Mapping[str, Any] | Budget = AUTO,
        schedule: Auto | Mapping[str, Any] | Schedule = AUTO,
        optimiser: Auto | Mapping[str, Any] | Optimiser = AUTO,
        loss: Auto | Mapping[str, Any] | Loss = AUTO,
        augmentation: Auto | Mapping[str, Any] | Augmentation = AUTO,
        head: Auto | Mapping[str, Any] | HeadSettings = AUTO,
        prediction: Auto | Mapping[str, Any] | PredictionSettings = AUTO,
        device: Auto | Mapping[str, Any] | Device = AUTO,
        image_size: int | None = None,
        freeze_backbone: bool | None = None,
        normalisation: str | Sequence[Sequence[float]] = "images",
        seed: int = 0,
        held_out: float = 0.0,
        verbose: Auto | bool = AUTO,
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
        self.held_out = held_out
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments. With `deep`, also the keys that are given for a section, such as `schedule__epochs`."""
        arguments: dict[str, Any] = super().get_params(deep)
        if deep:
            given = {name: value for name, value in arguments.items() if isinstance(value, Mapping | Settings)}
            for name, value in given.items():
                arguments |= {f"{name}__{key}": part for key, part in keys_of(value, name).items()}
        return arguments

    def set_params(self, **params: Any) -> IncrementalClassifier:  # noqa: ANN401 (any argument)
        """Set arguments, or single keys of a section, such as `schedule__epochs=5`. The other keys stay."""
        changes: dict[str, dict[str, Any]] = {}
        for name in list(params):
            argument, separator, key = name.partition("__")
            if separator and argument in NESTED:
                changes.setdefault(argument, {})[key] = params.pop(name)
        super().set_params(**params)
        for argument, keys in changes.items():
            before = keys_of(getattr(self, argument), argument)
            if (after := {**before, **keys}) != before:
                setattr(self, argument, after)
        return self

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

        images : a folder with a subfolder per class or a Hugging Face data set (path or id, or `Data` with settings),
            without labels; or uint8 (n, h, w, 3), or a list of files, with a label for each.
        known_classes : `refuse` images of classes that are known already, or `extend` these classes with them.
        """
        if known_classes not in {"refuse", "extend"}:
            raise ConfigError(f"known_classes: give 'refuse' or 'extend', not {known_classes!r}")
        before = self._before()
        with shown(self._verbosity()) as listener:
            lesson = self._prepare(images, labels, listener)
            notes = lesson_notes(lesson.settings, lesson.train, lesson.test, is_first=before is None)
            listener.job_started("", notes, work=[1.0], tasks_done=0)
            state = learned(
                None if before is None else before[0],
                lesson.train,
                lesson.settings,
                extend=known_classes == "extend",
                control=TrainingControl(listener=listener.training, features=listener.features),
                features=lesson.features,
            )
            state = with_held_out(state, lesson.test, lesson.settings)
            self.state_, self.settings_ = state, self._calibrated(state, lesson.settings)
        return self

    def partial_fit(self, X: object, y: object = None, classes: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn from more images, as scikit-learn does: unknown classes are added, known ones get more data.

        `classes` is accepted for compatibility and ignored: a class is added when its first images arrive.
        """
        return self.learn(X, y, known_classes="extend")

    def fit(self, X: object, y: object = None) -> IncrementalClassifier:  # noqa: N803
        """Learn these classes as the first task. Everything learned before is discarded."""
        fresh = type(self)(**self.get_params(deep=False)).learn(X, y)
        self.state_, self.settings_ = fresh.state_, fresh.settings_
        return self

    def initialise(self, images: object, labels: object = None) -> IncrementalClassifier:
        """The first half of `learn`: a copy of this classifier that knows the new classes, not yet trained on them."""
        twin, before, lesson = copy.copy(self), self._before(), self._prepare(images, labels, NullListener())
        twin.state_ = initialised(None if before is None else before[0], lesson.train, lesson.settings)
        twin.settings_ = lesson.settings
        return twin

    def save(self, folder: str | os.PathLike[str]) -> int:
        """Write this classifier into a model folder, as its newest and current version; returns the version's number.

        Earlier versions stay, and so do the images that were held out. The folder contains weights, images and JSON, no
        code and no pickle. Of several processes, only the first one writes.
        """
        state, settings = self._state(), self._settings()
        snapshot = snapshot_of(state, settings, plain_choices(self._chosen(), settings))
        store = ModelStore(Path(folder))

        def write() -> int:
            with store.locked():
                if not store.exists:
                    return store.write(snapshot)
                before, held_out = store.read(), snapshot.held_out
                if not len(held_out) and before.classes == snapshot.classes[: len(before.classes)]:
                    held_out = before.held_out
                return store.write(replace(snapshot, held_out=held_out), parent=store.manifest().current)

        return processes_for(settings.device).decide_once(write)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        version: int | None = None,
        *,
        backbone: nn.Module | None = None,
        device: Auto | Mapping[str, Any] | Device = AUTO,
    ) -> IncrementalClassifier:
        """The classifier in a model folder: the current version, or another one. Nothing in the folder is executed.

        What was chosen stays chosen, in Python and with `cotransport learn` alike, and the rest stays `"auto"`.

        backbone : the module that the classifier was made with, if it was not made with a name. A copy of it gets the
            stored weights.
        """
        snapshot = ModelStore(Path(folder)).read(version)
        state, settings = restored(snapshot, backbone=backbone, device=chosen_device(device))
        classifier = cls(**stored_arguments(snapshot, settings), device=device)
        classifier.state_, classifier.settings_ = state, settings
        return classifier

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

    def score(self, X: object = None, y: object = None, sample_weight: object = None) -> float:  # noqa: N803
        """Share of the images whose class is predicted correctly. Of a folder with train/ and test/, test/ is used.

        Without images, those that were held out are used.
        """
        state = self._state()
        if X is None:
            X = state.held_out.labelled(state.classes)  # noqa: N806
            if X is None:
                raise DataError("no images were held out. Pass images, or learn with held_out=0.1")
        data = as_labelled(X, y, state.image_size, self._settings().prediction.fit, split="test")
        unknown = [name for name in data.classes if name not in state.classes]
        if unknown:
            more = f", nor {len(unknown) - 1} more" if len(unknown) > 1 else ""
            message = f"the class {unknown[0]!r} was never learned{more}. Images of unknown classes count as wrong"
            warnings.warn(message, CotransportWarning, stacklevel=2)
        truth = np.array(data.classes)[data.labels.numpy()]
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        return float(np.average(self.predict(data) == truth, weights=weights))

    def predictor(self) -> Predictor:
        """The current state, ready to predict. Class means are kept until the state or the settings change."""
        state, settings = self._state(), self._settings()
        kept = _PREDICTORS.get(self)
        if kept is None or kept.state is not state or kept.settings != settings:
            kept = _PREDICTORS[self] = Predictor(state, settings)
        return kept

    def __str__(self) -> str:
        """What the classifier knows, or its arguments before the first lesson."""
        return known_text(self.state_, self._settings()) if hasattr(self, "state_") else repr(self)

    def _repr_html_(self) -> str:
        """What the classifier knows, for notebooks."""
        if hasattr(self, "state_"):
            return known_html(self.state_, self._settings())
        defaults = type(self)().get_params(deep=False)
        given = self.get_params(deep=False)
        return new_html({name: value for name, value in given.items() if repr(value) != repr(defaults[name])})

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """The same. Scikit-learn would show a diagram of the arguments instead."""
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _prepare(self, images: object, labels: object, listener: Listener) -> Preparation:
        """A lesson's images and settings, as `cotransport learn` prepares them."""
        before, chosen, held_out = self._before(), self._chosen(), self._held_out()
        size = chosen.get("image_size")
        if before is not None:
            state, settings = before
            fit = settings.prediction.fit
            check_fixed(chosen, image_size=state.image_size, fit=fit, backbone=settings.backbone)
            size = state.image_size
        parts = as_splits(images, labels, size, lesson_fit(None if before is None else before[1], chosen))
        return prepare(
            without_copies(parts) if held_out else parts,
            before,
            chosen,
            held_out=held_out,
            device=chosen_device(self.device),
            listener=listener,
        )

    def _calibrated(self, state: State, settings: LearnerSettings) -> LearnerSettings:
        """The settings with the temperature that suits the held-out images, unless the user has chosen one."""
        test = state.held_out.labelled(state.classes)
        if test is None or "temperature" in self._chosen().get("prediction", {}):
            return settings
        temperature = fit_temperature(Predictor(state, settings).decision(test), test.labels)
        return replace(settings, prediction=settings.prediction.model_copy(update={"temperature": temperature}))

    def _settings(self) -> LearnerSettings:
        """The settings of the last lesson, and what was chosen after it."""
        return lesson_settings(self.settings_, self._chosen(), self.settings_.plain(), chosen_device(self.device))

    def _chosen(self) -> dict[str, Any]:
        """The settings that the user has chosen, by section."""
        return chosen_settings(vars(self))

    def _held_out(self) -> float:
        try:
            share = float(self.held_out)
        except (TypeError, ValueError):
            share = -1.0
        if not 0 <= share < 1:
            raise ConfigError(f"held_out: give a share of at least 0 and below 1, not {quoted(self.held_out)}")
        return share

    def _verbosity(self) -> Auto | bool:
        """Whether to show the progress. Of several processes, only the first one does."""
        if not isinstance(self.verbose, bool) and not is_auto(self.verbose):
            raise ConfigError(f"verbose: give 'auto', True or False, not {quoted(self.verbose)}")
        return self.verbose if processes_for(chosen_device(self.device)).is_first else False

    def _before(self) -> tuple[State, LearnerSettings] | None:
        return (self.state_, self.settings_) if hasattr(self, "state_") else None

    def _state(self) -> State:
        if not hasattr(self, "state_"):
            raise NotFittedError("this classifier has not learned anything yet: call learn first")
        return self.state_


_PREDICTORS: WeakKeyDictionary[IncrementalClassifier, Predictor] = WeakKeyDictionary()
"""The predictor of each classifier. Not an attribute: scikit-learn expects that prediction changes no attribute."""
