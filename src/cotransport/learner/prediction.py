"""Predictions of a learned state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from cotransport.data import Images, Label, LabelledImages, Vectors, as_images, evaluation_squares, resize
from cotransport.data.decoding import Encoded, item_name
from cotransport.errors import ConfigError, DataError
from cotransport.learner.settings import LearnerSettings
from cotransport.learner.state import State
from cotransport.networks.heads import CosineHead
from cotransport.networks.network import HeadAlone, Network, Output
from cotransport.training.inference import outputs
from cotransport.transport import class_centres


class Scores(NamedTuple):
    """Two predictions for n images. A higher score means a more likely class."""

    head: Tensor
    """Logits (n, classes) of the trained head."""
    ncm: Tensor | None
    """Scaled cosines (n, classes) to the class means; None if some class has no exemplar."""


class Predictor:
    """Predicts with one state. Class means are computed once, when they are first needed."""

    def __init__(self, state: State, settings: LearnerSettings) -> None:
        self.state, self.settings = state, settings

    @property
    def uses_class_means(self) -> bool:
        """Whether the method predicts with the nearest class mean, and not with the head."""
        return self.settings.method.predict_with == "ncm"

    def outputs(self, images: object, *, with_logits: bool = True) -> Output:
        """Features and logits of images; without logits if only the features are needed."""
        if isinstance(images, LabelledImages):
            images = images.images
        size, settings = self.state.image_size, self.settings.prediction
        stored = images if isinstance(images, Images) else as_images(images, size, settings.fit)
        squares = resize(stored, size, settings.fit)
        cache = None if settings.flip else self.state.features
        known = None if cache is None else cache.known(squares, settings.view)
        if known is not None:
            head = HeadAlone(self.state.network.head)
            return outputs(head, Vectors(known), self.settings.device, with_logits=with_logits)
        network, device = self._network, self.settings.device
        return outputs(network, squares, device, flip=settings.flip, view=settings.view, with_logits=with_logits)

    @cached_property
    def _network(self) -> Network:
        """A faster copy of the network."""
        return self.state.network.frozen()

    def features(self, images: object) -> Tensor:
        """Features (n, d) of images."""
        return self.outputs(images, with_logits=False).features

    def scores(self, images: object) -> Scores:
        """The head's and the nearest class mean's predictions, in one pass."""
        output, means = self.outputs(images), self.class_means
        ncm = None if means is None else self.mean_scale * F.linear(F.normalize(output.features), means)
        return Scores(output.logits, ncm)

    def decision(self, images: object) -> Tensor:
        """The scores (n, classes) that the method predicts with."""
        return self.deciding(self.scores(images)) if self.uses_class_means else self.outputs(images).logits

    def deciding(self, scores: Scores) -> Tensor:
        """Of both scores, those that the method predicts with."""
        if not self.uses_class_means:
            return scores.head
        if scores.ncm is None:
            raise ConfigError(
                "predict_with: the nearest class mean needs an exemplar of every class, and some have none. "
                "Set predict_with to head, or give images of them with partial_fit"
            )
        return scores.ncm

    def probabilities(self, images: object) -> Tensor:
        """Probability of each class (n, classes), in float64."""
        return self.calibrated(self.decision(images))

    def calibrated(self, scores: Tensor) -> Tensor:
        """Probabilities (n, classes), in float64, from scores (n, classes)."""
        return F.softmax(scores.double() / self.settings.prediction.temperature, dim=1)

    @cached_property
    def class_means(self) -> Tensor | None:
        """Class means (classes, d), of unit length; None if some class has no exemplar."""
        state = self.state
        exemplars = state.memory.labelled(state.classes)
        if exemplars is None or not bool((exemplars.counts() > 0).all()):
            return None
        return class_centres(self.features(exemplars.images), exemplars.labels, len(state.classes))

    @property
    def mean_scale(self) -> float:
        """Factor of the cosines between features and class means."""
        head = self.state.network.head
        return head.scale.item() if isinstance(head, CosineHead) else self.settings.head.scale


class Prediction(NamedTuple):
    """The most likely classes of one image file, or why there are none."""

    path: str
    """Of a file; the name of an image that is given as bytes."""
    classes: tuple[tuple[Label, float], ...]
    """With their probabilities, most likely first."""
    error: str | None = None
    is_unknown: bool | None = None
    """Whether even the most likely class is too unlikely; None if that was not asked."""


def predict_files(
    predictor: Predictor, files: Sequence[Path | Encoded], top: int = 1, threshold: float | None = None
) -> Iterator[Prediction]:
    """Predictions for image files, in the same order. A file that is not an image does not stop the others.

    files : paths, or the bytes of files.
    threshold : the lowest probability of an answer. Images without one are unknown. By default, none is.
    """
    names, errors = predictor.state.classes, dict[int, DataError]()
    size, view = predictor.state.image_size, predictor.settings.prediction.view
    for rows, images in evaluation_squares(files, size, errors.__setitem__, view=view):
        probabilities, numbers = predictor.probabilities(images).topk(min(top, len(names)), dim=1)
        answers = zip(range(rows.start, rows.stop), probabilities.tolist(), numbers.tolist(), strict=True)
        for place, own_probabilities, own_numbers in answers:
            if place in errors:
                yield Prediction(item_name(files[place]), (), str(errors.pop(place)))
            else:
                best = zip((names[number] for number in own_numbers), own_probabilities, strict=True)
                is_unknown = None if threshold is None else own_probabilities[0] < threshold
                yield Prediction(item_name(files[place]), tuple(best), is_unknown=is_unknown)
