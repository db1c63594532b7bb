"""Settings: every hyper-parameter of a run, validated in one place.

A section of a recipe is a `Settings` class here; the estimator takes the same classes as arguments. What a method adds
of its own is declared in the method's file, because a method is a `Settings` class too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cotransport.errors import ConfigError

Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Amount = Annotated[float, Field(gt=0, le=1e30)]

SettingsType = TypeVar("SettingsType", bound="Settings")
LARGEST_IMAGE = 8192
"""Side of the images that a network sees, at most: more is a mistake, or malice."""
LONGEST_VALUE = 200
"""Letters of a wrong value that a message shows."""


class Settings(BaseModel):
    """Immutable and strict about names: an unknown key is an error that shows the nearest known one."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )  # the last makes the strings below fields their descriptions


class Data(Settings):
    """Where the images come from."""

    source: str = "digits"
    """`digits`, a folder, a data set's name under the folder in COTRANSPORT_DATA, or a Hugging Face hub id."""
    image_column: str | None = None
    """Hugging Face data sets: the column of images, where there are several."""
    label_column: str | None = None
    """Hugging Face data sets: the column of labels, where there are several."""
    image_size: Annotated[int, Field(gt=0, le=LARGEST_IMAGE)] | None = None
    """Side of the square that the network sees; by default the images' own, 224 at most."""
    held_out: Share = 0.2
    """Share of each class kept for testing where the source has no test images of its own."""
    follow_links: bool = False
    """Local folders: whether symbolic links, or paths in a Hugging Face data set, may lead out of the folder."""
    validation: Share | None = None
    """If set, this share of each class's training images is evaluated on, and the test images are left alone."""


class StreamSettings(Settings):
    """In which order and portions the classes arrive: `tasks`, or `step` with or without `base`, or `classes`."""

    tasks: Positive | None = None
    """The number of tasks of equal size (sizes differ by one where the classes do not divide evenly)."""
    base: Positive | None = None
    """Classes in the first task; goes with `step`."""
    step: Positive | None = None
    """Classes in every (later) task; the last takes what is left."""
    classes: tuple[tuple[str | int, ...], ...] | None = None
    """The classes of each task by name."""
    order_seed: NotNegative | None = 1993
    """Seed of NumPy's permutation of the classes; null keeps the source's order."""
    subset: Positive | None = None
    """Keep the first so many classes after the shuffle."""

    @model_validator(mode="after")
    def _one_way_to_split(self) -> StreamSettings:
        ways = [self.tasks is not None, self.step is not None, self.classes is not None]
        if sum(ways) != 1 or (self.base is not None and self.step is None):
            raise ValueError(
                "give one of: tasks; step (with or without base); classes. Set what is there already to null"
            )
        if self.classes is not None and self.subset is not None:
            raise ValueError("classes lists every class by name, so subset has nothing to choose: leave one out")
        return self


class Budget(Settings):
    """How many exemplars of old classes may be kept: `total`, shared equally, or `per_class`."""

    total: NotNegative | None = None
    per_class: NotNegative | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Budget:
        if (self.total is None) == (self.per_class is None):
            raise ValueError("give one of: total; per_class. Set the other to null, as in --set memory.total=null")
        return self

    def quota(self, classes: int) -> int:
        """Exemplars that each of so many classes may keep.

        >>> Budget(total=2000).quota(30), Budget(per_class=3).quota(30)
        (66, 3)
        """
        if self.per_class is not None:
            return self.per_class
        assert self.total is not None
        return self.total // classes


class Backbone(Settings):
    """The embedding network by name."""

    name: str = "resnet32"
    stem: Literal["auto", "small", "large"] = "auto"
    """resnet18: 3 x 3 stem for small images, 7 x 7 with pooling for large ones; `auto` goes by the image size."""
    width: Positive = 64
    """fast: channels of the first block; the later ones are multiples of it."""
    dimension: Positive | None = None
    """Length of the features, by a linear layer and a norm after the net; by default as the net gives them."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value


class HeadSettings(Settings):
    """The classifier on top of the embedding."""

    scale: Amount = 10.0
    """Initial value of a cosine head's learnable scale; the nearest mean's, where the head is linear."""
    linear_scale: Amount = 1.0
    """What a linear head's dot products are multiplied by. Features of many large numbers and a high learning rate
    want less than 1: the weights then learn more slowly, by the square of it."""


class Schedule(Settings):
    """How long a task is trained, and the learning rate over that time."""

    epochs: Positive = 30
    seconds_per_task: Amount | None = None
    """Train each task for as many epochs as fit into this time, instead of `epochs`. The speed is measured when a task
    begins, and the epochs are recorded, so that a run can be repeated exactly; milestones are stretched along."""
    batch_size: Positive = 128
    """Images in a step, over all processes; an epoch is cut into equal steps of at most this size."""
    learning_rate: Amount = 0.1
    """The peak."""
    later_learning_rate: Amount | None = None
    """The peak where a trained network learns on, if it is to be another one than for a fresh network."""
    shape: Literal["steps", "one-cycle", "cosine", "constant"] = "one-cycle"
    milestones: tuple[Positive, ...] = ()
    """`steps`: the epochs after which the rate is multiplied by `decay`."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the training in which the rate rises linearly; by default 0.2 for `one-cycle`, otherwise 0."""

    @model_validator(mode="after")
    def _milestones_fit(self) -> Schedule:
        if self.shape == "steps" and not self.milestones:
            raise ValueError("shape 'steps' needs milestones, for example milestones: [80, 120]")
        if self.shape != "steps" and self.milestones:
            raise ValueError(f"milestones belong to shape 'steps', not to {self.shape!r}")
        if any(milestone >= self.epochs for milestone in self.milestones):
            raise ValueError(
                f"milestones: {max(self.milestones)} is not within {self.epochs} epochs. Change one of them"
            )
        return self


class Optimiser(Settings):
    """Stochastic gradient descent. Weight decay spares norms, biases and the head's scale."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0, le=1e30)] = 5e-4
    clip_norm: Amount | None = None
    """Largest allowed norm of the whole gradient."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Optimiser:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class Loss(Settings):
    """The cross-entropy that all methods share."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    balanced_softmax: bool = False
    """Add the logarithm of each class's share of the training images to its logit, against the bias to new classes."""


class Augmentation(Settings):
    """Random changes to training images."""

    crop_padding: Annotated[int, Field(ge=0, le=LARGEST_IMAGE // 8)] = 4
    """Images in memory: pad by so many pixels and cut a random window of the original size."""
    padding: Literal["zero", "reflect"] = "zero"
    min_area: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Images decoded on the fly: the smallest share of the area that a random crop keeps."""
    flip: bool = True
    """Mirror half of the images."""
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Multiply by a factor drawn from 1 - brightness to 1 + brightness."""


class Device(Settings):
    """What the training runs on."""

    accelerator: Literal["auto", "cpu", "cuda", "gpu", "mps"] = "auto"
    processes: Positive = 1
    """Processes (devices) on each machine; more than one trains data-parallel."""
    nodes: Positive = 1
    precision: Literal["auto", "32-true", "16-mixed", "bf16-mixed", "64-true"] = "auto"
    """`auto` is bf16-mixed where the device computes in it natively, otherwise 32-true."""
    threads: Positive | None = None
    """Threads of each process on the CPU; by default its share of the cores, or what OMP_NUM_THREADS says."""
    channels_last: bool = True
    compile: bool = False
    """Compile the network; pays off in long trainings on a GPU."""
    workers: NotNegative | None = None
    """Processes that decode images which are too large to keep in memory; by default up to four."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Time after which a training's state is written to the disk: not more than this is lost if it is killed. Slow
    disks get more time, so that writing takes at most a fiftieth of it all; 0 is after every step, for tests."""


class Logging(Settings):
    """Figures of the training, beside the result."""

    csv: bool = False
    tensorboard: bool = False


_PLAIN_WORDS = {
    "missing": "is missing",
    "tuple_type": "give a list, for example [1, 2]",
    "model_type": "give a section with keys, for example {key: value}",
}


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: `; did you mean 'x'?`, or a full stop if no known word is near.

    >>> nearest("epoch", ["epochs", "decay"]), nearest("xyz", ["epochs", "decay"])
    ("; did you mean 'epochs'?", '.')
    """
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else "."


def validated(kind: type[SettingsType], values: Mapping[str, Any], where: str) -> SettingsType:
    """Settings of a kind from plain values; anything wrong is a ConfigError that names every bad field."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: give a section with keys, for example {{key: value}}, not {quoted(values)}")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors()
        places = [detail["loc"] for detail in details]
        # a list whose items are wrong is also called too short
        follows = [any(len(p) > len(loc) and p[: len(loc)] == loc for p in places) for loc in places]
        lines = [_explained(kind, detail) for detail, echo in zip(details, follows, strict=True) if not echo]
        raise ConfigError(f"{where}: " + "\n  ".join(lines)) from None


def descriptions(kind: type[Settings]) -> dict[str, str]:
    """What each field of some settings is, by its own words or those of the class it overrides.

    >>> descriptions(Schedule)["learning_rate"]
    'The peak.'
    """
    told: dict[str, str] = {}
    for name in kind.model_fields:
        above = (base.model_fields.get(name) for base in kind.__mro__ if issubclass(base, Settings))
        words = [field.description for field in above if field is not None and field.description]
        told[name] = " ".join(words[0].split()) if words else ""
    return told


def _explained(kind: type[Settings], detail: Any) -> str:  # noqa: ANN401 (pydantic's ErrorDetails)
    path, value = detail["loc"], detail.get("input")
    field = ".".join(str(part) for part in path)
    if detail["type"] == "extra_forbidden":
        known = sorted(_section(kind, path[:-1]).model_fields)
        return f"{field}: unknown key{nearest(str(path[-1]), known)} Allowed here: {', '.join(known)}"
    if detail["type"] in _PLAIN_WORDS:
        return f"{field}: {_PLAIN_WORDS[detail['type']]}"
    message = detail["msg"].removeprefix("Value error, ")
    if not field:
        return str(message)
    if detail["type"] == "literal_error":
        allowed = [str(choice) for choice in _choices(kind, path)]
        return f"{field}: {quoted(value)} is not allowed{nearest(str(value), allowed)} Allowed: {', '.join(allowed)}"
    if isinstance(value, Mapping):
        return f"{field}: {message}"
    return f"{field}: {message} (got {quoted(value)})"


def quoted(value: object) -> str:
    """A value in a message; Python refuses to write very long numbers out."""
    try:
        text = repr(value)
    except ValueError:
        return "a very long number"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _section(kind: type[Settings], path: tuple[int | str, ...]) -> type[Settings]:
    """The settings class found by following a path of field names."""
    for part in path:
        if part in kind.model_fields:
            leaves = _flattened(kind.model_fields[str(part)].annotation)
            kind = next(leaf for leaf in leaves if isinstance(leaf, type) and issubclass(leaf, Settings))
    return kind


def _choices(kind: type[Settings], path: tuple[int | str, ...]) -> list[object]:
    field = _section(kind, path[:-1]).model_fields[str(path[-1])]
    return [choice for choice in _flattened(field.annotation) if not isinstance(choice, type)]


def _flattened(annotation: object) -> list[object]:
    """A type annotation's leaves: the classes and the literal values in it."""
    arguments = get_args(annotation)
    return [leaf for argument in arguments for leaf in _flattened(argument)] if arguments else [annotation]
